"""A process that runs flows night after night keeps nothing of them."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "warm", "flows"), [("functions", 3, 5), ("cluster", 3, 3), ("serve", 2, 2)]
)
def test_flows_in_a_row_leave_nothing(root, kind, warm, flows):
    """A few of each; benchmarks/results/soak.md has fifty."""
    command = [sys.executable, "-P", str(root / "tests/pipelines/flow/soak_flows.py")]
    command += ["--kinds", kind, "--flows", str(flows), "--warm", str(warm)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr
    left = json.loads(done.stdout)[kind]
    # Memory grows in steps, Python's of 1 MiB: of few flows one is a large share, and what is kept
    # shows in the objects.
    step = 2**20 / 1e3 / flows
    assert left["kilobytes"] < step + (450 if kind == "cluster" else 150), left
    assert left["objects"] < 200, left
    assert max(left[name] for name in ("descriptors", "processes", "files")) <= 0, left
    assert left["threads"] <= (kind == "serve"), left  # soak_flows.py has the reason
