"""Making, selecting and packing walkers for another rank, the same code for every backend.

NumPy dispatches these calls to CuPy for CuPy's arrays.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from penstock.arrays import AnyArray
from penstock.kernels.walk_rules import NEVER, Walkers

NAMES = tuple(field.name for field in fields(Walkers))

_IDS = ("start", "node", "previous", "candidate")
_DTYPES = {
    "walk": np.int64,
    "slot": np.int64,
    "coin": np.uint32,
    "step": np.int32,
    "draw": np.int32,
    "now": np.int64,
    "then": np.int64,
    "to": np.int32,
}


def column_dtypes(ids: DTypeLike) -> dict[str, np.dtype[Any]]:
    """Return the dtype of each array of walkers whose nodes are ``ids`` (a dtype)."""
    return {name: np.dtype(ids if name in _IDS else _DTYPES[name]) for name in NAMES}


def record_words(ids: DTypeLike) -> int:
    """Return the size of one packed walker in int32."""
    return sum(dtype.itemsize for dtype in column_dtypes(ids).values()) // 4


def start_walkers(
    walks: AnyArray, slots: AnyArray, starts: AnyArray, ids: DTypeLike, rank: int
) -> Walkers:
    """Return walkers on their first nodes, all of them nodes of part ``rank``.

    walks, slots  (n,) int64; starts (n,) of any integers; ids: the dtype of nodes
    """
    count = len(walks)
    first = {"step": 1, "draw": 0, "coin": 0, "now": NEVER, "then": NEVER, "to": rank}
    arrays = {
        name: np.full_like(walks, first.get(name, -1), dtype=dtype, shape=(count,))
        for name, dtype in column_dtypes(ids).items()
    }
    arrays["walk"][:], arrays["slot"][:] = walks, slots
    arrays["start"][:], arrays["node"][:] = starts, starts
    return Walkers(**arrays)


def join(several: list[Walkers]) -> Walkers:
    """Return several walkers as one, in order."""
    return Walkers(
        **{name: np.concatenate([getattr(one, name) for one in several]) for name in NAMES}
    )


def pack(walkers: Walkers) -> AnyArray:
    """Return walkers as records: (n, words) int32, one per row."""
    columns = [getattr(walkers, name) for name in NAMES]
    words = record_words(walkers.node.dtype)
    records = np.empty_like(walkers.walk, dtype=np.int32, shape=(len(walkers.walk), words))
    at = 0
    for column in columns:
        wide = column.dtype.itemsize // 4
        records[:, at : at + wide] = column.view(np.int32).reshape(len(records), wide)
        at += wide
    return records


def unpack(records: AnyArray, ids: DTypeLike) -> Walkers:
    """Return the walkers of ``pack``'s records; ``ids`` is the dtype of nodes."""
    arrays, at = {}, 0
    for name, dtype in column_dtypes(ids).items():
        wide = dtype.itemsize // 4
        arrays[name] = records[:, at : at + wide].copy().view(dtype).reshape(len(records))
        at += wide
    return Walkers(**arrays)
