"""Ranks that are threads of this process: what they say to each other is copied in memory."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest


class World:
    """What threads share; ``broken`` ends all of them when one has failed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.meeting = threading.Barrier(size)
        self.given: list[Any] = [None] * size
        self.mail: dict[tuple[int, int, int], queue.Queue[Any]] = defaultdict(queue.Queue)
        self.broken = threading.Event()
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.checks = 0


class Gone(BaseException):
    """Another rank has failed."""


class Rank:
    """A communicator as ``Communicator`` is; ``stop`` ends it at so many checks, as a signal."""

    def __init__(self, world: World, rank: int, stop: int | None = None) -> None:
        self.world, self.rank, self.size, self.stop = world, rank, world.size, stop

    def _meet(self) -> None:
        try:
            self.world.meeting.wait(60)
        except threading.BrokenBarrierError as error:
            raise Gone from error

    def allgather(self, value: Any) -> list[Any]:
        self.world.given[self.rank] = value
        self._meet()
        found = list(self.world.given)
        self._meet()
        return found

    def barrier(self) -> None:
        self._meet()

    def allreduce(self, array: Any, operation: str = "sum") -> Any:
        every = self.allgather(array.copy())
        total = every[0].copy()
        for other in every[1:]:
            total = np.maximum(total, other) if operation == "max" else total + other
        array[...] = total
        return array

    def broadcast(self, array: Any, root: int = 0) -> Any:
        array[...] = self.allgather(array.copy())[root]
        return array

    def isend(self, array: Any, to: int, tag: int = 0) -> Any:
        assert to != self.rank
        assert array.flags.c_contiguous
        self.world.mail[self.rank, to, tag].put(array.copy())
        return None

    def irecv(self, array: Any, source: int, tag: int = 0) -> Any:
        assert source != self.rank
        assert array.flags.c_contiguous
        return array, source, tag

    def wait(self, requests: Any, timeout: float | None = None) -> None:
        for request in requests if isinstance(requests, list) else [requests]:
            if request is None:
                continue
            array, source, tag = request
            while True:
                try:
                    array[...] = self.world.mail[source, self.rank, tag].get(timeout=0.1)
                    break
                except queue.Empty:
                    if self.world.broken.is_set():
                        raise Gone from None

    def log(self, **metrics: Any) -> None:
        self.world.logged.append((self.rank, metrics))

    def check(self) -> None:
        self.world.checks += 1
        if self.stop is not None and self.world.checks >= self.stop:
            raise KeyboardInterrupt


Gang = Callable[..., list[Any]]


@pytest.fixture
def gang() -> Gang:
    """Return what calls ``function(comm)`` on ranks at once, and returns what each returned."""

    def run(ranks: int, function: Callable[[Any], Any], stop: int | None = None) -> list[Any]:
        world = World(ranks)

        def one(rank: int) -> Any:
            try:
                return function(Rank(world, rank, stop))
            except BaseException:
                world.broken.set()
                world.meeting.abort()
                raise

        with ThreadPoolExecutor(ranks) as pool:
            futures = [pool.submit(one, rank) for rank in range(ranks)]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None and not isinstance(error, Gone):
                raise error
        run.world = world  # type: ignore[attr-defined]
        return [future.result() for future in futures]

    return run
