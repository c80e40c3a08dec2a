"""A rank of a gang killed midway: its world is started again, and the bytes are what they were.

Of embed in embed/test_ranks.py, of gnn in test_flow_killed.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from penstock import generate

pytestmark = [pytest.mark.slow, pytest.mark.mpi]
TWO = ["-k", "2", "--cluster", "mpi", "-n", "2", "-q"]
JOBS = {
    "walk": "walk {graph} {out} --length 40 --walks 20",
    "word2vec": "word2vec train {graph} {out} --dim 16 --length 10 --epochs 12 --deterministic "
    "--shards 2 --sync-words 20000 --checkpoint-minutes 1e-9",
}


def has_walks(out: Path) -> bool:
    return any(out.with_name(f".{out.name}.partial").rglob("*.parquet"))


def has_checkpoints(out: Path) -> bool:
    last = out.with_name(f".{out.name}.partial") / "scratch/checkpoints/last.json"
    with suppress(OSError, ValueError):
        return bool(json.loads(last.read_text())["number"] >= 2)
    return False


def ranks_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            words = " ".join(one.cmdline())
            if "RankWorker" in words and not ("mpiexec" in words or "supervisor" in words):
                found.append(one)
    return found


@pytest.mark.parametrize(("job", "begun"), [("walk", has_walks), ("word2vec", has_checkpoints)])
def test_a_rank_that_is_killed_costs_time_only(
    job: str, begun: Callable[[Path], bool], tmp_path: Path
) -> None:
    generate("sbm", tmp_path / "g", nodes=3000, seed=1, quiet=True)

    def start(out: Path) -> subprocess.Popen[str]:
        words = JOBS[job].format(graph=tmp_path / "g", out=out).split()
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock", *words, *TWO],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    out, whole = tmp_path / "out", tmp_path / "whole"
    process = start(out)
    deadline = time.monotonic() + 120
    while not begun(out):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    ranks = ranks_of(process)
    assert len(ranks) == 2
    os.kill(ranks[-1].pid, signal.SIGKILL)
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 0, said
    assert start(whole).wait(timeout=240) == 0
    names = sorted(one.name for one in whole.iterdir() if one.suffix in (".parquet", ".npy"))
    assert names
    assert names == sorted(one.name for one in out.iterdir() if one.suffix in (".parquet", ".npy"))
    for name in names:
        assert (out / name).read_bytes() == (whole / name).read_bytes()
