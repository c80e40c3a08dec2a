"""Progress of ranks that train, with the loss and the scores that they log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.progress import Progress


class TrainingBar(Progress):
    """Progress of training: ``train: 40 %, 25 epochs/s, loss 0.61, train 83.1 %, valid 79.4 %``.

    Rank 0 logs the units that all ranks have done, as ``done``, and those ``before`` this run.

    scores  metrics to show, each with its text, as ``{"mrr": "MRR {:.3f}"}``
    """

    def __init__(
        self, total: int, unit: str, *, scores: Mapping[str, str] | None = None, quiet: bool
    ) -> None:
        super().__init__("train", total=total, unit=unit, quiet=quiet)
        self._scores, self._before = scores or {}, -1
        self._figures: dict[str, Any] = {}

    def on_metrics(self, rank: int, metrics: dict[str, Any]) -> None:
        """Show a rank's log; all ranks have the same."""
        if rank != 0:
            return
        self._figures.update(metrics)
        if "done" not in metrics:
            return
        counted = int(metrics["done"])
        if self._before < 0:  # work before this run does not count for its speed
            self._before = int(metrics.get("before", counted - 1))
            self.total = max(self.total - self._before, 1)
        # A restarted rank resumes from its checkpoint.
        self.advance(counted - self._before - self.done)

    def _state(self, elapsed: float) -> str:
        figures, epoch = [super()._state(elapsed)], self._figures.get("epoch")
        if epoch is not None and self.unit != "epochs":
            figures.append(f"epoch {epoch}")
        if (loss := self._figures.get("loss")) is not None:
            figures.append(f"loss {loss:.4g}")
        for name, text in self._scores.items():
            if (score := self._figures.get(name)) is not None:
                figures.append(text.format(score).replace("%", " %"))
        return ", ".join(figures)
