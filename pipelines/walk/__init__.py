"""``penstock walk``: random walks over a graph, written as Parquet or handed back as an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.arrays import Array
from penstock.cluster.spec import ClusterSpec
from penstock.csr import CSR
from penstock.graph import Graph
from penstock.paths import client_path
from penstock.pipelines.job import run
from penstock.pipelines.walk.job import WalkJob
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.report import WalkReport

__all__ = ["WalkOptions", "WalkReport", "walk", "walk_array"]


def walk(
    graph: str | Path | Graph,
    out: str | Path,
    *,
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> WalkReport:
    """Walk over ``graph`` and write the paths at ``out``; options are WalkOptions' fields.

    walk("follows", "walks", app="node2vec", p=2, q=0.5, walks=10)
    walk("kg", "walks", app="metapath", schema="born_in,part_of")
    """
    given = WalkOptions(**options)
    known = graph.path if isinstance(graph, Graph) else graph
    opened = Graph.open(known, verify=given.verify, quiet=quiet)
    opened.verified |= isinstance(graph, Graph) and graph.verified
    return run(WalkJob(opened, client_path(out), given, cluster or ClusterSpec(), quiet=quiet))


def walk_array(graph: str | Path | Graph | CSR, *, device: str = "auto", **options: Any) -> Array:
    """Return walks as an array of internal ids: (walks, length), -1 beyond a walk's end.

    The walks are those that ``walk`` writes with the same options and sampler. ``device`` is auto,
    cpu or gpu. A CSR, as notebooks make them, will do for what needs neither names nor labels.

    paths = walk_array("follows", app="ppr", start=("alice",), walks=1000)
    """
    from penstock.pipelines.walk.array import array_of_walks

    return array_of_walks(graph, WalkOptions(**options), device)
