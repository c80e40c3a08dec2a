"""What word2vec's CUDA kernel is launched with, which needs no GPU to be tried."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.kernels.word2vec_rules import Word2vecRules

FOLDER = Path(__file__).parents[3] / "kernels" / "cuda" / "word2vec"
# The package imports CuPy, its launch configuration does not.
SPEC = importlib.util.spec_from_file_location("word2vec_launch", FOLDER / "launch.py")
assert SPEC is not None
assert SPEC.loader is not None
made = importlib.util.module_from_spec(SPEC)
sys.modules["word2vec_launch"] = made
SPEC.loader.exec_module(made)

H200 = made.Device(132, 232_448, 233_472)
A100 = made.Device(108, 166_912, 167_936)


@given(
    st.integers(1, 1024),
    st.integers(1, 10),
    st.integers(0, 20),
    st.integers(1, 4),
    st.booleans(),
)
def test_what_the_issue_asks_for_fits(dimension, half_window, negatives, shared, aligned):
    rules = Word2vecRules(half_window, negatives, shared_windows=shared)
    chosen = made.launch_config(dimension, rules, H200, aligned=aligned)
    source = (FOLDER / "train.cu").read_text()
    assert f"// instance: {chosen.instance}\n" in source
    assert chosen.shared_memory <= H200.block_memory
    assert chosen.blocks * (chosen.shared_memory + 1024) <= H200.memory
    assert chosen.blocks * chosen.warps <= 16
    assert chosen.warps % chosen.team == 0
    assert chosen.team * chosen.each * 32 >= dimension
    assert dimension % chosen.vec == 0
    assert chosen.single == (negatives <= 5)
    # Rows of shared memory follow each other in 16-byte steps.
    assert chosen.a_warp % 4 == 0


@pytest.mark.parametrize(
    ("dimension", "rules", "device", "wrong"),
    [
        (1025, Word2vecRules(), H200, "dimension"),
        (128, Word2vecRules(half_window=16), H200, "half window"),
        (128, Word2vecRules(negatives=32), H200, "number of negatives"),
        (128, Word2vecRules(pool=1), H200, "pool of negatives"),
        (1024, Word2vecRules(15, 31), H200, "do not fit"),
        (1024, Word2vecRules(10, 20), A100, "do not fit"),
    ],
)
def test_what_does_not_fit_is_said(dimension, rules, device, wrong):
    with pytest.raises(UsageError, match=wrong):
        made.launch_config(dimension, rules, device)


def test_lists_are_counted_as_the_kernel_divides_them():
    source = (FOLDER / "train.cu").read_text() + (FOLDER / "kept.cuh").read_text()
    for name, value in (("kRows", 6), ("kSteps", 8), ("kQueue", 64)):
        assert re.search(rf"constexpr int {name} = {value};", source)
