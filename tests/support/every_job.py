"""Every job that writes, as a command line: the rows of the table of faults in tests/faults."""

import io
import json
import logging
import shutil
from contextlib import redirect_stderr, redirect_stdout

import embed_runs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Graph, generate, walk
from penstock.pipelines.cli import run
from penstock.workers.training import checkpoint

TABLE = "{given}/edges.parquet {out} --source a --target b"
JOBS = {
    "etl": f"etl {TABLE}",
    "generate": "generate sbm {out} --nodes 600",
    "partition": "partition {graph} -k 3",
    "walk": "walk {graph} {out} --length 20",
    "word2vec": "word2vec train {given}/walks {out} --dim 32 --epochs 4 --deterministic "
    "--checkpoint-minutes 1e-9",
    "vectors": "vectors export {given}/vectors {out}",
    # Out of core: then the result does not depend on which thread comes first.
    "embed": "embed train {graph} {out} --model dot --dim 8 --epochs 3 --batch 100 --partitions 8 "
    "--checkpoint-minutes 1e-9",
    "nodes": "embed export {given}/embedded {out}",
    "answers": "embed answer {given}/embedded {out} --top 3",
    "gnn": "gnn train {graph} {out} --epochs 30 --checkpoint-epochs 3",
    "predict": "gnn predict {given}/run {out} --graph {graph} --embeddings",
    "centrality": f"centrality {TABLE} --metrics closeness",
    "shares": "centrality {graph} {out} --metrics betweenness",  # one graph, in shares of sources
    "similar": "similar {given}/vectors --all {out}",
}
RESUMES = {*JOBS} - {"vectors"}
# Those that run in the client alone: on no cluster.
CLIENT = {"generate", "partition", "vectors", "nodes"}
# Training runs, whose folder exists from the first epoch and is marked unfinished.
VISIBLE = {"gnn", "embed"}
# The input of each, below the folder of ``make_inputs``. generate reads nothing.
READS = {
    "etl": "edges.parquet",
    "partition": "graph",
    "walk": "graph",
    "word2vec": "walks",
    "vectors": "vectors",
    "embed": "graph",
    "nodes": "embedded",
    "answers": "embedded",
    "gnn": "graph",
    "predict": "run",
    "centrality": "edges.parquet",
    "shares": "graph",
    "similar": "vectors",
}
# One job per mechanism: tasks, a training that is visible, one file that the client writes.
QUICK = ("walk", "gnn", "vectors")


def cells(jobs, *hows, quick=QUICK):
    """Return the cells of a fault: each job, with each of ``hows``; slow but for ``quick``."""
    chosen = set(quick)
    return [
        pytest.param(job, *([how] if how else []), marks=[] if job in chosen else pytest.mark.slow)
        for how in hows or ("",)
        for job in jobs
    ]


def make_inputs(folder):
    """Make a graph, its edges as a table, walks, vectors and models."""
    generate("sbm", folder / "graph", nodes=600, seed=1, quiet=True)
    csr = Graph.open(folder / "graph").csr()
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    table = pa.table({"a": rows, "b": csr.indices, "graph_id": rows // 100})
    pq.write_table(table, folder / "edges.parquet")
    walk(folder / "graph", folder / "walks", length=10, quiet=True)
    for words in (
        "word2vec train {0}/walks {0}/vectors --dim 8",
        "embed train {0}/graph {0}/embedded --model dot --dim 8 --epochs 1",
        "gnn train {0}/graph {0}/run --epochs 1",
    ):
        assert run([*words.format(folder).split(), "--cluster", "threads", "-q"]) == 0


def words_of(job, given, out, cluster="threads"):
    """Return a job's command line; of partitions, ``out`` is a copy of the graph that gets them."""
    graph = given / "graph"
    if job == "partition":
        graph = out
        if not out.exists():
            shutil.copytree(given / "graph", out)
    words = JOBS[job].format(given=given, out=out, graph=graph).split()
    return words if job in CLIENT else [*words, "--cluster", cluster]


def again(job, words):
    """Return the command with which a user finishes what was interrupted."""
    return [*words, "--resume"] if job in RESUMES else words


def call(words, code=0):
    """Run a command in this process, whose exit code must be this; return what it says."""
    found, said = _answer(words)
    assert found == code, said
    return said


def _answer(words):
    """Run a command in this process; return its exit code and what it prints and logs."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)  # Dask's own, which pytest's takes the place of
    handler.setLevel(logging.WARNING)
    logging.getLogger("distributed").addHandler(handler)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            code = run([*map(str, words)])
    finally:
        logging.getLogger("distributed").removeHandler(handler)
    return code, said.getvalue()


def refused(words, home, *named, codes=(1, 2)):
    """Run a command that fails and says all of ``named``; what lies below ``home`` stays."""
    before = sorted(home.rglob("*"))
    code, said = _answer(words)
    assert code in codes, said
    for internal in ("Traceback", "This is a bug"):
        assert internal not in said
    for name in named:
        assert str(name) in said
    assert sorted(home.rglob("*")) == before


def results(out):
    """Return the files of an output, but for those that hold times."""
    if out.is_file():
        return {"": out.read_bytes()}
    if list(out.glob("checkpoints/*.table")):
        return _embedded(out)
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


def _embedded(run):
    """Return the learned values; their place in the files depends on the number of writes."""
    states, tensors, about = embed_runs.vectors(run)
    found = {name: array.tobytes() for name, array in tensors.items()}
    found |= {f"state {number}": array.tobytes() for number, array in enumerate(states)}
    return found | {"about": json.dumps(about, sort_keys=True, default=str).encode()}


def published(job, out):
    """Return whether a whole output exists."""
    if job == "partition":
        return (out / "partition/k3").exists()
    if job in VISIBLE and out.exists():
        return bool(json.loads((out / "run.json").read_text())["state"] == "done")
    return out.exists()
