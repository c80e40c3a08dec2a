"""Earlier neighbours: rows whose neighbours cannot have changed only meet the vectors that moved.

_vectors.parquet   ids and 64 bits of each vector, and with a tolerance the vector

The nearest of a row whose vector stayed are among those it had and the moved ones. If one that it
had is gone or has moved, another may take its place, but none that is nearer than the last one it
had: only a row whose list then ends behind that is searched again among all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy, one_array, read_column
from penstock.errors import BaseRefused
from penstock.files import FileEntry, save_npy
from penstock.graph_changes import another_kind, check_kind
from penstock.prints import print_factors, prints_of
from penstock.vector_parts import save_table, vector_lists

if TYPE_CHECKING:
    from penstock.pipelines.similar.job import SimilarTask
    from penstock.pipelines.vectors import Vectors

_VECTORS = "_vectors.parquet"
_MOST = 0.4  # of the vectors: if more moved, comparing all is faster
_MOVED, _ROWS, _SCORES = "moved.npy", "base-rows.npy", "base-scores.npy"


@dataclass(frozen=True)
class SimilarBase:
    """The lists of an earlier output by today's rows, in files for the tasks of a search."""

    folder: Path

    @property
    def moved(self) -> Array:
        """Whether each vector is new or has moved: (rows,) bool."""
        found: Array = np.load(self.folder / _MOVED)
        return found

    def lists(self, first: int, last: int) -> tuple[Array, Array]:
        """Return the neighbours that rows had, -1 if they are gone or moved, and their scores."""
        rows, scores = (np.load(self.folder / n, mmap_mode="r") for n in (_ROWS, _SCORES))
        return np.array(rows[first:last]), np.array(scores[first:last])

    @classmethod
    def open(
        cls, path: Path, task: SimilarTask, vectors: Vectors, tolerance: float, folder: Path
    ) -> tuple[SimilarBase, Array]:
        """Compare an earlier output with today's vectors; return also the vectors to keep."""
        from penstock.pipelines.similar.job import FORMAT

        body = FORMAT.load(path)
        metric = "cosine" if task.cosine else "dot"
        with FORMAT.reading(path):
            now = {"metric": metric, "k": task.k, "dimension": vectors.dimension}
            check_kind(path, {what: body[what] for what in now}, now)
        entries = FORMAT.files(path, body, sums=True)
        if _VECTORS not in entries:
            raise BaseRefused(
                f"{path} cannot be a base", expected="exact neighbours among all vectors"
            )
        ids = one_array(read_column(path / _VECTORS, "id"))
        if ids.type != vectors.ids.type:
            raise another_kind(path, "ids", ids.type, vectors.ids.type)
        today = vectors.find(ids)  # of each of the base's rows, or -1
        before_rows = np.full(len(vectors), -1)
        before_rows[today[today >= 0]] = np.flatnonzero(today >= 0)
        moved, kept = _moved(path, vectors, before_rows, tolerance)
        moved |= _out_of_order(before_rows)
        if moved.mean() > _MOST:
            moved[:] = True
        _save_lists(path, vectors, moved, task.k, folder)
        save_npy(folder, _MOVED, moved)
        return cls(folder), kept

    def merge(self, first: int, last: int, search: Any) -> tuple[Array, Array, int]:
        """Return the neighbours of rows, their scores, and how many rows met all vectors.

        search  (rows, candidates, None: all) -> their nearest and scores
        """
        moved, (rows, scores) = self.moved, self.lists(first, last)
        candidates, stays = np.flatnonzero(moved), np.flatnonzero(~moved[first:last])
        ends, last_rows = scores[:, -1].copy(), rows[:, -1].copy()
        lost = (rows < 0) & (scores > -np.inf)
        scores[lost] = -np.inf
        found = [(rows[stays], scores[stays])]
        if len(candidates) and len(stays):
            found.append(search(first + stays, candidates))
        near, scored = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
        rows[stays], scores[stays] = _nearest(near, scored, rows.shape[1])
        level = (scores[:, -1] == ends) & (rows[:, -1] <= last_rows)
        safe = ~lost.any(axis=1) | (scores[:, -1] > ends) | level
        again = moved[first:last] | ~safe
        where = np.flatnonzero(again)
        if len(where):
            rows[where], scores[where] = search(first + where, None)
        return rows, scores, len(where)


