"""Progress of ranks that train, with the loss and the scores that they log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.progress import Progress


class TrainingBar(Progress):
    """Progress of training: ``train: 40 %, 25 epochs/s, loss 0.61, train 83.1 %, valid 79.4 %``.

    counted  the metric that counts the ``unit`` that all ranks have done
    scores   metrics to show, in percent
    """

    def __init__(
        self, total: int, unit: str, counted: str, *, scores: Sequence[str] = (), quiet: bool
    ) -> None:
        super().__init__("train", total=total, unit=unit, quiet=quiet)
        self._counted, self._scores, self._before = counted, scores, -1
        self._figures: dict[str, Any] = {}

    def on_metrics(self, rank: int, metrics: dict[str, Any]) -> None:
        """Take what a rank logs; all ranks know the same."""
        if rank != 0 or self._counted not in metrics:
            return
        counted = int(metrics[self._counted])
        if self._before < 0:  # what was done before this run is not its speed
            self._before = int(metrics.get("before", counted - 1))
            self.total = max(self.total - self._before, 1)
        self._figures.update(metrics)
        # A restarted rank resumes from its checkpoint.
        self.advance(counted - self._before - self.done)

    def _state(self, elapsed: float) -> str:
        figures = [super()._state(elapsed)]
        if (loss := self._figures.get("loss")) is not None:
            figures.append(f"loss {loss:.4g}")
        for name in self._scores:
            if (score := self._figures.get(name)) is not None:
                figures.append(f"{name} {100 * score:.1f} %")
        return ", ".join(figures)
