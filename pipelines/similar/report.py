"""The reports of ``penstock similar``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.paths import shown
from penstock.pipelines.display import Command, JobReport
from penstock.pipelines.job.following import sibling
from penstock.sizes import format_bytes, format_count, plural, were_there

SAMPLE = 200  # ids whose neighbours are compared with the exact ones, at most


@dataclass
class SimilarReport:
    """The nearest neighbours of some ids.

    neighbours  by id, nearest first: (id, score)
    """

    vectors: str
    metric: str
    neighbours: dict[Any, list[tuple[Any, float]]]
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        found = [
            {"id": _plain(one), "neighbours": [{"id": _plain(i), "score": s} for i, s in near]}
            for one, near in self.neighbours.items()
        ]
        about = {"vectors": self.vectors, "metric": self.metric, "seconds": self.seconds}
        return {**about, "neighbours": found}

    def text(self) -> str:
        """Return the text for people."""
        lines = []
        for one, near in self.neighbours.items():
            lines.append(str(one) if near else f"{one}: no other vector exists")
            lines += [f"  {score:8.4f}  {other}" for other, score in near]
        return "\n".join(lines)


@dataclass
class AllReport(JobReport):
    """The report on the neighbours of all ids."""

    out: str
    metric: str
    k: int
    ids: int
    zeros: int
    files: int
    resumed_files: int
    bytes: int
    devices: str
    seconds_by_step: dict[str, float]
    recall: float | None = None
    index: dict[str, int] | None = None

    def following(self) -> list[Command]:
        """Return the command that makes a graph of the neighbours."""
        out = Path(self.out)
        columns = ("--source", "id", "--target", "neighbour")
        return [("etl", out, sibling(out, "graph"), *columns)]

    def lines(self) -> Iterable[str]:
        """Return the text for people."""
        searching = self.seconds_by_step["similar"]
        rate = f", {format_count(self.ids / searching)} ids/s" if searching > 1 else ""
        yield (
            f"{shown(self.out)}: {plural(self.k, 'neighbour')} of each of {self.ids:,} ids, by "
            f"{self.metric}"
        )
        yield (
            f"{plural(self.files, 'file')}, {format_bytes(self.bytes)}, "
            f"in {self.seconds:.1f} s on {self.devices}{rate}"
        )
        if self.recall is not None and self.index is not None:
            counts = ", ".join(f"{count:,} {how}" for how, count in self.index.items() if count)
            yield (
                f"{100 * self.recall:.1f} % of the exact neighbours of "
                f"{plural(min(SAMPLE, self.ids), 'id')}; index: {counts}, "
                f"in {self.seconds_by_step['index']:.1f} s"
            )
        if self.from_base is not None:
            yield self.from_base.text()
        if self.resumed_files:
            yield were_there(self.resumed_files, "file")
        if self.zeros:
            yield (
                f"{self.zeros:,} {'ids have' if self.zeros > 1 else 'id has'} a vector of zeros, "
                "whose cosine with any other is 0"
            )


def _plain(one: Any) -> Any:
    """Return an id that JSON can represent."""
    return one if isinstance(one, str | int | float) else str(one)
