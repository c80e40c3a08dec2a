"""The nearest neighbours of some ids, in this process: ``penstock similar VECTORS ID``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrow import as_arrow
from penstock.errors import InputError
from penstock.kernels import kernel
from penstock.limits import cores
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
    k = min(options.k, max(len(vectors) - 1, 0))
    found, scores = _nearest(queries, vectors.values, k, rows[:, None], cosine=cosine)
    named = vectors.ids.take(as_arrow(np.concatenate([rows, found.ravel()]))).to_pylist()
    near = named[len(rows) :]
    neighbours = {
        one: list(zip(near[i * k : (i + 1) * k], map(float, scores[i]), strict=True))
        for i, one in enumerate(named[: len(rows)])
    }
    seconds = time.monotonic() - began
    return SimilarReport(str(vectors.path), options.metric, neighbours, seconds)


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
