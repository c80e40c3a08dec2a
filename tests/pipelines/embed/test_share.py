"""A warm start on the graph of the next day: what it trains, and what new nodes begin with."""

import shutil

import numpy as np
import pandas as pd
import pytest
from embed_runs import same, vectors

from penstock import ClusterSpec, Graph, embed, etl
from penstock.errors import UsageError
from penstock.kernels.embed_rules import Side
from penstock.kernels.naive.embed import answer_scores, queries

GIVEN = {"dim": 8, "epochs": 2, "batch": 50, "schedule": "constant", "quiet": True}
TWO = ClusterSpec(cluster="mpi", workers=2)
TINY = 1e-9  # of this many nodes, none
RANKS = [pytest.mark.mpi, pytest.mark.slow]
STILL = {"dim": 8, "epochs": 1, "lr": 1e-12, "quiet": True}  # nothing moves


def of_a_day(folder, name, triples, **options):
    columns = ["head", "relation", "tail", "weight"][: np.shape(triples)[1]]
    frame = pd.DataFrame(triples, columns=columns)
    frame.to_csv(folder / f"{name}.csv", index=False)
    etl(folder / f"{name}.csv", folder / name, directed=True, quiet=True, **options)
    return folder / name


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Two days: in the second, two nodes and a relation are new, and edges of e0 are gone."""
    folder, random = tmp_path_factory.mktemp("days"), np.random.default_rng(0)
    # Every node and relation has edges that stay.
    known = [(f"e{n}", f"r{n % 3}", f"e{(n + 1) % 60}") for n in range(60)]
    heads, relations, tails = (random.integers(0, count, 900) for count in (60, 3, 60))
    known += [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in zip(heads, relations, tails, strict=True)]
    new = [("e3", "r0", "x"), ("e4", "r1", "x"), ("x", "r2", "e5"), ("e6", "r9", "x")]
    new += [("y", "r9", "e7")]  # what a new relation predicts is not known
    of_a_day(folder, "g0", known)
    gone = [edge for edge in known if edge[0] != "e0" or edge == known[0]]
    of_a_day(folder, "g1", gone + new, base=folder / "g0")
    return folder


@pytest.fixture(scope="module")
def first(days):
    """Return a function that trains a model on the first day, once."""

    def first(model):
        if not (run := days / model).exists():
            embed.train(days / "g0", run, model=model, **GIVEN)
        return run

    return first


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_tiny_share_trains_the_edges_of_changed_rows(days, first, tmp_path, partitions):
    graph = Graph.open(days / "g1")
    heads = graph.internal_ids(["e0", "e3", "e4", "e6", "x", "y"])
    changed = int(graph.degrees[heads].sum())
    more = {"model": "complex", "init": first("complex"), "partitions": partitions, "batch": 5}
    edges = [
        embed.train(days / "g1", tmp_path / str(share), share=share, **{**GIVEN, **more}).trained
        for share in (TINY, 0.4, 1.0)
    ]
    assert edges[0].edges == changed
    assert changed < edges[1].edges < edges[2].edges == graph.num_edges
    # The next day compares with this one: nothing has changed since.
    more["init"] = tmp_path / str(TINY)
    for shrink in (1.0, 0.9):  # which does not go with a share
        with pytest.raises(UsageError):
            embed.train(days / "g1", tmp_path / "v2", share=TINY, shrink=shrink, **GIVEN | more)


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """Two days of users who buy: in the second, one has a new weight, one bought less, one more."""
    folder, random = tmp_path_factory.mktemp("market"), np.random.default_rng(3)
    ends = np.argwhere(random.random((80, 30)) < 0.3)
    frame = pd.DataFrame({"head": [f"u{u}" for u in ends[:, 0]], "relation": "buys"})
    frame["tail"] = [f"i{i}" for i in ends[:, 1]]
    frame["weight"] = random.integers(1, 5, len(frame)).astype(float)
    of_a_day(folder, "g0", frame)
    after = frame.drop(frame.index[frame["head"] == "u7"][:2])
    after.loc[after["head"] == "u3", "weight"] += 1
    new = pd.DataFrame({"head": ["u9", "new"], "relation": "sees", "tail": "i1", "weight": 2.0})
    of_a_day(folder, "g1", pd.concat([after, new]), base=folder / "g0")
    (folder / "items.txt").write_text("\n".join(f"i{n}" for n in range(30)))
    given = GIVEN | {"corrupt": "tail", "candidates": folder / "items.txt", "weighted": True}
    embed.train(folder / "g0", folder / "first", **given)
    return folder, given | {"init": folder / "first", "epochs": 1}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="memory"),
        pytest.param({"partitions": 4, "batch": 20}, id="disk"),
        pytest.param({"parts": 2, "cluster": TWO}, marks=RANKS, id="ranks"),
        pytest.param(
            {"parts": 2, "cluster": TWO, "partitions": 12, "batch": 20},
            marks=RANKS,
            id="ranks and disk",
        ),
    ],
)
def test_users_whose_row_is_not_trained_keep_their_vectors(market, tmp_path, how):
    """Negatives are items, so that a user's vector moves only by edges of its own row."""
    folder, given = market
    today = Graph.open(folder / "g1")
    before, ids = Graph.open(folder / "g0"), today.user_ids().to_pylist()
    (old, *_), *_ = vectors(folder / "first")
    for share in (TINY, 0.3):
        runs = tmp_path / f"one-{share}", tmp_path / f"other-{share}"
        for run in runs:
            report = embed.train(folder / "g1", run, share=share, **given | how)
        same(*runs)
        (new, *_), *_ = vectors(runs[0])
        at = before.internal_ids(ids)
        moved = (at < 0) | (new != old[at]).any(axis=1)
        users = {name for name, one in zip(ids, moved, strict=True) if one and name[0] != "i"}
        changed = {"u3", "u7", "u9", "new"}
        assert users == changed if share == TINY else users > changed
        assert report.trained.edges == today.degrees[today.internal_ids([*users])].sum()


