"""An HNSW index of vectors by usearch, in place of comparing all pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.files import atomic
from penstock.kernels import kernel
from penstock.limits import cores
from penstock.progress import Progress

LINKS = 16  # of a vector on each level, and twice as many on the lowest
_BUILD, _SEARCH = 64, 64  # candidates that are kept while the index is built, and searched
_CHUNK = 10_000  # vectors that are added between two looks of the progress bar
_SAMPLE = 200  # vectors whose neighbours are compared with the exact ones


def index_bytes(count: int, dimension: int) -> int:
    """Return about what an index takes, in memory and on the disk."""
    return count * (4 * dimension + 8 * 3 * LINKS)


def build_index(path: Path, values: Array, *, cosine: bool, quiet: bool) -> None:
    """Write the index of vectors, whose keys are their rows, unless it exists."""
    if path.exists():
        return
    index = _index(values.shape[1], cosine=cosine)
    with Progress("index", total=len(values), unit="ids", quiet=quiet) as progress:
        for first in range(0, len(values), _CHUNK):
            some = np.ascontiguousarray(values[first : first + _CHUNK], np.float32)
            index.add(np.arange(first, first + len(some)), some, threads=cores())
            progress.advance(len(some))
    with atomic(path) as temporary:
        index.save(str(temporary))


def open_index(path: Path, dimension: int, *, cosine: bool) -> Any:
    """Return the index in a file, which is mapped."""
    index = _index(dimension, cosine=cosine)
    index.view(str(path))
    return index


def search(
    index: Any,
    queries: Array,
    values: Array,
    k: int,
    skip: Array,
    *,
    cosine: bool,
    threads: int = 1,
) -> tuple[Array, Array]:
    """Return the rows of the nearest values of each query and their scores, (queries, k).

    -1 if fewer were found. ``skip`` has the row of each query itself, or -1.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    index.expansion_search = max(_SEARCH, 2 * k)
    wanted = min(k + 1, len(values))
    found = index.search(queries, wanted, threads=threads)
    keys, counts = found.keys, getattr(found, "counts", None)
    if keys.ndim == 1:
        keys, counts = keys[None], np.array([len(keys)])
    rows = keys.astype(np.int64)
    valid = (np.arange(rows.shape[1]) < np.asarray(counts)[:, None]) & (rows != skip)
    rows = np.where(valid, rows, 0)
    scores = np.einsum("qkd,qd->qk", values[rows].astype(np.float64), queries.astype(np.float64))
    if cosine:
        lengths = np.linalg.norm(values[rows].astype(np.float64), axis=2)
        lengths *= np.linalg.norm(queries.astype(np.float64), axis=1)[:, None]
        scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0)
    scores[~valid] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    rows, scores = (np.take_along_axis(one, order, axis=1) for one in (rows, scores))
    return np.where(np.isfinite(scores), rows, -1), scores.astype(np.float32)


def measured_recall(
    index: Any, queries: Array, values: Array, k: int, skip: Array, *, cosine: bool
) -> float:
    """Return the share of the exact neighbours that the index finds, for some of the queries."""
    some = np.unique(np.linspace(0, len(queries) - 1, _SAMPLE).astype(np.int64))
    asked, own = np.ascontiguousarray(queries[some]), skip[some]
    found, _ = search(index, asked, values, k, own, cosine=cosine, threads=cores())
    exact, _ = kernel("neighbours", asked).nearest(asked, values, k, cosine=cosine, skip=own)
    same = (exact[:, :, None] == found[:, None, :]) & (exact >= 0)[:, :, None]
    return float(same.any(axis=2).sum() / max((exact >= 0).sum(), 1))


def _index(dimension: int, *, cosine: bool) -> Any:
    try:
        from usearch.index import Index
    except ImportError as error:
        raise UsageError(
            "--approximate needs usearch",
            expected="the extra ann",
            remedy="Install it with pip install 'penstock-graph[ann]'",
        ) from error
    return Index(
        ndim=dimension, metric="cos" if cosine else "ip", dtype="f32",
        connectivity=LINKS, expansion_add=_BUILD, expansion_search=_SEARCH,
    )  # fmt: skip
