"""Many gangs in a row, a tenth of which fail at random: no hang, and nothing left over.

PENSTOCK_GANGS is the number: benchmarks/results/gang.md has a thousand.
"""

import gc
import logging
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from penstock import connect, gang
from penstock.errors import GangError

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(900)]

GANGS = int(os.environ.get("PENSTOCK_GANGS", "200"))
KINDS = ["exception"] * 4 + ["loop"] * 2 + ["wait"] * 2 + ["kill"]
STOP_SECONDS = 5.0


def test_many_gangs(tmp_path, monkeypatch, left_over):
    logging.getLogger("distributed").setLevel(logging.ERROR)  # pytest keeps the rest
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process, shared = psutil.Process(), set[str]()

    def work(comm, number, failure, victim):
        comm.allreduce(np.full(100, number))
        if comm.rank == victim and failure == "exception":
            raise ValueError(f"gang {number}")
        if comm.rank == victim and failure == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while comm.rank == victim and failure == "loop":
            pass
        if comm.rank == victim and failure == "wait":
            comm.wait(comm.irecv(np.zeros(1 << 20), 1 - victim, 5))
        return float(comm.allreduce(np.ones(1 << 14))[0])

    choose = random.Random(0)
    failed = {}
    with connect("mpi", workers=2) as client:
        for number in range(GANGS):
            failure = choose.choice(KINDS) if choose.random() < 0.1 else ""
            victim = choose.randrange(2)
            timeout = 0.3 if failure in ("loop", "wait") else 30.0
            started = time.monotonic()
            if not failure:
                assert gang.run(client, work, (number, "", 0), timeout=timeout) == [2.0, 2.0]
                if number % 20 == 0:
                    shared |= segments(client)
                if number == 100:
                    early = usage(client, process)
                continue
            with pytest.raises(GangError):
                gang.run(client, work, (number, failure, victim), timeout=timeout)
            failed[failure] = failed.get(failure, 0) + 1
            # A gang after a kill waits for the new world.
            assert time.monotonic() - started < STOP_SECONDS + 10
        late = usage(client, process)
    assert sum(failed.values()) > GANGS // 20
    assert set(failed) == set(KINDS)
    for what, before in early.items():
        assert late[what] <= 1.3 * before + ROOM[what], (what, early, late)
    assert not left_over()
    assert shared
    assert not [path for path in shared if Path(path).exists()]
    assert not list(tmp_path.rglob("*"))


# The limit for a hundred failures: a megabyte of buffers each would be ten times this.
ROOM = {"files": 8, "threads": 4, "bytes": 60 << 20, "rank files": 8, "rank bytes": 60 << 20}


def usage(client, process):
    gc.collect()
    ranks = client.run(lambda: (psutil.Process().num_fds(), psutil.Process().memory_info().rss))
    return {
        "files": process.num_fds(),
        "threads": process.num_threads(),
        "bytes": process.memory_info().rss,
        "rank files": max(files for files, _ in ranks.values()),
        "rank bytes": max(size for _, size in ranks.values()),
    }


def segments(client):
    """Return the shared memory that MPI has on this host for the ranks of this world."""

    def mapped():
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [line.split(None, 5)[5] for line in lines if " /dev/shm/" in line]

    found = {path for paths in client.run(mapped).values() for path in paths}
    return {path for path in found if not path.endswith("(deleted)")}
