"""``penstock etl``: edges in, graph out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import ClientInput
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.job import declare

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.etl.job import EtlJob

__all__ = ["EtlOptions", "EtlReport", "etl"]


def _open(*given: Any) -> EtlJob:
    from penstock.pipelines.etl.job import EtlJob

    return EtlJob(*given)


_EDGES = declare.Source(
    _open,
    kind=list[ClientInput],
    searched=lambda edges: edges.searched(),
    tables=True,
    optional=True,
)


@declare.job("etl", reads=_EDGES, writes="graph")
def etl(context: declare.Context, edges: EtlJob, out: Output, options: EtlOptions) -> EtlReport:
    """Make a graph of edges in tables or text.

    Parameters
    ----------
    edges
        files, folders, globs or URLs of edges; none with --add or --remove
    out
        the graph to write

    Examples
    --------
    >>> etl("follows.parquet", "follows", source="follower", target="followed", directed=True)
    >>> etl(polars.read_csv("follows.csv"), "follows", source="follower", target="followed")
    >>> etl(["train.txt"], "fb15k", format="triples", valid="valid.txt", test="test.txt")
    """
    return edges.make(context, out)


command = etl.command