def test_a_new_node_that_takes_the_place_of_another_is_trained(tmp_path):
    """Rows that lead to it have the same internal ids as before."""
    ends = np.random.default_rng(0).integers(0, 20, (200, 2))
    triples = [(f"u{u}", "r", f"i{i}") for u, i in ends]
    of_a_day(tmp_path, "g0", triples)
    today = [(u, r, "new" if i == "i7" else i) for u, r, i in triples]
    of_a_day(tmp_path, "g1", today, base=tmp_path / "g0")
    graph = Graph.open(tmp_path / "g1")
    (at,) = graph.internal_ids(["new"])
    assert at == Graph.open(tmp_path / "g0").internal_ids(["i7"])
    heads = np.unique(graph.csr().sources()[graph.csr().indices == at])
    embed.train(tmp_path / "g0", tmp_path / "v0", **GIVEN)
    report = embed.train(
        tmp_path / "g1", tmp_path / "v1", init=tmp_path / "v0", share=TINY, **GIVEN
    )
    assert report.trained.edges == graph.degrees[heads].sum()


def test_a_share_resumes(days, first, tmp_path):
    """Also if the run that it began with is gone."""
    init = shutil.copytree(first("dot"), tmp_path / "init")
    more = {"model": "dot", "init": init, "share": 0.3}
    whole = embed.train(days / "g1", tmp_path / "whole", **{**GIVEN, **more, "epochs": 4})
    embed.train(days / "g1", tmp_path / "run", **{**GIVEN, **more})
    shutil.rmtree(init)
    again = {**GIVEN, **more, "epochs": 4, "resume": True}
    report = embed.train(days / "g1", tmp_path / "run", **again)
    assert report.trained.first_epoch == 2
    assert report.trained.edges == whole.trained.edges
    same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("model", ["rotate", "complex", "tucker", "dot"])
def test_shrunk_vectors_are_fractions_of_those_before(days, first, tmp_path, model):
    """But not angles, of which the relations of RotatE consist; nor the optimizer's state."""
    embed.train(days / "g0", tmp_path / "v", model=model, init=first(model), shrink=0.5, **STILL)
    (old, states, *_), before, _ = vectors(first(model))
    (new, of_new, *_), after, _ = vectors(tmp_path / "v")
    np.testing.assert_allclose(new, old / 2, rtol=1e-5, atol=1e-8)
    assert (of_new >= states).all()
    assert of_new.any()
    if model != "dot":
        by = 1 if model == "rotate" else 2
        np.testing.assert_allclose(
            after["relations"], before["relations"] / by, rtol=1e-5, atol=1e-8
        )


@pytest.mark.parametrize("model", ["transe", "rotate", "complex", "rescal", "tucker", "dot"])
def test_new_nodes_begin_with_what_their_edges_predict(days, first, tmp_path, model):
    run, warm = first(model), tmp_path / "warm"
    report = embed.train(days / "g1", warm, model=model, init=run, **STILL)
    before, today = Graph.open(days / "g0"), Graph.open(days / "g1")
    assert report.trained.known["means"] == (2 if model == "dot" else 1)
    (old, states, *_), tensors, _ = vectors(run)
    (new, of_new, *_), _, _ = vectors(warm)
    rules = embed.EmbedOptions(model=model, dim=8, batch=50).training.rules(3)
    edges = [("e3", 0, Side.TAIL), ("e4", 1, Side.TAIL), ("e5", 2, Side.HEAD)]
    edges += [("e6", 0, Side.TAIL)] * (model == "dot")
    table, rows, asked = tensors.get("relations"), [], []
    for node, relation, side in edges:
        rows += [int(before.internal_ids([node])[0])]
        asked.append(queries(old, table, [rows[-1]], np.array([relation]), side, rules)[0])
    (x,) = today.internal_ids(["x"])
    # Its edges fit as those between known nodes do: otherwise it would be the best answer to all.
    known = today.csr()
    names, numbers = today.user_ids().to_pylist(), {"r0": 0, "r1": 1, "r2": 2}
    of = [numbers.get(today.manifest.relations[r], -1) for r in known.relations]
    heads, tails = (
        before.internal_ids([names[n] for n in a]) for a in (known.sources(), known.indices)
    )
    here = (heads >= 0) & (tails >= 0) & ((np.array(of) >= 0) | (model == "dot"))
    given = old, table, heads[here], np.array(of)[here], Side.TAIL, rules
    made = queries(*given)
    scores = answer_scores(made, old[tails[here]], rules)
    if model in ("transe", "rotate"):
        away = answer_scores(np.mean(asked, axis=0)[None], new[[x]], rules)
        np.testing.assert_allclose(away, scores.mean(), rtol=1e-3)
    else:
        total = sum(one / np.linalg.norm(one) for one in asked)
        length = np.linalg.norm(old[rows], axis=1).mean()
        norms = np.linalg.norm(made, axis=1) * np.linalg.norm(old[tails[here]], axis=1)
        expected = (scores / norms).mean() * length * total / np.linalg.norm(total)
        np.testing.assert_allclose(new[x], expected, rtol=1e-3, atol=1e-5)
    assert (of_new[x] > 0.99 * states[rows].mean(axis=0)).all()  # adagrad only adds to it
