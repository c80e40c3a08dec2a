"""Checkpoints: what was saved is loaded, and a changed, cut or missing file is an error."""

import numpy as np
import pytest

from penstock.errors import CorruptFile, MissingFile
from penstock.workers.training.checkpoint import load, save

TENSORS = {
    "layer1.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "number": np.array(3, np.int64),
    "empty": np.empty((0, 3), np.float32),
}
ABOUT = {"epoch": 7, "best": {"epoch": 3, "loss": 0.25}, "seed": 2**60}


def test_any_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "run/last.safetensors"
    with pytest.raises(MissingFile):
        load(path)
    save(path, TENSORS, ABOUT)
    found, about = load(path)
    assert about == ABOUT
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(found[name], tensor)
    whole = path.read_bytes()
    start = int.from_bytes(whole[:8], "little") + 8
    changed = [bytearray(whole) for _ in range(3)]
    for one, at in zip(changed, (start, len(whole) - 1, whole.index(b"epoch")), strict=True):
        one[at] ^= 1
    for damaged in (*changed, whole[:-9], whole[:40]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile, match=path.name):
            load(path)
