"""The scheduler: runs flows when they are due, one run of a schedule at a time, with retries.

A run is a separate process, ``penstock run``, which leaves a record whatever happens. Which days
are due follows from these records alone (``Entry.due``), so a scheduler that was killed, or a
machine that was off, makes them up.
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
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.locks import lock_of, try_lock
from penstock.output_lock import own_directory
from penstock.pipelines.flow.notify import notify_late
from penstock.pipelines.flow.records import State
from penstock.pipelines.schedule.entry import Entry, Schedules
from penstock.pipelines.schedule.options import seconds_before_retry
from penstock.pipelines.signals import Terminated
from penstock.sizes import plural

if TYPE_CHECKING:
    from apscheduler.schedulers.base import BaseScheduler

_LOOK_SECONDS = 2.0  # for schedules and flows that have changed
_END_SECONDS = 60.0
# What was wrong with the flow itself is so again: exit code 2 is bad usage.
_FINAL = (0, 2)


def serve(schedules: Schedules) -> None:
    """Run what is due until SIGTERM or Ctrl-C."""
    own_directory(schedules.folder)
    held = try_lock(lock_of(schedules.folder))
    if held is None:
        raise PenstockError(
            f"another penstock schedule serve uses {schedules.folder}",
            remedy="Stop it first; the running one notices added schedules",
        )
    server = _Server(schedules)
    try:
        server.run()
    except Terminated as ended:
        if ended.number != signal.SIGTERM:
            raise
    finally:
        server.end()
        held.release()


class _Server:
    def __init__(self, schedules: Schedules) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self.schedules = schedules
        self._stopping, self._lock = threading.Event(), threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._seen: dict[str, Any] = {}  # what each schedule was when it was last looked at
        self._late: dict[str, dt.date] = {}
        self._one_run: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._scheduler: BaseScheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(32)},
            # One runs; one may wait, so that what changes meanwhile is looked at again.
            job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": None},
        )

    def run(self) -> None:
        self._scheduler.start()
        self._look()
        _say(f"serving {plural(len(self._seen), 'schedule')} of {self.schedules.folder}")
        while True:
            time.sleep(_LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        """Follow the files of schedules and flows; have what is due run."""
        found = dict(self.schedules.entries())
        for name in [one for one in self._seen if one not in found]:
            del self._seen[name]
            with suppress(Exception):  # it has never been readable
                self._scheduler.remove_job(name)
        now = dt.datetime.now(dt.UTC)
        for name, entry in found.items():
            seen = str(entry) if isinstance(entry, PenstockError) else entry
            if self._seen.get(name) != seen:
                self._seen[name] = seen
                self._follow(name, entry, now)
            elif isinstance(entry, Entry):
                self._watch(entry, now)

    def _follow(self, name: str, entry: Entry | PenstockError, now: dt.datetime) -> None:
        if isinstance(entry, PenstockError):
            _say(f"{name}: it stays as it is: {entry}")
            return
        # At once, for what was missed; then by its trigger.
        self._scheduler.add_job(
            self._run_due, entry.cron.trigger(entry.zone), (name,), id=name,
            replace_existing=True, next_run_time=now,
        )  # fmt: skip
        _say(f"{name}: {entry.cron.text} {entry.zone or ''}, next {entry.following(now)}")

    def _watch(self, entry: Entry, now: dt.datetime) -> None:
        job = self._scheduler.get_job(entry.name)
        following = entry.following(now)
        if job is not None and following is not None and job.next_run_time > following:
            _say(f"{entry.name}: the clock was set back, next {following.isoformat()}")
            self._scheduler.modify_job(entry.name, next_run_time=following)
        day = entry.late(now)
        if day is not None and self._late.get(entry.name) != day:
            self._late[entry.name] = day
            _say(f"{entry.name}: {day} has not passed by {entry.options.late_after}")
            notify_late(entry.flow, entry.name, day)

    def _run_due(self, name: str) -> None:
        """Run the days that are due, one after the other; APScheduler calls this."""
        with self._one_run[name]:
            self._run_days(name)

    def _run_days(self, name: str) -> None:
        while not self._stopping.is_set():
            entry = self.schedules.load(name)
            before = entry.runs()[-1:]
            if before and before[0].state == State.RUNNING:  # of a scheduler that was killed
                self._stopping.wait(_LOOK_SECONDS)
                continue
            days = entry.due(dt.datetime.now(dt.UTC))
            if not days:
                return
            self._run_day(entry, days[0])
            if [one.name for one in entry.runs()[-1:]] == [one.name for one in before]:
                return  # it could leave no record: it would be due for ever

    def _run_day(self, entry: Entry, day: dt.date) -> None:
        count = entry.retries + 1
        for number in range(1, count + 1):
            code = self._attempt(entry, day, number, count)
            if code in _FINAL or self._stopping.is_set():
                return
            if number < count:
                self._stopping.wait(seconds_before_retry(number - 1, entry.backoff))

    def _attempt(self, entry: Entry, day: dt.date, number: int, count: int) -> int:
        words = entry.words("--date", day.isoformat(), "--attempt", f"{number}/{count}")
        _say(f"{entry.name}: penstock {' '.join(words)}")
        with self._lock:
            if self._stopping.is_set():
                return 1
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock", *words], cwd=entry.flow.parent,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
        code = process.wait()
        with self._lock:
            self._running.discard(process)
        _say(f"{entry.name}: " + ("passed" if code == 0 else f"failed with exit code {code}"))
        return code

    def end(self) -> None:
        """End running flows as Ctrl-C does: a flow ends its stages, and its next run resumes."""
        self._stopping.set()
        with self._lock:
            processes = list(self._running)
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
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)


def _say(text: str) -> None:
    print(f"{dt.datetime.now():%Y-%m-%d %H:%M:%S} {text}", file=sys.stderr, flush=True)
