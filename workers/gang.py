"""One member of a gang: how it meets the others, runs, and ends when the gang ends.

A gang is one task on each of several workers, which are ranks of one MPI world. Its members meet,
make their own communicator, and run the same function. If one fails, the others are asked to end
(``end``), and end within ``GRACE`` seconds or are killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Literal

import numpy as np

from penstock.errors import ClusterError, MissingExtra
from penstock.workers.comm.communicator import Communicator
from penstock.workers.comm.mpi import load_mpi
from penstock.workers.comm.reports import Printed, Reports
from penstock.workers.comm.wait import Cancelled, Waiter, WaitTimeout
from penstock.workers.resources import device as devices

GRACE = 3.0  # seconds for a member to end after the request
_RAISE_EVERY = 0.25
_LOOK_EVERY = 0.01
_NO_FILE = "<dynamic-code>"  # cloudpickle's, since 3.1.3; tracebacks quote lines by the file's name


@dataclass(frozen=True)
class MemberTask:
    """What a member knows of its gang."""

    gang: str
    number: int  # number of the gang on this scheduler: separates old messages from new ones
    rank: int
    members: tuple[int, ...]  # their ranks in the MPI world
    world: str
    start_timeout: float
    wait_timeout: float
    file: str | None = None  # file of the function, for tracebacks

    @property
    def tag(self) -> int:
        """The tag of the gang's messages in the world."""
        return 1 + self.number % 30000


@dataclass
class Outcome:
    """How a member ended; it is always a result, so that Dask does not retry it."""

    rank: int
    host: str
    kind: Literal["done", "raised", "cancelled"]
    value: Any = None
    error: BaseException | None = None  # if it can be pickled
    text: str = ""  # the traceback
    at: float = 0.0
    dead: int = 0  # communicators that failed gangs left in this process


@dataclass
class _Member:
    task: MemberTask
    waiter: Waiter
    thread: int
    raising: bool = True  # whether an exception may still be raised in its thread
    ended: threading.Event = field(default_factory=threading.Event)


_lock = threading.Lock()
_members: dict[str, _Member] = {}
_ended_gangs: deque[str] = deque(maxlen=1000)  # perhaps before their task arrived
_dead: list[Any] = []  # communicators of failed gangs, and memory that late messages may reach


def run_member(
    task: MemberTask, function: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Outcome:
    """Run a pickled ``function(comm, *args, **kwargs)`` as a member of a gang: Dask's task."""
    host = socket.gethostname()
    member = _Member(task, Waiter(), threading.get_ident())
    try:
        try:
            _enter(member)
            value = _work(member, _unpickled(function, task.file), args, kwargs)
            outcome = Outcome(task.rank, host, "done", value)
        except Cancelled:
            outcome = Outcome(task.rank, host, "cancelled", text=traceback.format_exc())
        except BaseException as error:
            outcome = Outcome(task.rank, host, "raised", error=_portable(error))
            outcome.text = traceback.format_exc()
    finally:
        _leave(member)
    outcome.at, outcome.dead = time.time(), len(_dead)
    return outcome


def _unpickled(pickled: bytes, file: str | None) -> Any:
    try:
        function = pickle.loads(pickled)
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            "a worker cannot load the gang's function",
            got=f"{type(error).__name__}: {error}",
            remedy="Install its module for the workers, put its folder on PYTHONPATH before the "
            "cluster starts, or define the function in the script itself",
        ) from error
    code = function.__code__ if isinstance(function, FunctionType) else None
    if code is not None and file is not None and code.co_filename == _NO_FILE:
        function.__code__ = _code_of_file(code, file)
    return function


def _code_of_file(code: CodeType, file: str) -> CodeType:
    within = (_code_of_file(c, file) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(within))


def _work(member: _Member, function: Any, args: Any, kwargs: Any) -> Any:
    task = member.task
    reports = Reports(task.gang, task.rank)
    printed = Printed(reports)
    comm = _communicator(task, member.waiter, reports)
    try:
        with redirect_stdout(printed):
            value = function(comm, *args, **kwargs)
        comm.leave()
    except BaseException as error:
        _stop_raising(member)
        _dead.append(comm.abandon())
        if isinstance(error, WaitTimeout):
            raise ClusterError(
                f"rank {task.rank} of {len(task.members)} timed out",
                expected=f"the other ranks to answer within {task.wait_timeout:g} s",
                remedy="The traceback shows what it waited for; gang.run(wait_timeout=...) gives "
                "slow ranks more time",
            ) from error
        raise
    finally:
        reports.flush()
        printed.end()
    return value


def _communicator(task: MemberTask, waiter: Waiter, report: Any) -> Communicator:
    mpi = load_mpi()
    world = mpi.COMM_WORLD
    if world.rank != task.members[task.rank]:
        raise ClusterError(
            "a worker is not the MPI rank of its name",
            expected=f"rank {task.members[task.rank]}",
            got=f"rank {world.rank} of {world.size}",
            remedy="Start workers as MPI ranks themselves: dask-mpi --worker-class "
            "distributed.Worker, not in a nanny's child",
        )
    own = devices.this_gpu()
    on_gpus = _meet(world, task, waiter, own.used)
    group = world.Get_group()
    chosen = group.Incl(task.members)
    comm = world.Create_group(chosen, task.tag)
    chosen.Free()
    group.Free()
    comm.Set_errhandler(mpi.ERRORS_RETURN)
    if 0 < on_gpus < len(task.members):
        error = _disagreement(comm.allgather(own))
        comm.Free()
        raise error
    device = None
    if on_gpus:
        from penstock.workers.comm.exchange_device import device_exchange

        try:
            device = device_exchange(
                comm, waiter, task.members, task.world, timeout=task.start_timeout
            )
        except BaseException:
            _dead.append(comm)
            raise
    return Communicator(comm, waiter, wait_timeout=task.wait_timeout, device=device, report=report)


