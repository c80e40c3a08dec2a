"""Candidates limit negatives, the ranks of evaluation, and answers, to nodes that count."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from embed_runs import values

from penstock import Graph, embed, etl
from penstock.errors import InputError, PenstockError, UsageError
from penstock.pipelines.cli import run as penstock
from penstock.workers.embed.initial import fill_nodes
from penstock.workers.embed.spec import Training

USERS, ITEMS = 60, 25


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Users that like items of their group, and see any; nodes have types."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("shop")
    users = rng.integers(0, USERS, 2500)
    likes = rng.random(2500) < 0.8
    items = np.where(likes, users % 5 + 5 * rng.integers(0, 5, 2500), rng.integers(0, ITEMS, 2500))
    names = np.where(likes, "likes", "sees")
    rows = sorted({f"{u}\t{r}\t{i}\n" for u, r, i in zip(users, names, items, strict=True)})
    (folder / "e.tsv").write_text("user\trelation\titem\n" + "".join(rows))
    given = {"source": "user", "target": "item", "relation": "relation"}
    given |= {"source_type": "u", "target_type": "i", "split_edges": (0.8, 0.1, 0.1)}
    etl(folder / "e.tsv", folder / "g", directed=True, **given)
    return folder / "g"


def trained(shop, out, **options):
    given = {"model": "distmult", "dim": 8, "epochs": 3, "batch": 50, "negatives": 16} | options
    return embed.train(shop, out, **given)


@pytest.fixture(scope="module")
def run(shop, tmp_path_factory):
    out = tmp_path_factory.mktemp("candidates") / "run"
    trained(shop, out)
    return out


def tail_ranks(shop, run, allowed):
    """Return the filtered ranks of tails among those allowed, by DistMult's definition."""
    graph = Graph.open(shop)
    nodes, relations = embed.vectors(run), embed.vectors(run, relations=True)
    values, names = np.asarray(nodes.values, np.float64), graph.manifest.relations or ()
    csr = graph.csr()
    known = {
        *zip(csr.sources().tolist(), csr.relations.tolist(), csr.indices.tolist(), strict=True)
    }
    held = {}
    for name in ("valid", "test"):
        of = graph.heldout(name)
        columns = (of[key].tolist() for key in ("sources", "relations", "targets"))
        held[name] = [*zip(*columns, strict=True)]
        known |= {*held[name]}
    ranks = []
    for h, r, t in held["test"]:
        scores = (values[h] * np.asarray(relations[names[r]], np.float64)) @ values.T
        among = [n for n in allowed if n != t and (h, r, n) not in known]
        ranks.append(1 + sum(scores[n] > scores[t] for n in among))
    return ranks


@pytest.mark.parametrize("how", ["type:i", "by-relation", "file", "all"])
def test_answers_are_ranked_among_candidates(shop, run, tmp_path, how):
    graph = Graph.open(shop)
    ids, types = graph.user_ids().to_pylist(), graph.node_column("type").to_pylist()
    items = [n for n, kind in enumerate(types) if kind == "i"]
    chosen = {"file": items[:9], "all": range(len(ids))}.get(how, items)
    if how == "file":
        (tmp_path / "items.txt").write_text("".join(f"{ids[n]}\n" for n in chosen))
    given = str(tmp_path / "items.txt") if how == "file" else how
    found = embed.evaluate(run, filtered=True, candidates=given)
    assert found.candidates == len(chosen)
    wanted = tail_ranks(shop, run, chosen)
    assert found.tail["mr"] == pytest.approx(np.mean(wanted), rel=1e-3)
    assert found.tail["mrr"] == pytest.approx(np.mean(1 / np.array(wanted)), rel=1e-3)


@pytest.mark.parametrize("how", ["type:i", "by-relation"])
def test_answers_are_candidates(shop, run, tmp_path, how):
    given = {"relation": "likes", "candidates": how}
    embed.answer(run, tmp_path / "a", top=5, **given)
    rows = pq.read_table(tmp_path / "a").to_pylist()
    assert {row["tail"][:2] for row in rows} == {"i:"}
    mine = [row for row in rows if row["head"] == "u:7"]
    single = embed.predict(run, head="u:7", top=5, **given).answers
    assert [row["tail"] for row in mine] == [one["id"] for one in single]
    free = embed.predict(run, head="u:7", relation="likes", top=USERS + ITEMS)
    items = [one["id"] for one in free.answers if one["id"].startswith("i:")]
    assert items[:5] == [one["id"] for one in single]


