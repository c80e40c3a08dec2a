"""From flags to a model and a training run, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Graph, gnn
from penstock.errors import MissingFile, UsageError
from penstock.pipelines.cli import run
from penstock.pipelines.gnn.declare import (
    check_graph,
    declared_model,
    scaled,
)
from penstock.pipelines.gnn.options import GnnOptions, ModelOptions
from penstock.workers.gnn.plan.facts import outputs_of
from penstock.workers.gnn.plan.spec import Layer, Model, Training, read_model


def test_flags_declare_layers() -> None:
    model = declared_model(ModelOptions(layers=3, hidden=32, dropout=0.2, input_dropout=0.1))
    between = Layer("gcn", 32, activation="relu", dropout=0.2)
    assert model == Model(layers=(between, between, Layer("gcn")), input_dropout=0.1)


def test_the_last_layer_is_plain_and_has_one_head() -> None:
    options = ModelOptions(model="gat", attention_dropout=0.6, norm="layer", residual=True)
    first, last = declared_model(options).layers
    assert (first.channels, first.heads, first.activation) == (64, 8, "elu")
    assert (first.norm, first.residual) == ("layer", True)
    assert last == Layer("gat", attention_dropout=0.6)


def test_sage_and_gin() -> None:
    first, last = declared_model(ModelOptions(model="sage", aggregate="max")).layers
    assert first.aggregate == last.aggregate == "max"
    assert declared_model(ModelOptions(model="sage")).layers[0].aggregate == "mean"
    assert declared_model(ModelOptions(model="gin", layers=1)).layers == (Layer("gin"),)


def test_options_say_what_the_declarations_say() -> None:
    plain = replace(Training(), weighted=False)
    assert ModelOptions().training == plain
    given = ModelOptions(
        optimizer="sgd", momentum=0.5, lr=0.1, weight_decay=0, schedule="step", step_every=7,
        step_factor=0.1, clip=1, patience=9, checkpoint_epochs=0, overlap=False,
        feature_layout="dense",
    ).training  # fmt: skip
    assert type(given) is Training
    assert (given.momentum, given.lr, given.weight_decay, given.step_every) == (0.5, 0.1, 0, 7)
    assert (given.step_factor, given.clip, given.patience) == (0.1, 1, 9)
    assert given.checkpoint_epochs == 0
    assert not given.overlap
    assert given.feature_layout == "dense"


def test_a_file_declares_the_whole_model(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("layers:\n  - {kind: sage, channels: 8, aggregate: sum}\n  - {kind: gat}\n")
    model = declared_model(ModelOptions(spec=path, epochs=3))
    assert [layer.kind for layer in model.layers] == ["sage", "gat"]
    with pytest.raises(UsageError, match="--hidden"):
        ModelOptions(spec=path, hidden=8)
    with pytest.raises(MissingFile, match="there is no model file"):
        declared_model(ModelOptions(spec=tmp_path / "nosuch.yaml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layers: [{kind: gnc}]", r"at layers\[0\]\.kind. Expected 'gcn', .* or 'gat', got 'gnc'"),
        ("layers: [{channels: true}]", r"layers\[0\]\.channels. Expected a number, got True"),
        ("layers: [{dropout: on}]", r"layers\[0\]\.dropout. Expected a number, got True"),
        ("layers: [{channels: x}]", r"channels. Expected a whole number, got 'x'"),
        ("layers: [{channels: 1.5}]", r"channels. Expected a whole number, got 1\.5"),
        ("layers: [{channels: 0}]", "channels. Expected a value greater than or equal to 1, got 0"),
        ("layers: [{eps: .nan}]", "eps. Expected a finite number, got nan"),
        ("layers: [{bias: maybe}]", "bias. Expected yes or no, got 'maybe'"),
        ("layers: [{chanels: 8}]", r"knows no layers\[0\]\.chanels. Expected one of kind, chan"),
        ("layers: [gcn]", r"at layers\[0\]. Expected a dictionary, as {kind: gcn, .*}, got 'gcn'"),
        ("layers: []", r"at layers. Expected one layer at least, got \[\]"),
        ("layers: gcn", "at layers. Expected a list, got 'gcn'"),
        ("layerz: 3", "has no layers. Got {'layerz': 3}"),
        ("", "bad value at the top. Expected a dictionary with layers, got None"),
    ],
)
def test_what_is_no_declaration_is_said_in_words_of_ours(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        declared_model(ModelOptions(spec=path))
    with pytest.raises(UsageError, match="model file .* cannot be read.*got Is a directory"):
        read_model(tmp_path)


def test_what_is_no_declaration_is_said_in_python_too() -> None:
    with pytest.raises(UsageError, match="the Layer has a bad value at channels. Expected a whole"):
        Layer("gcn", "x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the Layer knows no chanels. Expected one of kind, "):
        Layer("gcn", chanels=8)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="the Model has a bad value at layers. Expected one layer"):
        Model(layers=())
    with pytest.raises(UsageError, match=r"^the Model has no layers\.$"):
        Model()  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="option --epochs has a bad value. Expected a whole"):
        Training(epochs="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"heads": 2}, "--heads"),
        ({"attention_dropout": 0.1, "model": "sage"}, "--attention-dropout"),
        ({"aggregate": "max"}, "--aggregate"),
        ({"momentum": 0.5}, "--momentum"),
        ({"step_every": 5}, "--step-every"),
        ({"beta1": 0.5, "optimizer": "sgd"}, "--beta1"),
        ({"epsilon": 1e-3, "optimizer": "sgd"}, "--epsilon"),
        ({"momentum": 0.5, "spec": Path("model.yaml")}, "--momentum"),
        ({"hidden": 0}, "--hidden"),
        ({"dropout": 1}, "--dropout"),
        ({"lr": 1e-46}, "--lr"),
        ({"weight_decay": 1e39}, "--weight-decay"),
        ({"optimizer": "adam", "beta2": 1 - 1e-9}, "--beta2"),
        ({"resume": True, "overwrite": True}, "--resume"),
        ({"measure_overlap": 6}, "--measure-overlap"),
        ({"measure_overlap": 7, "overlap": False}, "--measure-overlap"),
        ({"order": "aggregate", "feature_layout": "sparse"}, "--order"),
        ({"layers": 1, "hidden": 7}, "--hidden"),
        ({"layers": 1, "residual": True}, "--residual"),
    ],
    ids=str,
)
def test_what_contradicts_itself(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        GnnOptions(**options)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--model gat --order aggregate", "--order"),
        ("--model sage --aggregate max --order transform", "--order"),
        ("--feature-layout sparse --order aggregate", "--order"),
        ("--model gat --weighted", "--weighted"),
        ("--model sage --aggregate max --weighted", "--weighted"),
        ("--transpose implicit", "--transpose"),
        ("--model gat --transpose implicit", "--transpose"),
        ("--no-overlap", "--no-overlap"),
        ("--measure-overlap 7", "--measure-overlap"),
        ("--model sage --aggregate max --feature-layout sparse", "--feature-layout"),
        ("--hidden 16 --residual --feature-layout sparse", "--feature-layout"),
        ("--weighted --order aggregate --feature-layout dense", None),
        ("--order transform --feature-layout sparse", None),
    ],
)
def test_an_option_without_an_effect_is_refused(
    line: str,
    named: str | None,
    own_blocks: Graph,
    manifest_of: Callable[..., Graph],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On an undirected graph that has weights, and zeros among its 16 features."""
    about = own_blocks.manifest
    features = replace(about.features, nonzeros=100)  # type: ignore[type-var]
    graph = manifest_of(features=features, dtypes={**about.dtypes, "weights": "float32"})
    code = run(["gnn", "plan", str(graph.path), "--cluster", "threads", *line.split()])
    assert code == (2 if named else 0)
    assert named is None or f"{named} " in capsys.readouterr().err


