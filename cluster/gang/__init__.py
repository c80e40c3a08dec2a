"""Run one function on several workers at once, as ranks that communicate.

    from penstock import connect, gang

    def mean(comm, numbers):
        mine = numbers[comm.rank :: comm.size]
        return comm.allreduce(np.array([mine.sum(), len(mine)]))

    with connect("mpi", workers=4) as client:
        gang.run(client, mean, (numbers,), ranks=4)      # a list, rank by rank

Either every rank succeeds, or ``GangError`` names the first that failed and what all ranks did.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distributed.protocol.pickle import dumps

from penstock.cluster.gang.coordinator import install
from penstock.cluster.query import SILENT_SECONDS, ask, scheduler_gone
from penstock.errors import ClusterError, GangError, PenstockError, UsageError
from penstock.progress import Progress
from penstock.workers.comm.reports import TOPIC
from penstock.workers.gang import GRACE, MemberTask, Outcome, describe, run_member

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["run"]

_POLL = 0.25
_ASK_EVERY = 5.0  # seconds between checks that the scheduler answers
_INSPECT_SECONDS = 2.0
_SEND_SECONDS = 3.0
_WORD_SECONDS = 1.5  # for mpiexec to report why a rank died
# For members to end, and for their answers, or the news of their death, to arrive: seconds on busy
# cores.
_END_SECONDS = GRACE + 6.0


def run(
    client: Client,
    function: Callable[..., Any],
    args: Sequence[Any] | Callable[[], Sequence[Any]] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    ranks: int | None = None,
    retries: int = 0,
    timeout: float | None = None,
    start_timeout: float = 60.0,
    wait_timeout: float = 600.0,
    title: str = "gang",
    total: int | Callable[[], int] | None = None,
    unit: str = "steps",
    quiet: bool = True,
    on_metrics: Callable[[int, dict[str, Any]], None] | None = None,
) -> list[Any]:
    """Run ``function(comm, *args, **kwargs)`` on several workers at once, as ranks.

    Parameters
    ----------
    client
        a ``distributed.Client``, such as ``connect`` gives
    function
        runs on each rank, with its ``Communicator`` as first argument; its standard output appears
        at the client, prefixed with the rank
    args, kwargs
        further arguments, the same for every rank; ``args`` may be a function that returns them,
        called before each attempt, so that a retry gets only the remaining work
    ranks
        how many workers; all of an MPI world if None
    retries
        how often to run it again after a worker died or hung; the function resumes from its own
        checkpoint. An exception of the function is not retried
    timeout
        seconds for the whole run, after which every rank is stopped
    start_timeout
        seconds to wait for free workers, and for ranks to meet
    wait_timeout
        seconds that a rank waits for another one's message
    title, total, unit
        one progress bar, fed by ``comm.advance``; none if ``quiet``; ``total`` may be a function,
        like ``args``
    quiet
        no progress bar, and no message when a gang restarts after a lost rank
    on_metrics
        called with the rank and the argument of ``comm.log``

    Returns
    -------
    list
        results of ``function``, by rank

    Raises
    ------
    GangError
        a rank raised, died or hung; it names the first one, and what each rank did
    ClusterError
        no workers for the gang, or the scheduler exited

    Examples
    --------
    >>> def mean(comm, numbers):
    ...     mine = numbers[comm.rank :: comm.size]
    ...     total, count = comm.allreduce(np.array([mine.sum(), len(mine)]))
    ...     return total / count
    >>> with connect("mpi", workers=4) as client:
    ...     gang.run(client, mean, (np.arange(1000.0),))
    [499.5, 499.5, 499.5, 499.5]
    """
    if ranks is not None and ranks < 1:
        raise UsageError("a gang has at least one rank", got=str(ranks))
    for attempt in range(retries + 1):
        given = tuple(args() if callable(args) else args)
        whole = (total() if callable(total) else total) or 0
        try:
            with Progress(title, total=whole, unit=unit, quiet=quiet or not whole) as progress:
                attempted = _Attempt(client, progress, on_metrics, wait_timeout, start_timeout)
                return attempted.run(function, given, dict(kwargs or {}), ranks, timeout)
        except GangError as error:
            if attempt == retries or not error.may_retry:
                raise
            if not quiet:
                print(f"{error.what}: starting its gang again", file=sys.stderr)
    raise AssertionError


class _Attempt:
    """One gang, from its admission to its release."""

    def __init__(
        self,
        client: Client,
        progress: Progress,
        on_metrics: Callable[[int, dict[str, Any]], None] | None,
        wait_timeout: float,
        start_timeout: float,
    ) -> None:
        self.client, self.progress, self.on_metrics = client, progress, on_metrics
        self.wait_timeout, self.start_timeout = wait_timeout, start_timeout
        self.gang, self.world, self.addresses = "", "", list[str]()
        self.happened: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.outcomes: dict[int, Outcome] = {}
        self.lost: list[dict[str, Any]] = []  # in order
        self.late = self.lost_first = False
        self.stacks: dict[int, str] = {}

    def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        ranks: int | None,
        timeout: float | None,
    ) -> list[Any]:
        """Return the results of all ranks, or raise."""
        with _scheduler_there():
            admitted = _admit(self.client, ranks, self.start_timeout)
        self.gang, self.world = admitted["gang"], admitted["world"]
        self.addresses = [address for _, address in admitted["members"]]
        futures: list[Future] = []
        with listening(self.client, self.gang, self.on_report):
            try:
                with _scheduler_there():
                    futures = self._submit(admitted, function, args, kwargs)
                self._follow(timeout)
                if self._failed():
                    self._end(futures)
                    raise self._error()
                return [self.outcomes[rank].value for rank in range(len(self.addresses))]
            except BaseException:
                self._send("gang_end")
                raise
            finally:
                if futures:
                    self.client.cancel(futures, force=True)
                dead = max((outcome.dead for outcome in self.outcomes.values()), default=0)
                self._send("gang_release", dead=dead)

    def on_report(self, event: dict[str, Any]) -> None:
        """Handle a report of a member, or of the coordinator about one."""
        if "printed" in event:  # at once: the last output precedes the result
            print("\n".join(f"rank {event['rank']}: {line}" for line in event["printed"]))
        else:
            self.happened.put(event)

    def _submit(
        self,
        admitted: dict[str, Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> list[Future]:
        members = tuple(rank for rank, _ in admitted["members"])
        # The members decode it, so that one that cannot raises its own error.
        pickled = dumps(function)
        futures = []
        for rank, address in enumerate(self.addresses):
            task = MemberTask(
                self.gang,
                admitted["number"],
                rank,
                members,
                admitted["world"],
                self.start_timeout,
                self.wait_timeout,
                getattr(getattr(function, "__code__", None), "co_filename", None),
            )
            future = self.client.submit(
                run_member,
                task,
                pickled,
                args,
                kwargs,
                key=f"{self.gang}-{rank}",
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
                priority=10,
            )
            future.add_done_callback(lambda done, rank=rank: self.happened.put((rank, done)))
            futures.append(future)
        return futures

    def _follow(self, timeout: float | None) -> None:
        """Handle events until all ranks are done, one failed, or time is up."""
        deadline = time.monotonic() + timeout if timeout is not None else None
        asked = time.monotonic()
        while len(self.outcomes) < len(self.addresses) and not self._failed():
            if self.client.status != "running":
                raise scheduler_gone("while a gang ran")
            left = _POLL if deadline is None else min(_POLL, deadline - time.monotonic())
            if left <= 0:
                self.late = True
                break
            if time.monotonic() - asked > _ASK_EVERY:
                asked = time.monotonic()
                self._worlds()
            with suppress(queue.Empty):
                self._take(self.happened.get(timeout=left))

    def _take(self, event: Any) -> None:
        if isinstance(event, dict):
            if "lost" in event:
                self.lost.append(event)
                return
            self.progress.advance(event["done"])
            if event["metrics"] and self.on_metrics is not None:
                self.on_metrics(event["rank"], event["metrics"])
            return
        rank, future = event
        self.outcomes[rank] = self._outcome(rank, future)

    def _outcome(self, rank: int, future: Future) -> Outcome:
        """Return how a rank ended; its answer is on its worker, and may be lost with it."""
        patience, error = _POLL, None
        while not self._is_lost(rank):
            try:
                if future.status == "finished":
                    outcome: Outcome = future.result(timeout=patience)
                    return outcome
                error = future.exception(timeout=patience) if future.status == "error" else None
                break
            except TimeoutError:
                patience *= 2
                self._worlds()  # the scheduler knows where an answer is
            except Exception as failure:  # an answer that cannot be sent or read
                error = failure
                break
        if isinstance(error, Exception):
            said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return Outcome(rank, "", "raised", error=error, text=said, at=time.time())
        return Outcome(rank, "", "cancelled", text=repr(error) if error else "", at=time.time())

    def _is_lost(self, rank: int) -> bool:
        later = []
        with suppress(queue.Empty):
            while True:
                event = self.happened.get_nowait()
                if isinstance(event, dict) and "lost" in event:
                    self.lost.append(event)
                else:
                    later.append(event)
        for event in later:
            self.happened.put(event)
        return any(event["lost"] == rank for event in self.lost)

    def _failed(self) -> bool:
        return self.late or bool(self.lost) or any(o.kind != "done" for o in self.outcomes.values())

    def _end(self, futures: list[Future]) -> None:
        """End the other ranks, and wait for their outcomes."""
        self.lost_first = bool(self.lost)  # ranks lost from now on were killed
        if self.late:
            self._inspect()
        self._send("gang_end")
        deadline = time.monotonic() + _END_SECONDS
        gone = {event["lost"] for event in self.lost}
        while time.monotonic() < deadline:
            gone |= {event["lost"] for event in self.lost}
            if len(gone | set(self.outcomes)) == len(self.addresses):
                break
            with suppress(queue.Empty):
                self._take(self.happened.get(timeout=_POLL))

    def _inspect(self) -> None:
        """Ask every rank for its current stack, for the error."""

        async def inspect(rank: int, address: str) -> None:
            with suppress(Exception):  # do not wait for silent ranks
                asked = self.client._run(describe, self.gang, workers=[address])
                answer = await asyncio.wait_for(asked, _INSPECT_SECONDS)
                self.stacks[rank] = answer[address]

        async def inspect_all() -> None:
            await asyncio.gather(*[inspect(r, address) for r, address in enumerate(self.addresses)])

        with suppress(Exception):
            self.client.sync(inspect_all)

    def _worlds(self, within: float | None = None) -> list[dict[str, Any]]:
        with _scheduler_there():
            worlds = ask(self.client, self.client.scheduler.gang_worlds, within=within)
        return list(worlds)

    def _send(self, what: str, **more: Any) -> None:
        with suppress(Exception):  # it may have exited; it ends gangs without client
            handler = getattr(self.client.scheduler, what)
            self.client.sync(handler, gang=self.gang, callback_timeout=_SEND_SECONDS, **more)

    def _error(self) -> ClusterError:
        size = len(self.addresses)
        raised = sorted(
            (outcome for outcome in self.outcomes.values() if outcome.kind == "raised"),
            key=lambda outcome: outcome.at,
        )
        tracebacks = {rank: o.text for rank, o in sorted(self.outcomes.items()) if o.text}
        tracebacks |= {rank: text for rank, text in self.stacks.items() if text}
        if self.late:
            return _error_of_late(self.lost, size, tracebacks)
        if raised and not (self.lost_first or (self.lost and _is_of_mpi(raised[0].error))):
            return _error_of_raised(raised[0], size, tracebacks)
        if self.lost:
            return _error_of_lost(self.lost[0], size, self._why_lost(), tracebacks)
        return scheduler_gone("while a gang ran")  # no rank failed, but Dask gave up the tasks

    def _why_lost(self) -> str:
        """Return mpiexec's message, which appears a moment after the rank's death."""
        deadline = time.monotonic() + _WORD_SECONDS
        while time.monotonic() < deadline:
            with suppress(Exception):
                worlds, base = self._worlds(_WORD_SECONDS), self.world.partition(".")[0]
                for world in worlds:
                    if world["name"].startswith(f"{base}.") and world["name"] != self.world:
                        return str(world["note"])
                if not any(world["name"] == self.world for world in worlds):
                    break  # not started here
            time.sleep(_POLL / 5)
        return ""


# One subscription of a client serves all of its gangs, by name.
_listeners: WeakKeyDictionary[Any, dict[str, Callable[[dict[str, Any]], None]]]
_listeners = WeakKeyDictionary()


@contextmanager
def listening(
    client: Client, gang: str, on_report: Callable[[dict[str, Any]], None]
) -> Iterator[None]:
    """Call ``on_report`` with every report of a gang's members and of the coordinator."""
    listeners = _listeners.get(client)
    if listeners is None:
        listeners = _listeners[client] = {}

        def receive(event: tuple[float, dict[str, Any]]) -> None:
            listener = listeners.get(event[1]["gang"])
            if listener is not None:
                listener(event[1])

        client.subscribe_topic(TOPIC, receive)
    listeners[gang] = on_report
    try:
        yield
    finally:
        del listeners[gang]


