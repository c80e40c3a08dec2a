"""Scheduler and client on h1, an MPI world over h1 to h4: what happens when a host does not play.

A test runs a driver, which is a user's script, on h1; the gang's functions lie in a module next to
it, and files in the folder of both synchronize test and ranks.
"""

import json
import os
import re
import subprocess
import sys
import threading

import pytest
from processes import until

pytestmark = [pytest.mark.netns, pytest.mark.mpi]

JOB = '''
import os
import socket
import time
from pathlib import Path

import numpy as np


def where(comm):
    """Pass each rank's number around the ring."""
    come = np.zeros(1, np.int64)
    requests = [comm.irecv(come, (comm.rank - 1) % comm.size, 3)]
    requests.append(comm.isend(np.array([comm.rank]), (comm.rank + 1) % comm.size, 3))
    comm.wait(requests)
    comm.barrier()
    return socket.gethostname(), int(come[0])


def sums(comm, folder, steps):
    """Add up rank * step over all ranks and steps, from the checkpoint on.

    Holds in the middle until the test says `go on`.
    """
    folder = Path(folder)
    checkpoint = folder / "checkpoint"
    step = total = 0
    if checkpoint.exists():
        step, total = map(int, checkpoint.read_text().split())
    first = step
    while step < steps:
        mine = np.array([comm.rank * step, (folder / "go on").exists() or step != steps // 2])
        comm.allreduce(mine)
        if mine[1] == comm.size:
            step, total = step + 1, total + int(mine[0])
            if comm.rank == 0:
                checkpoint.with_suffix(".new").write_text(f"{step} {total}")
                checkpoint.with_suffix(".new").rename(checkpoint)
        elif comm.rank == 0:
            (folder / "in the middle").touch()
            time.sleep(0.01)
    return total, first
'''

DRIVER = """
import json
import sys
import time

import job
import penstock
from penstock.errors import PenstockError


def tell(**what):
    print(json.dumps(what), flush=True)


def attempt(name, call):
    start = time.monotonic()
    try:
        told = {"results": call()}
    except PenstockError as error:
        told = {"error": type(error).__name__, "text": str(error)}
    tell(name=name, seconds=time.monotonic() - start, **told)


def gang(function, *args, **options):
    return penstock.gang.run(client, function, args, ranks=4, **options)


options, folder, script = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
try:
    with penstock.connect("mpi", interface="eth0", **options) as client:
        tell(name="connected")
        exec(script)
        closing = time.monotonic()
    tell(name="closed", seconds=time.monotonic() - closing)
except PenstockError as error:
    tell(name="not connected", error=type(error).__name__, text=str(error))
"""

# Dask leaves them wherever it has been.
LOCKS_OF_DASK = ("/dask-scratch-space/global.lock", "/dask-scratch-space/purge.lock")
RING = [["h1", 3], ["h2", 0], ["h3", 1], ["h4", 2]]
LONGEST = 180  # seconds, after which something hangs
FOUR = "h1:1,h2:1,h3:1,h4:1"


