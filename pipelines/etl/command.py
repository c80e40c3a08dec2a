"""``penstock etl`` on the command line."""

from __future__ import annotations

from penstock.cluster.spec import ClusterSpec
from penstock.options import ClientInput, ClientPath
from penstock.pipelines.etl import make_graph
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.output import Output


def command(
    edges: list[ClientInput],
    out: ClientPath,
    /,
    *,
    options: EtlOptions = EtlOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    output: Output = Output(),
) -> None:
    """Make a graph of tables of edges.

    Parameters
    ----------
    edges
        files, folders, globs or URLs of edges
    out
        the graph to write
    """
    output.show(make_graph(edges, out, options, cluster, output.quiet))
