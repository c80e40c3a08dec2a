"""What ``penstock generate`` tells about its run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.manifest import Manifest
from penstock.paths import shown
from penstock.pipelines.output import CountsReport
from penstock.sizes import format_bytes, format_count


@dataclass(frozen=True)
class Report(CountsReport):
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


def graph_report(
    out: Path, kind: str, manifest: Manifest, drawn: int, started: float, **details: Any
) -> Report:
    """Return the report of a graph that was written."""
    return Report(
        path=str(out),
        kind=kind,
        nodes=manifest.nodes,
        edges=manifest.edges,
        drawn=drawn,
        shards=len(manifest.shards),
        bytes=sum(entry.bytes for entry in manifest.files.values()),
        seconds=round(time.monotonic() - started, 3),
        details=details,
    )


def how_made(command: str, options: Any) -> dict[str, Any]:
    """Return what the manifest says about how a graph was made: all that shaped its bytes."""
    made = {"by": f"penstock generate {command}", **asdict(options)}
    for elsewhere in ("memory", "overwrite", "format"):
        made.pop(elsewhere, None)
    return made
