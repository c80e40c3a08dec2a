"""Jobs and flows that are killed outright in the middle end as if they had not been."""

from __future__ import annotations

from contextlib import chdir, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from golden import assert_same, columns, content, draws, run, start, until

JOBS = {
    "etl": "etl {0}/edges.parquet {1} --weight weight",
    "walk": "walk {0}/graph {1} --length 80 --walks 20 --app node2vec --q 4",
    "centrality": "centrality {0}/graph {1} --metrics betweenness,closeness",
    "similar": "similar {0}/vectors.parquet --all {1}",
    "word2vec": "word2vec train {0}/graph {1} --dim 16 --walks 2 --length 40 --deterministic "
    "--checkpoint-minutes 1e-9 --epochs 4",
    "gnn": "gnn train {0}/graph {1} --epochs 60 --checkpoint-epochs 2",
    "embed": "embed train {0}/graph {1} --model dot --dim 16 --epochs 6 --partitions 8 "
    "--checkpoint-minutes 1e-9",
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs on which each job takes some tenths of a second."""
    folder = tmp_path_factory.mktemp("large")
    with chdir(folder):
        run("generate sbm graph --nodes 3000")
        table = {"src": draws(200_000, 50_000, 0), "dst": draws(200_000, 50_000, 1)}
        pd.DataFrame(table | {"weight": (1 + draws(200_000, 8, 2)) / 8}).to_parquet("edges.parquet")
        vectors = (draws(6000 * 32, 1000, 3).reshape(6000, 32) / 500 - 1).astype(np.float32)
        table = {"id": range(6000), "vector": list(vectors)}
        pd.DataFrame(table).to_parquet("vectors.parquet")
    return folder


def begun(out: Path) -> bool:
    """Return whether a job has written something: a training run two epochs and a checkpoint."""
    with suppress(FileNotFoundError):
        if (metrics := out / "metrics.jsonl").exists():
            return metrics.read_text().count("\n") > 1 and any(out.glob("checkpoints/last*"))
        partial = out.with_name(f".{out.name}.partial")
        return any(one.is_file() and one.stat().st_size for one in partial.rglob("*"))
    return False


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_was_killed_resumes(large: Path, job: str) -> None:
    out, words = Path("out").absolute(), f"{JOBS[job]} --cluster threads"
    run(words.format(large, "whole"))
    with start(words.format(large, out)) as process:
        until(lambda: begun(out), process)
        process.kill()
    assert process.returncode == -9
    assert out.exists() == (job in ("gnn", "embed"))  # a training run is there from its first epoch
    run(f"{words.format(large, out)} --resume")
    assert_same(content(job, out), content(job, Path("whole")))
    assert not Path(".out.partial").exists()


def test_a_flow_that_was_killed_goes_on(large: Path) -> None:
    Path("f.yaml").write_text(
        "name: f\nfolder: out\nstages:\n"
        f"  graph: {{job: etl, input: {large}/edges.parquet}}\n"
        "  walks: {job: walk, input: graph, length: 40, walks: 5, publish: published}\n"
    )
    with start("run f.yaml --no-report") as process:
        until(Path("out/graph").exists, process)
        process.kill()
    assert not Path("published").exists()
    assert run("run f.yaml --no-report")["state"] == "passed"
    run("walk out/graph whole --length 40 --walks 5")
    assert columns("published") == columns("whole")
    assert run("runs list")[-1]["state"] == "passed"
