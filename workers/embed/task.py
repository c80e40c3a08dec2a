"""The task of a rank that trains embeddings, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.workers.embed.evaluation.candidates import Candidates
from penstock.workers.embed.spec import Training
from penstock.workers.training.stopped import Stopped


@dataclass(frozen=True)
class TrainTask:
    """A training run.

    run         an existing folder: metrics.jsonl (a line per epoch) and checkpoints/ go there
    training    with ``model`` and ``partitions`` as they are for this graph and machine
    init        another run, with whose vectors those of the same ids begin; its relations
    init_sha256  of the checkpoint of that run, which all ranks are to read; None: any
    candidates  nodes that are negatives, and that answers are ranked among; None: all
    """

    graph: Path
    run: Path
    training: Training
    init: Path | None = None
    init_relations: tuple[str, ...] = ()
    init_sha256: str | None = None
    candidates: Candidates | None = None

    @property
    def partitions(self) -> int:
        """Into how many partitions the nodes are divided; 1: they are in memory."""
        return self.training.partitions or 1

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.run / "checkpoints"


@dataclass(frozen=True)
class Trained:
    """The result of a training run.

    best_epoch      with the best validation MRR; the last one where nothing was validated
    loss            mean of an edge in the last epoch; None: there is none, or it is not a number
    loss_before     that of the epoch before
    penalty         how much of a loss of the last vectors is penalties; None: it is not a number
    loss_of_zeros   mean of an edge, if all vectors were zeros; None: nothing was trained
    validation      of the best epoch: see ``Scores``; None: the graph holds out no edges for it
    epoch_seconds   the median epoch, evaluation and checkpoints not counted
    utilization     share of the seconds of epochs in which kernels trained; where there are
                    several epochs the first, which may compile them, does not count
    exposed_seconds in which training waited for the disk, bytes moved by swaps, and their
                    bytes a second: of all epochs of this process
    stopped         why it ended
    theorem         whether swaps hide behind training, in words; None: nothing is swapped
    known           how many nodes and relations began with vectors of --init
    ranks           that trained together; of several, bytes and seconds in which partitions
                    changed hands; figures of disks are of all ranks
    device          what trained: cpu or gpu
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
    penalty: float | None = 0.0
    loss_of_zeros: float | None = None
    device: str = "cpu"
