"""Which gradients of a batch are of the same row; see sort.cu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch, launch_blocks

_FILE = "embed/sort"
_THREADS, _TILE, _DIGIT, _DIGITS = 256, 2048, 8, 256  # those of sort.cu
_NAMING_BLOCKS = 264


@dataclass(frozen=True, eq=False)
class SortedRows:
    """The rows of gradients, sorted: those of nodes, and then those of relations.

    keys    (count,) int64: row << 32 | place, ascending; the place is that of the gradient
    alone   (places,) bool: whether a gradient of the first places is the only one of its row
    listed  (1,) int32: the number of other rows
    begins  (count,) int32: their starts in the keys, in any order
    """

    keys: DeviceArray
    alone: DeviceArray
    listed: DeviceArray
    begins: DeviceArray


def sort_rows(
    nodes: tuple[DeviceArray, DeviceArray, DeviceArray],
    places: int,
    rows: int,
    relations: DeviceArray | None = None,
    adds: tuple[int, ...] = (),
) -> SortedRows:
    """Sort rows of nodes, in three int32 arrays one after another, and of relations after them.

    places  gradients that may be alone: those of the first places
    rows    the largest number of rows, which determines the number of sorted bits
    adds    offsets of relations' rows, one per slot of gradients
    """
    slots = len(adds) if relations is not None else 0
    count = sum(part.size for part in nodes)
    if relations is not None:
        count += slots * relations.size
    passes = max(1, -(-max(rows - 1, 1).bit_length() // _DIGIT))
    tiles = -(-count // _TILE)
    listed_at = passes * (_DIGITS + 1 + tiles * _DIGITS)
    scratch = cp.zeros(listed_at + 1, cp.uint32)
    keys, other = cp.empty(count, cp.int64), cp.empty(count, cp.int64)
    alone, begins = cp.empty(places, cp.bool_), cp.empty(count, cp.int32)
    found = SortedRows(keys if passes % 2 == 0 else other, alone, scratch[listed_at:], begins)
    if not count:
        return found
    typed: tuple[Any, ...] = None, np.int64(0)
    if relations is not None:
        typed = relations, np.int64(relations.size)
    launch_blocks(
        _FILE,
        "name_rows",
        min(-(-count // _THREADS), _NAMING_BLOCKS),
        _THREADS,
        *(value for part in nodes for value in (part, np.int64(part.size))),
        *(*typed, np.int32(slots), *map(np.uint32, (*adds, 0, 0)[:2])),
        *(np.int32(passes), keys, scratch),
    )
    for number in range(passes):
        progress = passes * _DIGITS + number * (1 + tiles * _DIGITS)
        launch_blocks(
            _FILE,
            "sort_pass",
            tiles,
            _THREADS,
            *(keys, np.int64(count), np.int32(32 + number * _DIGIT)),
            *(scratch[number * _DIGITS :], scratch[progress:], other),
        )
        keys, other = other, keys
    launch(
        _FILE,
        "find_rows",
        count,
        *(keys, np.int64(count), np.int64(places), alone, found.listed, begins),
    )
    return found
