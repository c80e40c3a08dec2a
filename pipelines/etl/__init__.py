"""``penstock etl``: edges in, graph out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.spec import ClusterSpec
from penstock.options import ClientInput
from penstock.paths import client_path
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.job import declare
from penstock.pipelines.tables.streams import ArrowStream, stream_files

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.etl.job import EtlJob

__all__ = ["EtlOptions", "EtlReport", "etl"]

Source = str | Path | ArrowStream


def _open(*given: Any) -> EtlJob:
    from penstock.pipelines.etl.job import EtlJob

    return EtlJob.open(*given)


_EDGES = declare.Source(_open, kind=list[ClientInput], searched=lambda edges: edges.searched())


@declare.job("etl", reads=_EDGES, writes="graph")
def etl_files(
    context: declare.Context, edges: EtlJob, out: Output, options: EtlOptions
) -> EtlReport:
    """Make a graph of edges in tables or text.

    Parameters
    ----------
    edges
        files, folders, globs or URLs of edges
    out
        the graph to write
    """
    return edges.make(context, out)


command = etl_files.command


def etl(
    edges: Source | Iterable[Source],
    out: str | Path,
    *,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> EtlReport:
    """Make a graph of edges in tables or text.

    Parameters
    ----------
    edges
        A file, a directory or a pattern such as ``"edges/*.parquet"``; or a table with
        ``__arrow_c_stream__``, such as a DataFrame of Polars or pandas, a relation of DuckDB or a
        ``pyarrow.Table``, which is written once to ``scratch``; or several of them. ``nodes`` takes
        the same.
    out
        Directory to write.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``EtlOptions``, as ``source``, ``directed`` or ``nodes``; ``resume`` and
        ``overwrite``.

    Returns
    -------
    EtlReport
        Counts of what was read, dropped and kept, sizes and times; ``text()`` and ``to_dict()``.

    Raises
    ------
    InputError
        A table or line is wrong; the message names file and row.
    UsageError
        Options that contradict each other or the input.
    CapacityError
        It does not fit on the disk or in memory.
    OutputExists
        ``out`` is taken, and neither ``resume`` nor ``overwrite`` is set.

    Examples
    --------
    >>> etl("follows.parquet", "follows", source="follower", target="followed", directed=True)
    >>> etl(polars.read_csv("follows.csv"), "follows", source="follower", target="followed")
    >>> etl(["train.txt"], "fb15k", format="triples", valid="valid.txt", test="test.txt")
    """
    sources = [edges] if isinstance(edges, str | Path | ArrowStream) else list(edges)
    where, scratch = client_path(out), options.get("scratch")
    with stream_files(where, None if scratch is None else client_path(scratch)) as files:
        inputs = [files.path_of(source) for source in sources]
        if "nodes" in options:
            options["nodes"] = files.path_of(options["nodes"])
        return etl_files(inputs, where, cluster=cluster, quiet=quiet, **options)
