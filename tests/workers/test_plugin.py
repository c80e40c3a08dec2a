"""Every worker finds and holds its own, says what it cannot find, and leaves nothing behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from penstock.errors import CapacityError, MissingExtra, UsageError
from penstock.graph import Graph
from penstock.limits import usable_memory
from penstock.workers import plugin
from penstock.workers.plugin import PenstockWorker, Resources, register_plugin, resources
from penstock.workers.profiling import without_profile
from penstock.workers.resources import device
from penstock.workers.resources.storage import Speed

STEPS = """
import os, sys, threading
from pathlib import Path
from penstock.workers.plugin import resources
from penstock.workers.resources.storage import Speed


def look():
    mine = resources()
    return id(mine), os.getpid(), str(mine.scratch), mine.device


def look_from_a_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(resources() is mine))
    mine = resources()
    thread.start()
    thread.join()
    return seen == [True]


def copy(path):
    mine = resources()
    # Whatever does not lie on the scratch disk passes for shared storage.
    root = mine.scratch_root()
    mine.copies._speed = lambda at: Speed.NVME if at == root else Speed.SHARED
    return str(mine.copies(path)), mine.copies.made


def hold_an_array():
    import numpy as np

    with resources().cache.hold("a", lambda: np.zeros(10)):
        return resources().cache.nbytes, resources().cache.limit_bytes


def loaded():
    return "cupy" in sys.modules, "mpi4py.MPI" in sys.modules
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Tasks in a module that worker processes can import."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "plugin_steps.py").write_text(STEPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield import_module("plugin_steps")


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PENSTOCK_SCRATCH", raising=False)
    device.look_again()
    # Workers of this process that other tests left without a farewell are no concern of these.
    monkeypatch.setattr(plugin, "_in_this_process", [])
    yield
    assert plugin._in_this_process == []
    assert device._asked == []
    if plugin._default is not None:
        plugin._default.close()
        plugin._default = None
    device.look_again()


@contextmanager
def cluster(workers: int = 2, *, processes: bool, **more: Any) -> Iterator[Client]:
    with (
        without_profile(unless_safe=False),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=processes,
            dashboard_address="localhost:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            **more,
        ) as local,
        Client(local) as client,
    ):
        yield client


