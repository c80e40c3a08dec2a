"""A stage gives results in order, and its first failure as a person should see it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, ClusterError, InputError
from penstock.pipelines import stage
from penstock.pipelines.stage import run_stage

# Workers cannot import a test module: its functions travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with connect(ClusterSpec(cluster="local", workers=2), input_bytes=0) as client:
        yield client


def run(client: Any, step: Any, calls: list[Any], **shared: Any) -> list[Any]:
    sizes = [1] * len(calls)
    return run_stage(client, "try", step, calls, sizes=sizes, unit="calls", quiet=True, **shared)


def slow_square(x: int, *, plus: int) -> int:
    time.sleep(0.05 * (3 - x))
    return x * x + plus


def test_results_come_in_the_order_of_calls(client: Any) -> None:
    assert run(client, slow_square, [(0,), (1,), (2,)], plus=1) == [1, 2, 5]
    assert run(client, slow_square, [], plus=1) == []


def fail(kind: str) -> None:
    if kind == "input":
        raise InputError("row 7 is bad", remedy="Mend it")
    if kind == "disk":
        raise OSError(errno.ENOSPC, "No space left on device", "/scratch/x")
    if kind == "memory":
        raise MemoryError
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("input", InputError, "row 7 is bad. Mend it."),
        ("disk", CapacityError, "the disk is full in the stage 'try': /scratch/x"),
        ("memory", CapacityError, "--memory-limit"),
        ("bug", ZeroDivisionError, ""),
    ],
)
def test_failures_are_said_as_they_are(
    client: Any, kind: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message.replace("(", "\\(")):
        run(client, fail, [(kind,), (kind,)])
    assert run(client, slow_square, [(1,)], plus=0) == [1]


def die(marker: str, times: int) -> str:
    """End this worker as the kernel would, the first ``times`` times."""
    with Path(marker).open("a") as file:
        file.write(".")
    if Path(marker).stat().st_size <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def test_a_worker_that_dies_is_replaced(client: Any, tmp_path: Path) -> None:
    assert run(client, die, [(str(tmp_path / "marker"), 1)]) == ["survived"]


def test_workers_that_die_again_and_again_end_the_job(client: Any, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="--memory-limit"):
        run(client, die, [(str(tmp_path / "marker"), 100)])


def test_a_cluster_without_workers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "NO_WORKER_TIMEOUT", 0.2)
    monkeypatch.setattr(stage, "_ASK_EVERY", 0.1)
    # As a worker with another penstock: it cannot load the task, and leaves.
    ghost = ModuleType("ghost")
    exec("def step(): return 1", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost", ghost)
    with (
        connect(ClusterSpec(cluster="local", workers=1), input_bytes=0) as client,
        pytest.raises(ClusterError, match="no worker is left in the stage 'try'"),
    ):
        run(client, ghost.step, [()])


def test_a_stage_may_be_run_again(client: Any) -> None:
    for plus in range(5):
        assert run(client, slow_square, [(1,)], plus=plus) == [1 + plus]
