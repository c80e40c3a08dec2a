"""Every worker finds and holds its own, says what it cannot find, and leaves nothing behind."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from penstock.errors import UsageError
from penstock.workers import plugin
from penstock.workers.plugin import Resources, register_plugin
from penstock.workers.profiling import without_profile
from penstock.workers.resources import device

STEPS = """
import os, sys, threading
from penstock.workers.plugin import resources


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


# -- what goes wrong ------------------------------------------------------------------------------


def test_scratch_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with cluster(1, processes=True) as client:
        with pytest.raises(UsageError) as error:
            register_plugin(client, scratch=str(tmp_path / "file"))
        assert str(tmp_path / "file") in str(error.value)
        register_plugin(client, scratch=str(tmp_path))


# -- outside of workers ---------------------------------------------------------------------------


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    import cupy

    mine = Resources(str(tmp_path))
    assert mine.device == 0
    with mine.cache.hold("a", lambda: cupy.zeros(10)):
        assert mine.cache.nbytes == 80
    assert mine.cache.limit_bytes > 1 << 28
    mine.close()
