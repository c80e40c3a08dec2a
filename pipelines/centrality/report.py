"""The report of ``penstock centrality``."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.paths import shown
from penstock.pipelines.display import CountsReport
from penstock.sizes import format_bytes, format_count, plural, were_there


@dataclass
class CentralityReport(CountsReport):
    """Counts of a run, for people and for ``--json``."""

    out: str
    metrics: list[str]
    graphs: int = 0
    nodes: int = 0
    pieces: int = 0
    resumed_pieces: int = 0
    failed: int = 0  # rows of failures.parquet: graphs, or what is of no graph that is known
    lost: int = 0  # of these the latter
    samples: int | None = None
    error_bound: float | None = None
    bytes: int = 0
    devices: str = ""
    seconds: float = 0.0
    seconds_by_step: dict[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """Return what a person wants to read."""
        computing = self.seconds_by_step.get("compute", 0.0)
        rate = ""
        if self.graphs > 1 and computing > 1:  # below a second or so it is the start that is timed
            rate = f", {format_count(self.graphs / computing)} graphs/s"
        lines = [
            f"{shown(self.out)}: {plural(self.graphs, 'graph')}, {plural(self.nodes, 'node')}, "
            f"{format_bytes(self.bytes)}",
            f"  {', '.join(self.metrics)} on {self.devices}",
            f"  {self.seconds:.1f} s{rate}",
        ]
        if self.samples is not None:
            bound = f"; normalized betweenness within {self.error_bound:.3g} of the exact one"
            chance = " for all nodes, with a probability of 90 %"
            lines.append(f"  estimated from {plural(self.samples, 'source')}{bound}{chance}")
        if self.resumed_pieces:
            lines.append(f"  {were_there(self.resumed_pieces, 'piece')}")
        if self.failed:
            lines.append(f"  {self.failures()}: see {shown(self.out)}/failures.parquet")
        return "\n".join(lines)

    def failures(self) -> str:
        """Say how many graphs failed, and what could not be read besides."""
        said = f"{self.failed - self.lost:,} of {self.graphs:,} graphs failed"
        if self.lost:
            said += f"; {self.lost:,} files, lines or row groups of unknown graphs cannot be read"
        return said
