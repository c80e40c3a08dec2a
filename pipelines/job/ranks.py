"""Ranks: their number for a job, and one function on all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cluster.connect import kind_for
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, GangError, PenstockError
from penstock.pipelines.job.tasks import run_tasks
from penstock.progress import Progress
from penstock.system_errors import from_system
from penstock.workers.comm.single import call_named, run_single

if TYPE_CHECKING:
    from distributed import Client


def retries() -> int:
    """Return how often ranks restart after one is lost: as often as Dask restarts a task.

    A rank that dies ends its world. Files that ranks have written stay.
    """
    import dask

    return int(dask.config.get("distributed.scheduler.allowed-failures"))


def resolve_ranks(parts: int | None, spec: ClusterSpec) -> tuple[str, int | None]:
    """Return the kind of cluster of a job, and its number of ranks; None: all that connect.

    parts  the requested number
    spec   the configured one
    """
    kind = kind_for(spec, 0, None if parts == 1 else parts, on_gpu=True)
    if parts is None:
        return kind, spec.workers if kind == "mpi" else 1
    return kind, parts


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

    function    or its name, as ``module:function``: ranks import modules that their client does not
    arguments   a function is called before every attempt: after a lost rank it returns only the
                remaining work
    total       of ``unit``, likewise, for the progress bar, which ``comm.advance`` feeds
    on_metrics  called with the rank and the argument of ``comm.log``
    Errors of the input are raised as themselves, not as a failure of the gang.
    """
    from penstock.cluster import gang

    if isinstance(function, str):
        function = partial(call_named, function)
    if ranks > 1:
        try:
            return gang.run(
                client,
                function,
                arguments,
                ranks=ranks,
                retries=retries(),
                title=title,
                total=total,
                unit=unit,
                quiet=quiet,
                on_metrics=on_metrics,
            )
        except GangError as error:
            cause = error.__cause__
            if cause is not None:
                cause = from_system(cause, f" in the step {title!r}") or cause
            if isinstance(cause, PenstockError) and not isinstance(cause, ClusterError):
                raise cause from error
            raise
    # A gang of one needs no MPI: it is a Dask task, retried by the same setting.
    name, whole = f"{title}-{uuid4().hex}", 0 if total is None else total()
    with Progress(title, total=whole, unit=unit, quiet=quiet or not whole) as progress:

        def on_report(report: dict[str, Any]) -> None:
            progress.advance(report.get("done", 0))
            if on_metrics is not None and report.get("metrics"):
                on_metrics(0, report["metrics"])

        with gang.listening(client, name, on_report):
            call = name, function, arguments() if callable(arguments) else arguments
            return run_tasks(client, title, run_single, [call], sizes=[1], unit="ranks", quiet=True)
