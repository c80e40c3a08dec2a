"""What became of the batch jobs of one cluster: asked of squeue, and read from their logs."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.cluster.running import log_tail

ASK_TIMEOUT = 10.0
LOOK_EVERY = 5.0  # seconds between questions to SLURM's controller, which all users share
_LOG_LINES, _LOG_JOBS = 8, 3

# Of a job in one of these states no worker will come any more.
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT", "ENDED"),
}


class Jobs:
    """The jobs of one cluster, by the names of their workers."""

    def __init__(self, logs: Path) -> None:
        self.cluster: Any = None
        self.ids: dict[str, str] = {}  # of worker names
        self.cancelled: set[str] = set()
        self.refused: str | None = None  # what sbatch said
        self._logs = logs
        self._next_look = time.monotonic() + LOOK_EVERY

    def missing(self, connected: set[str]) -> list[str]:
        """Say of each worker that did not connect what its job does."""
        waiting = self._without(connected)
        states = _states(waiting)
        said = [f"job {job} {_described(states, job)}" for job in waiting]
        if self.refused is None:
            unanswered = {str(name) for name in list(self.cluster.worker_spec)} - set(self.ids)
            said += [f"{name}: sbatch has not answered" for name in sorted(unanswered)]
        return said

    def failure(self) -> str | None:
        """Say why the cluster cannot become whole: a job that was refused, or ended already."""
        if self.refused is not None:
            return f"sbatch refused a job: {self.refused}"
        if time.monotonic() < self._next_look:
            return None
        waiting = self._without(self._connected())
        states = _states(waiting)
        self._next_look = time.monotonic() + LOOK_EVERY
        if states is None:
            return None
        ended = [job for job in waiting if _state(states, job)[0] in _ENDED]
        return f"{len(ended)} of {len(self.ids)} batch jobs ended" if ended else None

    def log(self) -> str:
        """Return the last lines that the jobs of missing workers wrote, of some of them."""
        shown: list[str] = []
        for job in self._without(self._connected()):
            texts = [
                log_tail(file, lines=_LOG_LINES) for file in sorted(self._logs.glob(f"*-{job}.*"))
            ]
            if text := "\n".join(text for text in texts if text):
                shown.append(f"job {job}:\n{text}")
        return "\n".join(shown[:_LOG_JOBS])

    def cancel(self) -> None:
        """Cancel the jobs that are not cancelled yet."""
        rest = set(self.ids.values()) - self.cancelled
        if rest:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    ["scancel", *sorted(rest)],
                    capture_output=True,
                    timeout=ASK_TIMEOUT,
                    check=False,
                )
            self.cancelled |= rest

    def _without(self, connected: set[str]) -> list[str]:
        # A copy: the cluster's thread adds jobs as sbatch answers.
        return [job for name, job in list(self.ids.items()) if name not in connected]

    def _connected(self) -> set[str]:
        return {str(worker.name) for worker in list(self.cluster.scheduler.workers.values())}


def _states(jobs: list[str]) -> dict[str, tuple[str, str]] | None:
    """Return what squeue says: PENDING and why, RUNNING and where; None if it says nothing."""
    if not jobs:
        return {}
    command = ["squeue", "--noheader", "--states=all", "--format=%i|%T|%R", "--jobs"]
    try:
        answer = subprocess.run(
            [*command, ",".join(jobs)],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Asked for one job that it has forgotten, it fails; of several it leaves those out.
    if answer.returncode and "Invalid job id" not in answer.stderr:
        return None
    rows = [line.strip().split("|", 2) for line in answer.stdout.splitlines() if "|" in line]
    return {job: (state, reason.strip("()")) for job, state, reason in rows}


def _state(states: dict[str, tuple[str, str]], job: str) -> tuple[str, str]:
    return states.get(job, ("ENDED", "SLURM knows it no more"))


def _described(states: dict[str, tuple[str, str]] | None, job: str) -> str:
    if states is None:
        return "in a state that squeue did not tell"
    state, reason = _state(states, job)
    word = state.lower().replace("_", " ")
    if not reason:
        return word
    return f"{word} on {reason}" if state == "RUNNING" else f"{word}: {reason}"