def save_vectors(root: Path, vectors: Vectors, kept: Array | None) -> FileEntry:
    """Write what a later search compares its vectors with: those that rows were compared by."""
    import pyarrow as pa

    compared = vectors.values if kept is None else kept
    prints = prints_of(compared, print_factors(vectors.dimension))
    columns = {"id": vectors.ids, "print": as_arrow(prints)}
    if kept is not None:
        columns["vector"] = vector_lists(np.ascontiguousarray(kept, np.float32))
    return save_table(root, _VECTORS, pa.table(columns))


def _moved(
    path: Path, vectors: Vectors, before_rows: Array, tolerance: float
) -> tuple[Array, Array]:
    """Return which vectors are new or moved, and those that rows are compared with next time."""
    import pyarrow.parquet as pq

    known = np.flatnonzero(before_rows >= 0)
    moved = np.ones(len(vectors), bool)
    if not tolerance:
        prints = prints_of(vectors.values, print_factors(vectors.dimension))
        before = as_numpy(read_column(path / _VECTORS, "print"), 0)
        moved[known] = prints[known] != before[before_rows[known]]
        return moved, vectors.values
    if "vector" not in pq.read_schema(path / _VECTORS).names:
        raise BaseRefused(
            f"{path} does not keep its vectors", expected="an output made with --tolerance"
        )
    flat = one_array(read_column(path / _VECTORS, "vector")).flatten()
    before = np.asarray(flat).reshape(-1, vectors.dimension)
    kept = np.array(vectors.values, np.float32)
    old = before[before_rows[known]]
    distances = np.linalg.norm(kept[known] - old, axis=1)
    moved[known] = distances > tolerance * np.linalg.norm(old, axis=1)
    stays = known[~moved[known]]
    kept[stays] = before[before_rows[stays]]
    return moved, kept


def _out_of_order(before_rows: Array) -> Array:
    """Return which known rows to count as moved, so that the others follow each other as before:
    of equal scores the lower row is nearer."""
    found = np.zeros(len(before_rows), bool)
    known = np.flatnonzero(before_rows >= 0)
    order = before_rows[known]
    if len(order):
        late = order < np.maximum.accumulate(order)
        early = order > np.minimum.accumulate(order[::-1])[::-1]
        found[known] = late if late.sum() < early.sum() else early
    return found


def _save_lists(path: Path, vectors: Vectors, moved: Array, k: int, folder: Path) -> None:
    """Write the lists that today's rows had."""
    import pyarrow.parquet as pq

    rows = np.full((len(vectors), k), -1, np.int64)
    scores = np.full((len(vectors), k), -np.inf, np.float32)
    for file in sorted(path.glob("part-*.parquet")):
        table = pq.read_table(file)
        of, near = (vectors.find(one_array(table.column(n))) for n in ("id", "neighbour"))
        codes = one_array(table.column("id")).dictionary_encode().indices
        starts = np.flatnonzero(np.diff(np.asarray(codes), prepend=-1))
        place = np.arange(len(of)) - np.repeat(starts, np.diff(np.append(starts, len(of))))
        near = np.where(moved[near], -1, near)  # -1 stays
        there = of >= 0
        rows[of[there], place[there]] = near[there]
        scores[of[there], place[there]] = as_numpy(table.column("score"), 0)[there]
    save_npy(folder, _ROWS, rows)
    save_npy(folder, _SCORES, scores)


def _nearest(rows: Array, scores: Array, k: int) -> tuple[Array, Array]:
    """Return the k of the highest scores, of equal ones the lower rows."""
    order = np.lexsort((rows, -scores), axis=1)[:, :k]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
