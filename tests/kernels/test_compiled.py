"""Kernels come from Numba's cache on disk, and without what only compiling needs."""

import os

from processes import python

_KERNEL = """
import numpy as np
from penstock.kernels.compiled import njit

@njit("float64(float64[::1])", cache=True)
def total(values):
    found = np.zeros(len(values))  # allocates
    for i in range(len(values)):
        found[i] = values[i] ** 0.5
    sum = 0.0
    for i in range(len(values)):
        sum += found[i]
    return sum

@njit(cache=True, nogil=True)
def both(values):
    return total(values), np.copy(values)

@njit(nogil=True)
def third(value):
    return total(np.full(3, value))
"""
_RUN = """
import json, sys
import numpy as np
from penstock.kernels.compiled import compiling
with compiling() as seconds:
    import kernel_of_test as kernel
    first, copy = kernel.both(np.array([4.0, 9.0]))
told = [first, copy.tolist(), len(seconds), "scipy.linalg" in sys.modules]
with compiling() as seconds:  # a kernel that is compiled may call one that was loaded
    told.append(kernel.third(9.0))
print(json.dumps([*told, len(seconds)]))
"""


def test_a_kernel_is_loaded_without_the_compiler(tmp_path):
    (tmp_path / "kernel_of_test.py").write_text(_KERNEL)

    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    assert python("-c", _RUN, env=env) == "[5.0, [4.0, 9.0], 2, true, 9.0, 1]\n"
    assert python("-c", _RUN, env=env) == "[5.0, [4.0, 9.0], 0, false, 9.0, 1]\n"
