"""All probes of one machine, side by side; the disk's last and alone, undisturbed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.errors import PenstockError
from penstock.pipelines.doctor.finding import Answer
from penstock.pipelines.doctor.process import run_probe
from penstock.progress import Progress
from penstock.workers.resources.scratch import find_scratch

Probe = Callable[..., Answer]  # run_probe, or what tests put in its place

# Seconds that a probe may take: some import libraries from a shared disk, or wake a GPU.
TIMEOUTS = {
    "machine": 30.0,
    "cpu": 60.0,
    "driver": 20.0,
    "cupy": 60.0,
    "nccl": 60.0,
    "cudf": 90.0,
    "kvikio": 60.0,
    "mpi": 60.0,
    "ranks": 30.0,
    "disk": 20.0,
}
_ALONE = ("kvikio", "ranks", "disk")
_AT_ONCE = 4


def examine(
    folder: Path | None = None,
    *,
    timeout: float | None = None,
    ranks: bool = True,
    disk: bool | None = True,
    quiet: bool = True,
    probe: Probe = run_probe,
) -> dict[str, Answer]:
    """Return what every probe found on this machine.

    Parameters
    ----------
    folder
        where to measure the disk [default: the scratch folder that a worker would use]
    timeout
        seconds for each probe [default: TIMEOUTS]
    ranks
        whether to start ranks by mpiexec
    disk
        whether to measure the disk; None: do not examine it at all
    quiet
        print no progress
    probe
        what runs a probe
    """

    def seconds(name: str) -> float:
        return TIMEOUTS[name] if timeout is None else timeout

    def call(name: str, *arguments: str) -> None:
        answers[name] = probe(name, arguments, timeout=seconds(name))
        progress.advance(1)

    answers: dict[str, Answer] = {}
    together = [name for name in TIMEOUTS if name not in _ALONE]
    with Progress("this machine", total=len(TIMEOUTS), unit="probes", quiet=quiet) as progress:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(call, together))
        if ranks and answers["mpi"].facts.get("library"):
            call("ranks")
        found = _folder(folder)
        if isinstance(found, Answer):
            answers["disk"] = found
            return answers
        if answers["cupy"].facts.get("devices"):
            try:
                with tempfile.TemporaryDirectory(dir=found, prefix=".penstock-doctor-") as own:
                    call("kvikio", own)
            except OSError as error:
                answers["kvikio"] = Answer(failure=f"{type(error).__name__}: {error}")
        if disk is not None:
            call("disk", str(found), *([] if disk else ["0"]))
    return answers


def _folder(folder: Path | None) -> Path | Answer:
    began = time.monotonic()
    try:
        return find_scratch() if folder is None else folder
    except (PenstockError, OSError) as error:
        return Answer(failure=str(error), seconds=time.monotonic() - began)
