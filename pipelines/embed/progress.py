"""Progress in edges, with the loss and the validation MRR that a training run logs."""

from __future__ import annotations

import time
from typing import Any

from penstock.progress import Progress
from penstock.sizes import format_count, plural

_SHORT = 1.0  # seconds of training of which no rate is shown: kernels may still be compiled


class EdgeBar(Progress):
    """Progress in edges: ``train: 40 %, 1.2 M edges/s, epoch 12, loss 1.61, valid MRR 0.312``."""

    def __init__(self, edges: int, epochs: int, *, quiet: bool) -> None:
        super().__init__("train", total=edges, unit="edges", quiet=quiet)
        self._epochs, self._figures = epochs, dict[str, Any]()
        self._edges: dict[int, int] = {}  # that each rank has trained
        self._before = 0  # edges that were trained before ranks were lost
        self._begun = time.monotonic()  # when ranks had read the graph, and trained on

    def on_metrics(self, rank: int, metrics: dict[str, Any]) -> None:
        """Take what a rank logs: the edges that it has trained, and of whole epochs the loss."""
        self._figures.update(metrics)
        if (left := metrics.get("left")) is not None:  # of a run that is resumed, or begun again
            self._edges.clear()
            self._begun = time.monotonic()
            self._before, self.total = self.done, max(self.done + int(left), 1)
        self._edges[rank] = max(int(metrics.get("edges", 0)), self._edges.get(rank, 0))
        reached = self._before + sum(self._edges.values())
        if self._figures.get("epoch", 0) < self._epochs:
            # The last edge is done with its epoch, of which loss and scores are still to come.
            reached = min(reached, self.total - 1)
        self.advance(max(reached - self.done, 0))

    def _state(self, elapsed: float) -> str:
        figures, found = self._figures, [f"{min(100 * self.done // self.total, 100)} %"]
        trained = time.monotonic() - self._begun
        if trained >= _SHORT:
            found.append(f"{format_count((self.done - self._before) / trained)} edges/s")
        if (epoch := figures.get("epoch")) is not None:
            found.append(f"{epoch:,} of {plural(self._epochs, 'epoch')}")
        if (loss := figures.get("loss")) is not None:
            found.append(f"loss {loss:.4g}")
        if (score := figures.get("mrr")) is not None:
            found.append(f"valid MRR {score:.3f}")
        return ", ".join(found)