def _disagreement(found: list[devices.Gpu]) -> MissingExtra:
    """Return the error of a gang if some ranks compute on a GPU and others cannot."""
    without = [rank for rank, gpu in enumerate(found) if not gpu.used]
    rank = without[0]
    other = next(number for number, gpu in enumerate(found) if gpu.used)
    return MissingExtra(
        "some ranks of this gang compute on a GPU, and others cannot",
        expected=f"the same on all, as on rank {other} on host {found[other].host}",
        got=f"rank {rank} on host {found[rank].host}: {found[rank].reason}"
        + (f" ({len(without)} such ranks)" if len(without) > 1 else ""),
        remedy=f"{found[rank].remedy}, or use --device cpu on all",
    )


def _meet(world: Any, task: MemberTask, waiter: Waiter, on_gpu: bool) -> int:
    """Return once all members have met: how many of them compute on a GPU.

    Making a communicator blocks until all join and cannot be cancelled, so no member begins before.
    Messages carry the gang's number: a cancelled gang may have left some.
    """
    first, others = task.members[0], task.members[1:]
    posted: list[Any] = []

    def receive(source: int) -> Any:
        message = np.zeros(2, np.int64)
        posted.append((world.Irecv(message, source, task.tag), message, source))
        return posted[-1]

    def send(to: int, on_gpus: int) -> None:
        message = np.array([task.number, on_gpus])
        waiter.wait([world.Isend(message, to, task.tag)], task.start_timeout)

    def gather(sources: tuple[int, ...]) -> int:
        waiting, on_gpus = [receive(source) for source in sources], 0
        while waiting:
            waiter.wait([request for request, _, _ in waiting], task.start_timeout)
            on_gpus += sum(int(found[1]) for _, found, _ in waiting if found[0] == task.number)
            waiting = [receive(s) for _, found, s in waiting if found[0] != task.number]
        return on_gpus

    try:
        if world.rank == first:
            on_gpus = on_gpu + gather(others)
            for other in others:
                send(other, on_gpus)
            return on_gpus
        send(first, on_gpu)
        return gather((first,))
    except BaseException as error:
        missing = [source for request, _, source in posted if request]
        for request, _, _ in posted:
            if request:
                request.Cancel()
                request.Test()
        if isinstance(error, WaitTimeout):
            raise ClusterError(
                f"rank {task.rank} of {len(task.members)} did not meet the others",
                expected=f"world ranks {missing} within {task.start_timeout:g} s",
                remedy="They may be busy with another task; see the dashboard",
            ) from error
        raise


# Early ends


def end(gang: str) -> None:
    """End this process's member of a gang; called in the worker's event loop."""
    with _lock:
        _ended_gangs.append(gang)
        member = _members.get(gang)
    if member is not None:
        member.waiter.cancel()
        threading.Thread(target=_insist, args=(member,), daemon=True).start()


async def until_ended(gang: str) -> None:
    """Return once no member of a gang runs in this process; called in the worker's event loop."""
    with _lock:
        member = _members.get(gang)
    while member is not None and not member.ended.is_set():
        await asyncio.sleep(_LOOK_EVERY)


def _insist(member: _Member) -> None:
    """Raise in a member that does not wait, and kill the process of one that does not react."""
    give_up = time.monotonic() + GRACE
    while not member.ended.wait(_RAISE_EVERY):
        if time.monotonic() > give_up:
            stack = describe(member.task.gang)
            print(f"rank {member.task.rank} would not end:\n{stack}", file=sys.stderr, flush=True)
            # Not by an exit: across hosts MPICH would wait for the others.
            os.kill(os.getpid(), signal.SIGKILL)
        with _lock:
            if member.raising:
                _raise_in(member.thread, Cancelled)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    kind = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


def _enter(member: _Member) -> None:
    with _lock:
        _members[member.task.gang] = member
        if member.task.gang in _ended_gangs:
            raise Cancelled


def _stop_raising(member: _Member) -> None:
    """Stop raising in this thread: it cleans up, or has ended."""
    while member.raising:
        with suppress(Cancelled), _lock:  # the last one may arrive here
            member.raising = False
            _raise_in(member.thread, None)


def _leave(member: _Member) -> None:
    _stop_raising(member)
    with _lock:
        _members.pop(member.task.gang, None)
    member.ended.set()


def describe(gang: str) -> str:
    """Return the current stack of this process's member of a gang."""
    with _lock:
        member = _members.get(gang)
    frame = sys._current_frames().get(member.thread) if member is not None else None
    if frame is None:
        return "it is not running"
    return "".join(traceback.format_stack(frame))


def dead_communicators() -> int:
    """Return the number of communicators that failed gangs left in this process."""
    return len(_dead)


def _portable(error: BaseException) -> BaseException | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None  # the traceback shows it
    return error
