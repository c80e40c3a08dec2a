import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from penstock.kernels.cpu import ids as cpu
from penstock.kernels.naive import ids as naive

SAMPLES = {
    "empty": np.empty(0, np.int64),
    "one": np.array([-7]),
    "dense": np.random.default_rng(0).integers(-50, 5000, 10_000),
    "sparse": np.random.default_rng(1).integers(-(2**62), 2**62, 3000).repeat(3),
    "extremes": np.array([2**63 - 1, -(2**63), 0, 2**63 - 1]),
    "at the border": np.array([0, 64 * 2, 5]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_encode(backend, same, name):
    values = SAMPLES[name]
    same(backend.module("ids").encode(backend.put(values)), naive.encode(values))


@settings(deadline=None)
@given(arrays(np.int64, st.integers(0, 200), elements=st.integers(-(2**63), 2**63 - 1)))
def test_codes_give_back_the_values(values):
    distinct, codes = cpu.encode(values)
    np.testing.assert_array_equal(distinct[codes], values)
    assert np.all(np.diff(distinct.astype(object)) > 0)


def test_hashes_of_texts():
    data = np.frombuffer(b"aabfoobar", np.uint8)
    offsets = np.array([0, 0, 1, 3, 9])
    found = cpu.hashes(data, offsets)
    np.testing.assert_array_equal(found, naive.hashes(data, offsets))
    # FNV-1a's published answers.
    assert found[[0, 1, 3]].tolist() == [0xCBF29CE484222325, 0xAF63DC4C8601EC8C, 0x85944171F73967E8]
