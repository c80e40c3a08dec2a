"""Run a command that ends when the process which started it ends, however that ends.

    python -P -m penstock.cluster.mpi.supervisor FD FOLDER mpiexec -n 4 ...

FD is the read end of a pipe whose write end the starting process alone holds: the kernel closes
that with the process, after ``kill -9`` too. Then, or after SIGTERM, the command is terminated,
and killed if it does not; what a command that failed leaves behind is killed too. FOLDER, its
temporary files, goes with a starter that had no time to remove it.

PR_SET_PDEATHSIG alone would not do in a process that starts MPI: it follows the thread that started
a child, not its process. Here there is one thread.
"""

from __future__ import annotations

import os
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from penstock.workers.processes import adopt_orphans, end_with_parent

_GRACE_SECONDS = 0.7  # from SIGTERM to SIGKILL
_POLL = 0.02
_SEARCH_EVERY, _SEARCH_SECONDS = 0.25, 120.0
_SHM, _NAMES = Path("/dev/shm"), "mpich_shm_*"


class Supervised:
    """A command under a supervisor, ``process``, which exits as the command does."""

    def __init__(
        self, command: Sequence[str], *, env: dict[str, str], folder: Path, log: IO[bytes]
    ) -> None:
        read_end, self._held = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(read_end), str(folder), *command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(read_end,),
                start_new_session=True,  # Ctrl-C is for the client, which ends the job in order
            )
        except BaseException:
            os.close(self._held)
            raise
        finally:
            os.close(read_end)

    def close(self) -> None:
        """Close the pipe: what still runs ends."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def main(descriptor: int, folder: str, command: Sequence[str]) -> None:
    """Run ``command`` until it ends, or the pipe closes, and exit as it does."""
    os.set_inheritable(descriptor, False)
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
                    alone = True  # nobody writes to it: it can only have closed
    if status is None:
        left.search()
        _tell(child)
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
    """Shared memory of MPICH that processes below this one map, and leave when they are killed.

    They do so from within MPI_Init on, and note it only behind that (workers/comm/segments.py). So
    this process notes it for them: were it killed with them, the next world would find it. Of ranks
    that die between two searches it finds the files that are new and that no process maps.
    """

    def __init__(self) -> None:
        self._files: set[Path] = set()
        self._before = set(_SHM.glob(_NAMES))
        self._started = time.monotonic()

    @property
    def search_again(self) -> float | None:
        """Seconds until the next search; None: ranks that start have started."""
        return _SEARCH_EVERY if time.monotonic() - self._started < _SEARCH_SECONDS else None

    def search(self) -> None:
        """Find the files of all processes below this one."""
        before, todo = len(self._files), _children()
        while todo:
            pid = todo.pop()
            todo += _children(pid)
            self._files |= _mapped(pid)
        if len(self._files) > before:
            from penstock.workers.comm.segments import note_segments

            note_segments(self._files)

    def remove(self) -> None:
        """Remove what was found and is this user's; all who used it are dead."""
        new = set(_SHM.glob(_NAMES)) - self._before
        if new:
            processes = [int(one.name) for one in Path("/proc").glob("[0-9]*")]
            self._files |= new.difference(*map(_mapped, processes))
        for file in self._files:
            with suppress(OSError):
                found = file.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
                    file.unlink()

    def forget(self) -> None:
        """Remove this process' note."""
        if self._files:
            from penstock.workers.comm.segments import forget_segments

            forget_segments()


def _mapped(pid: int) -> set[Path]:
    """Return the shared memory of MPICH that a process maps."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_bytes().splitlines()
    except OSError:  # it has ended, or is another user's
        return set()
    named = [line.split(None, 5)[5] for line in lines if b" /dev/shm/mpich_shm_" in line]
    return {Path(os.fsdecode(name)) for name in named if not name.endswith(b"(deleted)")}


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
    """Return how ``child`` ended, if it did; reap whatever else ended."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                return found[1]
    return None


def _tell(child: int) -> None:
    """Let ``child`` end by itself, for a while; it is waited for by ``_kill_rest``."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(_POLL)


def _kill_rest(child: int, status: int | None) -> int:
    """Kill ``child`` and all that it started; return how it ended, if not as ``status`` says."""
    # What dies hands its children to this process, generation by generation.
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
    """Return the children of a process that has one thread, of this one if none is named."""
    pid = pid or os.getpid()
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # a kernel without that file
        import psutil

        try:
            return [one.pid for one in psutil.Process(pid).children()]
        except psutil.Error:  # it has just ended
            return []
    return [int(pid) for pid in text.split()]


def _tidy(folder: str) -> None:
    import shutil

    from penstock.locks import lock_of
    from penstock.workers.comm.segments import sweep_segments

    shutil.rmtree(folder, ignore_errors=True)
    lock_of(Path(folder)).unlink(missing_ok=True)  # the process that held it is gone
    sweep_segments()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
