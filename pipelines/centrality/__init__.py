"""``penstock centrality``: closeness, betweenness and more, of a zoo of graphs or of one graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.paths import client_path
from penstock.pipelines.centrality.job import CentralityJob
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.report import CentralityReport
from penstock.pipelines.job import run


def centrality(
    graph: str | Path | Graph,
    out: str | Path,
    *,
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> CentralityReport:
    """Compute centralities of every graph of a zoo, or of one graph, and write them as Parquet.

    Meaning and defaults are NetworkX's.

    Parameters
    ----------
    graph
        A graph or a zoo of graphs, or its directory.
    out
        Directory to write.
    cluster
        Where it runs [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``CentralityOptions``, as ``metrics``, ``weighted`` or ``samples``: the options of
        ``penstock centrality``.

    Returns
    -------
    CentralityReport
        Counts, of failed graphs too, and times; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    InputError
        The weights of a single graph are no lengths; of a zoo such graphs are listed as failed.
    CapacityError
        It does not fit on the disk.
    OutputExists
        ``out`` is taken, and neither ``resume`` nor ``overwrite`` is set.

    Examples
    --------
    >>> centrality("zoo", "central", metrics="closeness,betweenness")
    >>> centrality("follows", "central", metrics="betweenness", epsilon=0.01)
    """
    given = CentralityOptions(**options)
    known = graph.path if isinstance(graph, Graph) else graph
    opened = Graph.open(known, verify=given.verify, quiet=quiet)
    opened.verified |= isinstance(graph, Graph) and graph.verified
    return run(
        CentralityJob(opened, client_path(out), given, cluster or ClusterSpec(), quiet=quiet)
    )
