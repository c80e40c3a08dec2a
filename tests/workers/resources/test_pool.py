"""A pool is as large as asked for, or says why it cannot be."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CapacityError, UsageError
from penstock.workers.resources.pool import pool_bytes

TOTAL = 80 * 10**9


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("40GB", 40 * 10**9),
        ("40 GiB", 40 * 2**30),
        ("2g", 2 * 10**9),
        ("0.8", 64 * 10**9),
        (".5", 40 * 10**9),
        ("1", TOTAL),
        ("1.0", TOTAL),
        ("40000000000", 40 * 10**9),
        ("80GB", TOTAL),
    ],
)
def test_sizes_and_fractions(text: str, size: int) -> None:
    assert pool_bytes(text, TOTAL) == size // 256 * 256


@pytest.mark.parametrize(
    "text", ["much", "", "-0.5", "0", "-1GB", "nan", "inf", "80%", "40", "1.5"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="40GB, or a fraction such as 0.8") as error:
        pool_bytes(text, TOTAL)
    assert error.value.got == repr(text)


def test_more_than_there_is() -> None:
    with pytest.raises(CapacityError, match="--device-pool 81GB would not fit.*81 GB, got 80 GB"):
        pool_bytes("81GB", TOTAL)


@given(st.floats(min_value=1e-4, max_value=1), st.integers(1 << 30, 1 << 38))
def test_a_fraction_is_a_part(fraction: float, total: int) -> None:
    size = pool_bytes(f"{fraction:.6f}", total)
    assert 0 <= size <= total
    assert size % 256 == 0
    assert abs(size - fraction * total) < 256 + 1e-6 * total


TAKE = """
import sys
import cupy
from penstock.errors import CapacityError
from penstock.workers.resources.pool import take_pool, taken_bytes

free, total = cupy.cuda.runtime.memGetInfo()
try:
    take_pool("1.0")
    sys.exit("all of it cannot be free: CUDA itself needs some")
except CapacityError as error:
    assert "what is free of" in str(error), error
assert taken_bytes() is None
size = 256 << 20
assert take_pool("256MiB") == size == take_pool("256MiB") == taken_bytes()
assert free - cupy.cuda.runtime.memGetInfo()[0] >= size
left = cupy.cuda.runtime.memGetInfo()[0]
for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(), cupy.cuda.Stream()):
    with stream:
        for _ in range(3):
            array = cupy.full(180 << 20, 7, cupy.int8)
            assert int(array[-1]) == 7
            del array
        stream.synchronize()
assert left - cupy.cuda.runtime.memGetInfo()[0] < 32 << 20, "it came from elsewhere"
try:
    cupy.zeros(300 << 20, cupy.int8)
    sys.exit("more than the pool was given")
except MemoryError:
    pass
"""


@pytest.mark.gpu
def test_arrays_come_from_the_pool() -> None:
    # In a process of its own: a pool is for life.
    done = subprocess.run(
        [sys.executable, "-P", "-c", TAKE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
