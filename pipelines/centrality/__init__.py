"""``penstock centrality``: closeness, betweenness and more, of a zoo of graphs or of one graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.options import ClientInput
from penstock.pipelines.centrality.options import NODE_VALUES, CentralityOptions
from penstock.pipelines.centrality.report import CentralityReport
from penstock.pipelines.job import declare
from penstock.pipelines.tables.streams import ArrowStream

if TYPE_CHECKING:
    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.centrality.inputs import CentralityInput

__all__ = ["CentralityOptions", "CentralityReport", "centrality"]


def _open(
    graphs: str | Path | Graph, options: CentralityOptions, verify: bool, quiet: bool
) -> CentralityInput:
    from penstock.pipelines.centrality.inputs import open_input

    return open_input(graphs, options, verify, quiet)


_GRAPHS = declare.Source(
    _open,
    kind=ClientInput,
    verified=True,
    searched=lambda opened: opened.searched,
    tables=True,
)


@declare.job(
    "centrality",
    reads=_GRAPHS,
    writes="centrality",
    files=NODE_VALUES,
    passing=("parts",),
    on_gpu=True,
)
def centrality_of_files(
    context: declare.Context, graphs: CentralityInput, out: Output, options: CentralityOptions
) -> CentralityReport:
    """Compute centralities of every graph of a zoo, or of one graph.

    Parameters
    ----------
    graphs
        a graph or a zoo of graphs; or an input from which penstock etl makes a zoo (a file, a
        folder or a URL): tables of edges with a column graph_id, JSON lines with one graph per
        line, a TU folder, or (--format edgelists) a folder with one list of edges per graph
    out
        the directory of centralities to write
    """
    from penstock.pipelines.centrality.job import compute_graphs

    return compute_graphs(context, graphs, out, options)


command = centrality_of_files.command


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
        A graph or a zoo of graphs, or its directory; an input from which ``penstock.etl`` makes a
        zoo: tables of edges with a column graph_id, JSON lines with one graph per line, a TU
        folder, a folder with one list of edges per graph (``format="edgelists"``); a table of edges
        with ``__arrow_c_stream__``; or a graph of NetworkX, or a list of them.
    out
        Directory to write; none for graphs of NetworkX.
    cluster
        The workers, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Those of ``penstock centrality``, such as ``metrics``, ``weighted`` or ``samples``.

    Returns
    -------
    CentralityReport
        Counts (failed graphs included) and times; ``text()`` and ``to_dict()``. For a graph of
        NetworkX a dict by metric, for a list of them a list of dicts.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    InputError
        The weights of a single graph are not lengths, or the input cannot be read. Of several
        graphs, failed ones are listed.
    CapacityError
        The output does not fit on the disk, or a graph does not fit into a worker's memory.
    OutputExists
        ``out`` exists, and neither ``resume`` nor ``overwrite`` is set.

    Examples
    --------
    >>> centrality("zoo", "central", metrics="closeness,betweenness")
    >>> centrality("edges.parquet", "central", metrics="closeness", directed=True)
    >>> centrality(polars.read_csv("edges.csv"), "central", metrics="closeness")
    >>> centrality("follows", "central", metrics="betweenness", epsilon=0.01)
    >>> centrality([networkx.path_graph(3), networkx.star_graph(4)])[1]["closeness"]
    """
    if isinstance(graph, str | os.PathLike | ArrowStream):
        if out is None:
            raise UsageError("the output is missing", expected="out=DIRECTORY")
        return centrality_of_files(graph, out, cluster=cluster, quiet=quiet, **options)
    if out is not None or cluster is not None:
        raise UsageError("graphs of NetworkX have no out and no cluster: they are computed here")
    from penstock.pipelines.centrality.networkx_graphs import centrality_of

    return centrality_of(graph, CentralityOptions(**options))
