"""``penstock centrality``: closeness, betweenness and more, of a zoo of graphs or of one graph."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.paths import client_path
from penstock.pipelines.centrality.inputs import CentralityInput, open_input
from penstock.pipelines.centrality.inputs.directory import DirectoryInput
from penstock.pipelines.centrality.job import CentralityJob
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.report import CentralityReport
from penstock.pipelines.job import run


@overload
def centrality(
    graph: str | Path | Graph,
    out: str | Path,
    *,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> CentralityReport: ...


@overload
def centrality(graph: Any, out: None = None, **options: Any) -> Any: ...


def centrality(
    graph: Any,
    out: str | Path | None = None,
    *,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> Any:
    """Compute centralities of every graph of a zoo, or of one graph, and write them as Parquet.

    Meaning and defaults are NetworkX's. Graphs of NetworkX are computed in this process, and
    nothing is written.

    Parameters
    ----------
    graph
        A graph or a zoo of graphs, or its directory; Parquet files of edges with a column of
        graphs, a TU folder, a folder with a list of edges a graph, JSON lines with a graph a line;
        or a graph of NetworkX, or a list of them.
    out
        Directory to write; none for graphs of NetworkX.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``CentralityOptions``, as ``metrics``, ``weighted`` or ``samples``: the options of
        ``penstock centrality``.

    Returns
    -------
    CentralityReport
        Counts, of failed graphs too, and times; ``text()`` and ``to_dict()``. Of a graph of
        NetworkX a dict by metric, of a list of them a list of dicts.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    InputError
        The weights of a single graph are no lengths, or nothing can be read; of several graphs
        those that fail are listed.
    CapacityError
        It does not fit on the disk, or a graph does not fit into a worker's memory.
    OutputExists
        ``out`` is taken, and neither ``resume`` nor ``overwrite`` is set.

    Examples
    --------
    >>> centrality("zoo", "central", metrics="closeness,betweenness")
    >>> centrality("edges.parquet", "central", metrics="closeness", directed=True)
    >>> centrality("follows", "central", metrics="betweenness", epsilon=0.01)
    >>> centrality([networkx.path_graph(3), networkx.star_graph(4)])[1]["closeness"]
    """
    given = CentralityOptions(**options)
    if not isinstance(graph, str | os.PathLike):
        from penstock.pipelines.centrality.networkx_graphs import centrality_of, no_graph

        if not isinstance(graph, Iterable):  # as one graph is, too: over its nodes
            raise no_graph(graph)
        if out is not None or cluster is not None:
            raise UsageError(
                "graphs of NetworkX are computed here, and nothing is written",
                remedy="Omit out and cluster, or write a table of edges and give it to etl",
            )
        one = hasattr(graph, "adj")
        found = centrality_of([graph] if one else list(graph), given)
        return found[0] if one else found
    if out is None:
        raise UsageError("where to write the centralities is missing", expected="out=DIRECTORY")
    out = client_path(out)
    if isinstance(graph, Graph):
        opened = Graph.open(graph.path, verify=given.verify, quiet=quiet)
        opened.verified |= graph.verified
        source: CentralityInput = DirectoryInput(opened, given)
    else:
        source = open_input(client_path(graph), given, quiet=quiet)
    return run(CentralityJob(source, out, given, cluster, quiet=quiet))
