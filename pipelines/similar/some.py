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
from penstock.options import Rules, refuse_ignored
from penstock.pipelines.candidates import rows_of_file
from penstock.pipelines.similar.options import SimilarOptions
from penstock.pipelines.similar.report import SimilarReport
from penstock.pipelines.vectors import Vectors

if TYPE_CHECKING:
    from penstock.arrays import Array

_FOR_ALL: Rules = (
    (("approximate", "index", "base", "tolerance"), "without --all", lambda options: True),
)


def neighbours_of(
    at: str | Path | Vectors, ids: Sequence[Any], options: SimilarOptions
) -> SimilarReport:
    """Return the neighbours of ids among vectors."""
    refuse_ignored(options, _FOR_ALL)
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
    nearest = kernel("neighbours", values).nearest
    found, scores = nearest(queries, values, k, cosine=cosine, skip=own[:, None])
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
