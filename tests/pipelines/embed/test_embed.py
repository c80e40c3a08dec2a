"""``penstock embed`` from a graph to ranks, answers and vectors."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from embed_runs import values
from graphs import write_graph

from penstock import CSR, ClusterSpec, Graph, embed, etl
from penstock.errors import InputError, UsageError
from penstock.pipelines.cli import app
from penstock.pipelines.embed.planning import fewest_partitions, memory_to_train
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.vectors import Vectors
from penstock.workers.embed import source
from penstock.workers.embed.spec import Training

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"dim": 8, "batch": 200, "negatives": 16, "epochs": 2}


# -- train, evaluate, predict, export --------------------------------------------------------------


def test_nodes_in_no_training_edge_are_counted(tmp_path):
    (tmp_path / "train.txt").write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    (tmp_path / "test.txt").write_text("a\tr\tc\nnew\tr\ta\nb\tr\tnew\n")
    etl(tmp_path / "train.txt", tmp_path / "g", test=tmp_path / "test.txt")
    embed.train(tmp_path / "g", tmp_path / "run", dim=4, epochs=1, batch=2)
    found = embed.evaluate(tmp_path / "run", filtered=True)
    assert (found.edges, found.unseen) == (3, 2)


def test_exported_inverses_score_heads(trained, tmp_path):
    run, _ = trained
    embed.export(run, tmp_path / "r", relations=True)
    nodes, relations = embed.vectors(run), Vectors.open(tmp_path / "r")
    asked = {"relation": "r0", "top": 5, "known": True}

    def vector(values):
        return values[: len(values) // 2] + 1j * values[len(values) // 2 :]

    for side, name in (("head", "r0"), ("tail", "r0_inverse")):
        query = vector(nodes["e1"]) * vector(relations[name])
        for answer in embed.predict(run, **{side: "e1"}, **asked).answers:
            score = np.vdot(vector(nodes[answer["id"]]), query).real
            np.testing.assert_allclose(score, answer["score"], rtol=1e-4)


def test_a_larger_buffer_reads_less(graph, tmp_path):
    options = {"dim": 16, "epochs": 4, "batch": 50, "partitions": 8}
    read = {}
    for buffer in (3, 5, 8):
        run = tmp_path / str(buffer)
        read[buffer] = embed.train(graph, run, buffer=buffer, **options).trained.bytes_read
        assert embed.evaluate(run, filtered=True).scores["mrr"] > 0.2
    # Of 8 partitions 3 in memory are exchanged 13 times an epoch, 5 are 6 times, and 8 never.
    assert 0.4 < read[5] / read[3] < 0.55
    assert read[8] < 0.2 * read[3]


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.slow), 6])
def test_vectors_are_read_in_blocks(graph, tmp_path, partitions, monkeypatch):
    """Where a partition does not fit in memory; scores, answers and exports are the same."""
    run, cluster = tmp_path / "run", ClusterSpec(cluster="threads", device="cpu")
    embed.train(graph, run, cluster=cluster, partitions=partitions, **{**SMALL, "batch": 50})
    asked = {"head": "e1", "relation": "r0", "top": 3, "cluster": cluster}

    def found():
        scores = embed.evaluate(run, filtered=True, cluster=cluster).scores
        return scores, embed.predict(run, **asked).answers

    whole = found()
    monkeypatch.setattr(source, "free_memory", lambda *, device: 0)
    monkeypatch.setattr(source, "BLOCK_BYTES", 32 * 13)
    assert found() == whole
    embed.export(run, tmp_path / "v")
    exported, ours = Vectors.open(tmp_path / "v"), embed.vectors(run)
    assert ours.ids.equals(exported.ids)
    np.testing.assert_array_equal(ours.values, exported.values)
    assert isinstance(ours.values, np.memmap) == (partitions == 1)
    # By the same ids, of the same places as in a checkpoint that is read whole.
    monkeypatch.undo()
    np.testing.assert_array_equal(ours.values, values(run)[0])
    embed.export(run, tmp_path / "r", relations=True)
    np.testing.assert_array_equal(
        embed.vectors(run, relations=True).values, Vectors.open(tmp_path / "r").values
    )


def test_a_warm_start_begins_where_the_other_run_ended(trained, graph, tmp_path):
    run, _ = trained
    options = {"dim": 16, "batch": 200, "epochs": 1}
    warm = embed.train(graph, tmp_path / "warm", init=run, **options)
    for name, value in (("dim", 12), ("reciprocal", False)):
        with pytest.raises(UsageError, match=name):
            embed.train(graph, tmp_path / "other", init=run, **{**options, name: value})
    with pytest.raises(UsageError):
        embed.train(graph, tmp_path / "warm", resume=True, **options)
    own = shutil.copytree(run, tmp_path / "own")  # and in its place
    again = embed.train(graph, own, init=own, overwrite=True, **options)
    assert again.trained.known == warm.trained.known
    assert again.trained.loss == warm.trained.loss


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [100, 8])
def test_an_option_that_is_given_wins_also_at_its_default(tmp_path, dim):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("dim: 8\nreciprocal: false\nmodel: rotate\nloss: margin\nbatch: 10\n")
    plain = embed.EmbedOptions()
    assert plain.dim == 100, "or this test shows nothing"
    made = embed.EmbedOptions(recipe=recipe, dim=dim, loss=plain.loss)
    assert (made.dim, made.loss, made.batch, made.reciprocal) == (dim, plain.loss, 10, False)
    words = f"embed train g run --recipe {recipe} --dim {dim} --loss {plain.loss}"
    _, bound, _ = app.parse_args(words.split(), exit_on_error=False, print_error=False)
    typed = bound.arguments["options"]
    assert (typed.dim, typed.loss, typed.batch, typed.reciprocal) == (dim, plain.loss, 10, False)


def test_what_a_recipe_gives_and_would_be_ignored_is_refused(graph, tmp_path):
    """But one that writes every option out, as run.json does, asks for none of its defaults."""
    recipe, run = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text("beta1: 0.8\n")
    with pytest.raises(UsageError):
        embed.EmbedOptions(recipe=recipe)
    report = embed.train(graph, run, dim=8, epochs=1, batch=500)
    recipe.write_text(json.dumps(json.loads((run / "run.json").read_text())["training"]))
    assert embed.EmbedOptions(recipe=recipe).training == report.training


@pytest.mark.parametrize("recipe", sorted((ROOT / "examples/fb15k-237").glob("*.yaml")), ids=str)
def test_recipes_in_examples_are_recipes(recipe):
    assert embed.EmbedOptions(recipe=recipe).model == recipe.stem.partition("-")[0]


def test_memory_decides_the_number_of_partitions(graph):
    large = Graph(graph.path, replace(graph.manifest, nodes=100_000_000, edges=10**9))
    training = Training(model="complex", dim=100)
    whole = memory_to_train(large, training)
    assert whole > 80e9
    gpu = Capacity(rows=0, memory=0, on_gpu=True, workers=1)
    assert memory_to_train(large, training, on=gpu) > 80e9
    assert fewest_partitions(large, training, 100 * 10**9) == 1
    count = fewest_partitions(large, training, 16 * 10**9)
    assert 16 < count < 40
    assert memory_to_train(large, replace(training, partitions=count)) <= 16e9
    assert memory_to_train(large, replace(training, partitions=count - 1)) > 16e9


@pytest.mark.slow
def test_a_small_worker_trains_what_fits(graph, tmp_path):
    """What Python itself takes is taken off a worker's limit once, and what it has is enough."""
    small = ClusterSpec(cluster="local", workers=1, memory_limit="400MB")
    # A nanny ends a worker that takes more.
    assert embed.train(graph, tmp_path / "run", dim=16, epochs=1, cluster=small).trained.epochs == 1


