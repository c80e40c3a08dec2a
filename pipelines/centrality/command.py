"""``penstock centrality`` on the command line."""

from __future__ import annotations

from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError
from penstock.options import ClientPath
from penstock.pipelines.centrality.inputs import open_input
from penstock.pipelines.centrality.job import CentralityJob
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.display import Display
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag


def command(
    graphs: ClientPath,
    out: ClientPath,
    /,
    *,
    options: CentralityOptions = CentralityOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Compute centralities of every graph of a zoo, or of one graph.

    Parameters
    ----------
    graphs
        a graph or a zoo of graphs; or Parquet files of edges with a column of graphs, a TU folder,
        a folder with a list of edges a graph, or JSON lines with a graph a line
    out
        the directory of centralities to write
    """
    source = open_input(graphs, options, quiet=output.quiet)
    job = CentralityJob(source, out, options, cluster, quiet=output.quiet)
    report = run_command(job, output, planned=plan)
    if report is not None and report.failed:
        import pyarrow.parquet as pq

        first = pq.read_table(out / "failures.parquet").slice(0, 1).to_pylist()[0]
        graph = first.get("graph")
        rest = "; the others are computed" if report.graphs > report.failed - report.lost else ""
        error = PenstockError(
            f"{report.failures()}{rest}",
            got=("" if graph is None else f"graph {graph}: ") + first["reason"],
            remedy=f"See {out}/failures.parquet",
        )
        error.reported = True
        raise error
