"""Workers take no profile where Python may hang while it is taken."""

from __future__ import annotations

import subprocess
import sys

import dask
import pytest

from penstock import connect
from penstock.workers import profiling

# What hangs: garbage that is collected while the stacks of all threads are read, some of which
# belongs to threads that have ended.
PROBE = """
import sys, threading, time
class Node: pass
local = threading.local()
def litter():
    local.value = [Node() for _ in range(50)]
    node = Node(); node.self = node; node.local = threading.local(); node.local.x = 1
end = time.monotonic() + 3
def look():
    while time.monotonic() < end: sys._current_frames()
threading.Thread(target=look).start()
while time.monotonic() < end:
    threads = [threading.Thread(target=litter) for _ in range(8)]
    [one.start() for one in threads]; [one.join() for one in threads]
"""


@pytest.mark.parametrize("kind", ["threads", "local"])
def test_workers_of_ours_take_no_profile_where_it_may_hang(kind, monkeypatch):
    monkeypatch.setattr(profiling, "MAY_HANG", True)
    before = dask.config.get("distributed.worker.profile.enabled")
    with connect(kind, workers=1) as client:
        found = client.run(lambda dask_worker: "profile" in dask_worker.periodic_callbacks)
        assert list(found.values()) == [False]
    assert dask.config.get("distributed.worker.profile.enabled") is before


def test_a_python_that_can_take_a_profile_takes_it(monkeypatch):
    monkeypatch.setattr(profiling, "MAY_HANG", False)
    with dask.config.set({"distributed.worker.profile.enabled": True}), profiling.without_profile():
        assert dask.config.get("distributed.worker.profile.enabled") is True
    with profiling.without_profile(unless_safe=False):
        assert dask.config.get("distributed.worker.profile.enabled") is False


def test_the_versions_that_may_hang_are_those_before_the_repair():
    assert (sys.version_info < (3, 12, 5)) == profiling.MAY_HANG


@pytest.mark.skipif(profiling.MAY_HANG, reason="this Python may hang, as it is known to")
def test_a_python_that_is_said_to_be_safe_does_not_hang():
    subprocess.run([sys.executable, "-c", PROBE], timeout=60, check=True)
