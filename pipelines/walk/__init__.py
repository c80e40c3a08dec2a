"""``penstock walk``: random walks over a graph, written as Parquet or handed back as an array."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.arrays import Array
from penstock.cluster.spec import ClusterSpec
from penstock.paths import client_path
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.report import WalkReport

if TYPE_CHECKING:
    from penstock.csr import CSR
    from penstock.graph import Graph

__all__ = ["WalkOptions", "WalkReport", "walk", "walk_array"]


def walk(
    graph: str | Path | Graph,
    out: str | Path,
    *,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> WalkReport:
    """Walk over a graph at random, and write the paths in the directory ``out``.

    Parameters
    ----------
    graph
        A graph, or its directory.
    out
        Directory to write.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``WalkOptions``, as ``app``, ``length``, ``walks``, ``p`` and ``q``: the options
        of ``penstock walk``.

    Returns
    -------
    WalkReport
        Counts, the sampler and layout that were chosen, times and steps per second; ``text()`` and
        ``to_dict()``.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    CapacityError
        It does not fit on the disk or in memory.
    OutputExists
        ``out`` is taken, and neither ``resume`` nor ``overwrite`` is set.

    Examples
    --------
    >>> walk("follows", "walks", app="node2vec", p=2, q=0.5, walks=10)
    >>> walk("kg", "walks", app="metapath", schema="born_in,part_of")
    """
    # Options of walks are other jobs' too, which need nothing of what follows.
    from penstock.graph import Graph
    from penstock.pipelines.job import run
    from penstock.pipelines.walk.job import WalkJob

    given = WalkOptions(**options)
    known = graph.path if isinstance(graph, Graph) else graph
    opened = Graph.open(known, verify=given.verify, quiet=quiet)
    opened.verified |= isinstance(graph, Graph) and graph.verified
    return run(WalkJob(opened, client_path(out), given, cluster, quiet=quiet))


def walk_array(graph: str | Path | Graph | CSR, *, device: str = "auto", **options: Any) -> Array:
    """Return random walks as an array, in this process.

    The walks are those that ``walk`` writes with the same options and sampler.

    Parameters
    ----------
    graph
        A graph, its directory, or a CSR, which will do for what needs neither names nor labels.
    device
        ``"auto"``, ``"cpu"`` or ``"gpu"``.
    **options
        Fields of ``WalkOptions``, but for those that write: ``npy``, ``resume`` and ``overwrite``.

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
