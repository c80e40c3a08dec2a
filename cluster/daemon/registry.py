"""The registry of clusters that ``penstock cluster start`` started: one folder each.

<state>/<name>@<host>/cluster.json    a Registered: the daemon, and the scheduler's address
<state>/<name>@<host>/log             output of its daemon and workers
<state>/<name>@<host>/tls             its credentials, readable by its owner only

Several hosts may share the home folder, so an entry names its host; only that host knows whether
the daemon lives. The state folder outlives logins and restarts, as clusters outlive logins; an
entry that is out of date shows as such.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from penstock import __version__
from penstock.caches import could_write, in_home, shared_folder
from penstock.cluster.running import log_tail
from penstock.cluster.spec import KINDS
from penstock.errors import ClusterError, UsageError
from penstock.locks import lock
from penstock.workers.processes import process_start

# A daemon and all processes that it starts carry this variable, with a value per cluster.
TOKEN = "PENSTOCK_DAEMON"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FILES = (".yaml", ".yml", ".json")  # --cluster reads these as files
_REGISTER = "penstock/clusters"
_ENTRY = "cluster.json"
CREDENTIALS = "tls"
_LOCK = ".lock"
_PATIENCE = 10.0  # seconds, for what normally takes a moment


@dataclass(frozen=True)
class Registered:
    """A cluster that a daemon keeps."""

    name: str
    kind: str
    host: str
    pid: int
    """the daemon's process"""
    pid_started: int
    """its start, in clock ticks since boot: no later process has both"""
    started_at: str
    penstock: str
    python: str
    token: str = ""
    """in the environment of each of its processes"""
    address: str | None = None
    """of the scheduler; None while workers are still connecting"""
    dashboard: str | None = None
    workers: int | None = None
    log: str | None = None
    tls: str | None = None
    scheduler_file: str | None = None
    temporary: str = ""
    """the parent folder of its temporary folders"""

    @property
    def folder(self) -> Path:
        """The folder of this entry."""
        return state_folder() / f"{self.name}@{self.host}"

    def alive(self) -> bool | None:
        """Return whether its daemon lives; None if only another host knows."""
        if self.host != socket.gethostname():
            return None
        return process_start(self.pid) == self.pid_started

    def reachable(self) -> str:
        """Return the scheduler's address; raise ClusterError if there is none."""
        if self.alive() is False:
            raise self.ended()
        if self.address is None:
            raise ClusterError(
                f"cluster {self.name!r} is still waiting for its workers",
                remedy="Try again when penstock cluster status shows it as running",
            )
        return self.address

    def ended(self) -> ClusterError:
        """Return the error for a cluster whose daemon has died."""
        return ClusterError(
            f"cluster {self.name!r} does not run any more",
            expected=f"process {self.pid} on {self.host}",
            got="no such process",
            remedy=f"Start it again with {type_this('start', self.name)}, or remove its entry with "
            f"{type_this('stop', self.name)}",
        )

    def log_tail(self) -> str:
        """Return the last lines of its log; empty without a log."""
        return log_tail(Path(self.log)) if self.log else ""


def type_this(verb: str, name: str) -> str:
    """Return the command to type: ``penstock cluster stop --name big``."""
    return f"penstock cluster {verb}" + ("" if name == "default" else f" --name {name}")


def state_folder() -> Path:
    """Return the folder of the registry: ``PENSTOCK_STATE``, or XDG's folder of state."""
    if own := os.environ.get("PENSTOCK_STATE"):
        return Path(own).absolute()
    home = in_home("XDG_STATE_HOME", ".local/state")
    if home is None or not (could_write(home) or (home / _REGISTER).is_dir()):
        home = shared_folder("state") or home
    if home is None:
        raise ClusterError(
            "no folder is usable for the registry of clusters",
            expected="a home directory, or a temporary folder that can be written",
            remedy="Set one: PENSTOCK_STATE=/some/folder",
        )
    return home / _REGISTER


def state_home() -> Path:
    """Return the folder of other state that commands keep: beside the registry."""
    return state_folder() if os.environ.get("PENSTOCK_STATE") else state_folder().parent