def on_each(client: Client, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run a task, not just a function, on every worker."""
    addresses = client.run(lambda: None)
    tasks = [client.submit(function, *args, workers=[address], pure=False) for address in addresses]
    return list(client.gather(tasks))


# -- in workers -----------------------------------------------------------------------------------


def test_worker_processes(steps: Any, tmp_path: Path, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph().path
    root = tmp_path / "scratch"
    with cluster(processes=True, memory_limit="1GB") as client:
        register_plugin(client, device="cpu", scratch=str(root))
        assert list(root.iterdir()) == []  # found and tried, and nothing made before it is used
        assert on_each(client, steps.loaded) == [(False, False)] * 2
        seen = on_each(client, steps.look)
        assert len({pid for _, pid, _, _ in seen}) == 2
        folders = {Path(folder) for _, _, folder, _ in seen}
        assert len(folders) == 2
        assert all(folder.is_dir() and folder.is_relative_to(root) for folder in folders)
        assert {where for *_, where in seen} == {None}
        assert on_each(client, steps.look) == seen
        assert on_each(client, steps.look_from_a_thread) == [True] * 2
        copied = on_each(client, steps.copy, str(graph))
        assert len({path for path, _ in copied}) == 1
        assert sum(made for _, made in copied) == 1
        Graph.open(copied[0][0]).validate()
        assert on_each(client, steps.hold_an_array) == [(80, usable_memory(10**9) // 4)] * 2
        assert client.run(lambda dask_worker: resources(dask_worker).device) == dict.fromkeys(
            client.run(lambda: None)
        )
    assert list(root.iterdir()) == []


def test_workers_in_threads(steps: Any, tmp_path: Path) -> None:
    with cluster(3, processes=False) as client:
        register_plugin(client, device="cpu", scratch=str(tmp_path))
        seen = on_each(client, steps.look)
        assert len({one for one, *_ in seen}) == len({folder for _, _, folder, _ in seen}) == 3
        assert on_each(client, steps.look) == seen
        # Who is none of the three has a set of its own.
        assert id(resources()) not in {one for one, *_ in seen}
        assert not device.gpu()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_killed_and_started_again(steps: Any, tmp_path: Path) -> None:
    with cluster(1, processes=True) as client:
        register_plugin(client, scratch=str(tmp_path))
        ((_, pid, folder, _),) = on_each(client, steps.look)
        os.kill(pid, signal.SIGKILL)
        _, again, new, _ = client.submit(steps.look, pure=False).result(timeout=30)
        assert again != pid
        assert Path(new).is_dir()
        assert not Path(folder).exists()  # removed by the next one
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_worker_without_a_nanny(steps: Any, tmp_path: Path) -> None:
    with cluster(0, processes=True) as client:
        register_plugin(client, scratch=str(tmp_path))
        command = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", "--no-nanny"]
        command += ["--no-dashboard", "--nthreads", "1", client.scheduler.address]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            client.wait_for_workers(1, timeout=30)
            ((_, pid, folder, _),) = on_each(client, steps.look)
            assert pid == process.pid
            assert Path(folder).is_dir()
            process.send_signal(signal.SIGTERM)
            # Where the signal cancels a message half sent, distributed waits 30 s for its end.
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
        assert list(tmp_path.iterdir()) == []


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_gpu_where_there_is_none(monkeypatch: pytest.MonkeyPatch, steps: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with cluster(processes=False) as client:
        with pytest.raises(MissingExtra, match="--device gpu asks for a GPU.*or use --device cpu"):
            register_plugin(client, device="gpu")
        register_plugin(
            client, device="cpu", device_pool="0.8"
        )  # the next try is not held to the first
        assert {where for *_, where in on_each(client, steps.look)} == {None}


def test_scratch_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with cluster(1, processes=True) as client:
        with pytest.raises(UsageError, match="scratch directory .*/file cannot be used"):
            register_plugin(client, scratch=str(tmp_path / "file"))
        register_plugin(client, scratch=str(tmp_path))


def test_scratch_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, size: int, purpose: str) -> None:
        raise CapacityError(f"{purpose} would not fit on the disk of {folder}")

    monkeypatch.setattr("penstock.workers.resources.scratch.need_disk", full)
    with (
        cluster(1, processes=False) as client,
        pytest.raises(CapacityError, match="the scratch of a worker would not fit"),
    ):
        register_plugin(client, scratch=str(tmp_path))


def test_a_worker_that_comes_later_and_cannot(tmp_path: Path, steps: Any) -> None:
    root = tmp_path / "scratch"
    with cluster(1, processes=False) as client:
        register_plugin(client, scratch=str(root))
        root.rmdir()
        root.touch()
        before = set(client.run(lambda: None))
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=30)
        (late,) = set(client.run(lambda: None)) - before
        task = client.submit(steps.look, workers=[late], pure=False)
        with pytest.raises(UsageError, match="cannot be used"):
            task.result(timeout=30)


def test_options_of_a_cluster_that_is_set_up_already(tmp_path: Path) -> None:
    with cluster(1, processes=False) as client:
        register_plugin(client, device="cpu", scratch=str(tmp_path))
        (held,) = plugin._in_this_process
        register_plugin(client)
        register_plugin(client, device="cpu", scratch=str(tmp_path))
        with pytest.raises(UsageError, match="set up with --device cpu, got --device gpu"):
            register_plugin(client, device="gpu")
        with pytest.raises(
            UsageError, match="set up without --device-pool, got --device-pool 0.5.*Leave"
        ):
            register_plugin(client, device_pool="0.5")
        with pytest.raises(UsageError, match=f"with --worker-scratch {tmp_path}"):
            register_plugin(client, scratch="/elsewhere")
        assert plugin._in_this_process == [held]


def test_what_cannot_be_read_is_said_by_the_client() -> None:
    with pytest.raises(UsageError, match="--device-pool has a bad value"):
        PenstockWorker(device_pool="much")


def test_relative_scratch_is_below_the_clients_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert PenstockWorker(scratch="s").options["scratch"] == str(tmp_path / "s")
    for text in ("/s", "~/s", "$SLURM_TMPDIR"):
        assert PenstockWorker(scratch=text).options["scratch"] == text


# -- outside of workers ---------------------------------------------------------------------------


def test_a_process_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path))
    mine = resources()
    assert mine is resources()
    assert list(tmp_path.iterdir()) == []
    assert mine.scratch.is_dir()
    assert mine.cache is mine.cache
    mine.close()
    assert list(tmp_path.iterdir()) == []


def test_it_goes_with_the_process(tmp_path: Path) -> None:
    code = "from penstock.workers.plugin import resources; print(resources().scratch)"
    environ = os.environ | {"PENSTOCK_SCRATCH": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_copies_without_a_cluster(
    tmp_path: Path, make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Resources(str(tmp_path / "scratch"))
    graph = make_graph().path
    assert mine.copies(graph) == graph  # the same disk
    mine.copies._speed = lambda path: Speed.SHARED if path == graph else Speed.NVME
    with mine.copies.hold(graph) as local:
        assert local.is_relative_to(tmp_path / "scratch")
    mine.close()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    import cupy

    mine = Resources(str(tmp_path))
    assert mine.device == 0
    with mine.cache.hold("a", lambda: cupy.zeros(10)):
        assert mine.cache.nbytes == 80
    assert mine.cache.limit_bytes > 1 << 28
    mine.close()
