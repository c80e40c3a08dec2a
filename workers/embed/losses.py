"""The losses of batches, some of which a GPU still trains."""

from __future__ import annotations

from typing import Any


class BatchLosses:
    """The loss of every batch, read in order, some time after the batch was launched.

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
        """Return the losses that were not returned yet, except the last ``keep``.

        The caller has waited until a GPU has trained their batches. A separate stream copies them:
        a copy on the training stream would also wait for the batches after them.
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
