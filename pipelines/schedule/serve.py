"""The scheduler: runs flows when they are due, one run of a flow at a time, retries with back-off.

A run is a separate process, ``penstock run``. Runs that were missed, while the machine was off or
an earlier run took longer, are coalesced into one.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.pipelines.schedule.entry import changes, flow_of
from penstock.pipelines.schedule.options import seconds_before_retry
from penstock.pipelines.schedule.store import (
    ScheduledRun,
    job_store,
    note_begin,
    note_end,
    only_server,
    runs_of,
)
from penstock.sizes import plural
from penstock.workers.processes import process_began, runs_still

if TYPE_CHECKING:
    from apscheduler.schedulers.base import BaseScheduler

_LOOK_SECONDS = 5.0  # for schedules that another process has added or removed
_END_SECONDS = 60.0
_AGAIN_SECONDS = 60.0  # after the state could not be read or written
_PUT_BACK = 60.0  # seconds by which a clock goes back; less is a clock that is being adjusted
# What was wrong with the flow itself is so again: exit code 2 is bad usage.
_NOT_AGAIN = (0, 2)

_stopping = threading.Event()
_running: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()


def run_scheduled(
    state: str,
    name: str,
    flow: str,
    settings: list[str],
    retries: int,
    backoff: float,
    *,
    given: dict[str, Any] | None = None,
) -> int:
    """Run a flow, and retry if it fails; APScheduler calls this, by its name."""
    code = 1
    for attempt in range(retries + 1):
        if _stopping.is_set():
            return code
        code = _attempt(Path(state), name, flow, settings, attempt)
        if code in _NOT_AGAIN or attempt == retries:
            break
        _stopping.wait(seconds_before_retry(attempt, backoff))
    return code


def _attempt(state: Path, name: str, flow: str, settings: list[str], attempt: int) -> int:
    words = [sys.executable, "-P", "-m", "penstock", "run", flow]
    for one in settings:
        words += ["--set", one]
    _say(f"{name}: penstock run {flow}" + (f", try {attempt + 1}" if attempt else ""))
    with _lock:
        if _stopping.is_set():
            return 1
        try:
            process = subprocess.Popen(
                words, cwd=Path(flow).parent, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:  # the folder is on a disk that is not there, no memory
            _say(f"{name}: cannot be started: {error}")
            number = _noted(lambda: note_begin(state, name, attempt, None, None))
            _noted(lambda: note_end(state, number, 1))
            return 1
        _running.add(process)
    began = process_began(process.pid)
    # A run is watched whether or not it can be noted: another must not start meanwhile.
    number = _noted(lambda: note_begin(state, name, attempt, process.pid, began))
    code = process.wait()
    with _lock:
        _running.discard(process)
    # What this scheduler has ended is as if it had been cut off: it runs again at the next start.
    _noted(lambda: note_end(state, number, None if _stopping.is_set() and code != 0 else code))
    _say(f"{name}: " + ("passed" if code == 0 else f"failed with exit code {code}"))
    return code


def _noted(note: Callable[[], Any]) -> Any:
    """Record something about a run; if the state cannot be written, report that and continue."""
    try:
        return note()
    except sqlite3.Error as error:
        _say(f"the state cannot be written: {error}")
        return None


def serve(state: Path, *, ready: Any = None) -> None:
    """Run what is due until SIGTERM or Ctrl-C."""
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    class Scheduler(BackgroundScheduler):  # type: ignore[misc]
        """One whose thread outlives a state that cannot be read or written for a while."""

        def _process_jobs(self) -> Any:
            try:
                return super()._process_jobs()
            except Exception as error:
                _say(f"the state cannot be used, which is tried again: {error}")
                _stopping.wait(_AGAIN_SECONDS)
                return 0.0

    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    _stopping.clear()
    with only_server(state):
        scheduler = Scheduler(
            jobstores={"default": job_store(state)},
            executors={"default": ThreadPoolExecutor(32)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        missed: set[str] = set()
        scheduler.add_listener(lambda event: missed.add(event.job_id), EVENT_JOB_MAX_INSTANCES)

        def make_up(event: Any) -> None:
            if event.job_id in missed and not _stopping.is_set():
                missed.discard(event.job_id)
                _run_now(scheduler, event.job_id, "was due while it ran, and runs now")

        scheduler.add_listener(make_up, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        scheduler.start(paused=True)
        look_again(scheduler)
        flows = Flows(scheduler)
        flows.follow()
        last = _last_runs(state)
        _make_up_for(scheduler, state, [one for one in last if not is_alive(one)])
        # Runs of a killed scheduler, which continue by themselves.
        left = [one for one in last if one.ended is None and is_alive(one)]
        scheduler.resume()
        count = len(scheduler.get_jobs())
        _say(f"serving {plural(count, 'schedule')} of {state}")
        if ready is not None:
            ready()
        ahead = time.time() - time.monotonic()
        try:
            while True:
                time.sleep(_LOOK_SECONDS)
                before, ahead = ahead, time.time() - time.monotonic()
                if ahead < before - _PUT_BACK:
                    look_again(scheduler)
                ended = [one for one in left if not is_alive(one)]
                left = [one for one in left if one not in ended]
                _make_up_for(scheduler, state, ended)
                flows.follow()
                scheduler.wakeup()
        finally:
            _stopping.set()
            _end_runs()
            scheduler.shutdown(wait=True)


def look_again(scheduler: BaseScheduler) -> None:
    """Compute the next time of every schedule from now: the clock may have been set back.

    A machine that starts with a clock years ahead would else wait for years.
    """
    now = dt.datetime.now(dt.UTC)
    for job in scheduler.get_jobs():
        following = job.trigger.get_next_fire_time(None, now)
        if following is not None and job.next_run_time and job.next_run_time > following:
            _say(f"{job.id}: the clock was set back, next {following.isoformat()}")
            scheduler.modify_job(job.id, next_run_time=following)


class Flows:
    """The files of all schedules' flows, whose times may change."""

    def __init__(self, scheduler: BaseScheduler) -> None:
        self._scheduler, self._seen = scheduler, dict[str, Any]()

    def follow(self) -> None:
        """Change the schedules of flows whose files have changed."""
        try:
            for job in self._scheduler.get_jobs():
                stamp = _stamp(flow_of(job))
                if (flow_of(job), stamp) != self._seen.get(job.id):
                    self._follow(job)
                    self._seen[job.id] = (flow_of(job), stamp)
        except Exception as error:  # as of SQLite and SQLAlchemy
            _say(f"the state cannot be used, which is tried again: {error}")

    def _follow(self, job: Any) -> None:
        try:
            changed = changes(job)
        except (PenstockError, OSError) as error:
            _say(f"{job.id}: it stays as it is, as its flow cannot be read: {error}")
            return
        if changed:
            now = self._scheduler.modify_job(job.id, **changed)
            cron, zone = now.name.rsplit(" | ", 2)[1:]
            when = f"{cron} {zone}".strip()
            _say(f"{job.id}: its flow has changed: {when}, next {now.next_run_time}")


