"""A worker or a rank killed midway in a flow: the flow succeeds, with the result of an undisturbed
run."""

import json
import os
import signal

import pyarrow.parquet as pq
import pytest
from processes import below, is_rank, launch, running, until

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
    return launch("run", "flow.yaml", "--json", "-q", cwd=home)


def ended(process):
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    return json.loads(out)


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_a_flow_nothing_but_time(tmp_path):
    process = run(tmp_path / "killed", WALKS)
    partial = tmp_path / "killed/flow/.walks.partial/walks"
    until(lambda: partial.is_dir() and any(partial.glob("*.parquet")), process, 300)
    (begun,) = (tmp_path / "killed").glob("runs/*/logs/.walks-0")  # it names the driver
    workers = running(process, "spawn_main")
    next(one for one in workers if one.pid != int(begun.read_text())).kill()
    assert ended(process)["state"] == "passed"
    assert ended(run(tmp_path / "whole", WALKS))["state"] == "passed"
    files = sorted((tmp_path / "whole/flow/walks").glob("*.parquet"))
    assert files
    for file in files:
        other = tmp_path / "killed/flow/walks" / file.name
        assert pq.read_table(file).equals(pq.read_table(other))


@pytest.mark.slow
@pytest.mark.mpi
def test_a_rank_that_is_killed_costs_a_flow_nothing_but_time(tmp_path):
    process = run(tmp_path / "killed", MODEL)
    metrics = tmp_path / "killed/flow/model/metrics.jsonl"
    until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 40, process, 300)
    next(one for one in below(process) if is_rank(one)).kill()
    killed = ended(process)["stages"]["model"]["report"]
    whole = ended(run(tmp_path / "whole", MODEL))["stages"]["model"]["report"]
    assert killed["epochs"] == whole["epochs"]
    for split in ("train", "valid", "test"):
        scores = [one["metrics"][split]["loss"] for one in (killed, whole)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-3)


@pytest.mark.slow
def test_a_whole_run_that_is_killed_lets_the_next_night_begin(tmp_path):
    home, text = tmp_path / "flow", "incremental: true\nstages:\n  g: {job: etl, input: e.csv}\n"
    home.mkdir()
    lines = "\n".join(f"{n},{(n * 7919) % 60000}" for n in range(300_000))
    (home / "e.csv").write_text(f"src,dst\n{lines}\n")
    assert ended(run(home, text))["state"] == "passed"
    process = launch("run", "flow.yaml", "--json", "-q", "--force", cwd=home)
    until((home / "flow/.g.partial/identity.json").exists, process, 300)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert ended(run(home, text))["state"] == "passed"
