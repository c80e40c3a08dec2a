"""``penstock partition``: a graph cut into k parts, each with all data for one rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field, field_validator

from penstock.errors import OutputExists
from penstock.options import ClientPath, Rules, options, refuse_ignored
from penstock.partition.assignment import Method
from penstock.pipelines.job import declare
from penstock.pipelines.partition.report import PartitionReport
from penstock.sizes import checked_size

if TYPE_CHECKING:
    from penstock.graph import Graph
    from penstock.output import Output


_STREAMING = "auto", "streaming"  # methods that may stream
_IGNORED: Rules = (
    (("passes",), "without --method auto or streaming", lambda o: o.method not in _STREAMING),
    (("time_limit",), "without --method auto", lambda o: o.method != "auto"),
    (("worker_timeout",), "without METIS", lambda o: o.method not in ("auto", "metis")),
    (
        ("memory_limit",),
        "without METIS and streaming",
        lambda o: o.method not in ("metis", *_STREAMING),
    ),
    (
        ("base",),
        "with methods that do not minimise the cut",
        lambda o: o.method not in ("metis", *_STREAMING),
    ),
)


@options
class PartitionOptions:
    """Options of ``penstock partition``."""

    k: Annotated[int, Field(ge=1), Parameter(alias="-k")]
    """number of parts"""
    method: Method = "auto"
    """auto: the first that fits, in the paper's order; metis: fewest edges cut; components: no edge
    cut; greedy: even load, any cut; streaming: for graphs too large for METIS' memory or time, then
    refined if memory allows; random: even counts; hash: by the user's id, the same every day"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed: the same seed gives the same parts"""
    memory_limit: str | None = None
    """memory for METIS and the refinement of streamed parts, such as 8GB [default: nine tenths of
    the available memory]"""
    passes: Annotated[int, Field(ge=1, le=1000)] = 10
    """number of passes over the graph, by the streaming method"""
    time_limit: Annotated[float, Field(ge=0)] = 300.0
    """auto: seconds that METIS may take, by estimate; slower graphs are streamed and refined"""
    worker_timeout: Annotated[float, Field(ge=1, le=86400)] = 30.0
    """seconds without computing after which METIS' process is killed and METIS has failed"""
    base: ClientPath | None = None
    """yesterday's partition, in its graph: known nodes keep their parts, new ones are streamed; the
    graph is cut whole if too many edges are cut"""
    width: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    """number of columns for the prediction of halo bytes [default: the features', or 128]"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED)

    @field_validator("memory_limit")
    @classmethod
    def _is_a_size(cls, value: str | None) -> str | None:
        return None if value is None else checked_size(value)


def _path(graph: Graph, options: PartitionOptions) -> Path:
    from penstock.partition.part import partition_path

    return partition_path(graph, options.k)


@declare.job("partition", writes="partition", into=_path, clustered=False, resumable=False)
def partition_graph(
    context: declare.Context, graph: Graph, out: Output, options: PartitionOptions
) -> PartitionReport:
    """Cut a graph into k parts, balanced by work, each with ghosts, send and receive lists.

    Parameters
    ----------
    graph
        a graph's directory; partition/kK is written there

    Examples
    --------
    >>> partition_graph("follows", k=4, method="metis")
    >>> partition_graph("follows-tuesday", k=4, base="follows-monday/partition/k4")
    """
    from penstock.pipelines.partition.job import cut

    return cut(context, graph, out, options)


command = partition_graph.command


def make_partition(graph: Graph, k: int, *, quiet: bool, **options: Any) -> None:
    """Cut a graph as a job does that needs it cut; wait if another process is cutting it."""
    try:
        partition_graph.wait_for(graph, k=k, quiet=quiet, **options)
    except OutputExists:
        if not (_path(graph, PartitionOptions(k=k)) / "partition.json").is_file():
            raise
