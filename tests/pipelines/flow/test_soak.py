"""A process that runs flows night after night keeps nothing of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "flows"), [("functions", 8), ("cluster", 3), ("serve", 2)])
def test_flows_in_a_row_leave_nothing(root: Path, kind: str, flows: int) -> None:
    if kind == "serve":
        pytest.importorskip("apscheduler")
    command = [sys.executable, "-P", str(root / "benchmarks/soak_flows.py"), "--json"]
    command += ["--kinds", kind, "--flows", str(flows), "--warm", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr
    left = json.loads(done.stdout)[kind]
    # Of few flows the allocator's steps are a large share.
    assert left["kilobytes"] < (400 if kind == "cluster" else 150), left
    assert left["objects"] < 200, left
    assert max(left[name] for name in ("descriptors", "processes", "files")) <= 0, left
    # A run that begins while the thread of the last one still tells of it has a second thread.
    assert left["threads"] <= (kind == "serve"), left
