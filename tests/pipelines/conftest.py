"""A cluster that most tests of jobs can share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.cluster.spec import ClusterSpec
from penstock.workers.profiling import without_profile


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterSpec]:
    """A cluster in this process, started once for all tests that ask for it."""
    from distributed import LocalCluster

    with (
        without_profile(unless_safe=False),
        LocalCluster(
            processes=False,
            n_workers=1,
            threads_per_worker=2,
            memory_limit=0,
            dashboard_address="localhost:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=40,
        ) as running,
    ):
        yield ClusterSpec(cluster=running.scheduler_address)