def test_unknown_nodes_and_relations_are_counted_and_listed(trained, tmp_path):
    run, _ = trained
    path = tmp_path / "more.txt"
    bad = [f"x{i}\tr0\te1" for i in range(12)]
    path.write_text("\n".join(["e1\tr0\te2", *bad, "e1\tlikes\te2"]) + "\n")
    with pytest.raises(InputError) as error:
        embed.evaluate(run, triples=path)
    assert "x0" in str(error.value)
    assert "likes" in str(error.value)
    found = embed.evaluate(run, triples=path, unknown="skip")
    assert (found.edges, found.skipped) == (1, 13)
    for data in (b"e1\tr0\n", b"\xff\xfe\t\xff\n"):
        path.write_bytes(data)
        with pytest.raises(InputError, match=path.name):
            embed.evaluate(run, triples=path)


def test_another_graph_is_matched_by_id(trained, graph, tmp_path):
    """The same edges under other numbers have the same ranks; new nodes are an error."""
    run, _ = trained
    ids = graph.user_ids().to_pylist()
    rng = np.random.default_rng(0)
    new = rng.permutation(len(ids))  # node i of the old graph is new[i]
    names = [""] * len(ids)
    for old, at in enumerate(new):
        names[at] = ids[old]
    csr = graph.csr()
    heads = np.repeat(np.arange(len(ids)), np.diff(csr.indptr))
    columns, about = {"relations": csr.relations}, {"relations": graph.manifest.relations}
    renumbered = CSR.from_edges(new[heads], new[csr.indices], len(ids), **columns)
    write_graph(tmp_path / "g", renumbered, names, **about)
    options = {"split": "train", "sample": None}
    ours = embed.evaluate(run, graph=tmp_path / "g", **options)
    theirs = embed.evaluate(run, **options)
    assert ours.scores["mrr"] == pytest.approx(theirs.scores["mrr"], abs=1e-12)
    names[3] = "stranger"
    write_graph(tmp_path / "g2", renumbered, names, **about)
    with pytest.raises(InputError):
        embed.evaluate(run, graph=tmp_path / "g2", **options)


