"""``penstock walk`` on the command line."""

from __future__ import annotations

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.options import ClientPath
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag
from penstock.pipelines.output import Output
from penstock.pipelines.walk.job import WalkJob
from penstock.pipelines.walk.options import WalkOptions


def command(
    graph: ClientPath,
    out: ClientPath,
    /,
    *,
    options: WalkOptions = WalkOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
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
    opened = Graph.open(graph, verify=options.verify, quiet=output.quiet)
    job = WalkJob(opened, out, options, cluster, quiet=output.quiet)
    report = run_command(job, output, planned=plan)
    if report is not None:
        output.note(f"sampler {report.why}")
