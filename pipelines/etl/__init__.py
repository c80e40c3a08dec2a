"""``penstock etl``: edges in, graph out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.paths import client_input, client_path
from penstock.pipelines.etl.job import EtlJob
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.job import run as run_job
from penstock.pipelines.tables.streams import ArrowStream, stream_files

__all__ = ["EtlOptions", "EtlReport", "etl"]

Source = str | Path | ArrowStream


def etl(
    edges: Source | Iterable[Source],
    out: str | Path,
    *,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> EtlReport:
    """Make a graph of edges in tables or text, and save it in the directory ``out``.

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
        Fields of ``EtlOptions``, as ``source``, ``directed`` or ``nodes``: the options of
        ``penstock etl``. ``directed=None`` decides by the edges: those with relations are directed,
        others are not.

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
        inputs = [client_input(files.path_of(source)) for source in sources]
        if "nodes" in options:
            options["nodes"] = files.path_of(options["nodes"])
        return run_job(EtlJob(inputs, where, EtlOptions(**options), cluster, quiet=quiet))
