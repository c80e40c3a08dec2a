"""``penstock etl`` on the command line."""

from __future__ import annotations

from penstock.cluster.spec import ClusterSpec
from penstock.options import ClientInput, ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.etl.job import EtlJob
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag


def command(
    edges: list[ClientInput],
    out: ClientPath,
    /,
    *,
    options: EtlOptions = EtlOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Make a graph of tables of edges.

    Parameters
    ----------
    edges
        files, folders, globs or URLs of edges
    out
        the graph to write
    """
    run_command(EtlJob(edges, out, options, cluster, quiet=output.quiet), output, planned=plan)
