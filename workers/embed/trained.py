"""The result of a training of embeddings, which its report holds; without what trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.workers.training.stopped import Stopped


@dataclass(frozen=True)
class Trained:
    """The result of a training run.

    best_epoch      epoch with the best validation MRR; the last if nothing was validated
    loss            mean over edges in the last epoch; None: no epoch, or it is not finite
    loss_before     the same in the epoch before
    validation      ``scores_of`` the best epoch; None: the graph has no validation edges
    epoch_seconds   the median epoch, without evaluation and checkpoints
    utilization     share of epoch time in which kernels trained; if there are several epochs, the
                    first, which may compile kernels, does not count
    exposed_seconds in which training waited for the disk; also bytes moved by swaps, and their
                    bytes per second: over all epochs of this process
    stopped         why it ended
    theorem         whether swaps hide behind training, in words; None: nothing is swapped
    edges           in an epoch
    known           number of nodes and relations that began with vectors of --init, and of new
                    nodes that began with a mean
    ranks           that trained together; with several, also bytes and seconds of partitions moved
                    between ranks; figures of disks are of all ranks
    device          cpu or gpu
    """

    epochs: int
    first_epoch: int
    best_epoch: int
    loss: float | None
    nodes: int
    edges: int
    relations: int
    partitions: int
    batches: int
    seconds: float
    epoch_seconds: float
    stopped: Stopped
    utilization: float = 0.0
    exposed_seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    bandwidth: float = 0.0
    theorem: str | None = None
    validated: int = 0
    validation: dict[str, Any] | None = None
    known: dict[str, int] = field(default_factory=dict)
    ranks: int = 1
    bytes_exchanged: int = 0
    exchange_seconds: float = 0.0
    loss_before: float | None = None
    device: str = "cpu"
