"""What the scheduler knows, in one SQLite file: schedules, in APScheduler's table; runs, in ours.

A run is noted before it starts and again when it has ended: one that has no end, and whose process
no longer exists, was cut off with the machine or the scheduler, and is run again at once.
"""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, UsageError, warn
from penstock.locks import lock_of, try_lock
from penstock.output_lock import own_directory

FILE = "schedule.sqlite"
_OTHER = "Name another file: --state"
_TABLE = """
create table if not exists penstock_runs (
    id integer primary key, schedule text not null, due text, began text not null,
    ended text, code integer, attempt integer not null, process integer, process_began real
)
"""


@dataclass(frozen=True)
class ScheduledRun:
    """One attempt at a run, as it was noted."""

    id: int
    schedule: str
    began: str
    ended: str | None
    code: int | None
    attempt: int
    process: int | None
    process_began: float | None


def state_file(given: Path | None) -> Path:
    """Return the file of the state, in an existing folder that only this user can access."""
    if given is None:
        from penstock.cluster.daemon.registry import state_home

        given = state_home() / FILE
    own_directory(given.parent) if not given.parent.exists() else None
    return given


def job_store(path: Path) -> Any:
    """Return APScheduler's store of schedules."""
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from sqlalchemy import NullPool, select

    # Whatever the umask is: the content of the state is executed.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    class Store(SQLAlchemyJobStore):  # type: ignore[misc]
        """A job store that keeps schedules that it cannot read; APScheduler's would delete them."""

        def _get_jobs(self, *conditions: Any) -> list[Any]:
            wanted = select(self.jobs_t.c.id, self.jobs_t.c.job_state)
            wanted = wanted.where(*conditions).order_by(self.jobs_t.c.next_run_time)
            found = []
            with self.engine.begin() as connection:
                rows = list(connection.execute(wanted))
            for row in rows:
                try:
                    found.append(self._reconstitute_job(row.job_state))
                except Exception as error:
                    if row.id not in warned:
                        warned.add(row.id)
                        warn(
                            f"the schedule {row.id!r} in {path} cannot be read, and does not run: "
                            f"{type(error).__name__}: {error}. Remove it, and add it again"
                        )
            return found

    warned: set[str] = set()
    # A pool would keep a connection of every thread that was ever here at the same time.
    options = {"poolclass": NullPool}
    return Store(url=f"sqlite:///{path}", tablename="apscheduler_jobs", engine_options=options)


@contextmanager
def schedules(path: Path) -> Iterator[Any]:
    """Give a scheduler that runs nothing, to add, list and remove schedules with."""
    from apscheduler.schedulers.base import BaseScheduler

    class Idle(BaseScheduler):  # type: ignore[misc]
        """One that has no loop: a paused one would take what is due when it is shut down."""

        def wakeup(self) -> None:
            pass

        def shutdown(self, wait: bool = True) -> None:
            super().shutdown(wait)

    check_state(path)
    scheduler = Idle(jobstores={"default": job_store(path)})
    scheduler.start(paused=True)
    try:
        yield scheduler
    finally:
        scheduler.shutdown(wait=False)


def check_state(path: Path) -> None:
    """Raise if the state is not a database, or another user's: its content is executed."""
    if not path.exists():
        return
    found = path.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PenstockError(
            f"other users may write to {path}",
            expected="a file of this user, who alone may write to it", remedy=_OTHER,
        )  # fmt: skip
    try:
        with closing(sqlite3.connect(path)) as database:
            database.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise UsageError(f"cannot read {path}", got=str(error), remedy=_OTHER) from error


@contextmanager
def only_server(path: Path) -> Iterator[None]:
    """Keep other schedulers away from this state while the block runs."""
    held = try_lock(lock_of(path))
    if held is None:
        raise PenstockError(
            f"another penstock schedule serve uses {path}",
            remedy="Stop it first; the running one notices added schedules",
        )
    try:
        yield
    finally:
        held.release()


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=30)) as database, database:
        database.execute(_TABLE)
        yield database


def note_begin(
    path: Path, schedule: str, attempt: int, process: int | None, process_began: float | None
) -> int:
    """Note that an attempt begins; return its number."""
    with _database(path) as database:
        cursor = database.execute(
            "insert into penstock_runs (schedule, began, attempt, process, process_began) "
            "values (?, ?, ?, ?, ?)",
            (schedule, _now(), attempt, process, process_began),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid


def note_end(path: Path, number: int | None, code: int | None) -> None:
    """Note that an attempt has ended; without a code it was cut off."""
    with _database(path) as database:
        database.execute(
            "update penstock_runs set ended = ?, code = ? where id = ?", (_now(), code, number)
        )


def runs_of(path: Path, schedule: str | None = None, *, last: int = 100) -> list[ScheduledRun]:
    """Return the last attempts, the newest first."""
    if not path.exists():
        return []
    where = "" if schedule is None else "where schedule = ?"
    with _database(path) as database:
        rows = database.execute(
            "select id, schedule, began, ended, code, attempt, process, process_began "
            f"from penstock_runs {where} order by id desc limit ?",
            (*([] if schedule is None else [schedule]), last),
        ).fetchall()
    return [ScheduledRun(*row) for row in rows]


def _now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")
