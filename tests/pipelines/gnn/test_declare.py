"""From flags to a model and a training run, and what is refused before anything starts."""

import pytest

from penstock.errors import InputError, UsageError
from penstock.pipelines.gnn.declare import check_graph, declared_model
from penstock.pipelines.gnn.options import GnnOptions
from penstock.workers.gnn.plan.spec import Training


def test_a_file_declares_the_whole_model(tmp_path):
    path = tmp_path / "model.yaml"
    path.write_text("layers:\n  - {kind: sage, channels: 8, aggregate: sum}\n  - {kind: gat}\n")
    model = declared_model(GnnOptions(spec=path, epochs=3))
    assert [layer.kind for layer in model.layers] == ["sage", "gat"]
    with pytest.raises(UsageError):
        GnnOptions(spec=path, hidden=8)
    with pytest.raises(InputError):
        declared_model(GnnOptions(spec=tmp_path / "nosuch.yaml"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("layers: [{kind: gnc}]", "kind"),
        ("", "layers"),
    ],
)
def test_a_file_that_is_not_a_model_is_refused(tmp_path, text, named):
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        declared_model(GnnOptions(spec=path))
    assert str(path) in str(error.value)
    assert named in str(error.value)


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
def test_graphs_that_cannot_be_learnt(manifest_of, changes, training):
    with pytest.raises(UsageError):
        check_graph(manifest_of(**changes), Training(**training))
