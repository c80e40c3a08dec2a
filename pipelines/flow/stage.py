"""What runs on a driver: one stage: a job, or a user's function in a child process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.documents import with_named_numbers
from penstock.pipelines.flow.python import alone, call_in_child, failure
from penstock.secrets import hide


def run_stage(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order: return the stage's ``report`` or its ``error``, or that it was ``lost``.

    The file ``begun`` is made once: if a driver ends, Dask has another one run its stage again.
    """
    from penstock.pipelines import cli

    try:
        with Path(order["begun"]).open("x") as begun:
            begun.write(str(os.getpid()))
    except FileExistsError:
        return {"lost": True}
    answer: dict[str, Any] = {}

    def carry_out() -> None:
        if order["python"] is not None:
            answer.update(call_in_child(order))
            return
        with alone(order):
            answer["report"] = call_job(order)

    with _logged(Path(order["log"])):
        os.chdir(order["home"])
        hide(order["hidden"])
        cli.guarded(carry_out, lambda error: answer.update(failure(error)))
    if "penstock.workers.plugin" in sys.modules:
        from penstock.workers.plugin import clear_caches

        clear_caches()
    free_memory()
    return answer


@contextmanager
def _logged(log: Path) -> Iterator[None]:
    """Have all that this process writes go to a log."""
    kept = [os.dup(number) for number in (1, 2)]
    try:
        with log.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


def free_memory() -> None:
    """Give back what pools hold, so that the next stage has it."""
    import ctypes

    gc.collect()
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def call_job(order: dict[str, Any]) -> Any:
    """Call the job of a stage, and return its report."""
    from penstock.pipelines.display import OutputReport
    from penstock.pipelines.flow.document.commands import job_of

    given, named = job_call(order)
    report = job_of(order["job"])(*given, quiet=False, **named)
    if isinstance(report, OutputReport) and (failed := report.failure()) is not None:
        raise failed
    return with_named_numbers(report.to_dict())


def job_call(order: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments with which a stage calls its job."""
    from penstock.cluster.spec import ClusterSpec
    from penstock.pipelines.flow.document.commands import job_of

    job, inputs = job_of(order["job"]), order["inputs"]
    given = [inputs] if job.reads is not None and job.reads.several else [*inputs]
    if job.writes is not None and job.into is None:
        given.append(order["out"])
    cluster = {"cluster": ClusterSpec(**order["cluster"])} if job.clustered else {}
    return given, {**cluster, **order["options"]}
