"""Ranks that are threads of this process: what they say to each other is copied in memory."""

import queue
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest


class World:
    """What threads share; ``broken`` ends all of them when one has failed."""

    def __init__(self, size):
        self.size = size
        self.meeting = threading.Barrier(size)
        self.given = [None] * size
        self.mail = defaultdict(queue.Queue)
        self.broken = threading.Event()
        self.logged = []
        self.checks = 0


class Gone(BaseException):
    """Another rank has failed."""


class Rank:
    """A communicator as ``Communicator`` is; ``stop`` ends it at so many checks, as a signal."""

    def __init__(self, world, rank, stop=None):
        self.world, self.rank, self.size, self.stop = world, rank, world.size, stop

    def _meet(self):
        try:
            self.world.meeting.wait(60)
        except threading.BrokenBarrierError as error:
            raise Gone from error

    def allgather(self, value):
        self.world.given[self.rank] = value
        self._meet()
        found = list(self.world.given)
        self._meet()
        return found

    def barrier(self):
        self._meet()

    def allreduce(self, array, operation="sum"):
        every = self.allgather(array.copy())
        total = every[0].copy()
        for other in every[1:]:
            total = np.maximum(total, other) if operation == "max" else total + other
        array[...] = total
        return array

    def broadcast(self, array, root=0):
        array[...] = self.allgather(array.copy())[root]
        return array

    def isend(self, array, to, tag=0):
        assert to != self.rank
        assert array.flags.c_contiguous
        self.world.mail[self.rank, to, tag].put(array.copy())
        return

    def irecv(self, array, source, tag=0):
        assert source != self.rank
        assert array.flags.c_contiguous
        return array, source, tag

    def wait(self, requests, timeout=None):
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

    def log(self, **metrics):
        self.world.logged.append((self.rank, metrics))

    def check(self):
        self.world.checks += 1
        if self.stop is not None and self.world.checks >= self.stop:
            raise KeyboardInterrupt


@pytest.fixture
def gang():
    """Return what calls ``function(comm)`` on ranks at once, and returns what each returned."""

    def run(ranks, function, stop=None):
        world = World(ranks)

        def one(rank):
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
        run.world = world
        return [future.result() for future in futures]

    return run
