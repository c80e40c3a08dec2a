"""The same results in this process, on three workers, and on two MPI ranks."""

import subprocess
import sys
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import assert_same, content, run

import penstock

Result = dict[str, Any]
JOBS = {
    "etl": "etl {given}/follows.parquet {out} --weight weight --time time",
    "walk": "walk {given}/weighted {out} --length 8 --walks 3",
    "centrality": "centrality {given}/one {out} --metrics betweenness,pagerank --weighted",
    "similar": "similar {given}/nodes --all {out} -k 3",
    "word2vec": "word2vec train {given}/blocks {out} --dim 8 --walks 2 --length 10 --deterministic",
    "embed": "embed train {given}/kg {out} --dim 8 --epochs 2",
    "gnn": "gnn train {given}/blocks {out} --hidden 8 --epochs 4",
    "predict": "gnn predict {given}/model {out} --probabilities",
}


def result(job, words, out, given):
    run(f"{JOBS[job].format(given=given, out=out)} {words}")
    return content(job, out)


@pytest.fixture(scope="module")
def expected(given, tmp_path_factory):
    """What each job gives on one thread of this process; and a model and vectors."""
    with chdir(given):
        run("gnn train blocks model --hidden 8 --epochs 2")
        run("embed train kg vectors --dim 8 --epochs 1")
        run("embed export vectors nodes")
    folder, words = tmp_path_factory.mktemp("threads"), "--cluster threads --threads 1"
    return {job: result(job, words, folder / job, given) for job in JOBS}


@contextmanager
def cluster(words):
    """Start a cluster that stays, and stop it."""
    started = run(f"cluster start --cluster {words} --name golden --dashboard none")
    try:
        (there,) = run("cluster status")["clusters"]
        assert (there["name"], len(there["present"])) == ("golden", started["workers"])
        yield
    finally:
        stopped = run("cluster stop --name golden")["stopped"]
    assert [one["name"] for one in stopped] == ["golden"]
    assert run("cluster status")["clusters"] == []


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("local -n 3", marks=pytest.mark.slow),
        pytest.param("mpi -n 2", marks=pytest.mark.mpi),
    ],
)
def test_any_cluster_gives_the_same(words, given, expected, monkeypatch):
    version = [sys.executable, "-m", "mpi4py", "--mpi-lib-version"]
    if "mpi" in words and subprocess.run(version, capture_output=True).returncode:
        pytest.skip("needs MPI")
    monkeypatch.setenv("PENSTOCK_STATE", str(Path("state").absolute()))
    with cluster(words):
        for job in JOBS:
            found = result(job, "--cluster golden", Path(job).absolute(), given)
            assert_same(found, expected[job])
        if "mpi" in words:
            Path("parts").mkdir()
            with chdir("parts"):
                assert_parts(given, expected)


def assert_parts(given, expected):
    """Compare the result of two ranks, one part each, with that of one rank."""

    def parts(job, name=""):
        return result(job, "--cluster golden --parts 2", Path(name or job).absolute(), given)

    for job in ("walk", "centrality"):
        assert_same(parts(job), expected[job])
    assert_same(parts("word2vec"), expected["word2vec"])
    assert_same(parts("embed"), parts("embed", "again"))
    # Of one edge, one rank has none.
    for more in ("", "--candidates 50 --sample 101 --seed 3", "--sample 1 --seed 1"):
        scores = [
            run(f"embed evaluate embed --filtered {more} --cluster {words}") | {"seconds": 0}
            for words in ("threads", "golden --parts 2")
        ]
        assert scores[0] == scores[1]
    for name, losses in parts("gnn").items():  # sums in another order
        np.testing.assert_allclose(losses, expected["gnn"][name], rtol=1e-4)
    found, whole = parts("predict"), expected["predict"]
    order = np.argsort(found["id"])
    assert [found["id"][one] for one in order] == whole["id"]
    chances = np.asarray(found["probabilities"])[order]
    np.testing.assert_allclose(chances, whole["probabilities"], rtol=1e-3, atol=1e-6)
    with penstock.connect("golden") as client:
        answers = penstock.gang.run(client, lambda comm: (comm.rank, comm.size), ranks=2)
    assert answers == [(0, 2), (1, 2)]
