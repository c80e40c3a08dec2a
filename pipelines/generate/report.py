"""The report of ``penstock generate``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.paths import shown
from penstock.pipelines.display import Command, JobReport
from penstock.pipelines.job.following import after_graph, sibling
from penstock.sizes import format_bytes, format_count, plural


@dataclass
class GenerateReport(JobReport):
    """The output: its path, size and speed. ``drawn`` counts edges before any were dropped."""

    path: str
    kind: str
    nodes: int
    edges: int
    drawn: int
    shards: int
    bytes: int
    details: dict[str, Any] = field(default_factory=dict)

    def following(self) -> list[Command]:
        """Return the command that reads a list of edges, or commands for the graph."""
        from penstock.manifest import FILE_NAME, Manifest

        path = Path(self.path)
        if not (path / FILE_NAME).is_file():
            return [("etl", path, sibling(path, "graph"))]
        return after_graph(path, Manifest.load(path))

    def lines(self) -> Iterable[str]:
        """Return the text for people."""
        rate = format_count(self.edges / max(self.seconds, 1e-9))
        yield (
            f"{shown(self.path)}: {self.kind}, {self.nodes:,} nodes, {self.edges:,} edges"
            f" in {plural(self.shards, 'shard')}"
        )
        yield (
            f"{self.drawn:,} edges drawn, {format_bytes(self.bytes)} written"
            f" in {self.seconds:.1f} s ({rate} edges/s)"
        )
        yield from (f"{name.replace('_', ' ')}: {value}" for name, value in self.details.items())
