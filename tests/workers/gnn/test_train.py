"""The training loop of one rank: it learns, stops, saves and resumes."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.pipelines.generate import generate
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.rates import GUESS
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.predict import predict
from penstock.workers.gnn.task import Columns, PredictTask, TrainTask
from penstock.workers.gnn.train import train
from penstock.workers.training import checkpoint

MODEL = Model(layers=(Layer("gcn", 16, dropout=0.3), Layer("gcn")))
NORM = Model(layers=(Layer("gcn", 8, dropout=0.4, norm="batch"), Layer("gcn")))
# Without dropout, training's own pass gives what an evaluation would, and is taken for it.
PLAIN = Model(layers=(Layer("gcn", 16), Layer("gcn")))
BOTH = pytest.mark.parametrize("model", [MODEL, PLAIN], ids=["dropout", "plain"])


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("sbm") / "g"
    generate("sbm", path, quiet=True, nodes=600, blocks=4, width=12, noise=2, seed=3)
    return path


def run(graph, folder, model=MODEL, **options):
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    options = {"epochs": 20, **options}
    return train(SingleRank(), task(graph, folder, model, Training(**options)))


def task(graph, folder, model, training):
    facts = facts_of(Graph.open(graph), None, training=training)
    plan = lower(model, facts, training, GUESS["cpu"])
    return TrainTask(graph, None, training, plan, folder)


def curve(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    for line in found:
        del line["seconds"], line["kinds"]
    return found


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (NORM, {"optimizer": "sgd", "lr": 0.1, "clip": 1.0}),
        (NORM, {"optimizer": "adamw", "schedule": "cosine", "warmup": 3}),
        (NORM, {"evaluate_every": 4}),  # a break between two evaluations
        (PLAIN, {"lr": 0.3, "evaluate_every": 4}),
        (PLAIN, {"lr": 0.3, "evaluate_every": 3, "patience": 2}),
    ],
)
def test_a_resumed_training_has_the_curve_of_one_without_a_break(model, options, graph, tmp_path):
    whole = run(graph, tmp_path / "whole", model, **options)

    class Stop(Exception):
        pass

    def stop(report):
        if report.get("metrics", {}).get("epoch") == 13:
            raise Stop

    folder = tmp_path / "broken"
    (folder / "checkpoints").mkdir(parents=True)
    training = Training(epochs=20, checkpoint_epochs=5, **options)
    with pytest.raises(Stop):
        train(SingleRank(stop), task(graph, folder, model, training))
    assert len(curve(folder)) == 13
    resumed = train(SingleRank(), task(graph, folder, model, training))
    assert resumed.first_epoch == 10
    assert curve(folder) == curve(tmp_path / "whole")
    assert resumed.metrics == whole.metrics
    assert (resumed.epochs, resumed.stopped) == (whole.epochs, whole.stopped)
    for name in ("last", "best"):
        ours, _ = checkpoint.load(folder / f"checkpoints/{name}.safetensors")
        theirs, _ = checkpoint.load(tmp_path / f"whole/checkpoints/{name}.safetensors")
        assert ours.keys() == theirs.keys()
        for tensor in ours:
            np.testing.assert_array_equal(ours[tensor], theirs[tensor])


@pytest.mark.parametrize("written", [1, 2, 3, 4, 5])
def test_a_kill_between_two_files_loses_no_best_weights(written, graph, tmp_path, monkeypatch):
    """The best is written before the last, which has its epoch."""
    run(graph, tmp_path / "whole", checkpoint_epochs=5)
    whole, names = checkpoint.atomic, []

    @contextmanager
    def killed(path):
        names.append(path.name)
        if len(names) > written:
            raise KeyboardInterrupt
        with whole(path) as temporary:
            yield temporary

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(checkpoint, "atomic", killed)
        run(graph, tmp_path / "killed", checkpoint_epochs=5)
    run(graph, tmp_path / "killed", checkpoint_epochs=5)
    for name in ("last", "best"):
        path = f"checkpoints/{name}.safetensors"
        (ours, one), (theirs, other) = (
            checkpoint.load(tmp_path / folder / path) for folder in ("killed", "whole")
        )
        assert one == other
        for tensor in theirs:
            np.testing.assert_array_equal(ours[tensor], theirs[tensor])


@BOTH
def test_patience_counts_evaluations(model, graph, tmp_path):
    every = 5
    options = {"patience": 4, "lr": 0.3, "evaluate_every": every}
    trained = run(graph, tmp_path, model, epochs=500, **options)
    assert trained.stopped == "patience"
    assert trained.best_epoch > 0
    assert trained.best_epoch % every == 0
    assert trained.epochs == trained.best_epoch + 4 * every < 500
    lines = curve(tmp_path)
    assert [line["epoch"] for line in lines] == [*range(1, trained.epochs + 1)]
    evaluated = [line["epoch"] for line in lines if "valid" in line]
    assert evaluated == [*range(every, trained.epochs + 1, every)]
    # What has ended stays as it is.
    resumed = run(graph, tmp_path, model, epochs=500, **options)
    assert (resumed.epochs, resumed.stopped) == (trained.epochs, "patience")
    assert resumed.metrics == trained.metrics
    assert curve(tmp_path) == lines


@BOTH
def test_without_validation_nodes_the_training_loss_decides(model, ring, tmp_path):
    # Evaluated for that: in training it is of the weights before, with values dropped.
    path = ring(split=np.array([0, 0, 2, 0, 0, 2], np.int8)).path
    trained = run(path, tmp_path / "run", model, epochs=30, lr=0.3)
    assert set(trained.metrics) == {"train", "test"}
    shorter = run(path, tmp_path / "shorter", model, epochs=trained.best_epoch, lr=0.3)
    assert shorter.metrics == trained.metrics


def test_a_rank_that_does_not_see_the_folder_of_predictions_fails(graph, tmp_path):
    """It would make one of its own, on its host, and the others' rows alone would be scored."""
    run(graph, tmp_path, epochs=1)
    trained, best = task(graph, tmp_path, MODEL, Training()), "checkpoints/best.safetensors"
    given = PredictTask(
        graph,
        None,
        trained.training,
        trained.plan,
        tmp_path / best,
        tmp_path / "elsewhere",
        Columns("class"),
        out_remedy="Name another",
    )
    with pytest.raises(UsageError):
        predict(SingleRank(), given)
    assert not given.out.exists()
