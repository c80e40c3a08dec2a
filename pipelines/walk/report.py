"""The report of ``penstock walk``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.paths import shown
from penstock.pipelines.display import Command, JobReport
from penstock.pipelines.job.following import sibling
from penstock.sizes import format_bytes, format_count, plural, were_there


@dataclass
class WalkReport(JobReport):
    """Counts of a run, for people and for ``--json``."""

    walks_at: str
    app: str
    sampler: str = ""
    why: str = ""
    instead: str = ""
    placement: str = ""
    devices: str = ""
    walks: int = 0
    nodes: int = 0
    bytes: int = 0
    files: int = 0
    resumed_files: int = 0
    linked_files: int = 0  # of the base
    anew: str = ""  # why no walk is kept from the base
    zero_rows: int = 0
    seconds_by_step: dict[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """The number of steps of all walks."""
        return self.nodes - self.walks

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return {**super().to_dict(), "steps": self.steps}

    def following(self) -> list[Command]:
        """Return the commands for the walks."""
        out = Path(self.walks_at)
        return [("word2vec", "train", out, sibling(out, "vectors"))]

    def verbose(self) -> str:
        """Return the reason for the sampler."""
        return f"sampler {self.why}"

    def lines(self) -> Iterable[str]:
        """Return the text for people."""
        mean = self.nodes / max(self.walks, 1)
        walking = self.seconds_by_step.get("walk", 0.0)
        # Below about a second the time is that of the start.
        rate = f", {format_count(self.steps / walking)} steps/s" if walking > 1 else ""
        yield (
            f"{shown(self.walks_at)}: {plural(self.walks, 'walk')} of {mean:.1f} nodes, "
            f"{plural(self.files, 'file')}, {format_bytes(self.bytes)}"
        )
        yield f"{self.app}, sampler {self.sampler}, {self.placement} on {self.devices}"
        yield f"{plural(self.steps, 'step')} in {self.seconds:.1f} s{rate}"
        if self.from_base is not None:
            linked = f", {plural(self.linked_files, 'file')} linked"
            yield self.from_base.text() + (f": {self.anew}" if self.anew else linked)
        if self.resumed_files:
            yield were_there(self.resumed_files, "file")
        if self.zero_rows:
            yield f"walks end at {self.zero_rows:,} nodes whose edges all have weight 0"
