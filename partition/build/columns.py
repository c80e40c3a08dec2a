"""Arrays of parts: written whole, or piece by piece and hashed meanwhile."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.files import FileEntry, npy_header, save_npy
from penstock.partition.part import part_folder


def save_arrays(root: Path, rank: int, arrays: dict[str, Array]) -> list[FileEntry]:
    """Write arrays of a part, by name."""
    return [
        save_npy(root, f"{part_folder(rank)}/{name}.npy", array) for name, array in arrays.items()
    ]


class Spool:
    """Raw items on disk between two steps: appended, then mapped, then dropped.

    The file is opened for each piece, because a thousand parts of six columns are more files
    than a process may hold open.
    """

    def __init__(self, path: Path, dtype: Any) -> None:
        self._path, self._dtype = path, np.dtype(dtype)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def append(self, piece: Array) -> None:
        """Write the next items."""
        if piece.size:
            self._write(np.ascontiguousarray(piece, dtype=self._dtype).data.cast("B"))

    def _write(self, data: Any) -> None:
        with self._path.open("ab") as file:
            file.write(data)

    def map(self) -> Array:
        """Return all items, mapped."""
        if self._path.stat().st_size == 0:
            return np.empty(0, self._dtype)
        return np.memmap(self._path, self._dtype, mode="r")

    def drop(self) -> None:
        """Remove the file; existing mappings stay readable."""
        self._path.unlink()


class GrowingArray(Spool):
    """An .npy file of known shape, filled in order by ``append``; ``close`` returns its entry."""

    def __init__(self, root: Path, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        super().__init__(root / name, dtype)
        self._name, self._digest = name, hashlib.sha256()
        header = npy_header(shape, dtype)
        self._write(header)
        self._whole = len(header) + int(np.prod(shape)) * self._dtype.itemsize

    def _write(self, data: Any) -> None:
        super()._write(data)
        self._digest.update(data)

    def close(self) -> FileEntry:
        """Return the finished file's entry."""
        size = self._path.stat().st_size
        if size != self._whole:
            raise ValueError(f"{self._path} has {size} of {self._whole} bytes")
        return FileEntry(self._name, size, self._digest.hexdigest())
