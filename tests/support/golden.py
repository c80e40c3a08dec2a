"""The door that tests/golden goes through: the command, public names, formats that docs/ describes.

What these tests hold must survive whatever is rewritten behind it, so nothing here or there names a
module of Penstock. ``golden.json`` holds digests of ids and whole numbers, sums of floats, and the
keys of what ``--json`` prints. ``PENSTOCK_GOLDEN=write pytest -n 0 tests/golden`` writes it anew.
"""

import atexit
import hashlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import penstock

Answer = subprocess.CompletedProcess[str]
STORED = Path(__file__).parents[1] / "golden" / "golden.json"
WRITES = os.environ.get("PENSTOCK_GOLDEN") == "write"
GROUPS = {"generate", "gnn", "word2vec", "embed", "vectors", "runs", "schedule", "cluster"}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command(words):
    """Run the command in this process: as in one of its own, less the time that imports take."""
    arguments = ["penstock", *shlex.split(words)]
    main = next(iter(entry_points(group="console_scripts", name="penstock"))).load()
    end, process = os._exit, os.getpid()

    def stop(code):  # a command may end its process at once
        if os.getpid() != process or threading.current_thread() is not threading.main_thread():
            end(code)
        raise SystemExit(code)

    handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            patch.object(sys, "argv", arguments),
            patch.object(os, "_exit", stop),
            patch.object(atexit, "_run_exitfuncs"),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    return Answer(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())


def run(words):
    """Run a command that must not fail; return what ``--json`` prints, whose keys are compared."""
    answer = command(f"{words} --json -q")
    assert answer.returncode == 0, answer.stderr
    report, parts = json.loads(answer.stdout), shlex.split(words)
    kinds = [one for one in ("--all", "--plan") if one in parts]
    check_keys(" ".join(parts[: 2 if parts[0] in GROUPS else 1] + kinds), report)
    return report


def check_keys(name, report):
    """Assert that ``--json`` has lost no key; new ones may be added."""
    found, known = set(report[0] if isinstance(report, list) else report), load()
    stored = known.setdefault("keys", {})
    if WRITES:
        stored[name] = sorted(found & set(stored.get(name, found)))
        save(known)
    assert set(stored[name]) - found == set()


def check(name, values, *, tolerance=1e-5):
    """Compare arrays and columns with those stored under a name: floats by a tolerance."""
    known, prints = load(), {key: fingerprint(one) for key, one in sorted(values.items())}
    if WRITES:
        known.setdefault("contents", {})[name] = prints
        save(known)
    stored = known["contents"][name]
    assert list(prints) == list(stored)
    for key, value in prints.items():
        if isinstance(value, list):
            np.testing.assert_allclose(value, stored[key], rtol=tolerance, atol=1e-9, err_msg=key)
        else:
            assert (key, value) == (key, stored[key])


def fingerprint(values):
    """Return a digest of ids and whole numbers, and sums of floats that depend on their order."""
    if not isinstance(values, np.ndarray):
        first = values[0][:1] if values and isinstance(values[0], list) else values[:1]
        values = np.asarray(values) if first and isinstance(first[0], float) else values
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        numbers = np.abs(values.astype(np.float64).ravel())
        where = np.modf(np.arange(1, len(numbers) + 1) * 0.6180339887498949)[0]
        return [len(numbers), float(numbers.sum()), float(numbers @ where)]
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return hashlib.sha256(json.dumps(listed, default=str).encode()).hexdigest()[:16]


def assert_same(one, other):
    """Assert that two results of one machine are the same, to the bit."""
    assert list(one) == list(other)
    for name, values in one.items():
        assert np.asarray(values, object).tolist() == np.asarray(other[name], object).tolist(), name


def content(job, out):
    """Return ids, arrays and scores that a job made."""
    if job == "etl":
        return graph_content(out)
    if job == "gnn":
        lines = curve(out)
        return {name: [line[name]["loss"] for line in lines] for name in ("train", "valid")}
    if job == "embed":
        run(f"embed export {out} {out}-nodes")
        return columns(f"{out}-nodes/part-00000.parquet")
    return columns(out / {"word2vec": "part-00000.parquet", "centrality": "nodes"}.get(job, ""))


def graph_content(path):
    """Return what a graph holds, but for the splits of its nodes."""
    graph, path = penstock.Graph.open(path), Path(path)
    found = dict(graph.csr().arrays())
    for table in path.glob("*.parquet"):
        found |= {f"{table.stem}.{name}": one for name, one in columns(table).items()}
    found.pop("nodes.split", None)
    features = graph.features()
    if features is not None:
        found["features"] = features.toarray() if sp.issparse(features) else features
    for file in path.glob("heldout/*/*.npy"):
        found[f"{file.parent.name}.{file.stem}"] = np.load(file)
    return found


def columns(path):
    """Return the columns of Parquet, a file or a folder."""
    return pq.read_table(path).to_pydict()


def curve(run):
    """Return what a training run logged of its epochs."""
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def tensors(path):
    """Return the arrays of a safetensors file: a length, JSON with the layout, and data."""
    data = Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, one in json.loads(data[8:start]).items():
        if name != "__metadata__" and one["dtype"] == "F32":
            low, high = one["data_offsets"]
            values = np.frombuffer(data[start + low : start + high], np.float32)
            found[name] = values.reshape(one["shape"])
    return found


def adjacency(path, *, weighted=False):
    """Return a graph's matrix, read as docs/format.md describes."""
    about = json.loads((Path(path) / "graph.json").read_text())
    parts = []
    for number, shard in enumerate(about["shards"]):
        folder = Path(path) / "shards" / f"{number:05d}"
        indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
        data = np.load(folder / "weights.npy") if weighted else np.ones(len(indices))
        shape = (shard["stop"] - shard["start"], about["nodes"])
        parts.append(sp.csr_array((data, indices, indptr), shape))
    return sp.csr_array(sp.vstack(parts))


def draws(count, below, stream):
    """Return whole numbers that are the same in every version of NumPy (splitmix64)."""
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state += np.uint64(stream * 0xD1342543DE82EF95 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(11)).astype(np.int64) % below


def follows():
    """Return edges of people p0 to p199, drawn with a skew."""
    ids = np.array([f"p{number}" for number in range(200)], dtype=object)
    target = draws(1500, 200, 2) * draws(1500, 200, 3) // 200
    table = {"src": ids[draws(1500, 200, 1)], "dst": ids[target]}
    return pd.DataFrame(
        {**table, "weight": (1 + draws(1500, 64, 4)) / 8, "time": draws(1500, 1000, 5)}
    )


def load():
    """Return what is stored."""
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def save(known):
    """Write a line for each name."""
    parts = []
    for part, named in sorted(known.items()):
        lines = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(named.items())]
        parts.append(f' "{part}": {{\n' + ",\n".join(lines) + "\n }")
    STORED.write_text("{\n" + ",\n".join(parts) + "\n}\n")
