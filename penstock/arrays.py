"""What an array is to type checkers: in host memory, or on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DeviceArray = Any  # a cupy.ndarray; CuPy has no types, and is imported only where there is a GPU
AnyArray = Array | DeviceArray  # either, where what is done is the same