def check_name(name: str) -> None:
    """Raise UsageError if ``--cluster name`` could mean anything but a started cluster."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "option --name has a bad value",
            expected="letters, digits, '-', '_' and '.', a letter or digit first",
            got=repr(name),
        )
    if name in KINDS or name.endswith(_FILES):
        taken = "a kind of cluster" if name in KINDS else "a file"
        raise UsageError(
            f"a cluster cannot be named {name!r}: --cluster would read it as {taken}",
            remedy="Choose another --name",
        )


def all_registered() -> list[Registered]:
    """Return all clusters of the registry by name, including those whose daemon died."""
    found = []
    with suppress(OSError):
        for folder in sorted(state_folder().iterdir()):
            entry = _read(folder)
            if entry is not None and entry.folder.name == folder.name:
                found.append(entry)
    return found


def find(name: str) -> Registered | None:
    """Return the cluster of this name: this host's, else the one that was started last."""
    named = [entry for entry in all_registered() if entry.name == name]
    here = socket.gethostname()
    return max(named, key=lambda entry: (entry.host == here, entry.started_at), default=None)


def this_process(name: str, kind: str, token: str, **more: Any) -> Registered:
    """Return the entry of a cluster that this process is going to start."""
    ticks = process_start(os.getpid())
    assert ticks is not None
    return Registered(
        name=name,
        kind=kind,
        host=socket.gethostname(),
        pid=os.getpid(),
        pid_started=ticks,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        penstock=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        token=token,
        temporary=tempfile.gettempdir(),
        **more,
    )


def draft(token: str) -> Path:
    """Return the folder in the registry for a cluster without an entry yet."""
    for one in (state_home(), state_folder(), folder := _draft(token)):
        one.mkdir(parents=True, mode=0o700, exist_ok=True)
    return folder


def is_draft(token: str) -> bool:
    """Return whether a cluster with this token has such a folder."""
    return _draft(token).is_dir()


def _draft(token: str) -> Path:
    return state_folder() / f".{token}.starting"


def claim(entry: Registered, folder: Path) -> Registered | None:
    """Rename ``folder``, a draft, to the place of ``entry``: of two processes, one succeeds.

    Returns the former entry, whose daemon is dead. Raises if the name is taken.
    """
    (folder / _ENTRY).write_text(json.dumps(asdict(entry), indent=1))
    with _alone():
        there = _read(entry.folder)
        if there is not None and there.alive():
            raise taken(there)
        shutil.rmtree(entry.folder, ignore_errors=True)
        try:
            # Fails if a folder that is not empty exists, even without the lock.
            folder.rename(entry.folder)
        except OSError as error:
            other = _read(entry.folder)
            raise (error if other is None else taken(other)) from None
    return there


def update(entry: Registered) -> None:
    """Write the current entry of a cluster that this process claimed."""
    from penstock.files import save_json  # it imports NumPy, which reading does not need

    save_json(entry.folder / _ENTRY, asdict(entry))


def release(entry: Registered, *, keep_log: bool = False) -> None:
    """Remove ``entry``, unless another cluster has its place; ``keep_log``: leave the log."""
    with suppress(FileNotFoundError), _alone():
        there = _read(entry.folder)
        if there is None or (there.pid, there.pid_started) != (entry.pid, entry.pid_started):
            return
        with suppress(OSError, ValueError, TypeError, KeyError):  # none, or another cluster's
            file = Path(there.scheduler_file or "")
            if json.loads(file.read_text())["address"] == there.address:
                file.unlink()
        if keep_log and log_tail(entry.folder / "log"):
            (entry.folder / _ENTRY).unlink()
            shutil.rmtree(entry.folder / CREDENTIALS, ignore_errors=True)
        else:
            shutil.rmtree(entry.folder, ignore_errors=True)


def taken(entry: Registered) -> ClusterError:
    """Return the error for a name that a live cluster has."""
    return ClusterError(
        f"cluster {entry.name!r} already exists",
        got=f"kind {entry.kind} at {entry.address or 'no address yet'}, kept by process "
        f"{entry.pid}",
        remedy=f"Stop it with {type_this('stop', entry.name)}, or choose another --name",
    )


@contextmanager
def _alone() -> Iterator[None]:
    """Lock the registry, if the file system has locks."""
    name, held = state_folder() / _LOCK, None

    def waiting(seconds: float) -> None:
        if seconds > _PATIENCE:
            raise ClusterError(f"another process holds {name}", remedy="If it hangs, end it")

    with suppress(UsageError):  # no locks: two that clear at once may both continue
        held = lock(name, waiting)
    try:
        yield
    finally:
        if held is not None:
            held.release(remove=True)


def _read(folder: Path) -> Registered | None:
    # The entry may be half a file, or of another version.
    try:
        return Registered(**json.loads((folder / _ENTRY).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
