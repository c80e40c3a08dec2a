"""The scheduler: runs flows when they are due, one run of a schedule at a time, with retries.

A run is a separate process, ``penstock run``, which leaves a record whatever happens. Which days
are due follows from these records alone (``Entry.due``), so a scheduler that was killed, or a
machine that was off, makes them up.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.errors import PenstockError, UsageError
from penstock.locks import lock_of, try_lock
from penstock.output_lock import own_directory
from penstock.pipelines.flow.notify import leave_record, notify_late, notify_unread
from penstock.pipelines.flow.prometheus import save_metrics
from penstock.pipelines.flow.records import State, began
from penstock.pipelines.schedule.entry import Entry, Schedules
from penstock.pipelines.signals import Terminated
from penstock.sizes import plural

_LOOK_SECONDS = 2.0  # for schedules and flows that have changed
_END_SECONDS = 60.0


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
        self.schedules = schedules
        self._stopping, self._lock = threading.Event(), threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._seen: dict[str, Any] = {}  # what each schedule was when it was last looked at
        self._next: dict[str, dt.datetime] = {}  # when its days are looked at
        self._threads: dict[str, threading.Thread] = {}

    def run(self) -> None:
        self._look()
        _say(f"serving {plural(len(self._seen), 'schedule')} of {self.schedules.folder}")
        while True:
            now = dt.datetime.now(dt.UTC)
            ahead = [(one - now).total_seconds() for one in self._next.values() if one > now]
            time.sleep(min([_LOOK_SECONDS, *ahead]))
            self._look()

    def _look(self) -> None:
        """Follow the files of schedules and flows; have what is due run."""
        found, now = dict(self.schedules.entries()), dt.datetime.now(dt.UTC)
        for name in [one for one in self._seen if one not in found]:
            del self._seen[name]
            self._next.pop(name, None)
        for name, entry in found.items():
            seen = str(entry) if isinstance(entry, PenstockError) else entry
            changed, self._seen[name] = self._seen.get(name) != seen, seen
            if not isinstance(entry, PenstockError):
                self._follow(entry, now, changed=changed)
            elif changed:
                _say(f"{name}: {entry}")

    def _follow(self, entry: Entry, now: dt.datetime, *, changed: bool) -> None:
        name, following = entry.name, entry.following(now)
        if changed:
            if entry.problem is not None:
                _say(f"{name}: the schedule stays as it is: {entry.problem}")
            _say(f"{name}: {entry.cron.text} {entry.zone or ''}, next {following}")
            self._next[name] = now  # for what was missed
        # If the clock was set back, it is due earlier.
        self._next[name] = min(self._next.get(name, now), following)
        before = self._threads.get(name)
        # One run at a time; what changes meanwhile is looked at after it.
        if self._next[name] <= now and (before is None or not before.is_alive()):
            self._next[name] = following
            self._begin(name, self._run_days, name)
        day = entry.late(now)
        if day is not None and entry.reported != day.isoformat():
            self.schedules.save(replace(entry, reported=day.isoformat()))
            _say(f"{name}: {day} has not passed by {entry.options.late_after}")
            # Not here: a hook may hang.
            more = entry.flow, entry.series[0], day, entry.settings
            self._begin(f"{name} is late", notify_late, *more)

    def _begin(self, title: str, work: Callable[..., None], *given: Any) -> None:
        self._threads[title] = threading.Thread(target=work, args=given)
        self._threads[title].start()

    def _run_days(self, name: str) -> None:
        """Run the days that are due, one after the other."""
        while not self._stopping.is_set() and name in self.schedules.names():
            entry = self.schedules.load(name)
            if any(run.state == State.RUNNING for run in entry.runs()):  # its scheduler was killed
                self._stopping.wait(_LOOK_SECONDS)
                continue
            days = entry.due(dt.datetime.now(dt.UTC))
            if not days:
                return
            if (seconds := entry.wait(days[0])) > 0:
                self._stopping.wait(seconds)
            else:
                self._attempt(entry, days[0])

    def _attempt(self, entry: Entry, day: dt.date) -> None:
        """Run a day; unless it was cut off with the scheduler, there is a record that it ended."""
        attempt = "{}/{}".format(*entry.attempt(day))
        words = entry.words("--date", day.isoformat(), "--attempt", attempt)
        since = time.time()
        with self._lock:
            if self._stopping.is_set():
                return
            _say(f"{entry.name}: penstock {' '.join(words)}")
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock", *words],
                cwd=entry.flow.parent,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._running.add(process)
        code = process.wait()
        with self._lock:
            self._running.discard(process)
        _say(f"{entry.name}: " + ("passed" if code == 0 else f"failed with exit code {code}"))
        # Whoever ends this process may end all at once.
        if not self._stopping.wait(_LOOK_SECONDS if code not in (0, 1, 2) else 0):
            _end_record(entry, day, attempt, code, since)

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
        for thread in self._threads.values():
            thread.join()


def _end_record(entry: Entry, day: dt.date, attempt: str, code: int, since: float) -> None:
    """Have a run that someone killed or stopped count as an attempt that failed."""
    run = max(entry.runs(), key=began, default=None)
    if run is None or began(run) < since:
        error: PenstockError = (UsageError if code == 2 else PenstockError)(
            f"the run ended with exit code {code} before it began"
        )
        origin = {"scheduled": entry.name, "attempt": attempt}
        leave_record(entry.flow, day, origin, error, entry.settings)
    elif run.state in (State.KILLED, State.INTERRUPTED):
        killed = run.state == State.KILLED
        if killed:
            error = PenstockError("the run was killed", got=f"exit code {code}")
            run.body["error"] = error.to_dict()
        run.body.update({"state": State.FAILED, "seconds": round(time.time() - began(run), 3)})
        run.save()
        save_metrics(run)
        if killed:  # an interrupted one has called it
            notify_unread(entry.flow, run, entry.settings)


def _say(text: str) -> None:
    print(f"{dt.datetime.now():%Y-%m-%d %H:%M:%S} {text}", file=sys.stderr, flush=True)
