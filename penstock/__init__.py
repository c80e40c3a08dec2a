"""Penstock: a large graph that changes daily, and the results that must be ready each morning.

Public names are loaded on first use, so ``import penstock`` takes milliseconds and loads neither
CuPy nor MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import penstock.pipelines.embed as embed  # noqa: F401
    import penstock.pipelines.gnn as gnn  # noqa: F401
    from penstock.cluster import gang as gang
    from penstock.cluster.connect import connect as connect
    from penstock.cluster.spec import ClusterSpec as ClusterSpec
    from penstock.csr import CSR as CSR
    from penstock.errors import PenstockError as PenstockError
    from penstock.graph import Graph as Graph
    from penstock.partition.order import order as order
    from penstock.partition.part import Partition as Partition
    from penstock.pipelines.centrality import centrality as centrality
    from penstock.pipelines.centrality.functions import betweenness as betweenness
    from penstock.pipelines.centrality.functions import closeness as closeness
    from penstock.pipelines.centrality.functions import clustering as clustering
    from penstock.pipelines.centrality.functions import communities as communities
    from penstock.pipelines.centrality.functions import components as components
    from penstock.pipelines.centrality.functions import eccentricity as eccentricity
    from penstock.pipelines.centrality.functions import harmonic as harmonic
    from penstock.pipelines.centrality.functions import pagerank as pagerank
    from penstock.pipelines.centrality.functions import strong_components as strong_components
    from penstock.pipelines.centrality.functions import triangles as triangles
    from penstock.pipelines.etl import etl as etl
    from penstock.pipelines.export import export_vectors as export_vectors
    from penstock.pipelines.flow import run_flow as run_flow
    from penstock.pipelines.generate import generate as generate
    from penstock.pipelines.info import info as info
    from penstock.pipelines.partition import partition_graph as partition_graph
    from penstock.pipelines.similar import similar as similar
    from penstock.pipelines.validate import validate as validate
    from penstock.pipelines.vectors import Vectors as Vectors
    from penstock.pipelines.walk import walk as walk
    from penstock.pipelines.walk import walk_array as walk_array
    from penstock.pipelines.word2vec import word2vec as word2vec
    from penstock.pipelines.word2vec.array import node2vec_array as node2vec_array
    from penstock.pipelines.word2vec.evaluation import evaluate_vectors as evaluate_vectors
    from penstock.workers.plugin import resources as resources

__version__ = "0.1.0"

_HOME = {
    "CSR": "penstock.csr",
    "ClusterSpec": "penstock.cluster.spec",
    "connect": "penstock.cluster.connect",
    "Graph": "penstock.graph",
    "Partition": "penstock.partition.part",
    "PenstockError": "penstock.errors",
    "Vectors": "penstock.pipelines.vectors",
    "centrality": "penstock.pipelines.centrality",
    "etl": "penstock.pipelines.etl",
    "evaluate_vectors": "penstock.pipelines.word2vec.evaluation",
    "export_vectors": "penstock.pipelines.export",
    "generate": "penstock.pipelines.generate",
    "info": "penstock.pipelines.info",
    "node2vec_array": "penstock.pipelines.word2vec.array",
    "order": "penstock.partition.order",
    "partition_graph": "penstock.pipelines.partition",
    "resources": "penstock.workers.plugin",
    "run_flow": "penstock.pipelines.flow",
    "similar": "penstock.pipelines.similar",
    "validate": "penstock.pipelines.validate",
    "walk": "penstock.pipelines.walk",
    "walk_array": "penstock.pipelines.walk",
    "word2vec": "penstock.pipelines.word2vec",
}

_HOME |= dict.fromkeys(
    (
        *("betweenness", "closeness", "clustering", "communities", "components", "eccentricity"),
        *("harmonic", "pagerank", "strong_components", "triangles"),
    ),
    "penstock.pipelines.centrality.functions",
)

_MODULES = {
    "embed": "penstock.pipelines.embed",
    "gang": "penstock.cluster.gang",
    "gnn": "penstock.pipelines.gnn",
}

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
