"""``penstock walk`` on the command line."""

from __future__ import annotations

from penstock.cluster.spec import ClusterSpec
from penstock.options import ClientPath
from penstock.pipelines.output import Output
from penstock.pipelines.walk import make_walks
from penstock.pipelines.walk.options import WalkOptions


def command(
    graph: ClientPath,
    out: ClientPath,
    /,
    *,
    options: WalkOptions = WalkOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    output: Output = Output(),
) -> None:
    """Walk at random over a graph, and write the paths.

    Parameters
    ----------
    graph
        a graph's directory
    out
        the directory of walks to write
    """
    report = make_walks(graph, out, options, cluster, output.quiet)
    output.note(f"sampler {report.why}")
    output.show(report)
