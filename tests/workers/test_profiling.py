"""Workers take no profile where Python may hang while it is taken."""

from __future__ import annotations

import dask
import pytest

from penstock import connect
from penstock.workers import profiling


@pytest.mark.skipif(not profiling.MAY_HANG, reason="this Python can take a profile")
@pytest.mark.parametrize("kind", ["threads", "local"])
def test_workers_of_ours_take_no_profile_where_it_may_hang(kind):
    before = dask.config.get("distributed.worker.profile.enabled")
    with connect(kind, workers=1) as client:
        found = client.run(lambda dask_worker: "profile" in dask_worker.periodic_callbacks)
        assert list(found.values()) == [False]
    assert dask.config.get("distributed.worker.profile.enabled") is before
