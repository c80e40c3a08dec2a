"""Binary search within kernels.

Numba takes half a second to compile NumPy's ``searchsorted`` for each place and type, and processes
that load such a kernel import SciPy's linear algebra.
"""

from __future__ import annotations

from penstock.arrays import Array
from penstock.kernels.compiled import njit


@njit(cache=True, nogil=True)
def lower_bound(values: Array, low: int, high: int, value: int) -> int:
    """Return the first position in ``values[low:high]``, ascending, whose value is not less."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
