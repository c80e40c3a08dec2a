"""A pool is as large as asked for, or says why it cannot be."""

import subprocess
import sys

import pytest

from penstock.errors import CapacityError
from penstock.workers.resources.pool import pool_bytes

TOTAL = 80 * 10**9


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("40GB", 40 * 10**9),
        ("40 GiB", 40 * 2**30),
        ("0.8", 64 * 10**9),
        ("1", TOTAL),
        ("80GB", TOTAL),
    ],
)
def test_sizes_and_fractions(text, size):
    assert pool_bytes(text, TOTAL) == size // 256 * 256


def test_more_than_there_is():
    with pytest.raises(CapacityError):
        pool_bytes("81GB", TOTAL)


TAKE = """
import sys
import cupy
from penstock.errors import CapacityError
from penstock.workers.resources.pool import take_pool, taken_bytes

try:
    take_pool("1.0")
    sys.exit("all of it cannot be free: CUDA itself needs some")
except CapacityError:
    pass
assert taken_bytes() is None
size = 256 << 20
assert take_pool("256MiB") == size == take_pool("256MiB") == taken_bytes()
for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(), cupy.cuda.Stream()):
    with stream:
        for _ in range(3):
            array = cupy.full(180 << 20, 7, cupy.int8)
            assert int(array[-1]) == 7
            del array
        stream.synchronize()
try:
    cupy.zeros(300 << 20, cupy.int8)
    sys.exit("more than the pool was given")
except MemoryError:
    pass
"""


@pytest.mark.gpu
def test_arrays_come_from_the_pool():
    # In a process of its own: a pool is for life.
    done = subprocess.run(
        [sys.executable, "-P", "-c", TAKE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
