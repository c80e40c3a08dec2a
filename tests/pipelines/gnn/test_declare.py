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
)
from penstock.pipelines.gnn.options import GnnOptions
from penstock.workers.gnn.plan.spec import Layer, Model, Training


def test_flags_declare_layers() -> None:
    model = declared_model(GnnOptions(layers=3, hidden=32, dropout=0.2, input_dropout=0.1))
    between = Layer("gcn", 32, activation="relu", dropout=0.2)
    assert model == Model(layers=(between, between, Layer("gcn")), input_dropout=0.1)


def test_the_last_layer_is_plain_and_has_one_head() -> None:
    options = GnnOptions(model="gat", attention_dropout=0.6, norm="layer", residual=True)
    first, last = declared_model(options).layers
    assert (first.channels, first.heads, first.activation) == (64, 8, "elu")
    assert (first.norm, first.residual) == ("layer", True)
    assert last == Layer("gat", attention_dropout=0.6)


def test_sage_and_gin() -> None:
    first, last = declared_model(GnnOptions(model="sage", aggregate="max")).layers
    assert first.aggregate == last.aggregate == "max"
    assert declared_model(GnnOptions(model="sage")).layers[0].aggregate == "mean"
    assert declared_model(GnnOptions(model="gin", layers=1)).layers == (Layer("gin"),)


def test_a_file_declares_the_whole_model(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("layers:\n  - {kind: sage, channels: 8, aggregate: sum}\n  - {kind: gat}\n")
    model = declared_model(GnnOptions(spec=path, epochs=3))
    assert [layer.kind for layer in model.layers] == ["sage", "gat"]
    with pytest.raises(UsageError):
        GnnOptions(spec=path, hidden=8)
    with pytest.raises(MissingFile):
        declared_model(GnnOptions(spec=tmp_path / "nosuch.yaml"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("layers: [{kind: gnc}]", "kind"),
        ("layers: [{channels: 1.5}]", "channels"),
        ("layers: [{chanels: 8}]", "chanels"),
        ("layers: []", "layers"),
        ("layerz: 3", "layers"),
        ("", "layers"),
    ],
)
def test_what_is_no_declaration_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        declared_model(GnnOptions(spec=path))
    assert str(path) in str(error.value)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"heads": 2}, "--heads"),
        ({"aggregate": "max"}, "--aggregate"),
        ({"momentum": 0.5}, "--momentum"),
        ({"step_every": 5}, "--step-every"),
        ({"beta1": 0.5, "optimizer": "sgd"}, "--beta1"),
        ({"dropout": 1}, "--dropout"),
        ({"measure_overlap": 7, "overlap": False}, "--measure-overlap"),
        ({"order": "aggregate", "feature_layout": "sparse"}, "--order"),
        ({"layers": 1, "hidden": 7}, "--hidden"),
    ],
    ids=str,
)
def test_what_contradicts_itself(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as error:
        GnnOptions(**options)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--model gat --order aggregate", "--order"),
        ("--model sage --aggregate max --weighted", "--weighted"),
        ("--transpose implicit", "--transpose"),
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


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({"features": None}, {}),
        ({"labels": None}, {}),
        ({"classes": ("cat",)}, {}),
        ({"splits": {"train": 0, "valid": 5, "test": 5}}, {}),
        ({}, {"weighted": True}),
    ],
    ids=str,
)
def test_graphs_that_cannot_be_learnt(
    manifest_of: Callable[..., Graph], changes: dict[str, Any], training: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        check_graph(manifest_of(**changes), Training(**training))


def test_python_takes_a_training(blocks: Graph) -> None:
    training = gnn.Training(epochs=7, feature_layout="dense", order="transform")
    one = gnn.plan(blocks, training=training, hidden=8)
    other = gnn.plan(blocks, epochs=7, feature_layout="dense", order="transform", hidden=8)
    assert one == other != gnn.plan(blocks, order="aggregate", hidden=8)
    with pytest.raises(UsageError):
        gnn.train(blocks, "unused", training=training, epochs=3)
