"""Rows of a graph in compressed sparse row form: the one structure every job reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.threads import joined

# Columns per edge, in their usual order.
EDGE_COLUMNS = ("weights", "relations", "times")


@dataclass(frozen=True, eq=False)
class CSR:
    """Rows ``first_row .. first_row + rows`` of a graph.

    The out-neighbours of row ``r`` are ``indices[indptr[r]:indptr[r + 1]]``, ascending; the edge
    columns run parallel to ``indices``.

    Attributes
    ----------
    indptr
        (rows + 1,) int64, starts at 0.
    indices
        (edges,) int32 or int64, ids over the whole graph.
    weights
        (edges,) float32 or float64, or None.
    relations
        (edges,) int32, or None; ascending among equal neighbours.
    times
        (edges,) int64 or float64, or None.
    first_row
        The id of the first row.

    Examples
    --------
    >>> csr = CSR.from_edges(sources, targets, nodes, weights=weights)
    >>> csr.indices[csr.indptr[r] : csr.indptr[r + 1]]  # the out-neighbours of row r
    >>> csr.degrees(), csr.sources()
    >>> CSR.concatenate([csr.row_range(0, 5), csr.row_range(5, csr.rows)])
    >>> dict(csr.arrays()), dict(csr.columns())
    """

    indptr: Array
    indices: Array
    weights: Array | None = None
    relations: Array | None = None
    times: Array | None = None
    first_row: int = 0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.indptr) - 1

    @property
    def edges(self) -> int:
        """The number of edges."""
        return len(self.indices)

    def columns(self) -> Iterator[tuple[str, Array]]:
        """Yield the name, as ``weights``, and array of each edge column that exists."""
        for name in EDGE_COLUMNS:
            array = getattr(self, name)
            if array is not None:
                yield name, array

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the name, as ``indptr``, and array of each array that exists."""
        yield "indptr", self.indptr
        yield "indices", self.indices
        yield from self.columns()

    def degrees(self) -> Array:
        """Return the out-degree of each row: (rows,) int64."""
        return np.diff(self.indptr)

    def sources(self) -> Array:
        """Return the row of each edge: (edges,) ids over the whole graph, typed as ``indices``."""
        rows = np.arange(self.first_row, self.first_row + self.rows, dtype=self.indices.dtype)
        return np.repeat(rows, self.degrees())

    def row_range(self, start: int, stop: int) -> CSR:
        """Return some rows as views; only indptr is copied.

        Parameters
        ----------
        start, stop
            Local rows: the first, and one after the last.

        Returns
        -------
        CSR
            These rows.
        """
        low, high = int(self.indptr[start]), int(self.indptr[stop])
        columns = {name: array[low:high] for name, array in self.columns()}
        return CSR(
            indptr=self.indptr[start : stop + 1] - low,
            indices=self.indices[low:high],
            first_row=self.first_row + start,
            **columns,
        )

    @staticmethod
    def concatenate(pieces: Iterable[CSR]) -> CSR:
        """Return consecutive row ranges as one.

        Parameters
        ----------
        pieces
            Of a graph, in order.

        Returns
        -------
        CSR
            All rows; a single piece is returned without a copy.
        """
        pieces = list(pieces)
        if len(pieces) == 1:
            return pieces[0]
        indptr = np.zeros(sum(piece.rows for piece in pieces) + 1, dtype=np.int64)
        row, base = 0, 0
        for piece in pieces:
            indptr[row + 1 : row + 1 + piece.rows] = piece.indptr[1:] + base
            row, base = row + piece.rows, base + piece.edges
        columns = {
            name: joined([getattr(piece, name) for piece in pieces])
            for name, _ in [("indices", None), *pieces[0].columns()]
        }
        return CSR(indptr=indptr, first_row=pieces[0].first_row, **columns)

    @staticmethod
    def from_edges(sources: Array, targets: Array, nodes: int, **columns: Array | None) -> CSR:
        """Return the CSR of an edge list held in memory, rows sorted by neighbour (and relation).

        Nothing is dropped or merged. It is for tests, notebooks and generators; ``etl`` builds
        graphs larger than memory.

        Parameters
        ----------
        sources, targets
            (edges,) the source and target node of each edge.
        nodes
            The number of nodes; ids are below it.
        **columns
            (edges,) ``weights``, ``relations`` and ``times``, or None.

        Returns
        -------
        CSR
            One row per node.

        Raises
        ------
        InputError
            Ids that are not nodes, or columns of another length.
        """
        for ends in (sources, targets):
            if len(ends) and not 0 <= ends.min() <= ends.max() < nodes:
                raise InputError(
                    "an edge leads to a node that does not exist",
                    expected=f"ids in 0..{nodes - 1}",
                    got=f"{ends.min()} to {ends.max()}",
                )
        for name, column in [("targets", targets), *columns.items()]:
            if column is not None and len(column) != len(sources):
                raise InputError(f"{len(column)} {name} do not fit {len(sources)} sources")
        sources = np.asarray(sources, dtype=np.int64)  # bincount refuses uint64
        keys = [targets, sources]
        if columns.get("relations") is not None:
            keys.insert(0, columns["relations"])  # type: ignore[arg-type]
        order = np.lexsort(keys)
        indptr = offsets_of(np.bincount(sources, minlength=nodes))
        sorted_columns: dict[str, Any]
        sorted_columns = {k: v[order] for k, v in columns.items() if v is not None}
        return CSR(indptr=indptr, indices=targets[order].astype(id_dtype(nodes)), **sorted_columns)


def offsets_of(counts: Array) -> Array:
    """Return the start of each consecutive run, and the end of the last: (n + 1,) int64."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def ranges(starts: Array, sizes: Array) -> Array:
    """Return the numbers of all ranges, one after another."""
    ends = offsets_of(sizes)
    return np.asarray(np.arange(ends[-1]) + np.repeat(starts - ends[:-1], sizes))


def id_dtype(nodes: int) -> np.dtype[Any]:
    """Return the dtype of node ids: 32 bits if they fit, else 64."""
    return np.dtype(np.int32 if nodes <= np.iinfo(np.int32).max else np.int64)


assert set(EDGE_COLUMNS) < {field.name for field in fields(CSR)}
