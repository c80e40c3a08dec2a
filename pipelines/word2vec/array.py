"""Vectors of nodes as an array in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.vectors.store import as_ids
from penstock.pipelines.walk.array import on_disk
from penstock.pipelines.word2vec import word2vec
from penstock.temporary import TemporaryFolder


def node2vec_array(graph: str | Path | Graph | CSR, *, quiet: bool = True, **options: Any) -> Array:
    """Return vectors of all nodes of a graph: node2vec walks, then skip-gram.

    Parameters
    ----------
    graph
        A graph, its directory, or a CSR.
    quiet
        Print no progress.
    **options
        Fields of ``Word2vecOptions``, such as ``dim``, ``p``, ``q``, ``walks`` and ``epochs``,
        except those that write or resume. The default of ``app`` is node2vec.

    Returns
    -------
    Array
        (nodes, dim) float32, in the order of internal ids.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    CapacityError
        The training does not fit in memory, or on the disk of temporary files.

    Examples
    --------
    >>> node2vec_array("follows", dim=64, p=0.5, q=2)
    """
    for name in ("resume", "overwrite"):
        if options.get(name):
            raise UsageError(f"node2vec_array writes nothing, and has no option {name}")
    given = {"app": "node2vec", **options}
    with TemporaryFolder("penstock-vectors") as root:
        if isinstance(graph, CSR):
            graph = on_disk(graph, root / "graph")
        opened = graph if isinstance(graph, Graph) else Graph.open(graph)
        word2vec(opened, root / "vectors", quiet=quiet, **given)
        vectors = Vectors.open(root / "vectors")
        rows = vectors.rows(as_ids(opened.user_ids()))
        return np.array(vectors.values[rows])
