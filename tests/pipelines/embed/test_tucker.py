"""TuckER: what training, warm starts, ranks and answers do with rows that all relations share."""

import numpy as np
import pytest
from embed_runs import values

from penstock import ClusterSpec, embed

SMALL = {"model": "tucker", "dim": 8, "relation_dim": 5, "batch": 200, "negatives": 16}


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tucker") / "run"
    embed.train(graph, folder, epochs=3, quiet=True, **SMALL)
    return folder


def test_scores_ranks_and_answers_are_those_of_its_definition(graph, run, tmp_path):
    nodes, table = (array.astype(np.float64) for array in values(run))
    names = list(graph.manifest.relations)
    assert table.shape == (2 * len(names) + 64, 5)
    relations, core = table[:-64], table[-64:].reshape(8, 8, 5)
    exported = embed.vectors(run, relations=True, checkpoint="last")
    np.testing.assert_array_equal(exported.values, relations.astype(np.float32))
    held, ids = graph.heldout("test"), graph.user_ids().to_pylist()
    heads, of, tails = (held[name] for name in ("sources", "relations", "targets"))
    scores = [
        np.einsum("ijk,k,ni,mj->nm", core, relations[r + shift], nodes[[given]], nodes)[0]
        for given, r, shift in (
            *((h, r, 0) for h, r in zip(heads, of, strict=True)),
            *((t, r, len(names)) for t, r in zip(tails, of, strict=True)),
        )
    ]
    embed.export(run, tmp_path / "relations", relations=True, checkpoint="last", quiet=True)
    np.testing.assert_array_equal(np.load(tmp_path / "relations/core.npy"), core)
    answers = np.concatenate([tails, heads])
    own = [row[answer] for row, answer in zip(scores, answers, strict=True)]
    triples = [(ids[h], names[r], ids[t]) for h, r, t in zip(heads, of, tails, strict=True)]
    found = embed.score(run, triples, checkpoint="last")
    np.testing.assert_allclose(found, own[: len(triples)], rtol=1e-4, atol=1e-6)
    ranks = [1 + np.sum(row > mine) for row, mine in zip(scores, own, strict=True)]
    report = embed.evaluate(run, checkpoint="last")
    assert report.scores["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-3)
    asked = {"head": triples[0][0], "relation": triples[0][1], "known": True, "top": 3}
    answers = embed.predict(run, checkpoint="last", **asked).answers
    assert [one["id"] for one in answers] == [ids[n] for n in np.argsort(-scores[0])[:3]]


def test_a_warm_start_keeps_the_shared_rows(graph, run, tmp_path):
    embed.train(graph, tmp_path / "warm", init=run, epochs=1, lr=1e-9, quiet=True, **SMALL)
    for mine, before in zip(values(tmp_path / "warm"), values(run), strict=True):
        np.testing.assert_allclose(mine, before, atol=1e-6)


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("model", ["rescal", "tucker"])
def test_ranks_share_matrices(graph, tmp_path, model):
    two = ClusterSpec(cluster="mpi", workers=2)
    given = {"model": model, "dim": 16, "batch": 100, "epochs": 8, "quiet": True}
    report = embed.train(graph, tmp_path / "run", parts=2, cluster=two, **given)
    assert report.trained.ranks == 2
    assert report.trained.validation["mrr"] > 0.1  # of a random order: 0.016
    found = embed.evaluate(tmp_path / "run", filtered=True, split="valid")
    assert found.scores["mrr"] == pytest.approx(report.trained.validation["mrr"], abs=1e-12)
