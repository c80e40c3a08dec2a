"""Progress in epochs, with the loss and the scores that ranks log."""

from __future__ import annotations

from typing import Any

from penstock.progress import Progress


class EpochBar(Progress):
    """Progress in epochs: ``train: 40 %, 25 epochs/s, loss 0.61, train 83.1 %, valid 79.4 %``."""

    def __init__(self, epochs: int, *, scored: bool = True, quiet: bool) -> None:
        super().__init__("train", total=epochs, unit="epochs", quiet=quiet)
        self.epochs, self._before = epochs, -1
        self._shown = ("train", "valid") if scored else ()
        self._figures: dict[str, Any] = {}

    def on_metrics(self, rank: int, metrics: dict[str, Any]) -> None:
        """Take what a rank logs; all ranks know the same."""
        if rank == 0:
            self.update(metrics)

    def update(self, metrics: dict[str, Any]) -> None:
        """Take the metrics of an epoch: its number, from 1, loss, and scores of splits."""
        epoch = metrics.get("epoch")
        if epoch is None:
            return
        if self._before < 0:
            self._before = int(epoch) - 1  # what was done before this run is not its speed
            self.total = max(self.epochs - self._before, 1)
        self._figures.update(metrics)
        # A rank that was restarted resumes from its checkpoint.
        self.advance(int(epoch) - self._before - self.done)

    def _state(self, elapsed: float) -> str:
        figures = [super()._state(elapsed)]
        if (loss := self._figures.get("loss")) is not None:
            figures.append(f"loss {loss:.4g}")
        for name in self._shown:
            if (score := self._figures.get(name)) is not None:
                figures.append(f"{name} {100 * score:.1f} %")
        return ", ".join(figures)
