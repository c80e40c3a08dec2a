"""Whole commands, from the start of the process to its end, compared with starting its libraries.

    python -P benchmarks/bench_whole.py [--quick] [--cpu]

Every command runs in fresh processes, warm: kernels are compiled by the first run. Compared is a
process that only imports what the commands import (NumPy, Numba, Arrow, Dask). The output of a
command is checked. To add a row, add a Row to ROWS.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from graphs import cora, write_graph
from harness import Case, Side, Timed, command, data, main, penstock

LIBRARIES = "import numpy, numba, pyarrow.parquet, pandas, distributed"


@dataclass(frozen=True)
class Row:
    """A command, written as in a shell; MAKERS makes {small} and other inputs."""

    name: str
    command: str  # after ``penstock``; -c CODE runs in Python
    share: float  # measured: the time of starting the libraries over that of the command
    check: Callable[[Path], None] | None = None  # of its output at {out}
    says: str = ""  # of its text, if it has no output


def walks(length: int) -> Callable[[Path], None]:
    def check(out: Path) -> None:
        first = pq.ParquetFile(out / "part-00000.parquet").read_row_group(0).slice(0, 1000)
        numbers, paths = first["walk"].to_pylist(), first["path"].to_pylist()
        assert numbers == list(range(len(numbers)))
        assert 1 <= min(map(len, paths)) <= max(map(len, paths)) <= length

    return check


def central(out: Path) -> None:
    assert len(pq.read_table(out / "graphs")) == 200
    for metric in ("closeness", "betweenness"):
        values = pq.read_table(out / "nodes")[metric].to_numpy()
        assert ((values >= 0) & (values <= 1)).all()


def learnt(out: Path) -> None:
    # A GCN on 60 % of Cora's nodes reaches about 0.87; chance is 0.3.
    scores = json.loads((out / "run.json").read_text())["report"]["trained"]["metrics"]
    assert scores["test"]["score"] > 0.8, scores


def vectors(out: Path) -> None:
    # Before training the loss of a pair is ln 2.
    about = json.loads((out / "vectors.json").read_text())
    values = np.load(out / "vectors.npy")
    assert values.shape == (about["rows"], 32)
    assert np.isfinite(values).all()
    assert about["loss"] < 0.65, about["loss"]


def embedded(out: Path) -> None:
    results = json.loads((out / "run.json").read_text())["report"]["trained"]
    assert results["epochs"] == 3
    assert results["loss"] < results["loss_before"], results


def neighbours(out: Path) -> None:
    scores = pq.read_table(out)["score"].to_numpy()
    assert len(scores) == 10 * len(np.load(out.with_name("vectors") / "vectors.npy"))
    assert (abs(scores) < 1 + 1e-6).all()


def flowed(out: Path) -> None:
    walks(20)(out / "walks")
    vectors(out / "vectors")


# Walk and gnn write {out}. The share of seconds on an idle machine, and of CPU seconds on others.
SMALL = "-q --cluster threads --dim 32"
WALK, GNN = "walk {small} {out} -q --length 20 --cluster", "gnn train {cora} {out} -q --hidden 16"
ROWS = [
    Row("import penstock", "-c 'import penstock; print(penstock.__version__)'", 28.0, says="."),
    Row("penstock --help", "--help", 8.4, says="walk"),
    Row("info, 5,000 nodes", "info {small}", 2.1, says="node"),
    Row("walk, 5,000 nodes, threads", f"{WALK} threads", 0.84, walks(20)),
    Row("walk, 5,000 nodes, local -n 2", f"{WALK} local -n 2", 0.35, walks(20)),
    Row("partition, 5,000 nodes", "partition {small} -q -k 4 --overwrite --json", 0.84, says="cut"),
    Row("gnn train, Cora, 200 epochs", f"{GNN} --epochs 200 --cluster threads", 0.56, learnt),
    Row("centrality, 200 graphs", "centrality {zoo} {out} -q --cluster threads", 0.3, central),
    Row("word2vec train, 5,000 nodes", f"word2vec train {{small}} {{out}} {SMALL}", 0.5, vectors),
    Row(
        "embed train, 5,000 nodes",
        f"embed train {{small}} {{out}} {SMALL} --epochs 3",
        0.41,
        embedded,
    ),
    Row("similar, all", "similar {vectors} --all {out} -q --cluster threads", 0.75, neighbours),
    Row("run, walk and word2vec", "run {flow} -q --no-report", 0.43, flowed),
]
GPU = [
    Row("DeepWalk of R-MAT 22 on a GPU", "walk {large} {out} -q --length 80", 0.3, walks(80)),
    Row("PPR of R-MAT 22 on a GPU", "walk {large} {out} -q --app ppr", 0.4, walks(80)),
]
QUICK = ("import penstock", "walk, 5,000 nodes, threads")
FLOW = """\
folder: out
cluster: threads
stages:
  walks: {job: walk, input: small, length: 20}
  vectors: {job: word2vec, input: walks, dim: 32, epochs: 1}
"""


def rmat(path: Path, scale: int = 13, factor: int = 8) -> None:
    words = f"generate rmat {path} -q --scale {scale} --edge-factor {factor}"
    command(penstock(*words.split()))


def small_vectors(path: Path) -> None:
    command(penstock(*f"word2vec train {path.with_name('small')} {path} {SMALL}".split()))


def cora_graph(path: Path) -> None:
    made = cora()
    roles = np.random.default_rng(0).choice(3, made.csr.rows, p=(0.6, 0.2, 0.2)).astype(np.int8)
    write_graph(path, made, roles)


MAKERS: dict[str, Callable[[Path], Any]] = {
    "small": rmat,
    "large": partial(rmat, scale=22, factor=16),
    "vectors": small_vectors,
    "flow": lambda path: path.write_text(FLOW),
    "cora": cora_graph,
    "zoo": lambda path: command(penstock("generate", "zoo", path, "-q", "--graphs", 200)),
}


def ran(row: Row, folder: Path) -> Timed:
    """Run a command in a process; return the folder of its output."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    names = {name: str(folder / name) for name in (*MAKERS, "out")}
    words = [word.format(**names) for word in shlex.split(row.command)]
    words = [sys.executable, *words] if words[0] == "-c" else penstock(*words)
    run = command(words)
    return Timed(run.seconds, out if row.check is not None else run.value.out)


def check(row: Row, values: dict[str, Any]) -> None:
    if row.check is not None:
        row.check(values["ours"])
    else:
        assert row.says in values["ours"], values["ours"]


def cases(given: argparse.Namespace, rows: Sequence[Row] = ROWS) -> Iterator[Case]:
    folder = given.scratch
    os.chdir(folder)  # of the flow's stages

    def start() -> Timed:
        return Timed(command([sys.executable, "-P", "-c", LIBRARIES]).seconds)

    for row in rows:
        if rows is ROWS and given.quick and row.name not in QUICK:
            continue
        needs = [data] if "{cora}" in row.command else []
        if not any(need() for need in needs):
            for name in ("small", *MAKERS):
                wanted = f"{{{name}}}" in row.command or name == "small"
                if wanted and not (folder / name).exists():
                    MAKERS[name](folder / name)

        bare = {"starting libraries": Side(start, row.share)}
        yield Case(row.name, partial(ran, row, folder), partial(check, row), bare, needs=needs)
    os.chdir("/")


if __name__ == "__main__":
    sys.exit(main(__doc__, cases, gpu=partial(cases, rows=GPU)))
