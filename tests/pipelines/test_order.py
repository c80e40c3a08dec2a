from __future__ import annotations

import pytest

from penstock.errors import UsageError
from penstock.pipelines.order import OrderOptions, partition_order


def test_the_job_from_python() -> None:
    report = partition_order(OrderOptions(partitions=12, method="beta", capacity=5))
    assert report.order.capacity == 5
    assert report.to_dict()["io"] == report.order.io
    with pytest.raises(UsageError):
        partition_order(OrderOptions(partitions=12, method="cover"))
