"""``penstock similar``: exact nearest neighbours among vectors, for some ids or for all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.options import ClientInput, ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.job import declare
from penstock.pipelines.job.declare import VECTORS, Context, Run
from penstock.pipelines.job.plan import PlanFlag
from penstock.pipelines.similar.options import SimilarOptions
from penstock.pipelines.similar.report import AllReport, SimilarReport

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.vectors import Vectors

__all__ = ["AllReport", "SimilarOptions", "SimilarReport", "similar"]


@declare.job("similar", reads=VECTORS, writes="neighbours", files=("candidates",), on_gpu=True)
def similar_all(
    context: Context, vectors: Vectors, out: Output, options: SimilarOptions
) -> AllReport:
    """Write the nearest neighbours of all ids."""
    from penstock.pipelines.similar.job import write_neighbours

    return write_neighbours(context, vectors, out, options)


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
        Vectors, or their path: see ``Vectors.open``.
    ids
        One id or several.
    out
        Directory to write, instead of ``ids``.
    cluster
        The cluster that searches the neighbours of all ids [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``SimilarOptions``: ``k``, ``metric``, ``candidates``, ``id_file``; with ``out``
        also ``approximate``, ``index``, ``resume`` and ``overwrite``.

    Returns
    -------
    SimilarReport or AllReport
        For some ids ``neighbours``: by id, nearest first, (id, score). For all, counts of the
        output.

    Raises
    ------
    InputError
        Unknown ids; NaN in the vectors; with cosine, an id whose vector is zero.
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
    if (ids is None) == (out is None):
        raise UsageError("similar takes either ids, or out for the neighbours of all ids")
    if out is not None:
        return similar_all(vectors, out, cluster=cluster, quiet=quiet, **options)
    if cluster is not None:
        raise UsageError("a cluster is for the neighbours of all ids", remedy="Also give out")
    from penstock.pipelines.similar.some import neighbours_of

    one = isinstance(ids, str | bytes) or not hasattr(ids, "__len__")
    return neighbours_of(vectors, [ids] if one else list(ids), SimilarOptions(**options))


def command(
    vectors: Annotated[ClientInput, Parameter(help="vectors: a directory, files or a URL")],
    /,
    *ids: Annotated[str, Parameter(help="ids whose neighbours to show")],
    all: Annotated[  # noqa: A002  (the flag is --all)
        ClientPath | None,
        Parameter(help="write the neighbours of all ids: the directory to write, of Parquet files"),
    ] = None,
    options: SimilarOptions = SimilarOptions(),
    how: Run = Run(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Show the nearest neighbours of ids among vectors, or write those of all ids."""
    if bool(ids) == (all is not None):
        raise UsageError(
            "penstock similar takes ids, or --all for the neighbours of all ids",
            expected="one of the two",
            got="both" if ids else "neither",
        )
    if all is not None:
        similar_all.command(
            vectors, all, options=options, how=how, cluster=cluster, plan=plan, output=output
        )
        return
    if plan or how != Run() or cluster != ClusterSpec():
        raise UsageError(
            "neighbours of a few ids are found in this process, and only shown",
            expected="--plan, --resume, --overwrite and cluster options only with --all",
        )
    from penstock.pipelines.similar.some import neighbours_of

    output.show(neighbours_of(vectors, ids, options))


command.job = similar_all  # type: ignore[attr-defined] # of a stage