def test_edges_of_another_graph_are_filtered_by_both(trained, graph, tmp_path):
    """What a run was trained on is known, whatever graph new edges come from."""
    shutil.copytree(graph.path, tmp_path / "own")
    shutil.copytree(trained[0], tmp_path / "run")
    held = graph.heldout("test")
    ids, names = graph.user_ids().to_pylist(), graph.manifest.relations
    columns = (held["sources"], held["relations"], held["targets"])
    triples = [(ids[h], names[r], ids[t]) for h, r, t in zip(*columns, strict=True)]
    path = tmp_path / "new.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    etl(path, tmp_path / "new", format="triples", quiet=True)
    manifest = tmp_path / "run/run.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(body | {"graph": str(tmp_path / "own")}))
    options = {"filtered": True}
    theirs = embed.evaluate(tmp_path / "run", **options)
    options |= {"graph": tmp_path / "new", "split": "train"}
    ours = embed.evaluate(tmp_path / "run", **options)
    assert ours.scores == pytest.approx(theirs.scores)
    assert ours.filters == [str(tmp_path / "new"), str(tmp_path / "own")]
    shutil.rmtree(tmp_path / "own")
    alone = embed.evaluate(tmp_path / "run", **options)
    assert alone.scores["mrr"] < ours.scores["mrr"]


@pytest.mark.parametrize(
    "options",
    [
        {"relation": "r0"},
        {"head": "e1", "tail": "e2", "relation": "r0"},
        {"head": "nobody", "relation": "r0"},
        {"head": "e1"},
        {"head": "e1", "relation": "r"},
    ],
    ids=str,
)
def test_bad_questions_are_refused(trained, options):
    with pytest.raises(UsageError):
        embed.predict(trained[0], **options)
