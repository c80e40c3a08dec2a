"""Checkpoints: what was saved comes back, and what is wrong with a file is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file as numpy_save

from penstock.errors import CorruptFile, MissingFile, NewerVersion, UsageError
from penstock.workers.gnn import checkpoint
from penstock.workers.gnn.checkpoint import check_model, load, save
from penstock.workers.gnn.plan.spec import Layer, Model

PARAMETERS = {
    "layer1.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "layer1.bias": np.zeros(3, np.float64),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "number": np.array(3, np.int64),
    "empty": np.empty((0, 3), np.float32),
}
STATE = {"optimizer/mean": np.full(9, 0.5, np.float32), "best/bias": np.ones(9, np.float32)}
MODEL = Model(layers=(Layer("gcn", 64, dropout=0.5), Layer("gat", 8, heads=2)))
ABOUT = {"model": MODEL.to_dict(), "epoch": 7, "best": {"epoch": 3, "loss": 0.25}, "seed": 2**60}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save(tmp_path / "run" / "last.safetensors", PARAMETERS, STATE, ABOUT)
    return tmp_path / "run" / "last.safetensors"


def test_there_and_back(path: Path) -> None:
    tensors, about = load(path)
    assert about == ABOUT
    expected = PARAMETERS | STATE
    assert set(tensors) == set(expected)
    for name, array in expected.items():
        assert tensors[name].dtype == array.dtype
        np.testing.assert_array_equal(tensors[name], array)
        assert tensors[name].shape == array.shape
    assert list(path.parent.iterdir()) == [path]
    tensors["layer1.weight"][0] = 1  # one's own


def test_any_reader_of_safetensors_reads_it(path: Path) -> None:
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(load_file(path)["turned"], PARAMETERS["turned"])


def test_the_old_one_stays_until_the_new_one_is_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fails(tensors: Any, where: Path, metadata: Any) -> None:
        where.write_bytes(b"half")
        raise RuntimeError("killed")

    monkeypatch.setattr("safetensors.numpy.save_file", fails)
    with pytest.raises(RuntimeError, match="killed"):
        save(path, PARAMETERS, {}, {})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_one(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no.safetensors"):
        with pytest.raises(MissingFile, match="there is no checkpoint"):
            load(path)


@pytest.mark.parametrize("size", [0, 4, 30, 400, -1])
def test_one_that_was_cut_off(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptFile, match=r"last\.safetensors is damaged\. .*the other one"):
        load(path)


def test_any_changed_byte_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    start = int.from_bytes(whole[:8], "little") + 8
    place = whole.index(b"epoch")
    for at in (start, len(whole) - 1, place):
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(CorruptFile, match=r"SHA-256"):
            load(path)


def test_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "other.safetensors"
    save_file({"weight": np.ones(3)}, path)
    with pytest.raises(UsageError, match='is not a checkpoint of penstock gnn.*"penstock-gnn"'):
        load(path)
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "FORMAT", replace(checkpoint.FORMAT, version=2))
        save(path, {}, {}, {})
    with pytest.raises(NewerVersion, match=r"version 1 or older, got version 2\. Upgrade"):
        load(path)


def test_another_model_is_refused(path: Path) -> None:
    _, about = load(path)
    check_model(path, about, MODEL)
    other = Model(layers=(Layer("gcn", 32, dropout=0.5), Layer("gat", 8, heads=4)))
    message = (
        r"another model: layers\[0\]\.channels: 32, in the checkpoint 64; "
        r"layers\[1\]\.heads: 4, in the checkpoint 2\. Give the model"
    )
    with pytest.raises(UsageError, match=message):
        check_model(path, about, other)
    with pytest.raises(UsageError, match="layers: 1 of them, in the checkpoint 2 of them"):
        check_model(path, about, Model(layers=(Layer("gcn", 32),)))


def test_the_remedy_for_a_file_of_others_can_be_followed(tmp_path: Path) -> None:
    numpy_save({"a": np.zeros(1)}, tmp_path / "last.safetensors")
    with pytest.raises(UsageError, match="not a checkpoint of penstock gnn") as raised:
        load(tmp_path / "last.safetensors")
    assert "--checkpoint best or last" in str(raised.value)
