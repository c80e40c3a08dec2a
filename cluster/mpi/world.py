"""An MPI world of Dask workers: started by mpiexec, watched, and restarted when it ends.

Scheduler and client are outside and outlive it: if one rank dies, mpiexec ends the others, and a
new world replaces them at the same scheduler.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psutil

from penstock.cluster.mpi.hosts import Host, check_hosts, host_of_ranks, parse_hosts
from penstock.cluster.mpi.launcher import Launcher, find_launcher, loaded_library
from penstock.cluster.mpi.mpiexec import exported_names, launch_command
from penstock.cluster.mpi.rank_command import RANK, rank_program, world_environment
from penstock.cluster.mpi.supervisor import supervised
from penstock.cluster.query import ask_scheduler, worker_names
from penstock.cluster.running import log_tail
from penstock.cluster.security.credentials import as_files
from penstock.cluster.spec import ClusterSpec
from penstock.errors import SilentScheduler
from penstock.temporary import TemporaryFolder
from penstock.workers.comm.segments import sweep_segments
from penstock.workers.rank import STARTS

if TYPE_CHECKING:
    from distributed import Client

_TRIES = 3  # worlds in a row that end before they are complete; then give up
_CLOSE_SECONDS = 1.5  # for mpiexec to end after its scheduler; SIGTERM follows
_KILL_SECONDS = 2.0  # for mpiexec, after SIGTERM, to remove its files
_POLL = 0.03
_LOOK_EVERY = 0.3
_ANSWER_SECONDS = 5.0  # for a scheduler that may be busy, or hang
_BROKEN_SECONDS = 2.0  # from a rank's disconnect to the end of its world
_NAMES_EVERY, _NAMED = 3.0, 4  # seconds, and how many missing ranks
_SHOWN = 8  # last lines of mpiexec, which reports how a rank died
_FORK_SECONDS = 1.0  # after the first rank, mpiexec has started the others


class World:
    """``size`` ranks that are workers of one scheduler. ``folder`` holds logs and MPI's files."""

    def __init__(self, spec: ClusterSpec, *, size: int | None) -> None:
        self.hosts: tuple[Host, ...] | None = parse_hosts(spec.hosts) if spec.hosts else None
        slots = sum(host.slots for host in self.hosts or ())
        self.size = size or spec.workers or slots or spec.worker_count()
        if self.hosts:
            check_hosts(self.hosts, self.size)
        library = loaded_library()
        self.launcher: Launcher = find_launcher(spec.mpiexec, library)
        # In SLURM ranks may be on other hosts, which only srun knows.
        self.remote = self.hosts is not None or self.launcher.family == "srun"
        self._spec, self._library = spec, library
        self._token, self._generation = uuid4().hex[:8], 0
        self._closing = threading.Event()
        self.connected = threading.Event()  # every rank of the latest generation
        self._process: subprocess.Popen[bytes] | None = None
        self.failed: str | None = None
        self._thread = threading.Thread(target=self._keep, name="penstock-world", daemon=True)
        self._temporary = TemporaryFolder("penstock-world")
        self.folder = self._temporary.path

    @property
    def name(self) -> str:
        """The name of the latest generation; its workers are named name-rank."""
        return f"mpi-{self._token}.{self._generation}"

    @property
    def log(self) -> Path:
        """The output of the latest generation's ranks."""
        return self.folder / f"world-{self._generation}.log"

    def start(self, client: Client) -> None:
        """Start the ranks as workers of the client's scheduler; restart them until ``close``."""
        # Another program's credentials may be texts; write them to private files.
        self._security = as_files(client.security, self.folder / "tls-of-client")
        # The client may close before the world.
        self._client, self._scheduler = client, client.scheduler.address
        self._thread.start()

    def join(self) -> None:
        """Wait until no more ranks are started, and remove their files."""
        self._thread.join()
        self._temporary.close()

    def close(self) -> None:
        """End the ranks; they are ending by themselves, as the scheduler already ended."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._process is not None:
            self._end(self._process)
            _let_go(self._process)
        sweep_segments()
        self._temporary.close()

    def tail(self) -> str:
        """Return the last lines of the ranks' output."""
        return log_tail(self.log)

    def missing(self, connected: set[str]) -> list[str]:
        """Return the ranks that are not in ``connected``, with their hosts."""
        planned = host_of_ranks(self.hosts, self.size) if self.hosts else None
        text, absent = self._text(), []
        for rank in range(self.size):
            if f"{self.name}-{rank}" in connected:
                continue
            who = f"rank {rank}"
            said = re.search(STARTS.format(rank, r"(\S+)", r"(\d+)"), text)
            if said:
                who += f" on host {said[1]} (process {said[2]} runs, but has not connected)"
            elif planned:
                who += f" on host {planned[rank]} (never started)"
            else:
                who += " (never started)"
            absent.append(who)
        return absent

    # Keep it running

    def _keep(self) -> None:
        failures, why = 0, ""
        while not self._closing.is_set():
            self._generation += 1
            self.connected.clear()
            self._report("starting", why)
            started = time.monotonic()
            code = self._run()
            if self._closing.is_set() or self._client.status != "running":
                return  # ranks end with their scheduler
            failed = self._why(code, time.monotonic() - started)
            said = log_tail(self.log, lines=_SHOWN)
            self._former = why = f"{failed}: {said}" if said else failed
            failures = 0 if self.connected.is_set() else failures + 1
            if failures == _TRIES or (self._generation == 1 and failures):
                self.failed = failed
                self._report("failed", why)
                return

    def _run(self) -> int | None:
        folder = None if self.remote else self.folder
        if folder is not None:
            (folder / "mpi").mkdir(exist_ok=True)
        used = self._security
        env = world_environment(self.launcher, self._library, os.environ, folder, used)
        command = launch_command(
            self.launcher,
            rank_program(self._spec, self._scheduler, self.name, folder),
            ranks=self.size,
            hosts=self.hosts,
            agent=os.environ.get("PENSTOCK_LAUNCH_AGENT"),
            gpus=self._spec.device == "gpu",
            exported=exported_names(env),
        )
        with self.log.open("wb") as log:
            process = supervised(command, env=env, folder=self.folder, log=log)
        self._process, self._lost = process, False
        self._first_seen = self._next_look = 0.0
        self._next_names = time.monotonic() + _NAMES_EVERY
        deadline = time.monotonic() + self._spec.start_timeout
        whole = looked = time.monotonic()
        while (code := process.poll()) is None:
            if self.connected.is_set() and time.monotonic() - looked > _LOOK_EVERY:
                looked = time.monotonic()
                # A busy scheduler reports nothing about the ranks.
                whole = whole if self._all_present() is False else looked
                if looked - whole > _BROKEN_SECONDS:
                    break
            if not self.connected.is_set() and self._all_present():
                self.connected.set()
                whole = time.monotonic()
                self._report("up")
            if not self.connected.is_set() and self._generation > 1:
                self._name_missing()
            if not self.connected.is_set() and self._lost_one(process):
                self._lost = True
                self._kill(process)
            # The client times the first generation, and closes.
            late = self._generation > 1 and time.monotonic() > deadline
            if self._closing.is_set() or (late and not self.connected.is_set()):
                break
            time.sleep(_POLL)
        if code is None and not self._closing.is_set():
            self._kill(process)
            process.wait()
        if process.poll() is not None:
            _let_go(process)
        return code

    def _report(self, state: str, note: str = "") -> None:
        with suppress(Exception):  # the scheduler may have exited
            client = self._client
            client.sync(
                client.scheduler.gang_world,
                name=self.name,
                size=self.size,
                state=state,
                note=note,
                callback_timeout=_ANSWER_SECONDS,
            )

    def _all_present(self) -> bool | None:
        """Whether the scheduler knows every rank; None if it does not answer in time."""
        names = self._names()
        if names is None:
            return None
        return {f"{self.name}-{rank}" for rank in range(self.size)} <= names

    def _names(self) -> set[str] | None:
        try:
            found = ask_scheduler(self._client, worker_names, timeout=_ANSWER_SECONDS)
            return set(found.values())
        except SilentScheduler:
            return None
        except Exception:  # the scheduler exited
            return set()

    def _name_missing(self) -> None:
        """Report, now and then, which ranks a new generation still waits for."""
        if time.monotonic() > self._next_names:
            self._next_names = time.monotonic() + _NAMES_EVERY
            missing = ", ".join(self.missing(self._names() or set())[:_NAMED])
            self._report("starting", f"{self._former}; since then without {missing}")

    def _lost_one(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether a rank of this host ended before MPI was up; MPICH would keep waiting."""
        now = time.monotonic()
        if self.remote or now < self._next_look:
            return False
        self._next_look = now + _LOOK_EVERY
        there = 0
        # Open MPI 5 may hang if a rank dies before others start: its output, or its zombie, is then
        # the only sign that one was started.
        seen = re.search(STARTS.format(r"\d+", r"\S+", r"\d+"), self._text()) is not None
        with suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                try:
                    there += child.cmdline()[: len(RANK)] == RANK
                except psutil.ZombieProcess:
                    seen = True
                except psutil.Error:
                    pass
        if (there or seen) and not self._first_seen:
            self._first_seen = now
        forked = self._first_seen and now > self._first_seen + _FORK_SECONDS
        return bool(forked) and there < self.size

    def _why(self, code: int | None, seconds: float) -> str:
        if code is None or code < 0:  # killed here
            return "a rank ended before it connected" if self._lost else "ranks did not connect"
        return f"mpiexec ended with exit code {code} after {seconds:.0f} s"

    def _text(self) -> str:
        try:
            return self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    # End it

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        family = _family(process)  # what mpiexec leaves behind, such as a hanging ssh
        with suppress(subprocess.TimeoutExpired):
            process.wait(_CLOSE_SECONDS)
        if process.poll() is None:
            family = _family(process)
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_SECONDS)
        self._kill(process, family)
        psutil.wait_procs(family, timeout=_KILL_SECONDS)  # a killed process takes time to end

    def _kill(
        self, process: subprocess.Popen[bytes], family: Sequence[psutil.Process] = ()
    ) -> None:
        """Kill mpiexec and the ranks of this host; ranks of other hosts then end by themselves."""
        members = [*_family(process), *family]
        process.terminate()  # the supervisor removes their files
        for one in members:
            with suppress(psutil.Error, ProcessLookupError):
                one.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
        process.kill()


def _let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def _family(process: subprocess.Popen[bytes]) -> list[Any]:
    with suppress(psutil.Error):
        found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
        return found
    return []
