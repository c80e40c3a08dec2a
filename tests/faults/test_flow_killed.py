"""A worker or a rank killed midway in a flow: the flow succeeds, with the result of an undisturbed
run."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pyarrow.parquet as pq
import pytest
from processes import until

WALKS = """
cluster: {cluster: local, workers: 2}
stages:
  graph: {job: generate sbm, nodes: 10000}
  walks: {job: walk, input: graph, walks: 10, length: 80}
"""
MODEL = """
cluster: {cluster: mpi, workers: 2}
stages:
  graph: {job: generate sbm, nodes: 1000}
  model: {job: gnn train, input: graph, epochs: 200, checkpoint_epochs: 20, parts: 2}
"""


def run(home, text):
    home.mkdir(exist_ok=True)
    (home / "flow.yaml").write_text(text)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", "run", "flow.yaml", "--json", "-q"],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    return json.loads(out)


def descendants(process, what):
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if what in " ".join(child.cmdline()):
                    yield child


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_a_flow_nothing_but_time(tmp_path):
    process = run(tmp_path / "killed", WALKS)
    partial = tmp_path / "killed/flow/.walks.partial/walks"
    until(lambda: partial.is_dir() and any(partial.glob("*.parquet")), process, 300)
    (begun,) = (tmp_path / "killed").glob("runs/*/logs/.walks-0")  # it names the driver
    workers = descendants(process, "spawn_main")
    victim = next(one for one in workers if one.pid != int(begun.read_text()))
    os.kill(victim.pid, signal.SIGKILL)
    assert ended(process)["state"] == "passed"
    assert ended(run(tmp_path / "whole", WALKS))["state"] == "passed"
    same_walks(tmp_path)


def same_walks(folder):
    files = sorted((folder / "whole/flow/walks").glob("*.parquet"))
    assert files
    for file in files:
        other = folder / "killed/flow/walks" / file.name
        assert pq.read_table(file).equals(pq.read_table(other))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("who", ["rank", "mpiexec"])
def test_ranks_that_are_killed_cost_a_flow_nothing_but_time(tmp_path, who):
    process = run(tmp_path / "killed", MODEL)
    metrics = tmp_path / "killed/flow/model/metrics.jsonl"
    until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 40, process, 300)
    found = [
        one
        for one in descendants(process, "RankWorker")
        if "supervisor" not in " ".join(one.cmdline())
        and ("mpiexec" in one.cmdline()[0]) == (who == "mpiexec")
    ]
    os.kill(found[0].pid, signal.SIGKILL)
    killed = ended(process)["stages"]["model"]["report"]
    whole = ended(run(tmp_path / "whole", MODEL))["stages"]["model"]["report"]
    assert killed["epochs"] == whole["epochs"]
    for split in ("train", "valid", "test"):
        scores = [one["metrics"][split]["loss"] for one in (killed, whole)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-3)
