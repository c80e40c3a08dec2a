"""The report of ``penstock centrality``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import PenstockError
from penstock.paths import shown
from penstock.pipelines.display import JobReport
from penstock.sizes import format_bytes, format_count, plural, were_there


@dataclass
class CentralityReport(JobReport):
    """Counts of a run, for people and for ``--json``."""

    out: str
    metrics: list[str]
    graphs: int = 0
    nodes: int = 0
    pieces: int = 0
    resumed_pieces: int = 0
    bad_rows: int = 0
    failed: int = 0  # rows of failures.parquet
    samples: int | None = None
    error_bound: float | None = None
    communities: int | None = None  # of one graph
    modularity: float | None = None
    bytes: int = 0
    devices: str = ""
    seconds_by_step: dict[str, float] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        """Return the report as text."""
        computing = self.seconds_by_step.get("compute", 0.0)
        rate = ""
        if self.graphs > 1 and computing > 1:  # shorter runs mostly time the start
            rate = f", {format_count(self.graphs / computing)} graphs/s"
        yield (
            f"{shown(self.out)}: {plural(self.graphs, 'graph')}, {plural(self.nodes, 'node')}, "
            f"{format_bytes(self.bytes)}"
        )
        yield f"{', '.join(self.metrics)} on {self.devices}"
        yield f"{self.seconds:.1f} s{rate}"
        if self.samples is not None:
            bound = ""
            if "betweenness" in self.metrics:
                bound = f"; normalized betweenness within {self.error_bound:.3g} of the exact one"
                bound += " for all nodes, with a probability of 90 %"
            yield f"estimated from {plural(self.samples, 'source')}{bound}"
        if self.modularity is not None:
            yield f"modularity {self.modularity:.6f} of {self.communities:,} communities"
        if self.resumed_pieces:
            yield were_there(self.resumed_pieces, "piece")
        if self.from_base is not None:
            yield self.from_base.text()
        if self.bad_rows:
            yield f"{self.bad_rows:,} bad rows skipped"
        if self.failed:
            yield f"{self._failures()}: see {shown(self.out)}/failures.parquet"

    def failure(self) -> PenstockError | None:
        """Return the error of graphs that failed, with the first of them."""
        if not self.failed:
            return None
        import pyarrow.parquet as pq

        file = Path(self.out) / "failures.parquet"
        first = pq.read_table(file).slice(0, 1).to_pylist()[0]
        graph = first.get("graph_id")
        rest = "; the others are computed" if self.graphs > self.failed else ""
        return PenstockError(
            f"{self._failures()}{rest}",
            got=("" if graph is None else f"graph {graph}: ") + first["reason"],
            remedy=f"See {file}",
        )

    def _failures(self) -> str:
        return f"{self.failed:,} of {self.graphs:,} graphs failed"
