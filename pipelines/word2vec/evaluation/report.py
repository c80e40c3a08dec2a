"""The report of ``penstock word2vec evaluate``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.paths import shown
from penstock.pipelines.display import JobReport
from penstock.pipelines.word2vec.evaluation.labels import LabelsResult
from penstock.pipelines.word2vec.evaluation.words import AnalogiesResult, PairsResult
from penstock.sizes import plural


@dataclass
class EvaluateReport(JobReport):
    """The results of each given file."""

    vectors: str
    rows: int
    dimension: int
    pairs: list[PairsResult] = field(default_factory=list)
    analogies: list[AnalogiesResult] = field(default_factory=list)
    labels: LabelsResult | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return {
            "vectors": self.vectors,
            "rows": self.rows,
            "dimension": self.dimension,
            "pairs": [asdict(result) for result in self.pairs],
            "analogies": [result.to_dict() for result in self.analogies],
            "labels": None if self.labels is None else asdict(self.labels),
            "seconds": self.seconds,
        }

    def lines(self) -> Iterable[str]:
        """Return the report as text."""
        yield f"{shown(self.vectors)}: {self.rows:,} vectors of {self.dimension}"
        for pairs in self.pairs:
            rho = "undefined" if pairs.spearman is None else f"{pairs.spearman:.4f}"
            used = plural(pairs.used, "pair")
            yield (
                f"{Path(pairs.file).name}: Spearman {rho}, {used}, "
                f"{pairs.unknown:,} with unknown words{_skipped(pairs.skipped)}"
            )
        for result in self.analogies:
            yield f"{Path(result.file).name}:{_skipped(result.skipped)}"
            yield f"  {'3CosAdd':>8} {'3CosMul':>8} {'questions':>10} {'unknown':>8}"
            several = len(result.sections) > 1
            for section in [*(result.sections if several else []), result.total]:
                count = len(section.questions)
                add, mul = (
                    f"{100 * right / count:.2f} %" if count else "-"
                    for right in (section.right_add, section.right_mul)
                )
                yield f"  {add:>8} {mul:>8} {count:>10,} {section.unknown:>8,}  {section.name}"
        if (found := self.labels) is not None:
            yield (
                f"{Path(found.file).name}: {found.nodes:,} labelled ids, {found.classes} classes"
                + (f"; {found.unknown:,} without a vector" if found.unknown else "")
            )
            yield f"  {'share':>5} {'micro-F1':>9} {'macro-F1':>9}"
            for one in found.shares:
                yield f"  {100 * one.share:>3.0f} % {one.micro_f1:>9.4f} {one.macro_f1:>9.4f}"


def _skipped(count: int) -> str:
    return f", {count:,} lines of another form" if count else ""
