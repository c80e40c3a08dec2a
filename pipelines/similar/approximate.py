"""An HNSW index of vectors by usearch, in place of comparing all pairs; kept, and brought forward.

_index.usearch    vectors by key: for cosine of length one in float16, else as they are
_index.parquet    the id of each key; null: the key is free
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.files import FileEntry, atomic, file_entry
from penstock.kernels import kernel
from penstock.limits import cores
from penstock.pipelines.similar.report import SAMPLE
from penstock.pipelines.vectors.indexes import SEARCH, mixed, of_unit_length, usearch_index
from penstock.progress import Progress
from penstock.vector_parts import save_table

if TYPE_CHECKING:
    import pyarrow as pa

INDEX, IDS = "_index.usearch", "_index.parquet"
_CHUNK = 10_000  # vectors that are added or compared together
_QUERIES = 1_000  # whose neighbours are scored together
_ROUNDING = 1e-6  # relative, of two ways to compute a score
_PIVOTS = 256  # vectors that others are grouped by


@dataclass(frozen=True)
class Index:
    """An index.

    found  usearch's
    rows   the row of each key among the vectors; -1: the key is free
    """

    found: Any
    rows: Array
    cosine: bool

    @classmethod
    def of(cls, rows: Array, dimension: int, *, cosine: bool) -> Index:
        """Return an empty index."""
        return cls(usearch_index(dimension, cosine=cosine), rows, cosine)

    @classmethod
    def built(
        cls, values: Array, earlier: tuple[Path, Array] | None, *, cosine: bool, quiet: bool
    ) -> tuple[Index, dict[str, int]]:
        """Return an index of vectors, and how many are kept, added, replaced and removed.

        earlier  the file of an earlier index, which is brought forward if most vectors stay, and
                 the row of each of its keys, or -1
        """
        width, every = values.shape[1], np.arange(len(values))
        if earlier is not None:
            path, rows = earlier
            index = cls.of(_all_with_keys(rows, len(values)), width, cosine=cosine)
            index.found.load(str(path))
            if (counts := index._bring_forward(values, rows, quiet=quiet)) is not None:
                return index, counts
        index = cls.of(every, width, cosine=cosine)
        index._add(every, values, quiet=quiet)
        return index, {"kept": 0, "added": len(values), "replaced": 0, "removed": 0}

    def _add(self, keys: Array, values: Array, *, quiet: bool) -> None:
        """Add the vectors of keys."""
        keys = mixed(keys)
        with Progress("index", total=len(keys), unit="ids", quiet=quiet) as progress:
            for first in range(0, len(keys), _CHUNK):
                some = keys[first : first + _CHUNK]
                self.found.add(some, self._stored(values[self.rows[some]]), threads=cores())
                progress.advance(len(some))

    def _bring_forward(self, values: Array, before: Array, *, quiet: bool) -> dict[str, int] | None:
        """Change what differs from the values; None: that is more than what is kept.

        before  the rows of keys before others took those of ids that are gone
        """
        held = np.asarray(self.found.keys).astype(np.int64)
        there = np.zeros(len(self.rows), bool)
        there[held] = True
        gone = held[self.rows[held] < 0]
        new = np.flatnonzero(~there & (self.rows >= 0))
        same = held[self.rows[held] >= 0]
        other = [
            some[(np.array(self.found.get(some)) != self._stored(values[self.rows[some]])).any(1)]
            for some in np.split(same, range(_CHUNK, len(same), _CHUNK))
        ]
        moved = np.concatenate(other)
        if len(gone) + len(moved) + len(new) > len(same) - len(moved):
            return None
        self.found.remove(np.concatenate([gone, moved]), threads=cores())
        self._add(np.concatenate([moved, new]), values, quiet=quiet)
        stay, replaced = (int(np.count_nonzero(before[some] >= 0)) for some in (held, moved))
        counts = {"kept": stay - replaced, "added": len(values) - stay, "replaced": replaced}
        return {**counts, "removed": len(held) - stay}

    def save(self, folder: Path, ids: pa.Array) -> list[FileEntry]:
        """Write the index of ids by row, and return its files."""
        import pyarrow as pa

        with atomic(folder / INDEX) as temporary:
            self.found.save(str(temporary))
        named = ids.take(pa.array(self.rows, mask=self.rows < 0))
        return [file_entry(folder, INDEX), save_table(folder, IDS, pa.table({"id": named}))]

    def search(
        self, queries: Array, values: Array, k: int, skip: Array, lengths: Array
    ) -> tuple[Array, Array]:
        """Return the rows of the nearest values of each query and their scores, as the kernel does.

        skip  the row of each query itself, or -1: (queries, 1)
        """
        self.found.expansion_search = max(SEARCH, 2 * k)
        rows = np.full((len(queries), k), -1, np.int64)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        places = _by_place(queries)
        for first in range(0, len(queries), _QUERIES):
            cut = places[first : first + _QUERIES]
            some = queries[cut].astype(np.float64)
            keys, there = self._nearest(some, min(k + 1, len(values)))
            near = self.rows[keys]
            there &= near != skip[cut]
            found = np.einsum("qkd,qd->qk", values[near].astype(np.float64), some)
            if self.cosine:
                scale = lengths[near] * np.linalg.norm(some, axis=1)[:, None]
                found = np.divide(found, scale, out=np.zeros_like(found), where=scale > 0)
            found, near = np.where(there, found, -np.inf), np.where(there, near, -1)
            order = np.argsort(-found, axis=1, kind="stable")[:, :k]
            width = order.shape[1]
            rows[cut[:, None], np.arange(width)] = np.take_along_axis(near, order, axis=1)
            scores[cut[:, None], np.arange(width)] = np.take_along_axis(found, order, axis=1)
        return rows, scores

    def recall(self, queries: Array, values: Array, k: int, skip: Array) -> float:
        """Return the share of exact neighbours, or others as near, that some queries find."""
        some = np.unique(np.linspace(0, len(queries) - 1, SAMPLE).astype(np.int64))
        asked, module = np.ascontiguousarray(queries[some]), kernel("neighbours", queries)
        lengths = module.norms(values)
        _, found = self.search(asked, values, k, skip[some], lengths)
        exact, scores = module.nearest(
            asked, values, k, cosine=self.cosine, skip=skip[some], lengths=lengths
        )
        there = exact >= 0
        last = np.where(there, scores, np.inf).min(axis=1, keepdims=True)
        near = found >= last - _ROUNDING * abs(last)
        return float(near.sum() / max(there.sum(), 1))

    def _nearest(self, queries: Array, count: int) -> tuple[Array, Array]:
        """Return keys near to queries, and which of them exist."""
        found = self.found.search(self._stored(queries), count, threads=1)
        keys = np.atleast_2d(found.keys).astype(np.int64)
        counts = np.reshape(getattr(found, "counts", keys.size), (-1, 1))
        there = np.arange(keys.shape[1]) < counts
        return np.where(there, keys, 0), there

    def _stored(self, values: Array) -> Array:
        """Return vectors in the form of the index."""
        if not self.cosine:
            return np.ascontiguousarray(values, np.float32)
        stored: Array = of_unit_length(values).astype(np.float16)
        return stored


def _by_place(queries: Array) -> Array:
    """Return an order of queries in which those that lie near to each other follow each other.

    The part of an index that several of them visit then stays in the caches.
    """
    pivots = of_unit_length(queries[:: -(-len(queries) // _PIVOTS)]).astype(np.float32)
    of = [
        np.argmax(queries[first : first + _CHUNK] @ pivots.T, axis=1)
        for first in range(0, len(queries), _CHUNK)
    ]
    return np.argsort(np.concatenate(of), kind="stable")


def _all_with_keys(rows: Array, count: int) -> Array:
    """Return the row of each key, so that all have one: further rows take free keys first."""
    new = np.setdiff1d(np.arange(count), rows)
    free = np.flatnonzero(rows < 0)[: len(new)]
    made = np.concatenate([rows, new[len(free) :]])
    made[free] = new[: len(free)]
    return made
