"""Checks of indices before they reach a kernel, which would follow any index.

A file with changed bits keeps its size: opening cannot detect it, and reading every checksum would
take longer than many jobs. So the first use of an array in a process checks its bounds, at memory
speed, with all cores; ``Graph.validate`` reads the checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import CorruptFile
from penstock.limits import cores
from penstock.threads import results

T = TypeVar("T")

_PIECE = 1 << 22  # entries that a thread checks at a time
_THREADS = 8  # these nearly saturate a machine's memory

# Files that were in bounds when this process first used them: device, inode, time and size.
_seen: set[tuple[object, ...]] = set()


def check_rows(
    csr: CSR, folder: Path, *, rows: int, edges: int, nodes: int, relations: int, remedy: str
) -> None:
    """Raise CorruptFile unless these are ``rows`` rows of ``edges`` edges among ``nodes`` nodes.

    folder     holds the files; a file found valid is not checked again
    relations  their number; checked if the rows have relations
    """
    for name, array in csr.arrays():
        expected = rows + 1 if name == "indptr" else edges
        check_length(array, expected, folder / f"{name}.npy", remedy=remedy)
    check_indptr(csr.indptr, edges, folder / "indptr.npy", remedy=remedy)
    check_indices(csr.indices, nodes, folder / "indices.npy", remedy=remedy)
    if csr.relations is not None:
        check_indices(csr.relations, relations, folder / "relations.npy", remedy=remedy)


def check_length(array: Array, expected: int, path: Path, *, remedy: str) -> None:
    """Raise CorruptFile unless this is a list of ``expected`` entries."""
    if array.shape != (expected,):
        raise _corrupt(path, f"{expected} entries", f"shape {array.shape}", remedy)


def check_indptr(indptr: Array, edges: int, path: Path, *, remedy: str) -> None:
    """Raise CorruptFile unless ``indptr`` ascends from 0 to ``edges``."""
    _check_integers(indptr, path, remedy)
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != edges:
        ends = f"{indptr[0]} to {indptr[-1]}" if len(indptr) else "nothing"
        raise _corrupt(path, f"row starts from 0 to {edges}", ends, remedy)
    if _is_new(path):
        # One entry into the next piece, so that no pair is missed.
        pieces = [indptr[low : high + 1] for low, high in _pieces(len(indptr))]
        if not all(_on_threads(lambda piece: bool((piece[1:] >= piece[:-1]).all()), pieces)):
            raise _corrupt(path, "row starts that ascend", "some that do not", remedy)
        _remember(path)


def check_indices(indices: Array, stop: int, path: Path, *, remedy: str) -> None:
    """Raise CorruptFile unless every entry is in ``0 .. stop - 1``."""
    _check_integers(indices, path, remedy)
    if len(indices) == 0 or not _is_new(path):
        return
    pieces = [indices[low:high] for low, high in _pieces(len(indices))]
    found = _on_threads(lambda piece: (int(piece.min()), int(piece.max())), pieces)
    low, high = min(low for low, _ in found), max(high for _, high in found)
    if low < 0 or high >= stop:
        raise _corrupt(path, f"numbers in 0 .. {stop - 1}", f"{low} to {high}", remedy)
    _remember(path)


def _check_integers(array: Array, path: Path, remedy: str) -> None:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise _corrupt(path, "a list of integers", f"{array.dtype} {array.shape}", remedy)


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    for low in range(0, length, _PIECE):
        yield low, min(low + _PIECE, length)


def _on_threads(work: Callable[[Array], T], pieces: list[Array]) -> list[T]:
    return list(results(work, pieces, min(_THREADS, cores())))


def _identity(path: Path) -> tuple[object, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (str(path), found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def _is_new(path: Path) -> bool:
    return _identity(path) not in _seen


def _remember(path: Path) -> None:
    identity = _identity(path)
    if identity is not None:
        _seen.add(identity)


def _corrupt(path: Path, expected: str, got: str, remedy: str) -> CorruptFile:
    return CorruptFile(f"{path} is damaged", expected=expected, got=got, remedy=remedy)
