"""``penstock similar`` on the command line."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.job.plan import PlanFlag
from penstock.pipelines.similar.options import SimilarOptions


def command(
    vectors: Annotated[ClientPath, Parameter(help="vectors: a directory or a file")],
    /,
    *ids: Annotated[str, Parameter(help="ids whose neighbours to show")],
    all: Annotated[  # noqa: A002  (the flag is --all)
        ClientPath | None,
        Parameter(help="write the neighbours of all ids: the directory to write, of Parquet files"),
    ] = None,
    options: SimilarOptions = SimilarOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Show the nearest neighbours of ids among vectors, or write those of all ids."""
    from penstock.pipelines.similar import neighbours_of
    from penstock.pipelines.vectors import Vectors

    if bool(ids) == (all is not None):
        raise UsageError(
            "penstock similar takes ids, or --all for the neighbours of all ids",
            expected="one of the two",
            got="both" if ids else "neither",
        )
    opened = Vectors.open(vectors, ids=options.id_file)
    if all is None:
        if plan or cluster != ClusterSpec():
            raise UsageError(
                "neighbours of a few ids are found in this process",
                got="--plan" if plan else "options of a cluster",
                remedy="Leave them out, or give --all",
            )
        output.show(neighbours_of(opened, ids, options))
        return
    from penstock.pipelines.job import run_command
    from penstock.pipelines.similar.job import SimilarJob

    job = SimilarJob(opened, all, options, cluster, quiet=output.quiet)
    run_command(job, output, planned=plan)
