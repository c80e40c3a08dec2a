"""``penstock embed`` from a graph to ranks, answers and vectors."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import CSR, ClusterSpec, Graph, embed, etl, generate
from penstock.errors import (
    CapacityError,
    InputError,
    OutputExists,
    PenstockError,
    PenstockWarning,
    UsageError,
)
from penstock.pipelines.cli import app
from penstock.pipelines.cli import run as cli
from penstock.pipelines.embed.divergence import another_try
from penstock.pipelines.embed.options import EmbedOptions
from penstock.pipelines.embed.planning import fewest_partitions, memory_to_train, too_large
from penstock.pipelines.embed.run import Run
from penstock.pipelines.embed.training import TrainJob, _warn_useless
from penstock.pipelines.job import plan
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.vectors import Vectors
from penstock.workers.embed import source
from penstock.workers.embed.source import open_checkpoint
from penstock.workers.embed.spec import Training
from penstock.workers.embed.task import Trained as Result
from penstock.workers.embed.train import Trainer

Trained = tuple[Path, embed.TrainReport]
ROOT = Path(__file__).resolve().parents[3]
SMALL: dict[str, Any] = {"dim": 8, "batch": 200, "negatives": 16, "epochs": 2}


def values(run: Path) -> Any:
    """Return the vectors of the last checkpoint, by node."""
    source, found = open_checkpoint(run / "checkpoints", "last")
    try:
        order = np.concatenate([source.layout.nodes_of(p) for p in range(source.layout.partitions)])
        rows = np.concatenate([part.copy() for _, part in source.parts()])
        return rows[np.argsort(order)], found.tensors["relations"]
    finally:
        source.close()


# -- train, evaluate, predict, export --------------------------------------------------------------


def test_a_planted_rule_is_learnt(trained: Trained, cluster: ClusterSpec) -> None:
    run, report = trained
    assert report.trained.validation is not None
    assert report.trained.validation["mrr"] > 0.2  # of a random order: 0.016
    assert report.text().splitlines()[0].endswith(" 16 values each, on CPUs")
    assert re.search(r"edges/s, .* of which kernels trained \d.* %; .* in total", report.text())
    assert " 0 B " not in report.text()
    assert json.loads((run / "run.json").read_text())["state"] == "done"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 10
    assert not (run / "buckets").exists()
    found = embed.evaluate(run, filtered=True, cluster=cluster)
    raw = embed.evaluate(run, cluster=cluster)
    assert found.scores["mrr"] > 0.2
    assert found.scores["mrr"] >= raw.scores["mrr"]
    assert found.tail is not None
    assert found.head is not None
    mean = (found.tail["mrr"] + found.head["mrr"]) / 2
    assert found.scores["mrr"] == pytest.approx(mean)
    assert "Hits@10" in found.text()
    assert not list(run.glob(".evaluate*"))


def test_filtered_ranks_are_of_both_sides_all_splits_and_unseen_entities(
    tmp_path: Path, cluster: ClusterSpec
) -> None:
    """As LibKGE ranks: among all entities, those of test alone too, without other true answers."""
    rng = np.random.default_rng(0)
    splits = {}
    for name, count, entities in (("train", 150, 25), ("valid", 15, 30), ("test", 30, 30)):
        heads, steps = rng.integers(0, entities, count), rng.integers(0, entities, count)
        steps[::5] = 0  # from a node to itself: facts like the others
        ends = zip(heads, rng.integers(0, 3, count), (heads + steps) % entities, strict=True)
        splits[name] = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in ends]
        text = "".join("\t".join(triple) + "\n" for triple in splits[name])
        (tmp_path / f"{name}.txt").write_text(text)
    heldout = {name: tmp_path / f"{name}.txt" for name in ("valid", "test")}
    etl(tmp_path / "train.txt", tmp_path / "g", format="triples", quiet=True, **heldout)
    options: dict[str, Any] = {"dim": 8, "epochs": 3, "batch": 50, "negatives": 10}
    embed.train(tmp_path / "g", tmp_path / "run", cluster=cluster, quiet=True, **options)
    found = embed.evaluate(tmp_path / "run", filtered=True, checkpoint="last", cluster=cluster)
    assert found.edges == len(splits["test"])

    graph = Graph.open(tmp_path / "g")
    assert graph.num_edges == len(set(splits["train"]))
    number = {name: i for i, name in enumerate(graph.user_ids().to_pylist())}
    assert graph.manifest.relations is not None
    typed = {name: i for i, name in enumerate(graph.manifest.relations)}
    seen = {name for h, _, t in splits["train"] for name in (h, t)}
    assert len(seen) < found.candidates == len(number)
    x, r = (a[:, :4].astype(complex) + 1j * a[:, 4:] for a in values(tmp_path / "run"))
    true = {(number[h], typed[q], number[t]) for some in splits.values() for h, q, t in some}
    ranks: dict[str, list[int]] = {"tail": [], "head": []}
    for head, name, tail in splits["test"]:
        h, q, t = number[head], typed[name], number[tail]
        others = [n for n in number.values() if n == t or (h, q, n) not in true]
        scores = (x[h] * r[q] @ x.conj().T).real
        ranks["tail"].append(1 + sum(scores[n] > scores[t] for n in others))
        others = [n for n in number.values() if n == h or (n, q, t) not in true]
        scores = (x[t] * r[len(typed) + q] @ x.conj().T).real
        ranks["head"].append(1 + sum(scores[n] > scores[h] for n in others))
    for side, of in (("tail", found.tail), ("head", found.head)):
        assert of is not None
        rank = np.array(ranks[side])
        assert of["mrr"] == pytest.approx((1 / rank).mean())
        assert of["mr"] == pytest.approx(rank.mean())
        assert [of[f"hits{k}"] for k in (1, 3, 10)] == [np.mean(rank <= k) for k in (1, 3, 10)]


def test_nodes_in_no_training_edge_are_counted_and_warned_of(
    tmp_path: Path, cluster: ClusterSpec
) -> None:
    (tmp_path / "train.txt").write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    (tmp_path / "test.txt").write_text("a\tr\tc\nnew\tr\ta\nb\tr\tnew\n")
    etl(tmp_path / "train.txt", tmp_path / "g", test=tmp_path / "test.txt", cluster=cluster)
    embed.train(tmp_path / "g", tmp_path / "run", dim=4, epochs=1, batch=2, cluster=cluster)
    found = embed.evaluate(tmp_path / "run", filtered=True, cluster=cluster)
    assert (found.edges, found.unseen) == (3, 2)
    assert "2 edges have a node that is in no training edge" in found.text()
    assert embed.evaluate(tmp_path / "run", cluster=cluster).unseen is None  # nothing is filtered
    with pytest.warns(PenstockWarning, match="'new' is in no edge that .*run was trained on"):
        embed.predict(tmp_path / "run", head="new", relation="r", cluster=cluster)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PenstockWarning)
        embed.predict(tmp_path / "run", head="a", relation="r", cluster=cluster)


def test_a_run_whose_rate_has_fallen_to_0_is_not_told_to_resume(
    trained: Trained, graph: Graph, cluster: ClusterSpec
) -> None:
    run, _ = trained
    with pytest.raises(UsageError, match="epochs: 20, in the run 10. Train another.*--init"):
        embed.train(graph, run, dim=16, epochs=20, batch=200, resume=True, cluster=cluster)


def test_a_sample_of_candidates_makes_ranks_better(trained: Trained, cluster: ClusterSpec) -> None:
    run, _ = trained
    every = embed.evaluate(run, split="valid", filtered=True, cluster=cluster)
    some = embed.evaluate(
        run, split="valid", filtered=True, candidates=50, sample=60, cluster=cluster
    )
    assert (some.candidates, some.edges) == (50, 60)
    assert every.candidates == 400
    assert some.scores["mr"] < every.scores["mr"]


def test_a_prediction_is_the_best_of_all_scores(
    trained: Trained, graph: Graph, cluster: ClusterSpec
) -> None:
    run, _ = trained
    ids = graph.user_ids().to_pylist()
    assert graph.manifest.relations is not None
    source, found = open_checkpoint(run / "checkpoints", "best")
    x = next(source.parts())[1].copy()
    source.close()
    r = found.tensors["relations"]
    z, w = x[:, :8] + 1j * x[:, 8:], r[:, :8] + 1j * r[:, 8:]
    tails = (z[7] * w[2] @ z.conj().T).real
    heads = (z[7] * w[6 + 2] @ z.conj().T).real  # by the inverse
    for side, scores in (("head", tails), ("tail", heads)):
        asked = {side: ids[7], "relation": graph.manifest.relations[2], "top": 5}
        report = embed.predict(run, known=True, cluster=cluster, **asked)
        best = np.argsort(-scores, kind="stable")[:5]
        assert [one["id"] for one in report.answers] == [ids[i] for i in best]
        assert [one["score"] for one in report.answers] == pytest.approx(scores[best], rel=1e-4)
    csr = graph.csr()
    assert csr.relations is not None
    row = slice(csr.indptr[7], csr.indptr[8])
    known = {ids[t] for t, r in zip(csr.indices[row], csr.relations[row], strict=True) if r == 2}
    new = embed.predict(
        run, head=ids[7], relation=graph.manifest.relations[2], top=400, cluster=cluster
    )
    assert not known & {one["id"] for one in new.answers}
    assert len(new.answers) <= 400 - len(known)


def test_vectors_are_exported_by_id(trained: Trained, graph: Graph, tmp_path: Path) -> None:
    run, _ = trained
    ids = graph.user_ids().to_pylist()
    assert embed.export(run, tmp_path / "v", checkpoint="last").count == len(ids)
    found = Vectors.open(tmp_path / "v")
    np.testing.assert_array_equal(found.values[found.rows(ids)], values(run)[0])


def test_exported_inverses_score_heads(
    trained: Trained, tmp_path: Path, cluster: ClusterSpec
) -> None:
    run, _ = trained
    embed.export(run, tmp_path / "r", relations=True)
    nodes, relations = embed.vectors(run), Vectors.open(tmp_path / "r")
    asked = {"relation": "r0", "top": 5, "known": True, "cluster": cluster}

    def vector(values: Any) -> Any:
        return values[: len(values) // 2] + 1j * values[len(values) // 2 :]

    for side, name in (("head", "r0"), ("tail", "r0_inverse")):
        query = vector(nodes["e1"]) * vector(relations[name])
        for answer in embed.predict(run, **{side: "e1"}, **asked).answers:
            score = np.vdot(vector(nodes[answer["id"]]), query).real
            np.testing.assert_allclose(score, answer["score"], rtol=1e-4)


def test_out_of_core_gives_vectors_of_all_nodes(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    run = tmp_path / "run"
    options = {"dim": 16, "epochs": 10, "batch": 50, "partitions": 6}
    report = embed.train(graph, run, cluster=cluster, **options)
    assert report.trained.bytes_read > 0
    assert "partitions" in report.text()
    assert "theorem 3" in report.text()
    found = embed.evaluate(run, filtered=True, cluster=cluster)
    assert found.scores["mrr"] > 0.2
    embed.export(run, tmp_path / "v", checkpoint="last")
    exported = Vectors.open(tmp_path / "v")
    rows = exported.rows(graph.user_ids().to_pylist())
    np.testing.assert_array_equal(exported.values[rows], values(run)[0])


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.slow), 6])
def test_vectors_are_read_in_blocks(
    graph: Graph, tmp_path: Path, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a partition does not fit in memory; scores, answers and exports are the same."""
    run, cluster = tmp_path / "run", ClusterSpec(cluster="threads", device="cpu")
    embed.train(graph, run, cluster=cluster, partitions=partitions, **{**SMALL, "batch": 50})
    asked: dict[str, Any] = {"head": "e1", "relation": "r0", "top": 3, "cluster": cluster}

    def found() -> Any:
        scores = embed.evaluate(run, filtered=True, cluster=cluster).scores
        return scores, embed.predict(run, **asked).answers

    whole = found()
    monkeypatch.setattr(source, "free_memory", lambda *, device: 0)
    monkeypatch.setattr(source, "BLOCK_BYTES", 32 * 13)

    def not_whole(*_: Any) -> None:
        raise AssertionError("a partition was read whole")

    monkeypatch.setattr(source.TableSource, "_read", not_whole)
    assert found() == whole
    embed.export(run, tmp_path / "v")
    exported, ours = Vectors.open(tmp_path / "v"), embed.vectors(run)
    with pytest.raises(UsageError, match="no such checkpoint. Expected best or last, got first"):
        embed.vectors(run, checkpoint="first")  # type: ignore[arg-type]
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
    near = penstock.similar(ours, ["e1"], k=2).neighbours
    assert near == penstock.similar(exported, ["e1"], k=2).neighbours


