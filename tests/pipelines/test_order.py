from __future__ import annotations

import json
import time

import pytest

from penstock.errors import UsageError
from penstock.partition.order import prefetch
from penstock.pipelines.cli import run
from penstock.pipelines.order import OrderOptions, partition_order


def test_the_table_compares_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", "-k", "16"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[2] == ["prefetch", "3", "60", "60", "3.75", "100.0", "%", "yes"]
    assert rows[3][:5] == ["beta", "3", "63", "60", "3.94"]
    assert rows[4][:5] == ["cover", "4", "80", "80", "5.00"]
    assert rows[5][0] == "legend"


def test_cover_is_left_out_where_it_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", "-k", "12", "--method", "beta"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert names == ["beta", "prefetch", "legend"]


def test_verbose_lists_the_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", "-k", "4", "-v"]) == 0
    states = capsys.readouterr().out.partition("state by state\n")[2].splitlines()
    assert len(states) == 3
    assert "{0, 1, 2}" in states[0]
    assert "swap 1 for 3" in states[0]
    assert "meanwhile (0,0) (0,2) (2,0) (2,2)" in states[0]


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
        ["-k", "12", "--method", "alphabetical"],
        ["-k", "12", "--capacity", "5"],
        ["-k", "many"],
        [],
    ],
)
def test_bad_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", *arguments]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("penstock: ")


def test_the_job_from_python() -> None:
    report = partition_order(OrderOptions(partitions=12, method="beta", capacity=5))
    assert report.order.capacity == 5
    assert report.to_dict()["io"] == report.order.io
    with pytest.raises(UsageError):
        partition_order(OrderOptions(partitions=12, method="cover"))


@pytest.mark.slow
def test_hundreds_of_partitions_take_no_minutes() -> None:
    started = time.monotonic()
    report = partition_order(OrderOptions(partitions=384))
    assert time.monotonic() - started < 15  # 1 s; it was half a minute
    assert [other.name for other in report.others] == ["beta", "legend"]
