"""``penstock validate``: read a whole graph and report what is wrong with it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from penstock.graph import Graph
from penstock.paths import shown
from penstock.pipelines.display import CountsReport
from penstock.pipelines.job.declare import Context, job
from penstock.sizes import format_bytes


@dataclass(frozen=True)
class Validation(CountsReport):
    """What was read and found whole; what is broken raises instead."""

    path: str
    files: int
    bytes: int
    nodes: int
    arcs: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return {"valid": True, **asdict(self)}

    def text(self) -> str:
        """Return one line for people."""
        return (
            f"{shown(self.path)} is whole: {self.files:,} files of {format_bytes(self.bytes)}, "
            f"{self.nodes:,} nodes, {self.arcs:,} directed edges, read in {self.seconds:.1f} s"
        )


@job("validate", clustered=False)
def validate(context: Context, graph: Graph) -> Validation:
    """Read a whole graph and check every checksum and index; exit 1 if something is wrong.

    Parameters
    ----------
    graph
        a graph's directory

    Examples
    --------
    >>> validate("g").files
    """
    start = time.monotonic()
    graph.validate(quiet=context.quiet)
    entries = graph.manifest.files.values()
    return Validation(
        path=str(graph.path),
        files=len(entries),
        bytes=sum(entry.bytes for entry in entries),
        nodes=graph.num_nodes,
        arcs=graph.num_edges,
        seconds=time.monotonic() - start,
    )


command = validate.command
