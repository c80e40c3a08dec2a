"""Assign workers to gangs: in the scheduler, for all clients.

A gang gets all its workers at once or waits with none, so two gangs never wait for each other. A
worker is in one gang at a time; gangs are admitted in order of request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin
from distributed.core import Status
from distributed.protocol.pickle import dumps

from penstock.cluster.query import ask, ask_scheduler
from penstock.workers.comm.reports import TOPIC
from penstock.workers.gang import GRACE, end, until_ended

if TYPE_CHECKING:
    from distributed import Client, Scheduler

NAME = "penstock-gangs"
_RUN_TIMEOUT = 3  # seconds to inform a worker that its gang ends; it may hang
_WORN = 200  # communicators left by failed gangs in a process: MPI has 2,000


@dataclass
class WorldState:
    """An MPI world of workers: its size, and its state."""

    name: str
    size: int
    state: str  # starting, up, or failed
    note: str = ""


@dataclass
class Gang:
    """A gang that was admitted and not yet released."""

    client: str
    world: str
    members: dict[str, int]  # addresses, and their place in the gang
    hosts: dict[str, str]
    ended: bool = False


class GangCoordinator(SchedulerPlugin):  # type: ignore[misc]
    """Admit gangs, end those that lost a member or their client, and track the MPI worlds."""

    name = NAME
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Run once in the scheduler."""
        self.scheduler = scheduler
        self.worlds: dict[str, WorldState] = {}
        self.gangs: dict[str, Gang] = {}
        # Workers whose gang was ended, and maybe released, while they still run it or die: a gang
        # admitted to them would lose a rank.
        self.ending: set[str] = set()
        self.asking: list[asyncio.Event] = []
        self.count = 0
        self._running: set[asyncio.Task[None]] = set()
        scheduler.handlers.update(
            gang_admit=self.admit,
            gang_release=self.release,
            gang_end=self.end,
            gang_world=self.know_world,
            gang_worlds=self.known_worlds,
        )

    # Requests of clients

    async def admit(self, ranks: int | None, timeout: float, client: str) -> dict[str, Any]:
        """Wait for ``ranks`` idle workers of one world (None: all) and give them to a gang."""
        asking = asyncio.Event()
        self.asking.append(asking)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            while True:
                if refusal := self._refusal(ranks):
                    return refusal
                if self.asking[0] is asking and (found := self._idle(ranks)):
                    return self._admitted(client, *found)
                asking.clear()
                left = deadline - loop.time()
                if left <= 0 or client not in self.scheduler.clients:
                    return {"status": "late", "reason": self._why_late()}
                try:
                    await asyncio.wait_for(asking.wait(), left)
                except TimeoutError:
                    continue
        finally:
            self.asking.remove(asking)
            self._wake()

    async def release(self, gang: str, dead: int = 0) -> None:
        """Free a gang's workers for the next one."""
        known = self.gangs.pop(gang, None)
        if known is not None and dead >= _WORN:
            self.ending.update(known.members)
            for worker in known.members:  # the world restarts
                self._start(self._run_on(worker, _die, ()))
        self._wake()

    async def end(self, gang: str) -> None:
        """End all members of a gang."""
        known = self.gangs.get(gang)
        if known is not None and not known.ended:
            known.ended = True
            self._end_members(gang, known.members)

    async def know_world(self, name: str, size: int, state: str, note: str = "") -> None:
        """Record a world: it is starting, up, or failed for good."""
        base = _base(name)
        for other in [w for w in self.worlds if _base(w) == base]:
            del self.worlds[other]
        self.worlds[name] = WorldState(name, size, state, note)
        self._wake()

    async def known_worlds(self) -> list[dict[str, Any]]:
        """Return the worlds."""
        return [vars(world) for world in self.worlds.values()]

    # Events in the scheduler

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker came."""
        self._wake()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """A worker left: its gang has failed."""
        self.ending.discard(worker)
        for name, gang in self.gangs.items():
            if worker in gang.members:
                self._lost(name, gang, worker, "ended or lost its connection")

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client left: end its gangs."""
        for name in [name for name, gang in self.gangs.items() if gang.client == client]:
            gang = self.gangs.pop(name)
            if not gang.ended:
                self._end_members(name, gang.members)
        self._wake()

    def _lost(self, name: str, gang: Gang, worker: str, how: str) -> None:
        lost = {"gang": name, "lost": gang.members[worker], "host": gang.hosts[worker], "how": how}
        self.scheduler.log_event(TOPIC, lost)
        if not gang.ended:
            gang.ended = True
            self._end_members(name, [other for other in gang.members if other != worker])

    async def _give_up(self, worker: str, how: str) -> None:
        """Forget an unreachable worker; its world is no longer whole."""
        for name, gang in self.gangs.items():
            if worker in gang.members:
                self._lost(name, gang, worker, how)
        await self.scheduler.remove_worker(worker, stimulus_id="penstock-gang-deaf", expected=True)

    # How admission decides

    def _idle(self, ranks: int | None) -> tuple[str, list[tuple[int, str]]] | None:
        busy = {worker for gang in self.gangs.values() for worker in gang.members} | self.ending
        for world, workers in self._present().items():
            size = self.worlds[world].size if world in self.worlds else len(workers)
            wanted = ranks or size
            free = sorted((rank, worker) for rank, worker in workers if worker not in busy)
            # An incomplete world is about to end.
            if len(workers) == size and len(free) >= wanted:
                return world, free[:wanted]
        return None

    def _admitted(self, client: str, world: str, members: list[tuple[int, str]]) -> dict[str, Any]:
        self.count += 1
        name = f"gang-{self.scheduler.id[-8:]}-{self.count}"
        workers = self.scheduler.workers
        self.gangs[name] = Gang(
            client,
            world,
            {worker: rank for rank, (_, worker) in enumerate(members)},
            {worker: _host(workers[worker]) for _, worker in members},
        )
        return {
            "status": "admitted",
            "gang": name,
            "number": self.count,
            "world": world,
            "members": members,
        }

    def _present(self) -> dict[str, list[tuple[int, str]]]:
        """Return the workers that are ranks, by world; ended generations are left out."""
        found: dict[str, list[tuple[int, str]]] = {}
        latest = {_base(world): world for world in self.worlds}
        for address, state in self.scheduler.workers.items():
            world, _, rank = str(state.name).rpartition("-")
            is_rank = world.startswith(("mpi-", "dask_mpi")) and rank.isdecimal()
            if is_rank and latest.get(_base(world), world) == world:
                found.setdefault(world, []).append((int(rank), address))
        return found

    def _refusal(self, ranks: int | None) -> dict[str, Any] | None:
        failed = [world for world in self.worlds.values() if world.state == "failed"]
        hopeful = [world for world in self.worlds.values() if world.state != "failed"]
        sizes = [world.size for world in hopeful]
        sizes += [len(found) for name, found in self._present().items() if name not in self.worlds]
        if not sizes:
            if failed:
                return {"status": "failed", "reason": failed[0].note}
            return {"status": "none", "reason": "no worker is an MPI rank"}
        if ranks is not None and ranks > max(sizes):
            return {"status": "small", "reason": str(max(sizes))}
        return None

    def _why_late(self) -> str:
        starting = [world for world in self.worlds.values() if world.state == "starting"]
        if starting:
            here = len(self._present().get(starting[0].name, []))
            why = f" ({starting[0].note})" if starting[0].note else ""
            return f"{here} of the {starting[0].size} ranks of a new MPI world{why}"
        return f"{len(self.gangs)} gangs running and {len(self.asking) - 1} waiting"

    def _wake(self) -> None:
        for asking in self.asking:
            asking.set()

    def _end_members(self, gang: str, members: Iterable[str]) -> None:
        self.ending.update(members)
        for worker in members:
            self._start(self._end_member(gang, worker))

    async def _end_member(self, gang: str, worker: str) -> None:
        ended = await self._run_on(worker, end, (gang,)) and await self._run_on(
            worker, until_ended, (gang,), GRACE + _RUN_TIMEOUT
        )
        if ended or worker not in self.scheduler.workers:
            self.ending.discard(worker)
            self._wake()

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run_on(
        self,
        worker: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        timeout: float = _RUN_TIMEOUT,
    ) -> bool:
        """Run a function in a worker's event loop; False if the worker does not answer."""
        message = {"op": "run", "function": dumps(function), "args": dumps(args)}
        try:
            await asyncio.wait_for(self.scheduler.broadcast(msg=message, workers=[worker]), timeout)
        except (TimeoutError, OSError):
            if worker in self.scheduler.workers:
                await self._give_up(worker, "does not answer any more")
            return False
        except RuntimeError:
            if self.scheduler.status == Status.running:
                raise  # else the scheduler is closing
            return False
        return True


def _die() -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)  # mpiexec may ignore an exit, not a signal


def _host(worker: Any) -> str:
    # Ranks report their host's name; of other workers only the address is known.
    return str((worker.extra or {}).get("host_name") or worker.host)


def _base(world: str) -> str:
    return world.partition(".")[0]  # mpi-1a2b.3 is the third start of mpi-1a2b


def install(client: Client) -> None:
    """Let the client's scheduler coordinate gangs."""
    if not ask_scheduler(client, _coordinates):
        ask(
            client,
            client._register_scheduler_plugin,
            plugin=GangCoordinator(),
            name=NAME,
            idempotent=True,
        )


def _coordinates(dask_scheduler: Scheduler) -> bool:
    return NAME in dask_scheduler.plugins
