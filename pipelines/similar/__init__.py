"""``penstock similar``: exact nearest neighbours among vectors, of some ids or of all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrow import as_arrow
from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError, UsageError
from penstock.kernels import kernel
from penstock.limits import cores
from penstock.options import flag
from penstock.partition.threads import spread
from penstock.paths import client_path
from penstock.pipelines.similar.options import SimilarOptions
from penstock.pipelines.similar.report import AllReport, SimilarReport
from penstock.pipelines.vectors import Vectors

if TYPE_CHECKING:
    from penstock.arrays import Array

_RANGE = 1 << 14  # rows at least that a thread searches

__all__ = ["AllReport", "SimilarOptions", "SimilarReport", "similar"]


def similar(
    vectors: str | Path | Vectors,
    ids: Any = None,
    *,
    out: str | Path | None = None,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> SimilarReport | AllReport:
    """Find the nearest neighbours of some ids, or write those of all ids in a directory ``out``.

    Parameters
    ----------
    vectors
        Vectors, or where they are: see ``Vectors.open``.
    ids
        One id or several.
    out
        Directory to write, instead of ``ids``.
    cluster
        Where the neighbours of all ids are searched [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``SimilarOptions``: ``k``, ``metric``, ``id_file``, ``resume``, ``overwrite``.

    Returns
    -------
    SimilarReport or AllReport
        Of some ids ``neighbours``: by id, the nearest first, (id, score). Of all what was written.

    Raises
    ------
    InputError
        Ids that the vectors have not; NaN in the vectors; with cosine, an id whose vector is zero.
    UsageError
        Both ``ids`` and ``out`` are given, or neither.
    CapacityError
        Vectors that do not fit into memory, or neighbours that do not fit on the disk.
    OutputExists
        ``out`` is taken, and neither ``resume`` nor ``overwrite`` is set.

    Examples
    --------
    >>> similar("vectors", "king", k=5).neighbours["king"]
    >>> similar("vectors", out="neighbours", k=20, metric="dot")
    """
    given = SimilarOptions(**options)
    opened = Vectors.open(vectors, ids=given.id_file)
    if (ids is None) == (out is None):
        raise UsageError("similar takes ids, or out for the neighbours of all ids: one of the two")
    if out is None:
        if cluster is not None:
            raise UsageError("a cluster is for the neighbours of all ids", remedy="Give out, too")
        return neighbours_of(opened, [ids] if _is_one(ids) else list(ids), given)
    from penstock.pipelines.job import run
    from penstock.pipelines.similar.job import SimilarJob

    return run(SimilarJob(opened, client_path(out), given, cluster, quiet=quiet))


def neighbours_of(vectors: Vectors, ids: Sequence[Any], options: SimilarOptions) -> SimilarReport:
    """Return the neighbours of ids, in this process."""
    began = time.monotonic()
    for name in ("resume", "overwrite"):
        if getattr(options, name):
            raise UsageError(
                f"{flag(name)} is for the neighbours of all ids",
                remedy="Leave it out, or give --all",
            )
    rows = vectors.rows(ids)
    vectors.check_finite()
    cosine = options.metric == "cosine"
    queries = np.array(vectors.values[rows])
    zeros = np.flatnonzero(~queries.any(axis=1))
    if cosine and len(zeros):
        raise InputError(
            f"{len(zeros):,} of these {len(ids):,} have a vector of zeros, which has no direction",
            got=", ".join(repr(ids[int(i)]) for i in zeros[:10]),
            remedy="Take --metric dot, or leave them out",
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
    """Search ranges of rows on all cores, and take the nearest of what each found."""
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
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # ranges lie in the order of rows
    return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)


def _is_one(ids: Any) -> bool:
    return isinstance(ids, str | bytes) or not hasattr(ids, "__len__")
