"""The losses of batches that a GPU may still train."""

from __future__ import annotations

from typing import Any


class BatchLosses:
    """The loss of every batch, read in their order, some time after it was launched.

        losses.append(kernels.step(...))
        busy.settle(keep)
        total += sum(losses.take(keep))

    device  whether they are on the current GPU
    """

    def __init__(self, *, device: bool = False) -> None:
        self._device = device
        self._waiting: list[Any] = []
        self._stream: Any = None

    def append(self, loss: Any) -> None:
        """Add the loss of the batch after those before."""
        self._waiting.append(loss)

    def take(self, keep: int = 0) -> list[float]:
        """Return all that were not returned yet, but for the last ``keep``.

        A GPU has trained their batches: who calls has waited for that. They are copied on a stream
        of their own, as a copy on the one that trains would wait for the batches after them, too.
        """
        done = max(0, len(self._waiting) - keep)
        taken = self._waiting[:done]
        del self._waiting[:done]
        if not self._device:
            return [float(loss) for loss in taken]
        import cupy

        if self._stream is None:
            self._stream = cupy.cuda.Stream(non_blocking=True)
        return [float(loss.get(stream=self._stream)) for loss in taken]
