"""A worker or a rank killed midway in a flow: the flow succeeds, with the result of an undisturbed
run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from processes import until

from penstock.workers.processes import process_start

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


def run(home: Path, text: str) -> subprocess.Popen[str]:
    home.mkdir(exist_ok=True)
    (home / "flow.yaml").write_text(text)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", "run", "flow.yaml", "--json", "-q"],
        cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> dict:
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    return json.loads(out)


def descendants(process: subprocess.Popen[str], what: str) -> Iterator[psutil.Process]:
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if what in " ".join(child.cmdline()):
                    yield child


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_a_flow_nothing_but_time(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_a_flow_that_is_killed_goes_on_where_its_stage_was(tmp_path: Path) -> None:
    text = WALKS.replace("cluster: {cluster: local, workers: 2}", "cluster: threads")
    text = text.replace("length: 80}", "length: 30, publish: published}")
    process = run(tmp_path / "killed", text)
    partial = tmp_path / "killed/flow/.walks.partial/walks"
    until(lambda: partial.is_dir() and len([*partial.glob("*.parquet")]) > 1, process, 300)
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while any(process_start(one.pid) is not None for one in family):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not (tmp_path / "killed/published").exists()
    again = ended(run(tmp_path / "killed", text))
    assert {name: one["state"] for name, one in again["stages"].items()} == {
        "graph": "skipped", "walks": "done"}  # fmt: skip
    assert again["stages"]["walks"]["report"]["resumed_files"] > 0
    assert ended(run(tmp_path / "whole", text))["state"] == "passed"
    same_walks(tmp_path)
    published = {one.name for one in (tmp_path / "killed/published/latest").iterdir()}
    assert published == {one.name for one in (tmp_path / "whole/published/latest").iterdir()}


def same_walks(folder: Path) -> None:
    files = sorted((folder / "whole/flow/walks").glob("*.parquet"))
    assert files
    for file in files:
        other = folder / "killed/flow/walks" / file.name
        assert pq.read_table(file).equals(pq.read_table(other))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("who", ["rank", "mpiexec"])
def test_ranks_that_are_killed_cost_a_flow_nothing_but_time(tmp_path: Path, who: str) -> None:
    process = run(tmp_path / "killed", MODEL)
    metrics = tmp_path / "killed/flow/model/metrics.jsonl"
    until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 40, process, 300)
    found = [
        one for one in descendants(process, "RankWorker")
        if "supervisor" not in " ".join(one.cmdline())
        and ("mpiexec" in one.cmdline()[0]) == (who == "mpiexec")
    ]  # fmt: skip
    os.kill(found[0].pid, signal.SIGKILL)
    killed = ended(process)["stages"]["model"]["report"]
    whole = ended(run(tmp_path / "whole", MODEL))["stages"]["model"]["report"]
    assert killed["epochs"] == whole["epochs"]
    for split in ("train", "valid", "test"):
        scores = [one["metrics"][split]["loss"] for one in (killed, whole)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-3)
