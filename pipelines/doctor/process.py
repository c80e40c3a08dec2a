"""A probe in a process of its own: one that hangs or crashes is a finding, not the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.cluster.mpi.mpiexec import outside_mpi_job
from penstock.documents import parse_json
from penstock.pipelines.doctor.finding import Answer

_LAST_CHARACTERS = 2000


def run_probe(
    name: str,
    arguments: Sequence[str] = (),
    *,
    timeout: float,
    program: Sequence[str] | None = None,
) -> Answer:
    """Return what ``probes.PROBES[name]`` finds, called with ``arguments`` in another process.

    ``program`` is what runs instead of that module; it writes its facts, as JSON, to the file that
    its last argument names.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-doctor-") as folder:
        result, messages = Path(folder, "facts.json"), Path(folder, "messages")
        words = program or [sys.executable, "-P", "-m", "penstock.pipelines.doctor.probes"]
        with messages.open("wb") as log:
            process = subprocess.Popen(
                [*words, name, *arguments, str(result)],
                env=outside_mpi_job(os.environ),  # of a rank: MPI would look for the others
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that what it started ends with it
            )
            try:
                code: int | None = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        seconds = time.monotonic() - began
        if code == 0:
            try:
                return Answer(parse_json(result.read_bytes()), seconds=seconds)
            except (OSError, ValueError) as error:
                return Answer(failure=f"it left no answer: {error}", seconds=seconds)
        if code is None:
            return Answer(failure=f"no answer within {timeout:g} s", seconds=seconds)
        return Answer(failure=_why(code, messages), seconds=seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process in an uninterruptible wait, as of a dead disk, goes when that ends: not our wait.
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _why(code: int, messages: Path) -> str:
    said = messages.read_text(errors="replace")[-_LAST_CHARACTERS:].strip().splitlines()
    last = f": {said[-1].strip()}" if said else ""
    if code < 0:
        try:
            return f"it was ended by {signal.Signals(-code).name}{last}"
        except ValueError:
            return f"it was ended by signal {-code}{last}"
    return said[-1].strip() if said else f"it exited with {code}"


def answer(facts: object, file: str) -> None:
    """Leave the facts of a probe where its caller reads them."""
    Path(file).write_text(json.dumps(facts))
