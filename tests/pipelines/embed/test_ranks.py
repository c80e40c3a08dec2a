"""``penstock embed train -k K``: ranks of a world that mpiexec starts, and what they leave."""

import numpy as np
import pytest
from embed_runs import values

from penstock import ClusterSpec, embed
from penstock.errors import UsageError
from penstock.pipelines.vectors import Vectors

TWO = ClusterSpec(cluster="mpi", workers=2)
SMALL = {"dim": 16, "batch": 100, "epochs": 8}


DISK = {"partitions": 12, "batch": 25}


@pytest.mark.mpi
@pytest.mark.parametrize("more", [{}, DISK], ids=["memory", "disk"])
@pytest.mark.slow
def test_what_two_ranks_write_is_read_by_all(graph, tmp_path, more):
    run, options = tmp_path / "run", {**SMALL, **more}
    report = embed.train(graph, run, parts=2, cluster=TWO, **options)
    assert report.trained.ranks == 2
    assert report.trained.validation["mrr"] > 0.2  # of a random order: 0.016
    found = embed.evaluate(run, filtered=True, split="valid", checkpoint="best")
    assert found.scores["mrr"] == pytest.approx(report.trained.validation["mrr"], abs=1e-12)
    asked = {"head": "e7", "relation": "r2", "top": 3}
    assert len(embed.predict(run, **asked).answers) == 3
    embed.export(run, tmp_path / "v", checkpoint="last")
    exported = Vectors.open(tmp_path / "v")
    rows = exported.rows(graph.user_ids().to_pylist())
    np.testing.assert_array_equal(exported.values[rows], values(run)[0])
    if not more:
        return
    # The same again, and warm starts from it on one rank.
    embed.train(graph, tmp_path / "again", parts=2, cluster=TWO, **options)
    for ours, theirs in zip(values(run), values(tmp_path / "again"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    warm = embed.train(graph, tmp_path / "warm", init=run, **SMALL | {"epochs": 1})
    assert warm.trained.known == {"nodes": 400, "relations": 6, "means": 0}
    with pytest.raises(UsageError):
        embed.train(graph, run, resume=True, **options)