# Admission: workers for a gang


def _admit(client: Client, ranks: int | None, timeout: float) -> dict[str, Any]:
    """Return the workers of a gang, once they are free; start ranks if the cluster has none."""
    install(client)
    answer = _ask_admission(client, ranks, timeout)
    if answer["status"] == "none":
        from penstock.cluster.mpi.attach import start_world  # here: it starts processes

        start_world(client, ranks, timeout)
        answer = _ask_admission(client, ranks, timeout)
    if answer["status"] == "admitted":
        return answer
    wanted = "all ranks" if ranks is None else f"{ranks} ranks"
    if answer["status"] == "small":
        raise ClusterError(
            f"a gang of {wanted} does not fit into the cluster",
            expected=f"at most {answer['reason']}, the size of its largest MPI world",
            remedy="Ask for fewer with -k, or start the cluster with more workers: -n",
        )
    if answer["status"] == "failed":
        raise ClusterError(
            "the cluster's MPI world ended and could not be started again",
            got=answer["reason"],
            remedy="Start the cluster again",
        )
    raise ClusterError(
        f"no workers were free for a gang of {wanted}",
        expected=f"free workers within {timeout:g} s",
        got=answer["reason"],
        remedy="Wait for the other gangs, or wait longer: gang.run(start_timeout=...)",
    )


