"""Checkpoints: what was saved comes back, and what is wrong with a file is said."""

import numpy as np
import pytest

from penstock.errors import CorruptFile
from penstock.workers.training.checkpoint import load, save

PARAMETERS = {
    "layer1.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "layer1.bias": np.zeros(3, np.float64),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "number": np.array(3, np.int64),
    "empty": np.empty((0, 3), np.float32),
}
STATE = {"optimizer/mean": np.full(9, 0.5, np.float32), "best/bias": np.ones(9, np.float32)}
ABOUT = {"epoch": 7, "best": {"epoch": 3, "loss": 0.25}, "seed": 2**60}


@pytest.fixture
def path(tmp_path):
    save(tmp_path / "run" / "last.safetensors", PARAMETERS | STATE, ABOUT)
    return tmp_path / "run" / "last.safetensors"


def test_any_changed_byte_is_noticed(path):
    whole = path.read_bytes()
    start = int.from_bytes(whole[:8], "little") + 8
    place = whole.index(b"epoch")
    for at in (start, len(whole) - 1, place):
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(CorruptFile):
            load(path)
