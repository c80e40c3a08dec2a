"""The task of a rank that trains embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.workers.embed.evaluation.candidates import ALL_NODES, Candidates
from penstock.workers.embed.spec import Training


@dataclass(frozen=True)
class TrainTask:
    """A training run.

    run         an existing folder: metrics.jsonl (one line per epoch) and checkpoints/ are in it
    training    with ``model`` and ``partitions`` set for this graph and machine
    init        another run: nodes of the same ids begin with its vectors; and its relations
    init_sha256  of the checkpoint of that run that all ranks must read
    candidates  nodes that are drawn as negatives and ranked as answers
    shrink      factor of the vectors that a training begins with
    chosen      file: whether the edges of each node's row are trained; None: all edges are
    spare       versions that the disk holds besides those of checkpoints; None: one per partition
    """

    graph: Path
    run: Path
    training: Training
    init: Path | None = None
    init_relations: tuple[str, ...] = ()
    init_sha256: str | None = None
    candidates: Candidates = ALL_NODES
    spare: int | None = None
    chosen: Path | None = None
    shrink: float = 1.0

    @property
    def partitions(self) -> int:
        """The number of partitions of the nodes; 1: all nodes are in memory."""
        return self.training.partitions or 1

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.run / "checkpoints"
