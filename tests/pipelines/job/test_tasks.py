"""A step gives results in order, and its first failure as a person should see it."""

import sys
from importlib import import_module
from types import ModuleType

import dask
import pytest

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, ClusterError, InputError
from penstock.pipelines.job.tasks import run_tasks

STEPS = """
import errno, os, signal, time
from pathlib import Path
from penstock.errors import InputError


def slow_square(x, *, plus):
    time.sleep(0.05 * (3 - x))
    return x * x + plus


def fail(kind):
    if kind == "input":
        raise InputError("row 7 is bad", remedy="Mend it")
    if kind == "disk":
        raise OSError(errno.ENOSPC, "No space left on device", "/scratch/x")
    if kind == "memory":
        raise MemoryError
    raise ZeroDivisionError


HELD = []


def hold(size):
    # Memory that the worker keeps, as a cache or the libraries of a job do.
    HELD.append(b"x" * size)


def stop_once(marker):
    # Stand still for ever, the first time.
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return "resumed"


def die(marker, times):
    # End this worker as the kernel would, the first few times.
    with Path(marker).open("a") as file:
        file.write(".")
    if Path(marker).stat().st_size <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Steps in a module that workers can import, as those of every job are."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "job_steps.py").write_text(STEPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        yield import_module("job_steps")


@pytest.fixture(scope="module")
def client(steps):
    with connect(ClusterSpec(cluster="local", workers=2), input_bytes=0) as client:
        yield client


def run(client, step, calls, **shared):
    sizes = [1] * len(calls)
    return run_tasks(client, "try", step, calls, sizes=sizes, unit="calls", quiet=True, **shared)


def test_results_come_in_the_order_of_calls(client, steps):
    assert run(client, steps.slow_square, [(0,), (1,), (2,)], plus=1) == [1, 2, 5]
    assert run(client, steps.slow_square, [], plus=1) == []


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("input", InputError, "row 7"),
        ("disk", CapacityError, "/scratch/x"),
        ("memory", CapacityError, "--memory-limit"),
        ("bug", ZeroDivisionError, None),
    ],
)
def test_failures_are_said_as_they_are(client, steps, kind, error, message):
    with pytest.raises(error, match=message):
        run(client, steps.fail, [(kind,), (kind,)])
    assert run(client, steps.slow_square, [(1,)], plus=0) == [1]


def test_a_worker_that_dies_is_replaced(client, steps, tmp_path):
    assert run(client, steps.die, [(str(tmp_path / "marker"), 1)]) == ["survived"]


def test_workers_that_die_again_and_again_end_the_job(client, steps, tmp_path):
    with pytest.raises(ClusterError, match="--memory-limit"):
        run(client, steps.die, [(str(tmp_path / "marker"), 100)])


@pytest.mark.slow
def test_a_cluster_whose_workers_cannot_load_a_task_is_not_waited_for(monkeypatch):
    # As a worker with another penstock: it cannot load the task, and leaves.
    ghost = ModuleType("ghost")
    exec("def step(): return 1", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost", ghost)
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"}),
        connect(ClusterSpec(cluster="local", workers=1), input_bytes=0) as client,
        pytest.raises(ClusterError),
    ):
        run(client, ghost.step, [()])
