"""The same results in this process, on one worker, on three, and on two MPI ranks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import assert_same, content, run

import penstock

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


@pytest.fixture(scope="module")
def made(given: Path) -> Path:
    """The inputs, and a model and vectors."""
    run("gnn train blocks model --hidden 8 --epochs 2", folder=given)
    run("embed train kg vectors --dim 8 --epochs 1", folder=given)
    run("embed export vectors nodes", folder=given)
    return given


def result(job: str, words: str, out: Path, given: Path) -> dict[str, Any]:
    run(JOBS[job].format(given=given, out=out) + " " + words)
    return content(job, out)


@pytest.fixture(scope="module")
def expected(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each job gives on one thread of this process."""
    folder = tmp_path_factory.mktemp("threads")
    return {job: result(job, "--cluster threads --threads 1", folder / job, made) for job in JOBS}


@pytest.fixture(
    scope="module",
    params=["local -n 1", "local -n 3", pytest.param("mpi -n 2", marks=pytest.mark.mpi)],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Start a cluster that stays, and stop it."""
    version = [sys.executable, "-m", "mpi4py", "--mpi-lib-version"]
    if "mpi" in request.param and subprocess.run(version, capture_output=True).returncode:
        pytest.skip("needs MPI")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_STATE", str(tmp_path_factory.mktemp("state")))
        started = run(f"cluster start --cluster {request.param} --name golden --dashboard none")
        try:
            (there,) = run("cluster status")["clusters"]
            assert (there["name"], len(there["present"])) == ("golden", started["workers"])
            yield request.param
        finally:
            (stopped,) = run("cluster stop --name golden")["stopped"]
            assert stopped["name"] == "golden"
        assert run("cluster status")["clusters"] == []


@pytest.mark.parametrize("job", JOBS)
def test_any_cluster_gives_the_same(
    cluster: str, job: str, made: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    assert_same(result(job, "--cluster golden", tmp_path / "out", made), expected[job])


@pytest.mark.parametrize(
    "cluster", [pytest.param("mpi -n 2", marks=pytest.mark.mpi)], indirect=True
)
def test_ranks_share_a_graph(
    cluster: str, made: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    ranks = "--cluster golden"
    assert_same(result("walk", f"{ranks} --parts 2", tmp_path / "w", made), expected["walk"])
    assert_same(
        result("word2vec", f"{ranks} --parts 2", tmp_path / "v", made), expected["word2vec"]
    )
    found = result("gnn", f"{ranks} --parts 2", tmp_path / "g", made)
    for name, losses in found.items():  # sums in another order
        np.testing.assert_allclose(losses, expected["gnn"][name], rtol=1e-4)
    found = result("predict", f"{ranks} --parts 2", tmp_path / "p", made)
    order = np.argsort(found["id"])
    assert np.asarray(found["id"])[order].tolist() == expected["predict"]["id"]
    np.testing.assert_allclose(
        np.asarray(found["probabilities"])[order],
        expected["predict"]["probabilities"],
        rtol=1e-3,
        atol=1e-6,
    )
    twice = [result("embed", f"{ranks} --parts 2", tmp_path / name, made) for name in "ab"]
    assert_same(*twice)
    with penstock.connect("golden") as client:
        answers = penstock.gang.run(client, lambda comm: (comm.rank, comm.size), ranks=2)
    assert answers == [(0, 2), (1, 2)]
