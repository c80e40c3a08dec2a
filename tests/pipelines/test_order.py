from __future__ import annotations

import pytest

from penstock.errors import UsageError
from penstock.pipelines.cli import run
from penstock.pipelines.order import OrderOptions, partition_order


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "0"],
        ["-k", "513"],
        ["-k", "12", "--method", "cover"],
        ["-k", "200", "--capacity", "5"],
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
