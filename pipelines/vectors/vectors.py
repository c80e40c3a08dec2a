"""Vectors of ids, opened from any of their formats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.arrow import positions
from penstock.errors import InputError, UsageError
from penstock.options import shown
from penstock.paths import client_input, client_path
from penstock.pipelines.vectors import store
from penstock.sizes import plural

_NAMED = 10  # the most ids that an error names
_CHUNK_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class Vectors:
    """Ids and their vectors, in memory or mapped.

    Attributes
    ----------
    ids
        One Arrow array: integers, strings or another type.
    values
        (rows, dimension) float32.
    path
        The file or directory that was opened.
    about
        The content of vectors.json, if there is one.
    files
        Those that were read, with that of the ids, if it is not a directory of Penstock.

    Examples
    --------
    >>> Vectors.open("vectors")  # a directory of Penstock, or one of Parquet files
    >>> Vectors.open("nodes.parquet")  # a column of ids, a column of lists
    >>> Vectors.open("x.npy", ids="x.txt")  # a matrix, and ids; without them: row numbers
    >>> Vectors.open("wiki.bin")  # word2vec's binary format, or its text, also .gz, .zst, .bz2
    >>> vectors.rows(["king", "queen"])  # the rows of ids; an unknown one is an error
    >>> vectors.find(["king", "unknown"])  # -1 for an unknown one
    >>> vectors["king"]  # its vector
    >>> vectors.check_finite()  # reads all of them
    >>> f"ids such as {vectors.example()}"
    """

    ids: pa.Array
    values: Array
    path: str
    about: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: str | Path | Vectors, *, ids: str | Path | None = None) -> Vectors:
        """Open vectors in any of the formats.

        Parameters
        ----------
        path
            A directory of Penstock; Parquet or Arrow IPC files, also as a folder, a glob or a URL;
            an .npy file; a file of word2vec, also compressed; or vectors, which are returned.
        ids
            The ids of an .npy file: a text file with one id per line, the first column of a
            .parquet file, or another .npy file [default: a file of the same name that ends with
            ``.ids.parquet``, ``.ids.txt`` or ``.ids.npy``, or else the numbers of the rows].

        Returns
        -------
        Vectors
            ``values`` are mapped if one file holds them as float32.

        Raises
        ------
        UsageError
            ``path`` does not exist, or is in another format.
        InputError
            Rows of different lengths, ids that are null or equal, a damaged file.
        CapacityError
            The vectors have to be read into memory, and do not fit.

        Examples
        --------
        >>> Vectors.open("x.npy", ids="x.txt").dimension
        """
        from penstock.pipelines.tables.sources import find_files, format_of
        from penstock.pipelines.vectors import tables, word2vec

        if isinstance(path, Vectors):
            return path
        source = client_input(path)
        if ids is not None and not source.lower().endswith(".npy"):
            raise UsageError("only an .npy file takes ids from another file", got=source)
        home = Path(source)
        if (home / store.FORMAT.file).exists():
            found, values, about = store.read_store(home)
            return cls(found, values, source, about)
        files = find_files([source], "vectors")
        if home.suffix.lower() == ".npy":
            home = client_path(source)  # which is mapped
            listed = tables.sibling_ids(home) if ids is None else client_path(ids)
            found, values = tables.read_npy(home, listed)
            files += [] if listed is None else [str(listed)]
        elif format_of(files[0]) in ("parquet", "arrow"):
            found, values = tables.read_lists(files)
        else:
            found, values = word2vec.read(files[0])
        ids_found = store.checked_ids(found, len(values), source)
        return cls(ids_found, values, source, files=tuple(files))

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Vectors({str(self.path)!r}, rows={len(self)}, dimension={self.dimension})"

    @property
    def dimension(self) -> int:
        """The numbers per vector."""
        return int(self.values.shape[1])

    @cached_property
    def context(self) -> Array | None:
        """word2vec's output vectors, from which a training run resumes, if they are kept."""
        return store.read_context(Path(self.path), self.about) if self.about else None

    @property
    def mapped(self) -> Path | None:
        """The file that the values are mapped from, if they are."""
        return None if (name := getattr(self.values, "filename", None)) is None else Path(name)

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of the files that a job has read."""
        from penstock.pipelines.tables.sources import stamp_of

        files = self.files or (str(Path(self.path) / store.FORMAT.file),)
        files += () if self.mapped is None else (str(self.mapped),)
        return {file: stamp for file in files if (stamp := stamp_of(file)) is not None}

    def find(self, wanted: Any) -> Array:
        """Return the rows of ids.

        Parameters
        ----------
        wanted
            A list, a NumPy or an Arrow array. Text that spells an integer finds an integer id, and
            an integer finds its text.

        Returns
        -------
        Array
            (ids,) int64; -1 for an unknown id.
        """
        return find_ids(self.ids, wanted)

    def rows(self, wanted: Iterable[Any]) -> Array:
        """Return the rows of ids, all of which must exist.

        Parameters
        ----------
        wanted
            As for ``find``.

        Returns
        -------
        Array
            (ids,) int64.

        Raises
        ------
        InputError
            Some are unknown; the error has their number and the first ten.
        """
        wanted = wanted if isinstance(wanted, pa.Array) else list(wanted)
        found = self.find(wanted)
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            raise InputError(
                f"{self.path} has no vectors of {len(unknown):,} of {len(found):,} ids",
                expected=f"ids of type {self.ids.type}, "
                f"{f'such as {self.example()}' if len(self) else 'but it has none'}",
                got=_listed([_plain(wanted[int(row)]) for row in unknown[:_NAMED]], len(unknown)),
                remedy="Ask for ids that are in the vectors",
            )
        return found

    def __getitem__(self, one: Any) -> Array:
        vector: Array = self.values[int(self.rows([one])[0])]
        return vector

    def example(self) -> str:
        """Return the first ids, for an error or a hint.

        Returns
        -------
        str
            Three at most, with commas between.
        """
        if not len(self):
            return "none"
        return _listed(self.ids[:3].to_pylist(), min(3, len(self)))

    def check_finite(self) -> None:
        """Read all values.

        Raises
        ------
        InputError
            Some are not finite numbers; the error has their number and the first ten ids.
        """
        step = max(1, _CHUNK_BYTES // max(4 * self.dimension, 1))
        bad: list[int] = []
        count = 0
        for start in range(0, len(self), step):
            fine = np.isfinite(self.values[start : start + step]).all(axis=1)
            rows = np.flatnonzero(~fine)
            count += len(rows)
            bad += (rows[: _NAMED - len(bad)] + start).tolist()
        if count:
            raise InputError(
                f"{self.path} has {plural(count, 'vector')} with NaN or infinite values",
                expected="finite numbers",
                got=_listed([self.ids[row].as_py() for row in bad], count),
                remedy="Train again with a lower learning rate, or leave these rows out",
            )


def find_ids(ids: pa.Array, wanted: Any) -> Array:
    """Return where ``wanted`` are among ids: see ``Vectors.find``."""
    asked = wanted if isinstance(wanted, pa.Array) else _as_arrow(wanted)
    if asked.type != ids.type:
        from penstock.pipelines.tables.columns import cast_or_null

        asked = cast_or_null(asked, ids.type)
    return positions(ids, asked)


def _as_arrow(wanted: Any) -> pa.Array:
    """Return a user's ids as an Arrow array; ids of mixed kinds become text."""
    if isinstance(wanted, np.ndarray):
        return store.as_ids(wanted)
    try:
        return pa.array(wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([str(one) for one in wanted])


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


def _listed(values: list[Any], count: int) -> str:
    more = f" and {count - len(values):,} more" if count > len(values) else ""
    return ", ".join(map(shown, values)) + more
