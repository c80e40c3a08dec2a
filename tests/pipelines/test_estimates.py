"""The memory and disk of ``--plan``, and of runs: within a factor of two."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graphs import write_graph

from penstock.csr import CSR
from penstock.pipelines.cli import run

NODES = 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimates")
    rng = np.random.default_rng(0)
    sizes = ["--nodes", str(NODES), "--features", "dense", "-q"]
    assert run(["generate", "sbm", str(folder / "blocks"), *sizes]) == 0
    ends = rng.integers(0, NODES, (2, 5 * NODES))
    ids = [f"user-{i:012d}" for i in np.sort(rng.integers(0, 10**12, NODES))]
    write_graph(folder / "named", CSR.from_edges(*np.hstack([ends, ends[::-1]]), NODES), ids)
    values = rng.random((NODES, 8)).astype(np.float32)
    np.save(folder / "vectors.npy", values)
    pq.write_table(pa.table({"id": np.arange(NODES) * 7}), folder / "vectors.ids.parquet")
    given = ["--epochs", "1", "--cluster", "threads", "-q"]
    assert run(["gnn", "train", str(folder / "blocks"), str(folder / "run"), *given]) == 0
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["centrality", "named", "OUT", "--metrics", "pagerank,strong-component"],
        ["walk", "blocks", "OUT"],
        ["walk", "named", "OUT"],
        ["similar", "vectors.npy", "--all", "OUT"],
        ["gnn", "predict", "run", "OUT", "--embeddings", "--probabilities"],
    ],
    ids=" ".join,
)
def test_an_output_is_about_as_large_as_the_plan_says(folder, tmp_path, capsys, command):
    given = [str(folder / word) if (folder / word).exists() else word for word in command]
    given = [str(tmp_path / "out") if word == "OUT" else word for word in given]
    given += ["--cluster", "threads", "--json", "-q"]
    capsys.readouterr()
    assert run([*given, "--plan"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert run(given) == 0
    size = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*.parquet"))
    assert size / 2 < plan["disk_bytes"] < size * 2