@pytest.mark.parametrize(
    "more", [{"negatives": "all"}, {"by_degree": 0.5, "partitions": 6, "batch": 25}]
)
def test_negatives_and_what_follows_a_training_are_its_candidates(shop, tmp_path, more):
    given = {"candidates": "type:i", "corrupt": "tail", **more}
    trained(shop, tmp_path / "run", epochs=8, **given)
    found = embed.evaluate(tmp_path / "run", filtered=True, checkpoint="last")
    assert found.candidates == ITEMS
    assert found.tail["mrr"] > 0.3  # of a random order: 0.15
    lifted = embed.evaluate(tmp_path / "run", candidates="all")
    assert lifted.candidates == USERS + ITEMS
    asked = {"head": "u:7", "relation": "likes"}
    answers = embed.predict(tmp_path / "run", **asked).answers
    assert {one["id"][:2] for one in answers} == {"i:"}
    users = {"tail": "i:3", "relation": "likes", "candidates": "type:u"}
    answers = embed.predict(tmp_path / "run", **users).answers
    assert {one["id"][:2] for one in answers} == {"u:"}
    (tmp_path / "run" / "candidates.npy").unlink()
    with pytest.raises(PenstockError):
        embed.predict(tmp_path / "run", **asked)


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """Users buy items of their group, and items come from makers: two relations, three types."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("market")
    users, items = rng.integers(0, 80, 2000), rng.integers(0, 30, 2000)
    items = np.where(rng.random(2000) < 0.9, users % 5 + 5 * (items // 5), items)
    rows = {(f"u{u}", "buys", f"i{i}") for u, i in zip(users, items, strict=True)}
    rows |= {(f"i{i}", "from", f"m{(i % 5) + 5 * (i // 15)}") for i in range(30)}
    types = {"u": "user", "i": "item", "m": "maker", "x": "other"}
    nodes = [f"u{n}" for n in range(120)] + [f"i{n}" for n in range(30)]
    nodes += [f"m{n}" for n in range(10)] + [f"x{n}" for n in range(400)]
    lines = ["head,relation,tail,a,b"]
    lines += [f"{h},{r},{t},{types[h[0]]},{types[t[0]]}" for h, r, t in sorted(rows)]
    (folder / "e.csv").write_text("\n".join(lines) + "\n")
    lines = ["id,type", *(f"{one},{types[one[0]]}" for one in nodes)]
    (folder / "n.csv").write_text("\n".join(lines) + "\n")
    given = {"source": "head", "target": "tail", "relation": "relation", "directed": True}
    given |= {"source_type": "column:a", "target_type": "column:b"}
    given |= {"nodes": folder / "n.csv", "split_edges": (0.85, 0.05, 0.1)}
    etl(folder / "e.csv", folder / "g", **given)
    return folder / "g"


@pytest.mark.parametrize(
    "more", [{"by_degree": 0.5, "model": "rescal"}, {"partitions": 4, "corrupt": "tail"}]
)
def test_negatives_have_the_types_that_their_relation_leads_to(market, tmp_path, more):
    """So nodes of no relation's type stay as they began, and answers are ranked as well."""
    given = {"optimizer": "sgd", "lr": 0.05, "epochs": 1, "batch": 20, "n3": 0.0} | more
    trained(market, tmp_path / "a", candidates="by-relation", **given)
    trained(market, tmp_path / "b", **given)
    graph = Graph.open(market)
    ids = graph.user_ids().to_pylist()
    others = [n for n, one in enumerate(ids) if one.startswith("other")]
    alone = [n for n, one in enumerate(ids) if one in {f"user:u{n}" for n in range(80, 120)}]
    begun = np.empty((len(ids), 8), np.float32)
    scale = Training(model=given.get("model", "distmult"), dim=8).scale
    fill_nodes(0, np.arange(len(ids)), begun, scale)
    moved = [np.any(values(tmp_path / one)[0] != begun, axis=1) for one in "ab"]
    assert not moved[0][others].any()
    assert moved[1][others].mean() > 0.5
    assert moved[0].sum() > 100
    # Users are heads only, so that tails are replaced by none.
    assert (moved[0][alone].mean() > 0.5) == ("corrupt" not in more)
    found = embed.evaluate(tmp_path / "a", checkpoint="last")
    assert found.candidates <= 121  # as trained: not those of no relation
    for wrong in ({"negatives": "all"}, {"optimizer": "adam"}):
        with pytest.raises(UsageError):
            trained(market, tmp_path / "c", candidates="by-relation", **wrong)


def test_candidates_that_match_nothing(shop, run, tmp_path):
    (tmp_path / "none.txt").write_text("nobody\n")
    for given, error in (
        (str(tmp_path / "none.txt"), InputError),
        ("type:shop", InputError),
        ("label:3", InputError),
        (str(tmp_path / "missing"), UsageError),
    ):
        with pytest.raises(error):
            embed.evaluate(run, candidates=given)
        with pytest.raises(error):
            trained(shop, tmp_path / "run", candidates=given)
    assert not (tmp_path / "run").exists()


def test_the_command_takes_a_number_and_a_file_counts_as_an_input(shop, run, tmp_path, monkeypatch):
    assert penstock(["embed", "evaluate", str(run), "--candidates", "7", "--seed", "4", "-q"]) == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    items = [f"i:{n}\n" for n in range(ITEMS)]
    (tmp_path / "items.txt").write_text("".join(items))
    options = {"candidates": "~/items.txt", "schedule": "constant"}
    trained(shop, tmp_path / "run", **options)
    (tmp_path / "items.txt").write_text("".join(items[:9]))
    with pytest.raises(PenstockError):
        trained(shop, tmp_path / "run", resume=True, **options | {"epochs": 5})


def test_by_relation_of_a_run_without_relations_is_what_any_edge_leads_to(shop, tmp_path):
    trained(shop, tmp_path / "run", model="dot")
    found = embed.evaluate(tmp_path / "run", candidates="by-relation")
    assert found.candidates == ITEMS
