"""Every job on a disk that is read-only or full, with input that was cut off, and killed midway.

What a run leaves is told by a sentence; the second run finishes, with the bytes of an undisturbed
one. Killed workers and ranks: test_survival.py of etl and centrality, test_walk.py,
embed/test_ranks.py, test_ranks_killed.py beside this; of flows: test_flow_killed.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Graph, generate, sizes, walk
from penstock.pipelines.cli import run
from penstock.workers.gnn import checkpoint

TABLE = "{given}/edges.parquet {out} --source a --target b --cluster threads"
JOBS = {
    "etl": f"etl {TABLE}",
    "generate": "generate sbm {out} --nodes 600",
    "partition": "partition {graph} -k 3",
    "walk": "walk {graph} {out} --length 20 --cluster threads",
    "word2vec": "word2vec train {given}/walks {out} --dim 32 --epochs 4 --deterministic "
    "--checkpoint-minutes 1e-9 --cluster threads",
    "embed": "embed train {graph} {out} --model dot --dim 32 --epochs 1 --cluster threads",
    "gnn": "gnn train {graph} {out} --epochs 30 --checkpoint-epochs 3 --cluster threads",
    "predict": "gnn predict {given}/run {out} --embeddings --cluster threads",
    "centrality": f"centrality {TABLE} --metrics closeness",
    "similar": "similar {given}/vectors --all {out} --cluster threads",
}
RESUMES = {"etl", "walk", "word2vec", "embed", "gnn", "centrality", "similar"}
# What of an input is cut off, where it is not the graph's shard.
SHARDS = {
    "etl": "edges.parquet",
    "centrality": "edges.parquet",
    "word2vec": "walks/part-00000.parquet",
    "similar": "vectors/vectors.npy",
}
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, its edges as a table, walks, vectors and a model."""
    folder = tmp_path_factory.mktemp("given")
    generate("sbm", folder / "graph", nodes=600, seed=1, quiet=True)
    csr = Graph.open(folder / "graph").csr()
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    table = pa.table({"a": rows, "b": csr.indices, "graph_id": rows // 100})
    pq.write_table(table, folder / "edges.parquet")
    walk(folder / "graph", folder / "walks", length=10, quiet=True)
    words = ["word2vec", "train", folder / "walks", folder / "vectors", "--dim", "8"]
    assert run([*map(str, words), "--cluster", "threads", "-q"]) == 0
    words = ["gnn", "train", folder / "graph", folder / "run", "--epochs", "1"]
    assert run([*map(str, words), "--cluster", "threads", "-q"]) == 0
    return folder


def words_of(job: str, given: Path, out: Path) -> list[str]:
    """Return a job's command line; of partitions, ``out`` is a copy of the graph that gets them."""
    graph = given / "graph"
    if job == "partition":
        graph = out
        if not out.exists():
            shutil.copytree(given / "graph", out)
    return JOBS[job].format(given=given, out=out, graph=graph).split()


def said_by(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "This is a bug" not in said
    return said


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return what mounts a disk of 8 MB, or mounts it anew, with an option."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mounted(option: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(disk)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this machine lets nobody mount a disk")
        return disk

    yield mounted
    subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=False)


@root
@pytest.mark.parametrize("job", JOBS)
def test_a_disk_that_is_read_only(
    job: str, given: Path, mount: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_of(job, given, mount("size=8m") / "out")
    disk = mount("remount,ro")
    assert run(words) == 1
    said = said_by(capsys)
    assert "Read-only file system" in said
    assert str(disk / "out") in said.replace("/.out", "/out")


@pytest.mark.parametrize("job", [job for job in JOBS if job not in ("generate", "predict")])
def test_an_input_that_was_cut_off(
    job: str, given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "given"
    shutil.copytree(given, copy)
    shard = copy / SHARDS.get(job, "graph/shards/00000/indices.npy")
    os.truncate(shard, shard.stat().st_size // 2)
    words = words_of(job, copy, tmp_path / "out")
    if job == "partition":
        shard = tmp_path / "out/shards/00000/indices.npy"
    before = sorted(tmp_path.rglob("*"))
    assert run(words) == 1
    said = said_by(capsys)
    assert said.count(str(shard)) == 1
    assert "again" in said or "is damaged" in said  # the remedy
    assert sorted(tmp_path.rglob("*")) == before


def results(out: Path) -> dict[str, bytes]:
    """Return the files of an output, but for those that tell times."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.suffix == ".safetensors":
            tensors, about = checkpoint.load(path)
            found[name] = b"".join(tensors[one].tobytes() for one in sorted(tensors))
            found[name] += str(about["epoch"]).encode()
        elif path.is_file() and path.suffix not in (".json", ".jsonl"):
            found[name] = path.read_bytes()
        elif path.is_file():
            found[name] = b""
    return found


def run_again(job: str, words: list[str]) -> int:
    return run([*words, "--resume"] if job in RESUMES else words)


@root
@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_a_disk_that_fills_up(
    job: str, given: Path, mount: Callable[[str], Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    disk = mount("size=8m")
    words = words_of(job, given, disk / "out")
    found = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - 12288))
    with monkeypatch.context() as patch:  # else they would say before they begin that it is small
        patch.setattr(sizes, "free_disk", lambda *_: 1 << 40)
        assert run(words) == 1
    assert "the disk is full" in said_by(capsys)
    filler.unlink()
    assert run_again(job, words) == 0
    whole = tmp_path / "whole"
    assert run(words_of(job, given, whole)) == 0
    if job != "embed":  # what threads without locks learn
        assert results(disk / "out") == results(whole)


# Kills its own process when so many files of an output have their names.
KILLED = """
import os, signal, sys
from penstock.pipelines.cli import run

left = int(sys.argv[1])

def look(event, given):
    global left
    if event == "os.rename" and str(given[1]).startswith(sys.argv[2]):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(look)
sys.exit(run(sys.argv[3:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "files"),
    [("generate", 4), ("partition", 18), ("gnn", 17), ("predict", 2), ("similar", 3)],
)
def test_a_command_that_is_killed(job: str, files: int, given: Path, tmp_path: Path) -> None:
    """Those without a test of their own; the others: test_survival.py, test_walk.py, ..."""
    words = words_of(job, given, tmp_path / "out")
    killed = [sys.executable, "-P", "-c", KILLED, str(files), str(tmp_path), *words]
    done = subprocess.run(killed, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if job != "gnn":  # whose folder is there from the first epoch on
        assert not (tmp_path / "out" / ("partition/k3" if job == "partition" else "")).exists()
    assert run_again(job, words) == 0
    assert run(words_of(job, given, tmp_path / "whole")) == 0
    assert results(tmp_path / "out") == results(tmp_path / "whole")
    assert {one.name for one in tmp_path.iterdir()} == {"out", "whole"}
