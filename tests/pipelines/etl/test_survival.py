"""What happens to a run whose workers, terminal, client or disk fail in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_disks import mount, unmount

from penstock import Graph, etl
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError
from penstock.pipelines.etl.writing.spill import once

OPTIONS = ["-n", "2", "--relabel", "degree", "--quiet"]


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough input to be hit in the middle: about five seconds of work."""
    folder = tmp_path_factory.mktemp("edges")
    for part in range(8):
        ends = np.random.default_rng(part).integers(0, 300_000, (2, 500_000))
        pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), folder / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def truth(edges: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("truth") / "g"
    etl(edges, out, cluster=ClusterSpec(cluster="threads"), relabel="degree")
    return Graph.open(out).manifest.files


def test_a_step_that_fails_gives_its_disk_back(tmp_path: Path) -> None:
    def fail(folder: Path) -> dict[str, Any]:
        (folder / "ids.raw").write_bytes(b"x" * 1000)
        raise MemoryError

    with pytest.raises(MemoryError):
        once(tmp_path / "steps/00000", fail)
    assert list((tmp_path / "steps").iterdir()) == []
    assert once(tmp_path / "steps/00000", lambda folder: {"rows": 7}) == {"rows": 7}
    assert once(tmp_path / "steps/00000", fail) == {"rows": 7}  # which is done


# A process started in the background of a shell ignores Ctrl-C; these must not.
HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from penstock.pipelines.cli import main
main()
"""


def start(edges: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HEARS_CTRL_C, "etl", str(edges), str(out), *OPTIONS, *more],
        stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=out.parent,
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], pattern: str, folder: Path) -> None:
    """Wait until a file like ``pattern`` is there and the process still runs."""
    deadline = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"no {pattern} after two minutes"
        time.sleep(0.02)


def finish(process: subprocess.Popen[str]) -> str:
    _, said = process.communicate(timeout=120)
    return said


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [c for c in children if "spawn_main" in " ".join(c.cmdline()) and not c.children()]


@pytest.mark.slow
def test_a_killed_worker_costs_time_only(tmp_path: Path, edges: Path, truth: Any) -> None:
    process = start(edges, tmp_path / "g")
    wait_for(process, ".g.partial/scratch/segments/*/done.json", tmp_path)
    victims = workers_of(process)
    assert victims
    victims[0].kill()
    said = finish(process)
    assert process.returncode == 0, said
    assert Graph.open(tmp_path / "g").manifest.files == truth
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_an_interrupted_run_leaves_no_graph_and_resumes(
    tmp_path: Path, edges: Path, truth: Any, how: str
) -> None:
    process = start(edges, tmp_path / "g")
    wait_for(process, ".g.partial/scratch/segments/*/done.json", tmp_path)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    if how == "ctrl-c":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    else:
        for member in family:
            member.kill()
    said = finish(process)
    assert process.returncode == (1 if how == "ctrl-c" else -signal.SIGKILL), said
    psutil.wait_procs(family, timeout=20)
    assert not (tmp_path / "g").exists()
    done = {p: p.stat().st_mtime_ns for p in tmp_path.glob(".g.partial/scratch/pieces/*/done.json")}
    assert done
    process = start(edges, tmp_path / "g", "--resume")
    wait_for(process, ".g.partial/scratch/ids", tmp_path)
    kept = {p: p.stat().st_mtime_ns for p in done if p.exists()}
    said = finish(process)
    assert process.returncode == 0, said
    assert kept == done  # the pieces were not read again
    assert Graph.open(tmp_path / "g").manifest.files == truth


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    disk = mount(tmp_path / "disk", "size=12m")
    yield disk
    unmount(disk)


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_old_graph_stays(tmp_path: Path, small_disk: Path) -> None:
    small = tmp_path / "small.csv"
    small.write_text("src,dst\n1,2\n")
    etl(small, small_disk / "g", cluster=ClusterSpec(cluster="threads"))
    before = Graph.open(small_disk / "g").manifest
    # Compresses to nothing, so that the estimate lets it through.
    same = np.zeros(2_000_000, np.int64)
    pq.write_table(pa.table({"src": same, "dst": same + 1}), tmp_path / "big.parquet")
    process = start(tmp_path / "big.parquet", small_disk / "g", "--overwrite")
    finish(process)
    assert process.returncode == 1
    graph = Graph.open(small_disk / "g")
    graph.validate()
    assert graph.manifest == before


def test_an_estimate_stops_what_cannot_fit(tmp_path: Path, small_disk: Path) -> None:
    ends = np.random.default_rng(0).integers(0, 10**12, (2, 500_000))
    pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), tmp_path / "big.parquet")
    with pytest.raises(CapacityError):
        etl(tmp_path / "big.parquet", small_disk / "g", cluster=ClusterSpec(cluster="threads"))
    assert not list(small_disk.glob("g"))
