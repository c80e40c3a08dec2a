"""Growing files: a column written piece by piece and hashed meanwhile."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.files import FileEntry


class GrowingArray:
    """An .npy file of known shape, filled in order by ``append``; ``close`` returns its entry.

    The file is opened for each piece, because a thousand parts of six columns are more files
    than a process may hold open.
    """

    def __init__(self, root: Path, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        self._path, self._name = root / name, name
        self._dtype = np.dtype(dtype)
        self._left = int(np.prod(shape))
        self._digest = hashlib.sha256()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("wb") as file:
            header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        self._digest.update(self._path.read_bytes())

    def append(self, piece: Array) -> None:
        """Write the next items."""
        piece = np.ascontiguousarray(piece, dtype=self._dtype)
        if piece.size == 0:
            return
        body = piece.data.cast("B")
        with self._path.open("ab") as file:
            file.write(body)
        self._digest.update(body)
        self._left -= piece.size

    def close(self) -> FileEntry:
        """Return the finished file's entry."""
        if self._left:
            raise ValueError(f"{self._path} lacks {self._left} items")
        return FileEntry(self._name, self._path.stat().st_size, self._digest.hexdigest())


class Spool:
    """Raw items on disk between two steps: appended, then mapped, then dropped."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._path, self._dtype = path, np.dtype(dtype)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def append(self, piece: Array) -> None:
        """Write the next items."""
        if piece.size:
            with self._path.open("ab") as file:
                file.write(np.ascontiguousarray(piece).data.cast("B"))

    def map(self) -> Array:
        """Return all items, mapped."""
        if self._path.stat().st_size == 0:
            return np.empty(0, self._dtype)
        return np.memmap(self._path, self._dtype, mode="r")

    def drop(self) -> None:
        """Remove the file; existing mappings stay readable."""
        self._path.unlink()
