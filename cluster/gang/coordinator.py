"""Who may be in which gang: decided in the scheduler, for all clients at once.

A gang gets all its workers at one moment or waits with none, so two can never wait for each other.
A worker is in one gang at a time, and its turn comes in the order of asking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
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
_TELL_TIMEOUT = 3  # seconds for a worker to hear that its gang ends; it may be deaf
_WORN = 200  # communicators that failed gangs left in a process: MPI has 2,000


@dataclass
class WorldState:
    """An MPI world of workers: how many there will be, and whether they are."""

    name: str
    size: int
    state: str  # starting, up, or failed
    note: str = ""


@dataclass
class Gang:
    """A gang that was admitted and has not been released."""

    client: str
    world: str
    members: dict[str, int]  # addresses, and their place in the gang
    hosts: dict[str, str]
    ended: bool = False


@dataclass(eq=False)
class _Asking:
    ranks: int
    turn: asyncio.Event = field(default_factory=asyncio.Event)


class GangCoordinator(SchedulerPlugin):  # type: ignore[misc]
    """Admit gangs, end those that lost a member or their client, and know the MPI worlds."""

    name = NAME
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Run once in the scheduler."""
        self.scheduler = scheduler
        self.worlds: dict[str, WorldState] = {}
        self.gangs: dict[str, Gang] = {}
        # Workers whose gang was ended, and may have been released, while they still run it or die
        # of it: a gang admitted to them would lose a rank.
        self.ending: set[str] = set()
        self.asking: list[_Asking] = []
        self.count = 0
        self._telling: set[asyncio.Task[None]] = set()
        scheduler.handlers.update(
            gang_admit=self.admit,
            gang_release=self.release,
            gang_end=self.end,
            gang_world=self.know_world,
            gang_status=self.status,
        )

    # What clients ask for

    async def admit(self, ranks: int | None, timeout: float, client: str) -> dict[str, Any]:
        """Wait for ``ranks`` idle workers of one world (None: all) and give them to a gang."""
        asking = _Asking(ranks or 0)
        self.asking.append(asking)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            while True:
                if refusal := self._refusal(ranks):
                    return refusal
                if self.asking[0] is asking and (found := self._idle(ranks)):
                    return self._admitted(client, *found)
                asking.turn.clear()
                left = deadline - loop.time()
                if left <= 0 or client not in self.scheduler.clients:
                    return {"status": "late", "reason": self._why_late()}
                try:
                    await asyncio.wait_for(asking.turn.wait(), left)
                except TimeoutError:
                    continue
        finally:
            self.asking.remove(asking)
            self._wake()

    async def release(self, gang: str, dead: int = 0) -> None:
        """Let a gang's workers be taken by the next one."""
        known = self.gangs.pop(gang, None)
        if known is not None and dead >= _WORN:
            self.ending.update(known.members)
            self._tell(known.members, _die)  # the world starts again
        self._wake()

    async def end(self, gang: str) -> None:
        """Make all members of a gang end."""
        known = self.gangs.get(gang)
        if known is not None and not known.ended:
            known.ended = True
            self._end_members(gang, known.members)

    async def know_world(self, name: str, size: int, state: str, note: str = "") -> None:
        """Hear of a world from who started it: it is starting, up, or has failed for good."""
        base = _base(name)
        for other in [w for w in self.worlds if _base(w) == base]:
            del self.worlds[other]
        self.worlds[name] = WorldState(name, size, state, note)
        self._wake()

    async def status(self) -> dict[str, Any]:
        """Say what worlds and gangs there are."""
        return {
            "worlds": [vars(world) for world in self.worlds.values()],
            "gangs": [{"gang": name, **vars(gang)} for name, gang in self.gangs.items()],
            "waiting": [asking.ranks for asking in self.asking],
        }

    # What happens in the scheduler

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker came."""
        self._wake()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """A worker went: its gang has failed."""
        self.ending.discard(worker)
        for name, gang in self.gangs.items():
            if worker in gang.members:
                self._lost(name, gang, worker, "ended or lost its connection")

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client went: nobody waits for its gangs."""
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
        """Forget a worker that cannot be reached any more; its world is no longer whole."""
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
            # A world that is not whole is about to end.
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
        """Return the workers that are ranks, by world; generations that ended are left out."""
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
            asking.turn.set()

    def _end_members(self, gang: str, members: Iterable[str]) -> None:
        self.ending.update(members)
        for worker in members:
            self._start(self._end_member(gang, worker))

    async def _end_member(self, gang: str, worker: str) -> None:
        ended = await self._tell_one(worker, end, (gang,)) and await self._tell_one(
            worker, until_ended, (gang,), GRACE + _TELL_TIMEOUT
        )
        if ended or worker not in self.scheduler.workers:
            self.ending.discard(worker)
            self._wake()

    def _tell(self, members: Iterable[str], function: Callable[..., Any], *args: Any) -> None:
        for worker in members:
            self._start(self._tell_one(worker, function, args))

    def _start(self, telling: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_one(
        self,
        worker: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        timeout: float = _TELL_TIMEOUT,
    ) -> bool:
        """Run a function in a worker's event loop: False where the worker is not there for it."""
        message = {"op": "run", "function": dumps(function), "args": dumps(args)}
        try:
            await asyncio.wait_for(self.scheduler.broadcast(msg=message, workers=[worker]), timeout)
        except (TimeoutError, OSError):
            if worker in self.scheduler.workers:
                await self._give_up(worker, "does not answer any more")
            return False
        except RuntimeError:
            if self.scheduler.status == Status.running:
                raise  # otherwise the scheduler closes, and says so in this way
            return False
        return True


def _die() -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)  # mpiexec ends a world for a signal, not for every exit


def _host(worker: Any) -> str:
    # Ranks say by what name their host goes; of others only the address is known.
    return str((worker.extra or {}).get("host_name") or worker.host)


def _base(world: str) -> str:
    return world.partition(".")[0]  # mpi-1a2b.3 is the third start of mpi-1a2b


def install(client: Client) -> None:
    """Have the client's scheduler coordinate gangs, if it does not yet."""
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
