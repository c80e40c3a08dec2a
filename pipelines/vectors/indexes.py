"""HNSW indexes of other programs, whose keys are the numbers of rows: usearch and faiss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.files import atomic

LINKS = 16  # of a vector on each level, and twice as many on the lowest
BUILD, SEARCH = 64, 64  # candidates that are kept while an index is built, and searched
_CHUNK = 10_000  # vectors that are added together


def index_bytes(count: int, dimension: int, *, cosine: bool) -> int:
    """Return about what an index takes, in memory and on the disk."""
    return count * ((2 if cosine else 4) * dimension + 12 * LINKS)


def of_unit_length(values: Array) -> Array:
    """Return vectors of length one, or of zeros: (rows, dimension) float64."""
    lengths = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
    units: Array = np.divide(values, lengths, out=np.zeros(values.shape), where=lengths > 0)
    return units


def mixed(keys: Array) -> Array:
    """Return keys in a random order, always the same.

    An index into which near vectors go one after another finds fewer neighbours: its parts have
    few links to each other.
    """
    return np.random.default_rng(0).permutation(keys)


def usearch_index(dimension: int, *, cosine: bool) -> Any:
    """Return an empty index of usearch; for cosine it holds vectors of length one in float16."""
    try:
        from usearch.index import Index
    except ImportError as error:
        raise _missing("usearch", "'penstock-graph[ann]'") from error
    return Index(
        ndim=dimension,
        metric="ip",
        dtype="f16" if cosine else "f32",
        connectivity=LINKS,
        expansion_add=BUILD,
        expansion_search=SEARCH,
    )


def write_faiss(path: Path, values: Array, *, cosine: bool) -> None:
    """Write an index that faiss opens."""
    try:
        import faiss
    except ImportError as error:
        raise _missing("faiss", "faiss-cpu") from error
    index = faiss.IndexHNSWFlat(values.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = BUILD, SEARCH
    for first in range(0, len(values), _CHUNK):
        some = values[first : first + _CHUNK]
        index.add(np.ascontiguousarray(of_unit_length(some) if cosine else some, np.float32))
    with atomic(path) as temporary:
        faiss.write_index(index, str(temporary))


def _missing(package: str, wanted: str) -> UsageError:
    return UsageError(f"{package} is not installed", remedy=f"pip install {wanted}")