def test_a_graph_without_relations_takes_dot(tmp_path: Path, cluster: ClusterSpec) -> None:
    generate("sbm", tmp_path / "g", nodes=300, blocks=5, degree_inside=12, degree_outside=1)
    report = embed.train(tmp_path / "g", tmp_path / "run", dim=16, epochs=20, cluster=cluster)
    assert report.training.model == "dot"
    lines = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    assert report.trained.validation is None
    answers = embed.predict(tmp_path / "run", head="0", top=3, cluster=cluster).answers
    assert len(answers) == 3
    assert "0" not in [str(answer["id"]) for answer in answers]  # the best answer to itself
    with pytest.raises(UsageError, match="has no relations.*Use --model dot"):
        embed.train(tmp_path / "g", tmp_path / "other", model="complex", cluster=cluster)


def test_partitions_that_a_run_chose_are_said_to_be_that() -> None:
    before = Training(model="dot")
    found = replace(before, partitions=3).differences(before)
    assert found == ["partitions: 3, in the run as it chose"]


def test_more_epochs_resume_a_run(graph: Graph, tmp_path: Path, cluster: ClusterSpec) -> None:
    options = {**SMALL, "schedule": "constant", "cluster": cluster}
    embed.train(graph, tmp_path / "whole", **{**options, "epochs": 4})
    embed.train(graph, tmp_path / "run", **options)
    with pytest.raises(OutputExists, match="--resume and more --epochs"):
        embed.train(graph, tmp_path / "run", **options)
    with pytest.raises(UsageError, match="dim: 12, in the run 8"):
        embed.train(graph, tmp_path / "run", **{**options, "dim": 12}, resume=True)
    # What is in force may be given, and is no other option.
    defaults = {"reciprocal": True, "n3": 0.03, "init_scale": 1e-3, "chunk": 200, "batch": 200}
    with pytest.raises(UsageError, match="n3: 0.02, in the run 0.03"):
        embed.train(graph, tmp_path / "run", **options, resume=True, n3=0.02)
    with pytest.raises(UsageError, match="l2: 0.02, in the run 0.0; n3: 0.0, in the run 0.03"):
        embed.train(graph, tmp_path / "run", **options, resume=True, l2=0.02)
    with pytest.raises(UsageError, match="reciprocal: False, in the run True"):
        embed.train(graph, tmp_path / "run", **options, resume=True, reciprocal=False)
    more = {**options, **defaults, "epochs": 4}
    report = embed.train(graph, tmp_path / "run", **more, resume=True)
    assert report.trained.first_epoch == 2
    np.testing.assert_array_equal(values(tmp_path / "run")[0], values(tmp_path / "whole")[0])


