"""The report of ``penstock word2vec evaluate``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.paths import shown
from penstock.pipelines.word2vec.evaluation.labels import LabelsResult
from penstock.pipelines.word2vec.evaluation.words import AnalogiesResult, PairsResult
from penstock.sizes import plural


@dataclass
class EvaluateReport:
    """What was found by each of the files that were given."""

    vectors: str
    rows: int
    dimension: int
    pairs: list[PairsResult] = field(default_factory=list)
    analogies: list[AnalogiesResult] = field(default_factory=list)
    labels: LabelsResult | None = None
    seconds: float = 0.0

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

    def text(self) -> str:
        """Return what a person wants to read."""
        lines = [f"{shown(self.vectors)}: {self.rows:,} vectors of {self.dimension}"]
        for pairs in self.pairs:
            rho = "undefined" if pairs.spearman is None else f"{pairs.spearman:.4f}"
            used = plural(pairs.used, "pair")
            lines.append(
                f"  {Path(pairs.file).name}: Spearman {rho}, {used}, "
                f"{pairs.unknown:,} with unknown words{_skipped(pairs.skipped)}"
            )
        for result in self.analogies:
            lines.append(f"  {Path(result.file).name}:{_skipped(result.skipped)}")
            lines.append(f"    {'3CosAdd':>8} {'3CosMul':>8} {'questions':>10} {'unknown':>8}")
            several = len(result.sections) > 1
            for section in [*(result.sections if several else []), result.total]:
                count = len(section.questions)
                add, mul = (
                    f"{100 * right / count:.2f} %" if count else "-"
                    for right in (section.right_add, section.right_mul)
                )
                lines.append(
                    f"    {add:>8} {mul:>8} {count:>10,} {section.unknown:>8,}  {section.name}"
                )
        if self.labels is not None:
            found = self.labels
            lines.append(
                f"  {Path(found.file).name}: {found.nodes:,} labelled ids, {found.classes} classes"
                + (f"; {found.unknown:,} without a vector" if found.unknown else "")
            )
            lines.append(f"    {'share':>5} {'micro-F1':>9} {'macro-F1':>9}")
            for share in found.shares:
                lines.append(
                    f"    {100 * share.share:>3.0f} % {share.micro_f1:>9.4f} {share.macro_f1:>9.4f}"
                )
        return "\n".join(lines)


def _skipped(count: int) -> str:
    return f", {count:,} lines of another form" if count else ""
