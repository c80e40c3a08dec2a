"""``embed train --weighted``: the loss of each edge is multiplied by its weight."""

import numpy as np
import pytest
from embed_runs import same, values, vectors

from penstock import ClusterSpec, Graph, embed, etl
from penstock.errors import InputError, UsageError

NODES = 60
TWO = ClusterSpec(cluster="mpi", workers=2)
SMALL = {"dim": 8, "batch": 100, "negatives": 16, "epochs": 2, "n3": 0.01}


def graph_of(folder, weights, relation=True):
    """A graph of random edges, the same for all weights."""
    rng = np.random.default_rng(0)
    pairs = rng.choice(NODES * NODES, len(weights), replace=False)
    columns = {"source": pairs // NODES, "target": pairs % NODES, "weight": weights}
    if relation:
        columns["relation"] = [f"r{n}" for n in rng.integers(0, 3, len(weights))]
    rows = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    (folder / "edges.csv").write_text("\n".join(rows) + "\n")
    given = {"relation": "relation"} if relation else {}
    etl(folder / "edges.csv", folder / "g", quiet=True, directed=True, overwrite=True, **given)
    return Graph.open(folder / "g")


@pytest.mark.parametrize("share", [None, 1e-9])
def test_an_update_is_the_gradient_of_the_weighted_loss(tmp_path, share):
    """One update with all edges and all nodes as negatives, against NumPy.

    With a tiny share, rows of edges that have new weights are trained; the mean is of all weights.
    """
    weights = np.random.default_rng(1).integers(0, 9, 500)
    weights[0] = 50
    graph = graph_of(tmp_path, weights, relation=False)
    edges = graph.num_edges
    how = {"dim": 4, "optimizer": "sgd", "epochs": 1, "negatives": "all", "batch": edges}
    how |= {"corrupt": "tail", "schedule": "constant", "quiet": True}
    embed.train(graph, tmp_path / "a", lr=0.001, weighted=share is not None, **how)
    if share is not None:
        first = graph.csr().weights.copy()
        weights[::100] += 3
        graph = graph_of(tmp_path, weights, relation=False)
    given = {"lr": 0.01, "weighted": True, "init": tmp_path / "a", "share": share}
    embed.train(graph, tmp_path / "b", **given, **how)
    (before, *_), *_ = vectors(tmp_path / "a")
    (after, *_), *_ = vectors(tmp_path / "b")
    csr = graph.shard(0)
    heads, tails, x = csr.sources(), csr.indices, before.astype(np.float64)
    by = csr.weights.astype(np.float64) / csr.weights.mean(dtype=np.float64)
    if share is not None:
        by[~np.isin(heads, heads[csr.weights != first])] = 0
    scores = np.exp(x[heads] @ x.T)
    slope = scores / scores.sum(axis=1, keepdims=True)
    slope[np.arange(edges), tails] -= 1
    slope *= by[:, None]
    expected = slope.T @ x[heads]
    np.add.at(expected, heads, slope @ x)
    np.testing.assert_allclose(before - after, 0.01 * expected, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="memory"),
        pytest.param({"partitions": 4, "batch": 40}, id="disk"),
        pytest.param(
            {"parts": 2, "cluster": TWO}, marks=[pytest.mark.mpi, pytest.mark.slow], id="ranks"
        ),
    ],
)
def test_only_differences_of_weights_count(tmp_path, how):
    found = {}
    for name, weights in (("alike", np.full(900, 2)), ("different", 1 + np.arange(900) % 3)):
        graph = graph_of(tmp_path, weights)
        for weighted in (False, True):
            run = tmp_path / f"{name}-{weighted}"
            embed.train(graph, run, weighted=weighted, quiet=True, **SMALL | how)
            found[run.name] = run
    same(found["alike-True"], found["alike-False"])
    one, other = values(found["different-True"]), values(found["different-False"])
    assert not any(
        np.allclose(mine, theirs, rtol=0.01) for mine, theirs in zip(one, other, strict=True)
    )


def test_there_must_be_weights_and_not_all_may_be_0(tmp_path, graph):
    with pytest.raises(UsageError):
        embed.train(graph, tmp_path / "run", weighted=True, **SMALL)
    zeros = graph_of(tmp_path, np.zeros(200))
    with pytest.raises(InputError):
        embed.train(zeros, tmp_path / "run", weighted=True, quiet=True, **SMALL)
