"""A rank that is a worker says where it starts, works, and goes when its scheduler goes."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from processes import until

PROGRAM = ["-m", "penstock.workers.rank"]
EXIT_SECONDS = 10.0  # 5 where nothing else runs


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler in a process of its own, and its address."""
    file = tmp_path / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "distributed.cli.dask_scheduler", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    try:
        until(lambda: file.exists() and file.read_text().endswith("}"), process, 30)
        yield process, json.loads(file.read_text())["address"]
    finally:
        process.kill()
        process.wait()


def worker_words(address, folder):
    return [
        address,
        *("--no-scheduler", "--worker-class", "penstock.workers.rank.RankWorker"),
        *("--name", "test", "--nthreads", "2", "--memory-limit", "300000000"),
        *("--local-directory", str(folder)),
        *("--worker-options", json.dumps({"dashboard": False, "device": "cpu"})),
    ]


@pytest.mark.mpi
@pytest.mark.parametrize(
    "way", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_ranks_go_with_their_scheduler_whatever_they_do(mpirun, scheduler, tmp_path, way):
    from distributed import Client, fire_and_forget

    def hold(path):
        path.touch()
        time.sleep(600)

    process, address = scheduler
    begun = tmp_path / "begun"
    with ThreadPoolExecutor(1) as pool:
        world = pool.submit(mpirun, PROGRAM, 2, *worker_words(address, tmp_path), timeout=60)
        try:
            with Client(address, timeout=30, set_as_default=False) as client:
                client.wait_for_workers(2, timeout=30)
                workers = client.scheduler_info()["workers"].values()
                assert {worker["name"] for worker in workers} == {"test-0", "test-1"}
                assert {worker["nthreads"] for worker in workers} == {2}
                assert {worker["memory_limit"] for worker in workers} == {300_000_000}
                assert all(worker["host"] == "127.0.0.1" for worker in workers)
                pids = set(client.run(os.getpid).values())
                fire_and_forget(client.submit(hold, begun, pure=False))
                until(begun.exists, seconds=30)
        finally:
            process.send_signal(way)
            gone = time.monotonic()
        ended = world.result()
    assert time.monotonic() - gone < EXIT_SECONDS, ended.stdout
    assert not any(psutil.pid_exists(pid) for pid in pids)