def test_a_warm_start_begins_where_the_other_run_ended(
    trained: Trained, graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    run, _ = trained
    options: dict[str, Any] = {"dim": 16, "batch": 200, "epochs": 1, "cluster": cluster}
    warm = embed.train(graph, tmp_path / "warm", init=run, **options)
    cold = embed.train(graph, tmp_path / "cold", **options)
    assert warm.trained.known == {"nodes": 400, "relations": 6}
    assert warm.trained.loss is not None
    assert cold.trained.loss is not None
    assert warm.trained.loss < 0.8 * cold.trained.loss
    assert "began with the vectors of --init" in warm.text()
    with pytest.raises(UsageError, match="do not fit: they have another --dim"):
        embed.train(graph, tmp_path / "other", init=run, **{**options, "dim": 12})
    both = r"another --reciprocal. Expected --reciprocal, as in that run, got --no-reciprocal"
    with pytest.raises(UsageError, match=both):
        embed.train(graph, tmp_path / "other", init=run, **options, reciprocal=False)
    # The same run under another name is the same; another one is not.
    (tmp_path / "link").symlink_to(run)
    again = embed.train(graph, tmp_path / "warm", init=tmp_path / "link", resume=True, **options)
    assert again.trained.first_epoch == 1
    with pytest.raises(UsageError, match="is another one.*init: .*cold, in the run .*link"):
        embed.train(graph, tmp_path / "warm", init=tmp_path / "cold", resume=True, **options)
    with pytest.raises(UsageError, match="cannot begin with itself"):
        embed.train(graph, run, init=run, overwrite=True, **options)


@pytest.mark.slow
def test_a_graph_that_holds_edges_out_is_offered_embeddings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.csv").write_text("".join(f"{i},{i * 7 % 50}\n" for i in range(50)))
    line = ["etl", str(tmp_path / "e.csv"), str(tmp_path / "g"), "--cluster", "threads"]
    assert cli([*line, "--split-edges", "0.8", "0.1", "0.1"]) == 0
    assert "penstock embed train" in capsys.readouterr().out


def test_the_command_line(graph: Graph, tmp_path: Path, capsys: Any) -> None:
    run = str(tmp_path / "run")
    small = "--dim 8 --epochs 1 --cluster threads".split()
    assert cli(["embed", "train", str(graph.path), run, *small, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "values a node, in memory" in said
    assert " on every worker\n" in said
    assert not Path(run).exists()
    assert cli(["embed", "train", str(graph.path), run, *small, "--json", "-q"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["partitions"], said["device"]) == (1, "cpu")
    assert cli(["embed", "evaluate", run, "--filtered", "--json", "--cluster", "threads"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["mrr"] <= 1
    assert "scores" not in found
    ask = ["embed", "predict", run, "--tail", "e3", "--relation", "r1", "-k", "2"]
    assert cli([*ask, "--json", "--cluster", "threads"]) == 0
    assert len(json.loads(capsys.readouterr().out)["answers"]) == 2
    assert cli(["embed", "export", run, str(tmp_path / "v"), "-q"]) == 0
    assert pq.read_table(tmp_path / "v/part-00000.parquet").num_rows == 400


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dim": 7}, "--dim 7 is odd"),
        ({"model": "rotate", "dim": 33}, "Take --dim 34"),
        ({"batch": 10**6}, "larger than all edges of"),
        ({"partitions": 8, "batch": 3000}, "the largest bucket of edges, between two of 8 partit"),
        ({"parts": 2, "batch": 3000}, "larger than what each of 2 ranks trains in a round"),
        ({"partitions": 500}, "cannot lie in 500 partitions"),
        ({"partitions": 9, "order": "cover"}, "cover cannot arrange 9 partitions"),
        ({"optimizer": "sgd", "epsilon": 1.0}, "--epsilon needs --optimizer adagrad or adam"),
        ({"beta1": 0.9}, "--beta1 needs --optimizer adam"),  # as by default
        ({"negatives": "all", "by_degree": 0.0}, "no meaning with --negatives all"),
        ({"model": "dot", "reciprocal": True}, "--reciprocal has no meaning"),
        ({"norm": 2}, "--norm needs --model transe"),
        ({"temperature": 2.0}, "--temperature needs --loss self-adversarial"),
        ({"n3": 0.1, "l2": 0.1}, "--n3 and --l2 cannot go together"),
        ({"chunk": 2000}, "--chunk is a part of a batch"),
        ({"reciprocal": True, "corrupt": "tail"}, "predicts heads and tails"),
        ({"negatives": "all", "by_degree": 0.5}, "no meaning with --negatives all"),
        ({"negatives": "some"}, "--negatives has a bad value"),
        ({"parts": 2, "partitions": 6}, "6 partitions cannot be distributed over 2 ranks"),
        ({"parts": 300}, "too few for 300 ranks, two blocks each. Expected -k 200 or less"),
        ({"resume": True, "overwrite": True}, "cannot go together"),
        ({"negatives": "all", "chunk": 10}, "--chunk has no meaning with --negatives all"),
        ({"lr": 1e39}, "--lr would be infinite in float32"),
        ({"lr": 1e-46}, "--lr would be 0 in float32"),
        ({"l2": 1e-50}, "--l2 would be 0 in float32"),
        ({"beta2": 1 - 1e-9, "optimizer": "adam"}, "--beta2 has a bad value"),
        ({"batch": (1 << 23) + 1, "chunk": 1}, "Take --chunk 2 or more"),
        ({"init": Path("nowhere")}, "is not a run of penstock embed"),
    ],
    ids=str,
)
def test_bad_options_are_refused(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        embed.train(graph, tmp_path / "run", cluster=cluster, **{"epochs": 1, "dim": 8, **options})
    assert said in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_recipe_gives_options_and_flags_win(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: transe\nnorm: 2\ndim: 8\nbatch: 100\nby-degree: 0.5\nepochs: 3\n")
    report = embed.train(graph, tmp_path / "run", recipe=recipe, epochs=1, cluster=cluster)
    training = report.training
    assert (training.model, training.norm, training.dim) == ("transe", 2, 8)
    assert (training.by_degree, training.epochs) == (0.5, 1)
    for text, said in (("dims: 8", "no option 'dims'"), ("- 3", "is no recipe"), ("a: [", "YAML")):
        recipe.write_text(text)
        with pytest.raises(UsageError, match=said):
            embed.train(graph, tmp_path / "other", recipe=recipe, cluster=cluster)


def test_a_recipe_is_named_where_only_the_graph_shows_that_it_is_wrong(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("partitions: 1000000\n")
    with pytest.raises(UsageError, match=r"^/.*recipe\.yaml: .* cannot lie in 1,000,000 partit"):
        embed.train(graph, tmp_path / "run", recipe=recipe, cluster=cluster)
    with pytest.raises(UsageError, match=r"^\d+ nodes cannot lie in 2,000,000 partitions"):
        embed.train(graph, tmp_path / "run", recipe=recipe, partitions=2_000_000, cluster=cluster)


def test_a_recipe_that_cannot_be_meant_is_said_with_its_name(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("resume: true\n")
    with pytest.raises(UsageError, match=r"recipe\.yaml: a recipe has no option 'resume'"):
        embed.EmbedOptions(recipe=recipe)
    recipe.write_text("dimm: 8\n")
    with pytest.raises(UsageError, match=r"recipe\.yaml: a recipe has no .*Did you mean 'dim'"):
        embed.EmbedOptions(recipe=recipe)
    recipe.write_text("init-scale: 1\ninit_scale: 2\n")
    with pytest.raises(UsageError, match=r"recipe\.yaml: init_scale is given twice"):
        embed.EmbedOptions(recipe=recipe)
    with pytest.raises(UsageError, match=f"{tmp_path} cannot be read.*Is a directory"):
        embed.EmbedOptions(recipe=tmp_path)


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("dim: many", {}, "{}: option --dim has a bad value. Expected"),
        ("dim: on", {}, "{}: option --dim has a bad value. Expected a whole number, got true."),
        ("{dim: 7, model: rotate}", {}, "{}: --dim 7 is odd"),
        ("partitions: 6", {"parts": 2}, "{}: 6 partitions cannot be distributed over 2 ranks"),
        ("margin: 2", {"epochs": 2}, "{}: option --margin needs --loss"),
        ("loss: margin", {"temperature": 2.0}, "{}: option --temperature needs --loss"),
        # Whatever the recipe says.
        ("dim: 8", {"dim": 7, "model": "rotate"}, "--dim 7 is odd"),
        ("dim: 8", {"epochs": 0}, "option --epochs has a bad value"),
        ("dim: 8", {"resume": True, "overwrite": True}, "--resume and --overwrite cannot go"),
        ("dim: 8", {"wide": 7}, "there is no option 'wide'"),
    ],
    ids=str,
)
def test_a_bad_option_of_a_recipe_is_said_with_its_name(
    tmp_path: Path, text: str, given: dict[str, Any], said: str
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    with pytest.raises(UsageError) as error:
        embed.EmbedOptions(recipe=recipe, **given)
    assert str(error.value).startswith(said.format(recipe))


def test_a_bad_option_of_a_recipe_is_said_on_the_command_line(
    graph: Graph, tmp_path: Path, capsys: Any
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{dim: 7, model: rotate}")
    words = ["embed", "train", str(graph.path), str(tmp_path / "run"), "--recipe", str(recipe)]
    for more, said in (
        ([], f"{recipe}: --dim 7 is odd"),
        (["--dim", "9", "--model", "complex"], "--dim 9 is odd"),
    ):
        assert cli([*words, *more]) == 2
        assert f"penstock: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("dim", [100, 8])
def test_an_option_that_is_given_wins_also_at_its_default(tmp_path: Path, dim: int) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("dim: 8\nreciprocal: false\nmodel: rotate\nloss: margin\nbatch: 10\n")
    plain = embed.EmbedOptions()
    assert plain.dim == 100, "or this test shows nothing"
    made = embed.EmbedOptions(recipe=recipe, dim=dim, loss=plain.loss)
    assert (made.dim, made.loss, made.batch, made.reciprocal) == (dim, plain.loss, 10, False)
    assert replace(made, epochs=2).dim == dim
    words = f"embed train g run --recipe {recipe} --dim {dim} --loss {plain.loss}"
    _, bound, _ = app.parse_args(words.split(), exit_on_error=False, print_error=False)
    typed = bound.arguments["options"]
    assert (typed.dim, typed.loss, typed.batch, typed.reciprocal) == (dim, plain.loss, 10, False)


def test_what_a_recipe_gives_and_would_be_ignored_is_refused(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    """But one that writes every option out, as run.json does, asks for none of its defaults."""
    recipe, run, options = tmp_path / "recipe.yaml", tmp_path / "run", {"cluster": cluster}
    recipe.write_text("beta1: 0.9\n")
    with pytest.raises(UsageError, match="--beta1 needs --optimizer adam"):
        embed.EmbedOptions(recipe=recipe)
    report = embed.train(graph, run, dim=8, epochs=1, batch=500, schedule="constant", **options)
    training = json.loads((run / "run.json").read_text())["training"]
    assert training["beta1"] == 0.9
    recipe.write_text(json.dumps(training))
    made = embed.EmbedOptions(recipe=recipe)
    assert made.training == report.training
    embed.train(graph, run, recipe=recipe, epochs=2, resume=True, **options)
    with pytest.raises(UsageError, match="--beta1 needs --optimizer adam"):
        embed.EmbedOptions(recipe=recipe, beta1=0.9)


@pytest.mark.parametrize("recipe", sorted((ROOT / "examples/fb15k-237").glob("*.yaml")), ids=str)
def test_recipes_in_examples_are_recipes(recipe: Path) -> None:
    assert embed.EmbedOptions(recipe=recipe).model in ("complex", "distmult", "transe", "rotate")


def test_a_loss_that_is_no_number_is_an_error(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    with pytest.raises(PenstockError, match="NaN or infinite in epoch 1") as error:
        embed.train(graph, tmp_path / "run", optimizer="sgd", lr=1e30, cluster=cluster)
    assert "lower --lr" in str(error.value)
    assert json.loads((tmp_path / "run/run.json").read_text())["state"] == "diverged"


def test_the_option_that_is_far_too_large_is_named(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    with pytest.raises(PenstockError, match="NaN or infinite in epoch 1") as error:
        embed.train(graph, tmp_path / "run", init_scale=1e20, cluster=cluster, **SMALL)
    assert str(error.value).endswith("Train again with a lower --init-scale than 1e+20.")
    assert "--lr" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"l2": 1e9}, "a lower --l2 than 1e+09"),
        ({"n3": 1e9, "init_scale": 1e9}, "a lower --init-scale than 1e+09 and a lower --n3 than"),
        ({"loss": "margin", "margin": 1e30}, "a lower --margin than 1e+30"),
        ({}, "a lower --lr; in force are --lr 0.3, --init-scale 0.001, --n3 0.03, --batch 1000"),
        ({"n3": 0.0}, "a lower --lr, or with a penalty: --n3 or --l2; in force are --lr 0.3, --"),
        (
            {"model": "transe", "loss": "self-adversarial", "batch": 50},
            "a lower --lr, or with a penalty: --l2; in force are --lr 0.3, --init-scale 0.1, "
            "--margin 9, --temperature 1, --batch 50",
        ),
    ],
)
def test_what_may_have_made_training_diverge(options: dict[str, Any], said: str) -> None:
    assert another_try(Training(**{"model": "complex", **options})).startswith(said)


def test_a_run_is_not_replaced_by_one_without_vectors(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    embed.train(graph, tmp_path / "run", cluster=cluster, **SMALL)
    before = files(tmp_path / "run")
    with pytest.raises(PenstockError, match="NaN or infinite in epoch 1") as error:
        embed.train(
            graph, tmp_path / "run", optimizer="sgd", lr=1e30, overwrite=True, cluster=cluster
        )
    assert "run holds the vectors of the run before, which was not replaced; " in str(error.value)
    assert files(tmp_path / "run") == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def files(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def end_in_epoch(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception | None) -> None:
    """Have training end in an epoch: with an error, or as where the loss becomes NaN."""
    train = Trainer._visits

    def visits(self: Trainer, epoch: int) -> float | None:
        if epoch + 1 < number:
            return train(self, epoch)
        if error is not None:
            raise error
        return None

    monkeypatch.setattr(Trainer, "_visits", visits)


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("error", [None, OSError("the cable was pulled")], ids=str)
def test_a_run_is_replaced_once_the_new_one_has_a_checkpoint(
    graph: Graph,
    tmp_path: Path,
    cluster: ClusterSpec,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    epoch: int,
    error: Exception | None,
) -> None:
    run, small = tmp_path / "run", {**SMALL, "epochs": 4, "cluster": cluster}
    embed.train(graph, run, **small)
    before = files(run)
    end_in_epoch(monkeypatch, epoch, error)
    said = "the cable" if error else f"NaN or infinite in epoch {epoch}.*run holds the vectors of "
    said += "" if error else "the run before, which was not replaced"
    with pytest.raises(OSError if error else PenstockError, match=said):
        embed.train(graph, run, overwrite=True, seed=1, validate_every=9, **small)
    assert files(run) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    said = f"{run} holds the run before again: the new one ended before its first checkpoint"
    assert (said in capsys.readouterr().err) == (error is not None)
    # Now with a checkpoint after every epoch: those of two are worth more than the old run.
    with pytest.raises(OSError if error else PenstockError, match="cable|infinite"):
        embed.train(graph, run, overwrite=True, seed=1, validate_every=1, **small)
    assert (files(run) == before) == (epoch == 1)
    assert Run.load(run).training.seed == (epoch != 1)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_was_killed_before_its_first_checkpoint_can_be_resumed(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    """The run that it was to replace lies beside it, until it has a checkpoint."""
    run, old, new = (tmp_path / name for name in ("run", ".run.old", "new"))
    small = {**SMALL, "cluster": cluster}
    embed.train(graph, run, **small)
    before = {path.relative_to(run): data for path, data in files(run).items()}
    embed.train(graph, new, seed=1, **small)

    def kill() -> None:
        run.rename(old)
        shutil.copytree(new, run)
        shutil.rmtree(run / "checkpoints")
        body = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(body | {"state": "training", "results": None}))

    kill()
    embed.train(graph, run, seed=1, resume=True, **small)
    np.testing.assert_array_equal(values(run)[0], values(new)[0])
    assert not old.exists()
    # Another run than the one that was killed finds what that one did not replace.
    shutil.rmtree(run)
    embed.train(graph, run, **small)
    kill()
    with pytest.raises(OutputExists, match="holds a finished run"):
        embed.train(graph, run, seed=2, **small)
    assert {path.relative_to(run) for path in files(run)} == set(before)
    assert Run.load(run).training.seed == 0
    assert not old.exists()


@pytest.mark.parametrize(
    "options", [{"optimizer": "sgd", "init_scale": 1.0}, {"model": "transe"}], ids=str
)
def test_vectors_that_are_no_numbers_after_the_last_update_are_an_error(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, options: dict[str, Any]
) -> None:
    """The loss of a batch is of the vectors before its update: of one batch it is always fine."""
    options |= {"dim": 8, "epochs": 1, "batch": graph.num_edges, "lr": 1e38}
    with pytest.raises(PenstockError, match="NaN or infinite in epoch 1") as error:
        embed.train(graph, tmp_path / "run", cluster=cluster, **options)
    assert str(error.value).endswith("Train again with a lower --lr than 1e+38.")
    assert json.loads((tmp_path / "run/run.json").read_text())["state"] == "diverged"
    assert not list((tmp_path / "run/checkpoints").glob("*.json"))
    # It would diverge again.
    with pytest.raises(UsageError, match="Train again with --overwrite and a lower --lr") as error:
        embed.evaluate(tmp_path / "run", cluster=cluster)
    assert "--resume" not in str(error.value)
    with pytest.raises(OutputExists, match="Replace it with --overwrite") as error:
        embed.train(graph, tmp_path / "run", cluster=cluster, **{**options, "lr": 0.1})
    assert "--resume" not in str(error.value)


@pytest.mark.parametrize(
    ("losses", "penalty", "more", "remedy"),
    [
        ((9.0, 8.9), 0.45, {}, None),  # what is above zeros is the penalty's
        ((9.0, 8.9), 0.2, {}, "more --epochs"),
        ((None, 8.9), 0.2, {}, "more --epochs; if the loss does not fall, a lower --lr"),
        ((8.9, 9.0), 0.2, {}, "a lower --lr, or a smaller --batch"),
        ((80.0, 20.0), 0.2, {}, "a lower --lr; in force are --lr 0.3"),
        ((None, 20.0), 0.2, {"lr": 1e6}, "a lower --lr than 1e+06"),
        ((8.65, 8.65), 0.15, {}, "a smaller --n3"),
        ((8.65, 8.65), 0.15, {"l2": 1.0}, "a smaller --l2"),
        ((8.6, 8.6), 0.0, {"n3": 0.0}, "a lower --lr, or a smaller --batch"),
    ],
)
def test_vectors_no_better_than_zeros_are_told_with_what_helps(
    tmp_path: Path,
    losses: tuple[float | None, float],
    penalty: float,
    more: dict[str, Any],
    remedy: str | None,
) -> None:
    training = Training(model="complex", negatives=72, **more)
    trained = Result(2, 0, 2, losses[1], 9, 9, 1, 1, 9, 1.0, 1.0, "epochs")
    zeros = training.loss_of_zeros(9)
    trained = replace(trained, loss_before=losses[0], penalty=penalty, loss_of_zeros=zeros)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        _warn_useless(tmp_path, trained, training)  # of zeros: 8.58
    said = [str(one.message) for one in found]
    assert len(said) == (remedy is not None)
    for one in said:
        assert f"train again with {remedy}" in one
        assert ("without penalties" in one) == (training.penalty[1] > 0)


@pytest.mark.parametrize(("lr", "told"), [(30.0, True), (0.3, False)])
def test_vectors_that_are_worse_than_zeros_are_told(
    graph: Graph,
    tmp_path: Path,
    cluster: ClusterSpec,
    lr: float,
    told: bool,
) -> None:
    options: dict[str, Any] = {"lr": lr, "n3": 0, "dim": 16, "batch": 200, "epochs": 3}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        embed.train(graph, tmp_path / "run", model="distmult", cluster=cluster, **options)
    said = [str(one.message) for one in found if one.category is PenstockWarning]
    assert any("that vectors of zeros would have" in one for one in said) == told


@pytest.mark.parametrize("negatives", [8, "all"])
def test_a_graph_of_one_node_is_not_told_so(
    tmp_path: Path, cluster: ClusterSpec, negatives: Any
) -> None:
    """Without another node to compare with, all of the loss is the penalty's."""
    with Graph.create(tmp_path / "g") as writer:
        loop = np.zeros(1, np.int64)
        writer.edges(CSR.from_edges(loop, loop, 1, relations=np.zeros(1, np.int32)))
        writer.nodes(["alone"])
        writer.manifest = replace(writer.manifest, relations=("r",))
    options: dict[str, Any] = {"dim": 4, "init_scale": 1.0, "epochs": 1, "negatives": negatives}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PenstockWarning)
        found = embed.train(tmp_path / "g", tmp_path / "run", cluster=cluster, **options)
    assert found.trained.loss is not None
    assert found.trained.loss > 0


@pytest.mark.parametrize("partitions", [None, 6])
def test_a_disk_that_is_too_small_is_refused_before_the_run(
    graph: Graph,
    tmp_path: Path,
    cluster: ClusterSpec,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int | None,
) -> None:
    monkeypatch.setattr("penstock.sizes.free_disk", lambda folder: 50_000)
    with pytest.raises(CapacityError, match="vectors of 400 nodes.*Expected about .* got 50 kB"):
        options = {**SMALL, "batch": 50, "partitions": partitions}
        embed.train(graph, tmp_path / "run", cluster=cluster, **options)
    assert not (tmp_path / "run").exists()


def test_memory_decides_the_number_of_partitions(graph: Graph) -> None:
    large = Graph(graph.path, replace(graph.manifest, nodes=100_000_000, edges=10**9))
    training = Training(model="complex", dim=100)
    whole = memory_to_train(large, training)
    assert whole > 80e9
    assert fewest_partitions(large, training, 100 * 10**9) == 1
    count = fewest_partitions(large, training, 16 * 10**9)
    assert 16 < count < 40
    assert memory_to_train(large, replace(training, partitions=count)) <= 16e9
    assert memory_to_train(large, replace(training, partitions=count - 1)) > 16e9


@pytest.mark.slow
def test_a_small_worker_trains_what_fits_and_else_says_how_large_it_must_be(
    graph: Graph, tmp_path: Path
) -> None:
    """What Python itself takes is taken off a worker's limit once, and what it has is enough."""
    small = ClusterSpec(cluster="local", workers=1, memory_limit="400MB")
    # A nanny ends a worker that takes more.
    assert embed.train(graph, tmp_path / "run", dim=16, epochs=1, cluster=small).trained.epochs == 1

    def problem(limit: str) -> str | None:
        spec = replace(small, memory_limit=limit)
        options = EmbedOptions(dim=512, negatives=2000, batch=2000)
        found = plan(TrainJob(graph, tmp_path / "wide", options, spec, quiet=True)).problem
        return None if found is None else str(found)

    said = problem("400MB")
    assert said is not None
    found = re.search(r"more memory; --memory-limit (\d+)MB would fit", said)
    assert found is not None, said
    assert problem(f"{found[1]}MB") is None
    assert problem(f"{int(found[1]) - 2}MB") is not None


def test_of_a_large_batch_gradients_are_counted_and_no_scores(graph: Graph) -> None:
    """Two cores take 0.33 GB for 100,000 edges with 1,000 negatives, on CPUs as measured."""
    large = Graph(graph.path, replace(graph.manifest, nodes=50_000, edges=10**7))
    training = Training(model="complex", dim=100, batch=100_000, negatives=1000)
    two = Capacity(rows=0, memory=0, on_gpu=False, workers=1, cores=2)
    small = replace(training, batch=1000)
    took = memory_to_train(large, training, 1, two) - memory_to_train(large, small, 1, two)
    assert 0.2e9 < took < 0.35e9
    # A GPU works in 0.21 GB, twice: once by itself, and once as a CUDA graph.
    one = replace(two, on_gpu=True)
    took = memory_to_train(large, training, 1, one) - memory_to_train(large, small, 1, one)
    assert 0.4e9 < took < 0.8e9


def test_scores_of_many_negatives_are_counted(graph: Graph) -> None:
    """Of two threads, each with 64 rows of scores at the least: 0.27 and 0.18 GB as measured."""
    large = Graph(graph.path, replace(graph.manifest, nodes=200_000, edges=10**7))
    two = Capacity(rows=0, memory=0, on_gpu=False, workers=1, cores=2)
    for model, least, most in (("transe", 0.25e9, 0.33e9), ("dot", 0.17e9, 0.24e9)):
        training = Training(model=model, dim=8, batch=1000, negatives="all")
        none = replace(training, negatives=1)
        took = memory_to_train(large, training, 1, two) - memory_to_train(large, none, 1, two)
        assert least < took < most, (model, took)


def test_sums_of_wide_vectors_are_counted_on_gpus(graph: Graph) -> None:
    """Rows of 100,000 scores are made 671 at a time, and each time has sums of all negatives."""
    large = Graph(graph.path, replace(graph.manifest, nodes=10**6, edges=10**7))
    gpu = Capacity(rows=0, memory=0, on_gpu=True, workers=1)
    training = Training(model="complex", dim=1024, batch=10_000, negatives=100_000)
    none = replace(training, negatives=1)
    took = memory_to_train(large, training, 1, gpu) - memory_to_train(large, none, 1, gpu)
    assert took > 2 * 15 * 100_000 * 1024 * 4


@pytest.mark.parametrize("ranks", [1, 2])
def test_relations_take_what_their_vectors_take(graph: Graph, ranks: int) -> None:
    """Vectors and Adagrad's state of 10,000 relations and their inverses, and in a checkpoint."""
    few, many = (
        Graph(graph.path, replace(graph.manifest, relations=tuple(map(str, range(count)))))
        for count in (1, 10_001)
    )
    training = Training(model="complex", dim=1000)
    vectors = 2 * 10_000 * 1000 * 4
    more = memory_to_train(many, training, ranks) - memory_to_train(few, training, ranks)
    assert 4 * vectors <= more <= 9 * vectors


def test_what_fits_with_no_number_of_partitions_is_not_told_to_take_more(
    graph: Graph, tmp_path: Path
) -> None:
    relations = tuple(map(str, range(100_000)))
    large = Graph(graph.path, replace(graph.manifest, relations=relations, nodes=10**6))
    training = Training(model="complex", dim=1000, partitions=1)
    started = time.monotonic()
    error = too_large(large, training, Capacity(rows=10**9, memory=10**9, on_gpu=False, workers=1))
    assert error is not None
    assert "--partitions" not in str(error)
    assert "a smaller --dim, fewer --negatives" in str(error)
    assert time.monotonic() - started < 1  # it took two seconds to try every number of partitions


def test_a_graph_without_edges_is_refused(tmp_path: Path, cluster: ClusterSpec) -> None:
    none = np.empty(0, np.int64)
    with Graph.create(tmp_path / "g") as writer:
        writer.edges(CSR.from_edges(none, none, 5))
        writer.nodes()
    with pytest.raises(UsageError, match="no edges to learn from"):
        embed.train(tmp_path / "g", tmp_path / "run", model="dot", cluster=cluster)


def test_unknown_nodes_and_relations_are_counted_and_listed(
    trained: Trained, tmp_path: Path, cluster: ClusterSpec
) -> None:
    run, _ = trained
    path = tmp_path / "more.txt"
    bad = [f"x{i}\tr0\te1" for i in range(12)]
    path.write_text("\n".join(["e1\tr0\te2", *bad, "e1\tlikes\te2"]) + "\n")
    with pytest.raises(InputError) as error:
        embed.evaluate(run, triples=path, cluster=cluster)
    said = str(error.value)
    assert "13 edges" in said
    assert "12 unknown nodes (the first x0, x1, x2, x3, x4, x5, x6, x7, x8, x9)" in said
    assert "1 unknown relation (likes)" in said
    found = embed.evaluate(run, triples=path, unknown="skip", cluster=cluster)
    assert (found.edges, found.skipped) == (1, 13)
    path.write_text("e1\tr0\n")
    with pytest.raises(InputError, match="line 1 is no edge"):
        embed.evaluate(run, triples=path, cluster=cluster)


def test_another_graph_is_matched_by_id(
    trained: Trained, graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    """The same edges under other numbers have the same ranks; new nodes are an error."""
    run, _ = trained
    ids = graph.user_ids().to_pylist()
    rng = np.random.default_rng(0)
    new = rng.permutation(len(ids))  # node i of the old graph is new[i]
    names = [""] * len(ids)
    for old, at in enumerate(new):
        names[at] = ids[old]
    csr = graph.csr()
    assert csr.relations is not None
    heads = np.repeat(np.arange(len(ids)), np.diff(csr.indptr))
    with Graph.create(tmp_path / "g") as writer:
        columns = {"relations": csr.relations}
        writer.edges(CSR.from_edges(new[heads], new[csr.indices], len(ids), **columns))
        writer.nodes(names)
        writer.manifest = replace(writer.manifest, relations=graph.manifest.relations)
    options: dict[str, Any] = {"split": "train", "sample": None, "cluster": cluster}
    ours = embed.evaluate(run, graph=tmp_path / "g", **options)
    theirs = embed.evaluate(run, **options)
    assert ours.scores["mrr"] == pytest.approx(theirs.scores["mrr"], abs=1e-12)
    names[3] = "stranger"
    with Graph.create(tmp_path / "g2") as writer:
        writer.edges(CSR.from_edges(new[heads], new[csr.indices], len(ids), **columns))
        writer.nodes(names)
        writer.manifest = replace(writer.manifest, relations=graph.manifest.relations)
    with pytest.raises(InputError, match=r"1 unknown node \(stranger\)"):
        embed.evaluate(run, graph=tmp_path / "g2", **options)


def test_edges_of_another_graph_are_filtered_by_both(
    trained: Trained, graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    """What a run was trained on is known, whatever graph new edges come from."""
    shutil.copytree(graph.path, tmp_path / "own")
    shutil.copytree(trained[0], tmp_path / "run")
    held = graph.heldout("test")
    ids, names = graph.user_ids().to_pylist(), graph.manifest.relations
    assert names is not None
    columns = (held["sources"], held["relations"], held["targets"])
    triples = [(ids[h], names[r], ids[t]) for h, r, t in zip(*columns, strict=True)]
    path = tmp_path / "new.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    etl(path, tmp_path / "new", format="triples", quiet=True)
    manifest = tmp_path / "run/run.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(body | {"graph": str(tmp_path / "own")}))
    options: dict[str, Any] = {"cluster": cluster, "filtered": True}
    theirs = embed.evaluate(tmp_path / "run", **options)
    options |= {"graph": tmp_path / "new", "split": "train"}
    ours = embed.evaluate(tmp_path / "run", **options)
    assert ours.scores == pytest.approx(theirs.scores)
    assert ours.filters == [str(tmp_path / "new"), str(tmp_path / "own")]
    assert "filtered by the edges of" in ours.text()
    assert "filtered by the edges of" not in theirs.text()
    shutil.rmtree(tmp_path / "own")
    alone = embed.evaluate(tmp_path / "run", **options)
    assert alone.scores["mrr"] < ours.scores["mrr"]
    assert f"{tmp_path / 'own'} is not there any more" in alone.text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"relation": "r0"}, "--head or --tail, one of them"),
        ({"head": "e1", "tail": "e2", "relation": "r0"}, "got both"),
        ({"head": "nobody", "relation": "r0"}, "has no vector of 'nobody'"),
        ({"head": "e1"}, "--relation is missing"),
        ({"head": "e1", "relation": "r"}, "has no relation 'r'"),
    ],
    ids=str,
)
def test_bad_questions_are_refused(trained: Trained, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        embed.predict(trained[0], **options)
    assert said in str(error.value)


def test_a_run_is_no_vectors_until_it_is_exported(trained: Trained) -> None:
    with pytest.raises(InputError, match="embed export"):
        Vectors.open(trained[0])


def test_a_question_without_new_answers_is_said_so(tmp_path: Path, cluster: ClusterSpec) -> None:
    (tmp_path / "one.txt").write_text("x\tr\tx\n")
    etl(tmp_path / "one.txt", tmp_path / "g", quiet=True)
    embed.train(tmp_path / "g", tmp_path / "run", dim=2, epochs=1, cluster=cluster)
    asked = {"head": "x", "relation": "r", "cluster": cluster}
    found = embed.predict(tmp_path / "run", **asked)
    assert found.answers == []
    assert "--known lists them" in found.text()
    assert "--known" not in embed.predict(tmp_path / "run", known=True, **asked).text()


def test_what_is_no_run_is_said(graph: Graph, trained: Trained, tmp_path: Path) -> None:
    for does in (embed.evaluate, embed.predict):
        with pytest.raises(UsageError, match=r"is not a run of penstock embed|one of them"):
            does(tmp_path)
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(UsageError, match="has no vectors yet"):
        embed.evaluate(folder)
    old = Run.load(trained[0])
    moved = tmp_path / "moved"
    shutil.copytree(trained[0], moved)
    body = json.loads((moved / "run.json").read_text())
    (moved / "run.json").write_text(json.dumps(body | {"graph": str(tmp_path / "gone")}))
    with pytest.raises(UsageError, match="is not at .*gone any more"):
        embed.evaluate(moved)
    assert old.nodes == graph.num_nodes


# -- kill -9 ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_training_goes_on_and_ends_the_same(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    """Killed with SIGKILL at random moments, between and in checkpoints, and resumed."""
    options = {
        "dim": 8, "batch": 20, "negatives": 16, "epochs": 6, "partitions": 5,
        "checkpoint_minutes": 1e-9, "validate_every": 2,
    }  # fmt: skip
    embed.train(graph, tmp_path / "whole", cluster=cluster, **options)
    run = tmp_path / "run"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-P", "-m", "penstock", "embed", "train", str(graph.path), str(run)]
    command += [*flags, "--cluster", "threads", "-q", "--resume"]
    rng = np.random.default_rng(0)
    killed, kills = 0, 8
    for _ in range(10 * kills):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        lines = run / "metrics.jsonl"
        before = lines.stat().st_size if lines.is_file() else 0
        while process.poll() is None and not (lines.is_file() and lines.stat().st_size > before):
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        elif process.returncode == 0 and killed < kills:
            shutil.rmtree(run)  # it was done before it could be killed: once more
        process.wait(timeout=60)
        if killed == kills:
            break
    assert killed == kills
    assert subprocess.run(command, check=False).returncode == 0
    for ours, theirs in zip(values(run), values(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    kept = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in kept if "loss" in line] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("option", "value"), [("patience", 1), ("validate_every", 5), ("validate_sample", 2000)]
)  # the last two as by default
def test_validation_needs_edges(
    tmp_path: Path, cluster: ClusterSpec, option: str, value: int
) -> None:
    generate(
        "sbm", tmp_path / "g", nodes=60, blocks=2, degree_inside=6, degree_outside=1, quiet=True
    )
    options: dict[str, Any] = {"model": "dot", "dim": 4, option: value, "cluster": cluster}
    with pytest.raises(UsageError, match=f"--{option.replace('_', '-')} needs"):
        embed.train(tmp_path / "g", tmp_path / "run", **options)


def test_triples_are_ranked_of_a_run_that_is_not_written_to(
    trained: Trained, graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    run, held = shutil.copytree(trained[0], tmp_path / "run"), graph.heldout("test")
    ids, names = graph.user_ids().to_pylist(), graph.manifest.relations
    assert names is not None
    columns = zip(held["sources"], held["relations"], held["targets"], strict=True)
    lines = [f"{ids[h]}\t{names[r]}\t{ids[t]}\n" for h, r, t in columns]
    (tmp_path / "triples.txt").write_text("".join(lines))
    folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    # Root writes there nevertheless, which changes the time of the folder.
    before = [folder.stat().st_mtime_ns for folder in folders]
    try:
        options: dict[str, Any] = {"filtered": True, "cluster": cluster}
        found = embed.evaluate(run, triples=tmp_path / "triples.txt", **options)
        assert found.scores == embed.evaluate(run, **options).scores
        assert [folder.stat().st_mtime_ns for folder in folders] == before
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize(("model", "dim"), [("transe", 40), ("rotate", 40), ("distmult", 40)])
def test_distances_of_vectors_too_wide_for_a_gpu_are_refused_at_first(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, monkeypatch: Any, model: str, dim: int
) -> None:
    from penstock.pipelines.job import capacity

    of = capacity.capacity_of
    monkeypatch.setattr(capacity, "capacity_of", lambda client: replace(of(client), on_gpu=True))
    # As on a worker with a GPU, which this one may not be.
    room, kernels = (ModuleType(f"penstock.kernels.cuda.{name}") for name in ("embed", "training"))
    kernels.widest_distance = lambda: 32  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.kernels.cuda.embed", room)
    monkeypatch.setitem(sys.modules, "penstock.kernels.cuda.embed.tiles", kernels)
    options: dict[str, Any] = {**SMALL, "model": model, "epochs": 1, "cluster": cluster}
    embed.train(graph, tmp_path / "narrow", **{**options, "dim": 32})
    if model == "distmult":
        embed.train(graph, tmp_path / "run", **{**options, "dim": dim})
        return
    monkeypatch.setattr(
        "penstock.pipelines.embed.training.keep_ids", lambda *_: pytest.fail("something is written")
    )
    with pytest.raises(UsageError, match=f"--model {model} on a GPU.*--dim 32 or less.*--device"):
        embed.train(graph, tmp_path / "run", **{**options, "dim": dim})
    assert not (tmp_path / "run").exists()


def test_triples_that_are_no_text_are_refused(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\xff\xfe\t\xff\n")
    with pytest.raises(InputError, match="no text file"):
        embed.evaluate(trained[0], triples=tmp_path / "bad")


def test_a_norm_is_taken_from_the_command_line(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["embed", "train", str(graph.path), str(tmp_path / "run"), "--model", "transe"]
    assert cli([*words, "--norm", "3"]) == 2
    assert "option --norm has a bad value. Expected 1 or 2, got 3" in capsys.readouterr().err
    assert cli([*words, "--norm", "2", "--plan", "--cluster", str(cluster.cluster)]) == 0


def test_help_and_plan_say_where_things_are(
    graph: Graph,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli(["embed", "train", "--help"]) == 0
    headings = capsys.readouterr().out.split("\n\n")
    (found,) = (part for part in headings if "--parts" in part)
    assert found.lstrip().startswith("Training:")
    monkeypatch.chdir(tmp_path)
    assert cli(["embed", "train", str(graph.path), "run", "--plan"]) == 0
    assert "free on the disk of this folder" in capsys.readouterr().out
