"""The scheduler: runs flows when they are due, one run of a flow at a time, retries with back-off.

A run is a process of its own, ``penstock run``. Runs that were missed, while the machine was off or
an earlier run took longer, are made up for by one.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.pipelines.schedule.store import (
    ScheduledRun,
    job_store,
    note_begin,
    note_end,
    only_server,
    runs_of,
)

_LOOK_SECONDS = 5.0  # for schedules that another process has added or removed
_LONGEST_WAIT = 3600.0
_END_SECONDS = 60.0
# What was wrong with the flow itself is so again: exit code 2 is bad usage.
_NOT_AGAIN = (0, 2)

_stopping = threading.Event()
_running: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()


def run_scheduled(
    state: str, name: str, flow: str, settings: list[str], retries: int, backoff: float
) -> int:
    """Run a flow, and again where it fails; APScheduler calls this, by its name."""
    code = 1
    for attempt in range(retries + 1):
        if _stopping.is_set():
            return code
        code = _attempt(Path(state), name, flow, settings, attempt)
        if code in _NOT_AGAIN or attempt == retries:
            break
        _stopping.wait(min(backoff * 2.0**attempt, _LONGEST_WAIT))
    return code


def _attempt(state: Path, name: str, flow: str, settings: list[str], attempt: int) -> int:
    import psutil

    words = [sys.executable, "-P", "-m", "penstock", "run", flow]
    for one in settings:
        words += ["--set", one]
    _say(f"{name}: penstock run {flow}" + (f", try {attempt + 1}" if attempt else ""))
    with _lock:
        if _stopping.is_set():
            return 1
        process = subprocess.Popen(
            words, cwd=Path(flow).parent, stdin=subprocess.DEVNULL, start_new_session=True
        )
        _running.add(process)
    try:
        began = psutil.Process(process.pid).create_time()
    except psutil.Error:
        began = 0.0
    number = note_begin(state, name, attempt, process.pid, began)
    code = process.wait()
    with _lock:
        _running.discard(process)
    # What this scheduler has ended is as if it had been cut off: it runs again at the next start.
    note_end(state, number, None if _stopping.is_set() and code != 0 else code)
    _say(f"{name}: " + ("passed" if code == 0 else f"failed with exit code {code}"))
    return code


def serve(state: Path, *, ready: Any = None) -> None:
    """Run what is due until SIGTERM or Ctrl-C."""
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    _stopping.clear()
    with only_server(state):
        scheduler = BackgroundScheduler(
            jobstores={"default": job_store(state)},
            executors={"default": ThreadPoolExecutor(32)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        scheduler.start(paused=True)
        cut_off = [one for one in _cut_off(state) if scheduler.get_job(one.schedule) is not None]
        for one in cut_off:
            note_end(state, one.id, None)
        for name in dict.fromkeys(one.schedule for one in cut_off):
            _say(f"{name}: its last run was cut off, and is made up for now")
            scheduler.modify_job(name, next_run_time=dt.datetime.now().astimezone())
        scheduler.resume()
        count = len(scheduler.get_jobs())
        _say(f"serving {count} schedule{'s' * (count != 1)} of {state}")
        if ready is not None:
            ready()
        try:
            while True:
                time.sleep(_LOOK_SECONDS)
                scheduler.wakeup()
        finally:
            _stopping.set()
            _end_runs()
            scheduler.shutdown(wait=True)


def _cut_off(state: Path) -> list[ScheduledRun]:
    """Return the attempts that were cut off, and after which no other has begun."""
    found, seen = [], set()
    for one in runs_of(state, last=1000):
        if one.schedule in seen:
            continue
        seen.add(one.schedule)
        if one.code is None and not _alive(one):
            found.append(one)
    return found


def _alive(run: ScheduledRun) -> bool:
    import psutil

    try:
        process = psutil.Process(run.process or -1)
        return bool(abs(process.create_time() - (run.process_began or 0)) < 1)
    except (psutil.Error, ValueError):
        return False


def _end_runs() -> None:
    """End what runs as Ctrl-C would: a flow ends its stages, and goes on where it was."""
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