def _stamp(path: Path) -> Any:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _run_now(scheduler: BaseScheduler, name: str, why: str) -> None:
    from apscheduler.jobstores.base import JobLookupError

    with suppress(JobLookupError):  # it was removed meanwhile
        scheduler.modify_job(name, next_run_time=dt.datetime.now().astimezone())
        _say(f"{name}: {why}")


def _make_up_for(scheduler: BaseScheduler, state: Path, cut_off: list[ScheduledRun]) -> None:
    """Run what was cut off again."""
    for one in cut_off:
        if scheduler.get_job(one.schedule) is not None:
            _noted(lambda number=one.id: note_end(state, number, None))  # type: ignore[misc]
            _run_now(scheduler, one.schedule, "its last run was cut off, and runs again now")


def _last_runs(state: Path) -> list[ScheduledRun]:
    """Return the last attempt of each schedule that has not ended by itself."""
    found: dict[str, ScheduledRun] = {}
    for one in runs_of(state, last=1000):
        found.setdefault(one.schedule, one)
    return [one for one in found.values() if one.code is None]


def is_alive(run: ScheduledRun) -> bool:
    """Return whether the process of a run exists."""
    return runs_still(run.process or -1, run.process_began or 0)


def _end_runs() -> None:
    """End running flows like Ctrl-C: a flow ends its stages, and its next run resumes."""
    with _lock:
        processes = list(_running)
    for process in processes:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _say(text: str) -> None:
    print(f"{dt.datetime.now():%Y-%m-%d %H:%M:%S} {text}", file=sys.stderr, flush=True)