def test_an_option_may_be_for_some_layers(manifest_of: Callable[..., Graph]) -> None:
    mixed = Model(layers=(Layer("gat", 8), Layer("gcn")))
    first, last = gnn.plan(manifest_of(directed=True), spec=mixed, order="aggregate").layers
    assert (first.order, last.order) == ("transform", "aggregate")


def test_one_layer_takes_what_the_last_has() -> None:
    only = declared_model(ModelOptions(layers=1, model="sage", aggregate="max", input_dropout=0.1))
    assert only == Model(layers=(Layer("sage", aggregate="max"),), input_dropout=0.1)
    only = declared_model(ModelOptions(layers=1, model="gat", attention_dropout=0.2))
    assert only == Model(layers=(Layer("gat", attention_dropout=0.2),))


def test_a_model_made_in_python_stands_alone(blocks: Graph, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--hidden"):
        gnn.train(blocks, tmp_path / "run", spec=Model(layers=(Layer(),)), hidden=3)


def test_widths_are_scaled_together() -> None:
    model = Model(layers=(Layer("gcn", 100), Layer("gat", 64, heads=8), Layer("gcn", 3)))
    assert [layer.channels for layer in scaled(model, 1, 2).layers] == [50, 32, 3]
    assert [layer.channels for layer in scaled(model, 1, 100).layers] == [1, 8, 3]


@pytest.mark.parametrize(
    ("changes", "training", "message"),
    [
        ({"features": None}, {}, "has no features to learn from"),
        ({"labels": None}, {}, "has no labels to learn"),
        ({"classes": ("cat",)}, {}, "are one class, of which nothing.* got 'cat' alone"),
        (
            {"splits": {"train": 0, "valid": 5, "test": 5}},
            {},
            "no node of .* is in the split train",
        ),
        ({"splits": {}}, {}, "Got no splits|got no splits"),
        ({}, {"weighted": True}, "has no edge weights, which --weighted uses"),
    ],
    ids=str,
)
def test_graphs_that_cannot_be_learnt(
    manifest_of: Callable[..., Graph],
    changes: dict[str, Any],
    training: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(UsageError, match=message):
        check_graph(manifest_of(**changes), Training(**training))


def test_outputs_are_the_classes(blocks: Graph, manifest_of: Callable[..., Graph]) -> None:
    assert outputs_of(blocks) == 4
    assert outputs_of(manifest_of(classes=None)) == 4


def test_help_says_every_option_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("train", "predict", "evaluate", "plan"):
        assert run(["gnn", command, "--help"]) == 0
        out = capsys.readouterr().out
        for flag in ("--json", "-v, --verbose", "-q, --quiet", "--cluster", "-n, --workers"):
            assert flag in out, (command, flag)
    assert run(["gnn", "train", "--help"]) == 0
    out = capsys.readouterr().out
    for flag in ("--model CHOICE", "--hidden INT", "-k, --parts INT", "--spec PATH", "--resume"):
        assert flag in out


def test_python_takes_a_training(blocks: Graph) -> None:
    training = gnn.Training(epochs=7, feature_layout="dense", order="transform")
    one = gnn.plan(blocks, training=training, hidden=8)
    other = gnn.plan(blocks, epochs=7, feature_layout="dense", order="transform", hidden=8)
    assert one == other != gnn.plan(blocks, order="aggregate", hidden=8)
    with pytest.raises(UsageError, match="epochs is given twice: as an option, and by the Train"):
        gnn.train(blocks, "unused", training=training, epochs=3)
