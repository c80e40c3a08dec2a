"""A training whose loss becomes NaN or infinite stops, and keeps its last good checkpoint."""

import json

import numpy as np
import pytest
from every_job import VISIBLE, call, results, words_of

from penstock.workers.training import checkpoint

# Rates at which a loss overflows: at once, or after some epochs.
DIVERGES = {
    "gnn": "--optimizer sgd --lr 1e3",
    "embed": "--optimizer sgd --lr 1e30",
    "word2vec": "--lr 1e30 --min-lr 0",
}


@pytest.mark.parametrize("job", sorted(DIVERGES))
def test_a_loss_that_is_not_a_number(job, given, tmp_path):
    words = [*words_of(job, given, tmp_path / "out"), *DIVERGES[job].split()]
    said = call(words, code=1)
    assert "Traceback" not in said
    if job not in VISIBLE:
        assert not (tmp_path / "out").exists()
        return
    assert json.loads((tmp_path / "out/run.json").read_text())["state"] == "diverged"
    for path in (tmp_path / "out").glob("checkpoints/*.safetensors"):
        tensors, _ = checkpoint.load(path)
        assert all(np.isfinite(tensor).all() for tensor in tensors.values())


@pytest.mark.parametrize("job", sorted(VISIBLE))
def test_a_good_run_is_not_replaced_by_one_without_a_checkpoint(job, given, tmp_path):
    words = words_of(job, given, tmp_path / "out")
    call(words)
    before = results(tmp_path / "out")
    rate = ["--optimizer", "sgd", "--lr", "1e30", "--overwrite"]
    call([*words, *rate], code=1)
    assert results(tmp_path / "out") == before
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