class Driver:
    """The user's script on h1, and its messages."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, folder
        (folder / "job.py").write_text(JOB)
        (folder / "driver.py").write_text(DRIVER)
        self.log = folder / "driver.log"
        self.process = None
        self.watchdog = threading.Timer(LONGEST, lambda: self.process and self.process.kill())

    def start(self, script="", **options):
        words = [json.dumps({"workers": 4, "hosts": FOUR, **options}), self.folder, script]
        path = ":".join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")]))
        with self.log.open("w") as log:
            self.process = self.hosts.python(
                "h1",
                self.folder / "driver.py",
                *words,
                env={**os.environ, "PYTHONPATH": path, "PENSTOCK_LAUNCH_AGENT": self.hosts.agent},
                stdin=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
            )
        self.watchdog.start()

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, name):
        """Return the next message of the driver, which has this name."""
        line = self.process.stdout.readline()
        told = json.loads(line) if line else {"name": "nothing", "log": self.log.read_text()}
        assert told["name"] == name, told
        return told

    def in_the_middle(self, folder):
        """Wait for a gang of `sums` to be in its middle."""
        file = folder / "in the middle"
        until(lambda: file.exists() or self.process.poll() is not None, seconds=60)
        assert file.exists(), self.log.read_text()

    def end(self):
        assert self.process.stdout.read() == ""
        assert self.process.wait(timeout=10) == 0, self.log.read_text()


@pytest.fixture
def driver(hosts, tmp_path):
    driver = Driver(hosts, tmp_path)
    yield driver
    driver.watchdog.cancel()


def rank_on(hosts, host):
    """The process of the one rank on a host."""
    ranks = [
        pid
        for pid, line in hosts.processes(host).items()
        if line.split()[:4] == [sys.executable, "-P", "-m", "penstock.workers.rank"]
    ]
    assert len(ranks) == 1, hosts.processes(host)
    return ranks[0]


def no_process_left(hosts):
    until(lambda: not any(map(hosts.processes, hosts.names)), seconds=5)


@pytest.mark.slow
def test_a_job_outlives_killed_workers(driver, hosts):
    first, second = driver.folder / "first", driver.folder / "second"
    first.mkdir()
    second.mkdir()
    driver.start(
        "attempt('ring', lambda: gang(job.where))\n"
        "kept = client.map(lambda number: number * 2, range(8))\n"
        "attempt('no retry', lambda: gang(job.sums, folder + '/first', 20))\n"
        "attempt('retries', lambda: gang(job.sums, folder + '/second', 20, retries=2))\n"
        "attempt('ring', lambda: gang(job.where))\n"
        "attempt('tasks', lambda: client.gather(kept))\n"
    )
    driver.hear("connected")
    assert driver.hear("ring")["results"] == RING

    driver.in_the_middle(first)
    hosts.kill("h4", rank_on(hosts, "h4"))
    told = driver.hear("no retry")
    assert told["error"] == "GangError"
    assert re.search(r"rank 3 of 4 on host (h4|10.77.0.4) ", told["text"])

    driver.in_the_middle(second)
    hosts.kill("h3", rank_on(hosts, "h3"))
    (second / "go on").touch()
    total = (0 + 1 + 2 + 3) * sum(range(20))
    assert driver.hear("retries")["results"] == [[total, 10]] * 4

    assert driver.hear("ring")["results"] == RING
    assert driver.hear("tasks")["results"] == [number * 2 for number in range(8)]
    assert driver.hear("closed")["seconds"] < 5
    driver.end()
    no_process_left(hosts)
    folders = [(host, folder) for host in hosts.names for folder in ("/dev/shm", hosts.tmp)]
    found = [f"{folder}/{file}" for host, folder in folders for file in hosts.files(host, folder)]
    assert [file for file in found if not file.endswith(LOCKS_OF_DASK)] == []


@pytest.mark.slow
def test_a_cut_link_ends_the_gang_in_time(driver, hosts):
    driver.start(
        "attempt('sums', lambda: gang(job.sums, folder, 20, timeout=4))\n"
        "input()\n"
        "attempt('ring', lambda: gang(job.where))\n"
    )
    driver.hear("connected")
    driver.in_the_middle(driver.folder)
    hosts.cut("h3")
    told = driver.hear("sums")
    assert told["error"] == "GangError"
    assert "rank 2 on host h3" in told["text"]
    assert told["seconds"] < 4 + 6
    hosts.mend("h3")
    driver.say("mended")
    assert driver.hear("ring")["results"] == RING  # in a new world
    assert driver.hear("closed")["seconds"] < 5
    driver.end()
    no_process_left(hosts)


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_named_within_the_timeout(driver, hosts):
    hosts.freeze("h3")  # it accepts the call, and does not answer
    driver.start(start_timeout=3)
    told = driver.hear("not connected")
    assert told["error"] == "ClusterError"
    assert "rank 2 on host h3" in told["text"]
    driver.end()
    others = ("h1", "h2", "h4")
    until(lambda: not any(map(hosts.processes, others)), seconds=10)
