"""``penstock validate``: read a whole graph and say what is wrong with it, if anything."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.graph import Graph
from penstock.options import ClientPath
from penstock.paths import shown
from penstock.pipelines.display import Display
from penstock.sizes import format_bytes


@dataclass(frozen=True)
class Validation:
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


def validate(path: str | Path, *, quiet: bool = True) -> Validation:
    """Read every file of a graph and check it: checksums first, then what they say.

    Parameters
    ----------
    path
        The graph's directory.
    quiet
        Print no progress.

    Returns
    -------
    Validation
        How much was read; ``text()`` and ``to_dict()``.

    Raises
    ------
    GraphError
        Names the first file that is wrong.

    Examples
    --------
    >>> validate("g").files
    """
    start = time.monotonic()
    graph = Graph.open(path)
    graph.validate(quiet=quiet)
    entries = graph.manifest.files.values()
    return Validation(
        path=str(graph.path),
        files=len(entries),
        bytes=sum(entry.bytes for entry in entries),
        nodes=graph.num_nodes,
        arcs=graph.num_edges,
        seconds=time.monotonic() - start,
    )


def command(
    graph: Annotated[ClientPath, Parameter(help="a graph's directory")],
    /,
    *,
    output: Display = Display(),
) -> None:
    """Read a whole graph and check every checksum and every row; exit 1 if something is wrong."""
    output.show(validate(graph, quiet=output.quiet))
