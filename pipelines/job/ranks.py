"""Ranks: how many a job runs on, the parts that they read, and one function on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cluster.connect import connect, kind_for
from penstock.cluster.count import check_count, check_ranks
from penstock.cluster.effect import with_effect
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, GangError, PenstockError
from penstock.graph import Graph
from penstock.limits import cores
from penstock.pipelines.job import Workers, compiling
from penstock.pipelines.job.parts import partition_into
from penstock.pipelines.job.tasks import run_tasks
from penstock.progress import Progress
from penstock.workers.comm.single import run_single
from penstock.workers.compiling import call_named

if TYPE_CHECKING:
    from distributed import Client


# A rank that dies takes its world with it, which is started again. What ranks have written stays.
RETRIES = 2


def resolve_ranks(parts: int | None, spec: ClusterSpec) -> tuple[str, int | None]:
    """Return on which kind of cluster a job runs, and on how many ranks: None is as many as come.

    parts  how many were asked for
    spec   as it is configured
    """
    kind = kind_for(spec, 0, None if parts == 1 else parts, on_gpu=True)
    if parts is None:
        return kind, spec.workers if kind == "mpi" else 1
    return kind, parts


@contextmanager
def open_ranks(
    graph: Graph | None, parts: int | None, cluster: ClusterSpec, *, quiet: bool
) -> Iterator[Workers]:
    """Connect to as many workers as a job needs; the partition is made where it is missing.

    graph    of which ranks read parts; None: they read no parts of a graph
    cluster  as it is configured
    """
    kind, asked = resolve_ranks(parts, cluster)
    spec = with_effect(cluster, kind)

    def cut(count: int) -> Path | None:
        if graph is None:
            return None
        return partition_into(graph, count, quiet=quiet, worker_timeout=spec.worker_timeout)

    path = None
    if asked is not None and asked > 1:
        # Before a partition is made for ranks that cannot be started.
        check_ranks(kind, spec.workers, asked)
        check_count(spec, kind, asked)
        path = cut(asked)
    if asked == 1 and kind == "local" and spec.workers is None:
        # One process that has the machine, rather than one of many that has a core.
        spec = replace(spec, workers=1, threads=spec.threads or cores())
    with connect(spec, ranks=None if asked == 1 else asked, on_gpu=True, quiet=quiet) as client:
        workers = Workers(client, cluster, quiet=quiet, partition_path=path)
        has = workers.capacity  # asked here: reports tell it when workers have gone
        workers.count = asked or has.workers
        if path is None and workers.count > 1:
            workers.partition_path = cut(workers.count)
        yield workers


def run_ranks(
    client: Client,
    function: Callable[..., Any] | str,
    arguments: Callable[[], tuple[Any, ...]] | tuple[Any, ...],
    *,
    ranks: int,
    title: str = "gang",
    total: Callable[[], int] | None = None,
    unit: str = "steps",
    quiet: bool,
    on_metrics: Callable[[int, dict[str, Any]], None] | None = None,
) -> list[Any]:
    """Run ``function(comm, *arguments)`` on ``ranks`` workers at once; return each result.

    function    or its name, as ``module:function``: ranks import what their client does not need
    arguments   where they are a function it is asked before every attempt: after a lost rank only
                what is left to do
    total       of ``unit``, likewise, for the progress bar, which ``comm.advance`` feeds
    on_metrics  called with the rank and what it gave to ``comm.log``
    What is wrong with the input is raised as itself, not as a failure of the gang.
    """
    from penstock.cluster import gang

    if isinstance(function, str):
        function = partial(call_named, function)
    function, on_metrics = compiling.of_ranks(function, on_metrics, title, quiet=quiet)
    if ranks > 1:
        try:
            return gang.run(
                client,
                function,
                arguments,
                ranks=ranks,
                retries=RETRIES,
                title=title,
                total=total,
                unit=unit,
                quiet=quiet,
                on_metrics=on_metrics,
            )
        except GangError as error:
            cause = error.__cause__
            if isinstance(cause, PenstockError) and not isinstance(cause, ClusterError):
                raise cause from error
            raise
    # A gang of one needs no MPI: it is a task of Dask, which retries it.
    name, whole = f"{title}-{uuid4().hex}", 0 if total is None else total()
    with Progress(title, total=whole, unit=unit, quiet=quiet or not whole) as progress:

        def on_report(report: dict[str, Any]) -> None:
            progress.advance(report.get("done", 0))
            if on_metrics is not None and report.get("metrics"):
                on_metrics(0, report["metrics"])

        with gang.listening(client, name, on_report):
            call = name, function, arguments() if callable(arguments) else arguments
            return run_tasks(client, title, run_single, [call], sizes=[1], unit="ranks", quiet=True)
