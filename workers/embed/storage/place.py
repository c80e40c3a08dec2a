"""The page before a partition: the number of the version, and the sum of every chunk.

It is written after the data, in the same file. If it has the expected number, and its sums match
the data, the data is all of that version.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import AnyArray
from penstock.errors import CorruptFile
from penstock.workers.embed.storage import PAGE, RESTORE, Geometry, Version

_MAGIC = b"PENEMBED"
# Magic, format, partition, number, rows, width, arrays, pages per chunk, sums, and an unused
# number.
_HEADER = struct.Struct("<8sIIQQIIIIQ")
_FORMAT = 1
_SUMS = 128  # where they begin


@dataclass(frozen=True)
class Chunk:
    """The part of a partition that one request moves."""

    number: int
    array: int
    start: int
    stop: int
    offset: int  # in the file


def chunks(geometry: Geometry) -> Iterator[Chunk]:
    """Yield the chunks of a partition in the order of the file."""
    number = 0
    for array in range(geometry.arrays):
        base = PAGE + array * geometry.array_bytes
        for start in range(0, geometry.array_bytes, geometry.chunk_bytes):
            stop = min(start + geometry.chunk_bytes, geometry.array_bytes)
            yield Chunk(number, array, start, stop, base + start)
            number += 1


def sum_of(chunk: AnyArray) -> int:
    """Return the sum of a chunk's 64-bit words; ``chunk`` is uint64, in host or device memory.

    A page of an older version, a page of zeros, or one changed bit changes the sum. It costs no
    more than reading the memory, on a CPU and on a GPU.
    """
    return int(chunk.sum(dtype=np.uint64))


def write_page(version: Version, geometry: Geometry, sums: list[int], out: memoryview) -> None:
    """Fill ``out``, a page, with the description of a version."""
    sizes = geometry.rows, geometry.width, geometry.arrays, geometry.chunk_bytes >> 12, len(sums)
    _HEADER.pack_into(out, 0, _MAGIC, _FORMAT, version.partition, version.number, *sizes, 0)
    struct.pack_into(f"<{len(sums)}Q", out, _SUMS, *sums)
    end = _SUMS + 8 * len(sums)
    out[end : PAGE - 4] = bytes(PAGE - 4 - end)
    struct.pack_into("<I", out, PAGE - 4, zlib.crc32(out[: PAGE - 4]))


def read_page(version: Version, geometry: Geometry, page: memoryview, path: Path) -> list[int]:
    """Return the sums of ``version``; CorruptFile if the page is of another version, or damaged."""
    found = _HEADER.unpack_from(page)
    (crc,) = struct.unpack_from("<I", page, PAGE - 4)
    what = f"{path} is damaged"
    if found[0] != _MAGIC or crc != zlib.crc32(page[: PAGE - 4]):
        raise CorruptFile(
            what,
            expected=f"the page of version {version.number} of partition {version.partition}",
            got="a page that was never written" if not any(page) else "other bytes",
            remedy=RESTORE,
        )
    g = geometry
    if found[1] > _FORMAT or found[4:8] != (g.rows, g.width, g.arrays, g.chunk_bytes >> 12):
        raise CorruptFile(
            f"{path} has another geometry",
            expected=f"{g.rows} rows of {g.width} values, {g.arrays} arrays",
            got=f"{found[4]} rows of {found[5]} values, {found[6]} arrays",
            remedy=RESTORE,
        )
    if found[2:4] != (version.partition, version.number):
        raise CorruptFile(
            what,
            expected=f"version {version.number} of partition {version.partition}",
            got=f"version {found[3]} of partition {found[2]}",
            remedy=RESTORE,
        )
    return list(struct.unpack_from(f"<{found[8]}Q", page, _SUMS))


def check_sum(chunk: Chunk, expected: int, got: int, path: Path) -> None:
    """Raise CorruptFile unless a chunk has the sum in its page."""
    if expected != got:
        raise CorruptFile(
            f"{path} is damaged at offset {chunk.offset}",
            expected=f"{chunk.stop - chunk.start} bytes with sum {expected:016x}",
            got=f"{got:016x}",
            remedy=RESTORE,
        )
