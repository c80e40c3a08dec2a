from __future__ import annotations

import json

import pytest

from penstock.errors import UsageError
from penstock.partition.order import prefetch
from penstock.pipelines.cli import run
from penstock.pipelines.order import OrderOptions, partition_order


def test_json_holds_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", "--partitions", "8", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    made = prefetch(8)
    assert (told["io"], told["swaps"], told["hidden_share"]) == (14, 13, 1.0)
    assert [tuple(step["buffer"]) for step in told["steps"]] == list(made.states)
    assert [tuple(step["load"]) for step in told["steps"]] == [s.load for s in made.steps]
    trained = [tuple(b) for s in told["steps"] for b in s["before"] + s["during"]]
    assert sorted(trained) == [(i, j) for i in range(8) for j in range(8)]
    assert [other["method"] for other in told["others"]] == ["beta", "legend"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "0"],
        ["-k", "513"],
        ["-k", "12", "--method", "cover"],
        ["-k", "12", "--capacity", "5"],
    ],
)
def test_bad_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", *arguments]) == 2
    assert not capsys.readouterr().out


def test_the_job_from_python() -> None:
    report = partition_order(OrderOptions(partitions=12, method="beta", capacity=5))
    assert report.order.capacity == 5
    assert report.to_dict()["io"] == report.order.io
    with pytest.raises(UsageError):
        partition_order(OrderOptions(partitions=12, method="cover"))
