"""Ranks on threads of this process, for what needs no MPI: what they exchange is copied.

Importable by tests, see pyproject.toml.
"""

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from queue import Empty, Queue
from unittest.mock import patch

import numpy as np

PATIENCE = 120  # a kernel may be compiled meanwhile, on a busy machine


class World:
    """What the ranks share; ``broken`` ends all of them if one fails."""

    def __init__(self, size):
        self.size, self.given, self.mail = size, [None] * size, {}
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        self.broken = threading.Event()
        self.logged = []
        self.checks = 0


class Gone(BaseException):
    """Another rank has failed."""


class ThreadComm:
    """The part of ``Communicator`` that training runs use; ``stop`` interrupts at that check."""

    def __init__(self, world, rank, stop=None):
        self.world, self.rank, self.size, self.stop = world, rank, world.size, stop
        self.sent = []  # bytes of every message

    def _meet(self):
        try:
            self.world.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise Gone from error

    def _box(self, source, to, tag):
        # Atomic, which a defaultdict is not.
        return self.world.mail.setdefault((source, to, tag), Queue())

    def isend(self, array, to, tag=0):
        assert to != self.rank
        assert array.flags.c_contiguous
        self.sent.append(array.nbytes)
        self._box(self.rank, to, tag).put(array.copy())
        return []

    def irecv(self, array, source, tag=0):
        assert source != self.rank
        assert array.flags.c_contiguous
        return array, self._box(source, self.rank, tag)

    def wait(self, requests, timeout=None):
        for array, box in _flat(requests):
            while True:
                try:
                    array[...] = box.get(timeout=0.1)
                    break
                except Empty:
                    if self.world.broken.is_set():
                        raise Gone from None

    def follow(self, requests):
        self.wait(requests)

    def synchronize(self):
        """Nothing is under way."""

    def test(self, requests):
        if any(box.empty() for _, box in _flat(requests)):
            return False
        self.wait(requests)
        return True

    def allgather(self, value):
        self.world.given[self.rank] = value
        self._meet()
        found = list(self.world.given)
        self._meet()
        return found

    def barrier(self):
        self._meet()

    def allreduce(self, array, operation="sum"):
        how = {"sum": np.add, "max": np.maximum, "min": np.minimum}[operation]
        array[...] = reduce(how, self.allgather(array.copy()))
        return array

    def iallreduce(self, array, operation="sum"):
        self.allreduce(array, operation)
        return []

    def broadcast(self, array, root=0):
        array[...] = self.allgather(array.copy())[root]
        return array

    def log(self, **metrics):
        self.world.logged.append((self.rank, metrics))

    def check(self):
        self.world.checks += 1
        if self.stop is not None and self.world.checks >= self.stop:
            raise KeyboardInterrupt

    def transport(self, array):
        return "messages between threads"

    def advance(self, amount=1):
        """Show nothing."""

    def start(self):
        """Messages are on their way already."""


def _flat(requests):
    if requests is None:
        return []
    if isinstance(requests, tuple):
        return [requests]
    return [each for request in requests for each in _flat(request)]


def on_threads(ranks, function, *args, stop=None):
    """Run ``function(comm, *args)`` as ranks, and return what each returns."""
    # Python 3.11 may fail to parse in two threads at once, as NumPy does to read an array's header.
    parse, one_at_a_time = ast.parse, threading.Lock()

    def parse_alone(*args, **how):
        with one_at_a_time:
            return parse(*args, **how)

    world = on_threads.world = World(ranks)

    def one(rank):
        try:
            return function(ThreadComm(world, rank, stop), *args)
        except BaseException:
            world.broken.set()
            world.barrier.abort()
            raise

    with patch.object(ast, "parse", parse_alone), ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(one, rank) for rank in range(ranks)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Gone)):
        raise error
    return [future.result() for future in futures]
