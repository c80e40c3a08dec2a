"""``penstock walk``: random walks over a graph, written as Parquet or returned as an array."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipelines.job import declare
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.report import WalkReport

if TYPE_CHECKING:
    from penstock.arrays import Array
    from penstock.csr import CSR
    from penstock.graph import Graph
    from penstock.output import Output

__all__ = ["WalkOptions", "WalkReport", "walk", "walk_array"]


@declare.job(
    "walk",
    writes="walks",
    version=2,
    files=("starts",),
    passing=("placement", "parts", "base"),
    on_gpu=True,
)
def walk(context: declare.Context, graph: Graph, out: Output, options: WalkOptions) -> WalkReport:
    """Walk at random over a graph, and write the paths.

    Parameters
    ----------
    graph
        a graph's directory
    out
        the directory of walks to write

    Examples
    --------
    >>> walk("follows", "walks", app="node2vec", p=2, q=0.5, walks=10)
    >>> walk("kg", "walks", app="metapath", schema="born_in,part_of")
    >>> walk("follows-tuesday", "walks-tuesday", base="walks-monday")
    """
    from penstock.pipelines.walk.job import walk_graph

    return walk_graph(context, graph, out, options)


command = walk.command


def walk_array(graph: str | Path | Graph | CSR, *, device: str = "auto", **options: Any) -> Array:
    """Return random walks as an array, in this process.

    The walks are those that ``walk`` writes with the same options and sampler.

    Parameters
    ----------
    graph
        A graph, its directory, or a CSR, if the walks need neither names nor labels.
    device
        ``"auto"``, ``"cpu"`` or ``"gpu"``.
    **options
        Fields of ``WalkOptions``, except ``npy``.

    Returns
    -------
    Array
        Internal ids, (walks, length), -1 beyond a walk's end.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    CapacityError
        It does not fit in memory, or on the GPU.

    Examples
    --------
    >>> walk_array("follows", app="ppr", start=("alice",), walks=1000)
    """
    from penstock.pipelines.walk.array import array_of_walks

    return array_of_walks(graph, WalkOptions(**options), device)
