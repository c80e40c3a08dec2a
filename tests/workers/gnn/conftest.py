"""Ranks on threads of this process, for what needs no MPI to be tested, and graphs for them."""

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import Queue

import numpy as np
import pytest

from penstock import partition_graph
from penstock.csr import CSR
from penstock.graph import Graph
from penstock.partition.part import partition_path
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.data.local import open_local
from penstock.writer import create_graph

_PATIENCE = 120  # a kernel may be compiled meanwhile, on a busy machine


class _Shared:
    def __init__(self, size):
        self.size = size
        self._mail = {}
        self.barrier = threading.Barrier(size, timeout=_PATIENCE)
        self.gathered = [None] * size

    def mail(self, source, to, tag):
        # Atomic, which a defaultdict is not.
        return self._mail.setdefault((source, to, tag), Queue())


class ThreadComm:
    """What a rank on a thread says to the others: the part of Communicator that training runs use.

    A message is copied when it is sent, and arrives when the receiver waits or tests.
    """

    def __init__(self, shared, rank):
        self._shared, self.rank, self.size = shared, rank, shared.size
        self.messages = []  # what was posted: how, peer, bytes
        self.barriers = 0

    def isend(self, array, to, tag=0):
        assert array.flags.c_contiguous
        self.messages.append(("send", to, array.nbytes))
        self._shared.mail(self.rank, to, tag).put(array.copy())
        return []

    def irecv(self, array, source, tag=0):
        assert array.flags.c_contiguous
        self.messages.append(("receive", source, array.nbytes))
        return [(array, self._shared.mail(source, self.rank, tag))]

    def iallreduce(self, array, operation="sum"):
        how = {"sum": np.add, "max": np.maximum, "min": np.minimum}[operation]
        self._shared.gathered[self.rank] = array.copy()
        self._shared.barrier.wait()
        found = how.reduce(self._shared.gathered)
        self._shared.barrier.wait()
        array[...] = found
        return []

    def allreduce(self, array, operation="sum"):
        self.wait(self.iallreduce(array, operation))
        return array

    def broadcast(self, array, root=0):
        array[...] = self.allgather(array.copy())[root]
        return array

    def allgather(self, value):
        self._shared.gathered[self.rank] = value
        self._shared.barrier.wait()
        found = list(self._shared.gathered)
        self._shared.barrier.wait()
        return found

    def barrier(self):
        self.barriers += 1
        self._shared.barrier.wait()

    def transport(self, array):
        return "messages between threads"

    def advance(self, amount=1):
        """Nobody listens."""

    def log(self, **metrics):
        """Nobody listens."""

    def start(self):
        """Nothing to do."""

    def wait(self, requests):
        for request in _flat(requests):
            request[0][...] = request[1].get(timeout=_PATIENCE)

    def test(self, requests):
        if any(request[1].empty() for request in _flat(requests)):
            return False
        self.wait(requests)
        return True


def _flat(requests):
    if isinstance(requests, tuple):
        return [requests]
    return [each for request in requests for each in _flat(request)]


@pytest.fixture
def on_threads(monkeypatch):
    """Run ``function(comm, *args)`` as ``ranks`` ranks, and return what each gave."""
    # Python 3.11 may fail to parse in two threads at once, as NumPy does to read an array's header.
    parse, one_at_a_time = ast.parse, threading.Lock()

    def parse_alone(*args, **how):
        with one_at_a_time:
            return parse(*args, **how)

    monkeypatch.setattr(ast, "parse", parse_alone)

    def run(ranks, function, *args):
        shared = _Shared(ranks)

        def one(rank):
            try:
                return function(ThreadComm(shared, rank), *args)
            except BaseException:
                shared.barrier.abort()
                raise

        with ThreadPoolExecutor(ranks) as pool:
            futures = [pool.submit(one, rank) for rank in range(ranks)]
            errors = [e for f in futures if (e := f.exception()) is not None]
            errors.sort(key=lambda e: isinstance(e, threading.BrokenBarrierError))
            if errors:
                raise errors[0]
            return [future.result() for future in futures]

    return run


@pytest.fixture
def partitioned():
    """Partition a graph at random."""

    def make(graph, k):
        partition_graph(graph, k=k, method="random", quiet=True)
        return partition_path(graph, k)

    return make


@pytest.fixture
def opened(on_threads, partitioned):
    """Open every one of ``k`` parts, or the whole graph."""

    def make(graph, k=1, *, weighted=False, **how):
        if k == 1:
            with open_local(SingleRank(), graph.path, None, weighted=weighted, **how) as local:
                return [local]
        partition = partitioned(graph, k)

        def rank(comm):
            with open_local(comm, graph.path, partition, weighted=weighted, **how) as local:
                return local

        return on_threads(k, rank)

    return make


@pytest.fixture
def ring(tmp_path):
    """Write a ring of six nodes, n0 to n5; what is named replaces its labels, splits, features."""

    def make(name="g", **columns):
        nodes = np.arange(6)
        both = np.concatenate([nodes, (nodes + 1) % 6]), np.concatenate([(nodes + 1) % 6, nodes])
        made = {
            "labels": "class",
            "classes": ("a", "b"),
            "split": np.array([0, 1, 2, 0, 1, 2], np.int8),
            "label": np.array([0, 1, 0, 1, 0, 1], np.int32),
            "features": nodes.astype(np.float32)[:, None] * [1, 2],
            "ids": [f"n{i}" for i in range(6)],
        } | columns
        with create_graph(tmp_path / name) as writer:
            writer.edges(CSR.from_edges(*both, 6))
            writer.nodes(
                made["ids"], **{n: made[n] for n in ("label", "split") if made[n] is not None}
            )
            if made["features"] is not None:
                writer.features(made["features"])
            writer.manifest = replace(
                writer.manifest, directed=False, labels=made["labels"], classes=made["classes"]
            )
        return Graph.open(tmp_path / name)

    return make
