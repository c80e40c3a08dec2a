"""A graph is copied once per host, whole or not at all, and makes room when no process uses it."""

import os
import shutil
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest

from penstock.errors import CorruptFile, MissingFile, TruncatedFile
from penstock.graph import Graph
from penstock.workers.local_copies import LocalCopies
from penstock.workers.resources.storage import Speed

# Copies the graph argv[1] in argv[2]. It says when it copies, and waits for a line before it goes
# on; and how many copies it made.
COPY = """
import sys
from pathlib import Path
from penstock.graph import Graph
from penstock import locks
from penstock.workers import local_copies
from penstock.workers.resources.storage import Speed

real_touch, said = locks.FileLock.touch, iter(["copying"])

def touch(self):  # by one of the threads that copy, and by who has found a copy
    if not any(copies.glob("shared-????????????????")) and (word := next(said, "")):
        print(word, flush=True)
        sys.stdin.readline()
    real_touch(self)

locks.FileLock.touch = touch
path, copies = Path(sys.argv[1]), Path(sys.argv[2])
mine = local_copies.LocalCopies(
    lambda: copies, lambda: copies, speed=lambda at: Speed.NVME if at == copies else Speed.SHARED
)
with mine.hold(path) as local:
    Graph.open(local).validate()
    print("copies", mine.made, flush=True)
"""


class Copier(subprocess.Popen):
    """Another process of this host that stages a graph."""

    def __init__(self, *paths):
        command, pipe = [sys.executable, "-P", "-c", COPY, *map(str, paths)], subprocess.PIPE
        super().__init__(command, stdin=pipe, stdout=pipe, text=True)

    def hear(self):
        return self.stdout.readline().strip()

    def go(self):
        self.stdin.write("go\n")
        self.stdin.flush()


@pytest.fixture
def copier(shared, copies):
    started = []

    def start():
        started.append(Copier(shared, copies))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate(timeout=20)


@pytest.fixture
def copies(tmp_path):
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies"


@pytest.fixture
def shared(make_graph):
    """A graph on storage that passes for slow: whatever is not in ``copies``."""
    return make_graph(weights=True, features="dense", shard_edges=128, name="shared").path


@pytest.fixture
def mine(copies):
    one = worker(copies)
    yield one
    one.close()


def worker(copies, **more):
    return LocalCopies(
        lambda: copies,
        lambda: copies,
        speed=lambda path: Speed.NVME if path == copies else Speed.SHARED,
        **more,
    )


def whole_copies(copies):
    return sorted(path.name for path in copies.iterdir() if path.is_dir())


# -- copying --------------------------------------------------------------------------------------


def test_a_graph_is_copied_once_and_is_the_same(mine, copies, shared):
    with mine.hold(shared) as local, mine.hold(str(shared)) as again:
        assert local == again
        assert local.parent == copies
        Graph.open(local).validate()
        np.testing.assert_array_equal(
            Graph.open(local).csr().indices, Graph.open(shared).csr().indices
        )
        assert (local / "graph.json").read_bytes() == (shared / "graph.json").read_bytes()
    assert mine.made == 1
    other = worker(copies)
    assert other(shared) == local
    assert other(shared) == local
    assert other.made == 0
    other.close()


# -- what goes wrong ------------------------------------------------------------------------------


DAMAGES = {
    "missing": (lambda file, body: file.unlink(), MissingFile),
    "short": (lambda file, body: file.write_bytes(body[:-1]), TruncatedFile),
    "long": (lambda file, body: file.write_bytes(body + b"x"), TruncatedFile),
    "changed": (lambda f, b: f.write_bytes(b[:-1] + bytes([b[-1] ^ 1])), CorruptFile),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_source_leaves_nothing(how, mine, copies, shared):
    (damage, error), file = DAMAGES[how], shared / "shards/00001/indices.npy"
    body = file.read_bytes()
    damage(file, body)
    with pytest.raises(error, match="shards/00001/indices.npy"):
        mine(shared)
    assert whole_copies(copies) == []
    assert mine.made == 0
    file.write_bytes(body)
    Graph.open(mine(shared)).validate()


# -- several at once ------------------------------------------------------------------------------


def test_processes_of_a_host_copy_once(copier, copies):
    first = copier()
    assert first.hear() == "copying"
    others = [copier(), copier()]
    first.go()
    assert first.hear() == "copies 1"
    assert [other.hear() for other in others] == ["copies 0"] * 2
    assert len(whole_copies(copies)) == 1


def test_after_a_kill_in_the_middle_the_next_succeeds(copier, mine, copies, shared):
    victim = copier()
    assert victim.hear() == "copying"
    victim.kill()
    victim.wait()
    assert [path.name for path in copies.glob(".*.partial")] != []
    Graph.open(mine(shared)).validate()
    assert mine.made == 1
    assert whole_copies(copies) == [mine(shared).name]


# -- room -----------------------------------------------------------------------------------------

Free = namedtuple("Free", "free")


@pytest.fixture
def room(copies, monkeypatch):
    """Give the scratch disk this many bytes: what lies in ``copies`` counts."""

    def give(total):
        def usage(_):
            files = [file for file in copies.rglob("*") if file.is_file()]
            return Free(total - sum(file.stat().st_size for file in files))

        monkeypatch.setattr(shutil, "disk_usage", usage)

    return give


def test_the_longest_unused_makes_room(mine, copies, make_graph, room):
    paths = [make_graph(seed=n, name=f"g{n}").path for n in range(4)]
    size = sum(file.stat().st_size for file in paths[0].rglob("*") if file.is_file())
    room(int(size * 3.5))
    with mine.hold(paths[0]) as first:
        for path in (paths[1], paths[2]):
            with mine.hold(path):
                pass
        for number, lock in enumerate(sorted(copies.glob("*.lock"))):
            os.utime(lock, (number, number))  # g0 is the oldest, and in use
        with mine.hold(paths[3]):
            names = [name[:2] for name in whole_copies(copies)]
            assert names == ["g0", "g2", "g3"]
            assert sorted(lock.name[:2] for lock in copies.glob("*.lock")) == names
        Graph.open(first).validate()
    with mine.hold(paths[1]):  # its copy is gone, so it is copied again
        assert mine.made == 5
