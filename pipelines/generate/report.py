"""The report of ``penstock generate``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.paths import shown
from penstock.pipelines.display import CountsReport
from penstock.sizes import format_bytes, format_count


@dataclass(frozen=True)
class GenerateReport(CountsReport):
    """What was made: where, how much, how fast. ``drawn`` counts edges before any were dropped."""

    path: str
    kind: str
    nodes: int
    edges: int
    drawn: int
    shards: int
    bytes: int
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """Return what a person wants to read."""
        rate = format_count(self.edges / max(self.seconds, 1e-9))
        lines = [
            f"{shown(self.path)}: {self.kind}, {self.nodes:,} nodes, {self.edges:,} edges"
            f" in {self.shards} shard{'' if self.shards == 1 else 's'}",
            f"{self.drawn:,} edges drawn, {format_bytes(self.bytes)} written"
            f" in {self.seconds:.1f} s ({rate} edges/s)",
        ]
        lines += [f"{name.replace('_', ' ')}: {value}" for name, value in self.details.items()]
        return "\n".join(lines)
