"""From a ClusterSpec to a client, and away again without a trace."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from distributed import KilledWorker

from penstock.cluster.connect import SMALL_INPUT, connect, kind_for
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError
from penstock.pipelines.job.capacity import task_capacity


@pytest.mark.parametrize(
    ("spec", "size", "processes"),
    [
        (ClusterSpec(), SMALL_INPUT, False),
        (ClusterSpec(), SMALL_INPUT + 1, True),
        (ClusterSpec(workers=1), 0, True),
        (ClusterSpec(memory_limit="1GB"), 0, True),
    ],
)
def test_auto_starts_processes_where_they_pay(spec, size, processes):
    assert (kind_for(spec, size, None) == "local") is processes


@pytest.mark.parametrize(
    ("gpus", "installed", "options", "kind"),
    [
        (0, {"cupy", "dask_cuda"}, {}, "local"),
        (1, {"cupy", "dask_cuda"}, {}, "threads"),
        (4, {"cupy", "dask_cuda"}, {}, "cuda"),
        (4, {"cupy"}, {}, "threads"),
        (4, {"cupy", "dask_cuda"}, {"device": "cpu"}, "local"),
    ],
)
def test_auto_gives_a_job_for_gpus_a_worker_each(monkeypatch, gpus, installed, options, kind):
    monkeypatch.setattr("penstock.workers.resources.device.devices_here", lambda: gpus)
    monkeypatch.setattr(
        "penstock.cluster.connect.find_spec", lambda name: name in installed or None
    )
    assert kind_for(ClusterSpec(**options), SMALL_INPUT + 1, None, on_gpu=True) == kind


@pytest.fixture(scope="module")
def client():
    spec = ClusterSpec(cluster="local", workers=1, memory_limit="500MB", no_tls=True)
    with connect(spec, input_bytes=0) as client:
        yield client


def test_a_cluster_that_runs_already_is_left_running(client):
    with connect(ClusterSpec(cluster=client.scheduler.address), input_bytes=0) as guest:
        assert task_capacity(guest, ClusterSpec()).tasks == 1
    assert client.submit(lambda: 5, pure=False).result() == 5


def test_a_worker_may_map_more_than_its_memory(client, tmp_path):
    """Two tasks, of which the second starts while the first one's pages are in memory."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(700_000_000)

    def read():
        import mmap
        import time

        with path.open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        found = sum(pages[:: mmap.PAGESIZE])
        time.sleep(1)  # Dask looks ten times
        globals()["held"] = pages
        return found, os.getpid()

    (found, first), (again, second) = (
        client.submit(read, pure=False).result(timeout=60) for _ in range(2)
    )
    assert (found, again, first) == (0, 0, second)


@pytest.mark.parametrize("kept", [600, pytest.param(490, marks=pytest.mark.slow)])
def test_a_worker_without_memory_does_not_keep_its_tasks(kept):
    """Beyond its limit, and, paused, below: it is started again, and the tasks end."""

    def keep():
        import builtins
        import time

        builtins.held = np.ones(kept << 17)
        time.sleep(1)  # the other tasks reach the worker meanwhile

    one = ClusterSpec(cluster="local", workers=1, memory_limit="700MB")
    with connect(one, input_bytes=0) as client:
        first = client.submit(keep, priority=1, resources={"piece": 1})
        others = [client.submit(abs, n, resources={"piece": 1}) for n in range(4)]
        with pytest.raises(KilledWorker):
            for future in (first, *others):
                future.result(timeout=100)


def test_an_address_that_does_not_answer_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterError), connect(address, start_timeout=1):
            pass


def test_a_script_needs_no_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import penstock\n"
        "def double(number): return 2 * number\n"
        "with penstock.connect('local', workers=1) as client:\n"
        "    print(client.submit(double, 4).result())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
