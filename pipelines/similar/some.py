"""The nearest neighbours of some ids, in this process: ``penstock similar VECTORS ID``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrow import as_arrow
from penstock.errors import InputError, UsageError
from penstock.kernels import kernel
from penstock.limits import cores
from penstock.pipelines.candidates import rows_of_file
from penstock.pipelines.similar.options import SimilarOptions
from penstock.pipelines.similar.report import SimilarReport
from penstock.pipelines.vectors import Vectors
from penstock.threads import spread

if TYPE_CHECKING:
    from penstock.arrays import Array

_RANGE = 1 << 14  # least rows per thread


def neighbours_of(
    at: str | Path | Vectors, ids: Sequence[Any], options: SimilarOptions
) -> SimilarReport:
    """Return the neighbours of ids among vectors."""
    if options.approximate or options.base is not None:
        what = "--approximate" if options.approximate else "--base"
        raise UsageError(f"{what} is for all ids", remedy="Give --all, or leave it out")
    vectors = Vectors.open(at, ids=options.id_file)
    began = time.monotonic()
    rows = vectors.rows(ids)
    vectors.check_finite()
    cosine = options.metric == "cosine"
    queries = np.array(vectors.values[rows])
    zeros = np.flatnonzero(~queries.any(axis=1))
    if cosine and len(zeros):
        raise InputError(
            f"{len(zeros):,} of these {len(ids):,} have a vector of zeros, which has no direction",
            got=", ".join(repr(ids[int(i)]) for i in zeros[:10]),
            remedy="Use --metric dot, or leave them out",
        )
    file = options.candidates
    among = None if file is None else rows_of_file(file, vectors.ids)
    values, own = chosen_rows(vectors.values, rows, among)
    k = min(options.k, len(values))
    found, scores = _nearest(queries, values, k, own[:, None], cosine=cosine)
    neighbours = {}
    for one, of, scored in zip(
        vectors.ids.take(as_arrow(rows)).to_pylist(), found, scores, strict=True
    ):
        near = of[of >= 0]  # an id is not a neighbour of its own
        named = vectors.ids.take(as_arrow(near if among is None else among[near])).to_pylist()
        neighbours[one] = list(zip(named, map(float, scored[of >= 0]), strict=True))
    seconds = time.monotonic() - began
    return SimilarReport(str(vectors.path), options.metric, neighbours, seconds)


def chosen_rows(values: Array, rows: Array, among: Array | None) -> tuple[Array, Array]:
    """Return the values of candidates, and where each of some rows is among them, or -1."""
    if among is None:
        return values, rows
    return np.ascontiguousarray(values[among]), rows_among(rows, among)


def rows_among(rows: Array, among: Array | None) -> Array:
    """Return where rows are among the chosen ones, or -1; None: all are chosen."""
    if among is None:
        return rows
    at = np.minimum(np.searchsorted(among, rows), len(among) - 1)
    return np.where(among[at] == rows, at, -1)


def _nearest(
    queries: Array, values: Array, k: int, skip: Array, *, cosine: bool
) -> tuple[Array, Array]:
    """Search ranges of rows on all cores, and merge the results."""
    module = kernel("neighbours", values)
    size = max(_RANGE, -(-len(values) // cores()))
    starts = range(0, len(values), size)
    pieces: dict[int, tuple[Array, Array]] = {}

    def search(start: int) -> None:
        some = values[start : start + size]
        here = np.where((skip >= start) & (skip < start + len(some)), skip - start, -1)
        rows, scores = module.nearest(queries, some, k, cosine=cosine, skip=here)
        pieces[start] = np.where(rows >= 0, rows + start, -1), scores

    spread(search, starts)
    rows = np.concatenate([pieces[start][0] for start in starts], axis=1)
    scores = np.concatenate([pieces[start][1] for start in starts], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # ranges are in the order of rows
    return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