def _ask_admission(client: Client, ranks: int | None, timeout: float) -> dict[str, Any]:
    admitted: dict[str, Any] = ask(
        client,
        client.scheduler.gang_admit,
        within=timeout + SILENT_SECONDS,
        ranks=ranks,
        timeout=timeout,
        client=client.id,
    )
    return admitted


# Errors of a gang that failed


def _error_of_raised(first: Outcome, size: int, tracebacks: dict[int, str]) -> GangError:
    """Return the error of a gang in which a rank raised."""
    cause = first.error
    where = f"rank {first.rank} of {size}" + (f" on host {first.host}" if first.host else "")
    ours = isinstance(cause, PenstockError)
    said = str(cause) if ours else (first.text.strip().splitlines() or ["failed"])[-1]
    error = GangError(
        f"{where} failed: {said}",
        remedy=None if ours else "The error's tracebacks show the place, rank by rank",
        tracebacks=tracebacks,
        may_retry=isinstance(cause, ClusterError),  # it timed out
    )
    error.__cause__ = cause
    error.add_note(first.text)
    return error


def _error_of_lost(
    lost: dict[str, Any], size: int, why: str, tracebacks: dict[int, str]
) -> GangError:
    """Return the error of a gang that lost a rank; ``why`` is mpiexec's message."""
    return GangError(
        f"rank {lost['lost']} of {size} on host {lost['host']} {lost['how']}",
        got=why or "no reason from mpiexec",
        remedy="Run it again, or let gang.run(retries=...) do so from a checkpoint",
        tracebacks=tracebacks,
        may_retry=True,
    )


def _error_of_late(lost: list[dict[str, Any]], size: int, tracebacks: dict[int, str]) -> GangError:
    """Return the error of a gang that timed out; ``lost`` are ranks that had to be killed."""
    ranks = sorted({one["lost"] for one in lost})
    how = ", ".join(f"rank {one['lost']} on host {one['host']} {one['how']}" for one in lost)
    return GangError(
        f"a gang of {size} ranks did not end in time",
        got=f"ranks {ranks} were given up: {how}" if lost else None,
        remedy="The error's tracebacks show what each rank was doing",
        tracebacks=tracebacks,
        may_retry=True,
    )


@contextmanager
def _scheduler_there() -> Iterator[None]:
    """Raise scheduler_gone if Dask only reports a closed connection."""
    try:
        yield
    except OSError as error:  # closed, or cannot be opened any more
        raise scheduler_gone("while a gang ran") from error


def _is_of_mpi(error: BaseException | None) -> bool:
    """Return whether MPI raised: it may report a lost rank first."""
    return type(error).__module__.startswith("mpi4py")
