"""Run a command that ends when the process that started it ends, in any way.

    python -P -m penstock.cluster.mpi.supervisor FOLDER mpiexec -n 4 ...

Standard input is the read end of a pipe; only the starting process holds its write end, and the
kernel closes that with the process, even after ``kill -9``. Then, or after SIGTERM, the command is
terminated, and killed if it does not end; what a failed command leaves behind is killed too. FOLDER
holds its temporary files; it is removed if the starter had no time for that.

PR_SET_PDEATHSIG does not suffice in a process that starts MPI: it follows the thread that started
a child, not its process. This process has one thread.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from penstock.workers.comm.segments import (
    SHM,
    forget_segments,
    is_ours,
    mapped,
    note_segments,
    sweep_segments,
)
from penstock.workers.processes import adopt_orphans, end_with_parent

_GRACE_SECONDS = 0.7  # from SIGTERM to SIGKILL
_POLL = 0.02
_SEARCH_EVERY, _SEARCH_SECONDS = 0.25, 120.0
_NAMES = "mpich_shm_*"


def supervised(
    command: Sequence[str], *, env: dict[str, str], folder: Path, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a supervisor, which exits as its command does; if its input is closed, both end."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(folder), *command],
        env=env,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the client, which ends the job in order
    )


def main(folder: str, command: Sequence[str]) -> None:
    """Run ``command`` until it ends or the pipe closes, and exit like it."""
    descriptor = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the command's
    adopt_orphans()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    child = _start(command)
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        alone, left = False, SharedSegments()
        while (status := _ended(child)) is None and not signals and not alone:
            left.search()
            for key, _ in selector.select(left.search_again):
                if key.fd == woken:
                    os.read(woken, 4096)
                else:
                    alone = True  # no process writes to it: it has closed
    if status is None:
        left.search()
        _terminate(child)
        status = _ended(child)
    if status != 0:
        status = _kill_rest(child, status)
        left.remove()
    left.forget()
    if alone:
        _tidy(folder)
    if os.WIFSIGNALED(status):
        killed_by = os.WTERMSIG(status)
        if killed_by != signal.SIGKILL:
            signal.signal(killed_by, signal.SIG_DFL)
        os.kill(os.getpid(), killed_by)
    os._exit(os.waitstatus_to_exitcode(status))


class SharedSegments:
    """MPICH's shared memory that processes below this one map and leave when they are killed.

    They create it within MPI_Init, and record it only afterwards (workers/comm/segments.py). So
    this process records it for them: if it is killed too, the next world finds the records. Of
    ranks that die between two searches it finds the files that are new and that no process maps.
    """

    def __init__(self) -> None:
        self._files: set[Path] = set()
        self._before = set(SHM.glob(_NAMES))
        self._started = time.monotonic()

    @property
    def search_again(self) -> float | None:
        """Return the seconds until the next search; None once all ranks have started."""
        return _SEARCH_EVERY if time.monotonic() - self._started < _SEARCH_SECONDS else None

    def search(self) -> None:
        """Record the files of all processes below this one."""
        before, todo = len(self._files), _children()
        while todo:
            pid = todo.pop()
            todo += _children(pid)
            self._files |= {file for file in mapped(pid) if file.match(_NAMES)}
        if len(self._files) > before:
            note_segments(self._files)

    def remove(self) -> None:
        """Remove the files found that belong to this user; all their users are dead."""
        new = set(SHM.glob(_NAMES)) - self._before
        if new:
            processes = [int(one.name) for one in Path("/proc").glob("[0-9]*")]
            self._files |= new.difference(*map(mapped, processes))
        for file in self._files:
            with suppress(OSError):
                if is_ours(file):
                    file.unlink()

    def forget(self) -> None:
        """Remove this process' record."""
        if self._files:
            forget_segments()


def _start(command: Sequence[str]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        end_with_parent()
        os.execvp(command[0], list(command))
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def _ended(child: int) -> int | None:
    """Return the exit status of ``child`` if it ended; reap all other ended processes."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                return found[1]
    return None


def _terminate(child: int) -> None:
    """Terminate ``child``; ``_kill_rest`` waits for it."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(_POLL)


def _kill_rest(child: int, status: int | None) -> int:
    """Kill ``child`` and its descendants; return its status, unless ``status`` is known."""
    # The children of a dead process become this one's, generation by generation.
    while children := _children():
        for one in children:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        with suppress(ChildProcessError):
            one, how = os.waitpid(-1, 0)
            status = how if one == child else status
    assert status is not None
    return status


def _children(pid: int | None = None) -> list[int]:
    """Return the children of a process with one thread; by default of this process."""
    pid = pid or os.getpid()
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # a kernel without this file
        import psutil

        try:
            return [one.pid for one in psutil.Process(pid).children()]
        except psutil.Error:  # it has just ended
            return []
    return [int(pid) for pid in text.split()]


def _tidy(folder: str) -> None:
    import shutil

    from penstock.locks import lock_of

    shutil.rmtree(folder, ignore_errors=True)
    lock_of(Path(folder)).unlink(missing_ok=True)  # the process that held it has exited
    sweep_segments()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
