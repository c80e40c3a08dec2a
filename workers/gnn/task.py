"""The tasks of ranks, a training run or a prediction, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.splits import SplitFile
from penstock.workers.gnn.plan.spec import Training
from penstock.workers.training.stopped import Stopped

if TYPE_CHECKING:
    from penstock.workers.gnn.plan.lowering import ModelPlan


@dataclass(frozen=True)
class TrainTask:
    """A training run; every rank gets the same.

    partition  None: one rank, the whole graph
    run        an existing folder. Rank 0 writes there: metrics.jsonl (a line per epoch), plan.txt,
               checkpoints/ (``last`` and ``best`` .safetensors), profile.json with --profile
    init       the checkpoint to begin with, if this run has none
    split      which nodes train, validate and test; None: the graph's own
    """

    graph: Path
    partition: Path | None
    training: Training
    plan: ModelPlan
    run: Path
    init: Path | None = None
    split: SplitFile | None = None


@dataclass(frozen=True)
class Trained:
    """The result of a training run; the same on every rank.

    metrics  of the best epoch: {"train": {"loss": , "score": }, "valid": ..., "test": ...}, for the
             graph's splits; score is accuracy, or micro F1 for several classes
    seconds  for reading, preparing and all epochs; epoch_seconds: the median epoch
    shares   median seconds per epoch of each kind, the mean over ranks: compute, halo and gradient
             (packing, waiting, adding; waiting for slower ranks included), other; imbalance
    overlap  the measured hidden share of the communication, see overlap.py; None if it was not
             requested, or one rank trained
    stopped  why it ended
    known    parameters that began with those of --init
    device   the computing device: cpu or gpu
    """

    epochs: int
    best_epoch: int
    metrics: dict[str, dict[str, float]]
    loss: str
    seconds: float
    epoch_seconds: float
    nodes: int
    edges: int
    parameters: int
    stopped: Stopped
    sparse: bool
    memory: int
    shares: dict[str, float] = field(default_factory=dict)
    first_epoch: int = 0
    overlap: dict[str, Any] | None = None
    device: str = ""
    known: int = 0


@dataclass(frozen=True)
class PredictBase:
    """Earlier predictions: nodes that no change can have reached keep theirs.

    changed  a file of (2, nodes) bool: which rows and which features differ from then
    """

    path: Path
    changed: Path


@dataclass(frozen=True)
class Columns:
    """The columns of predictions.

    task     class, multi or value
    classes  their names, for predicted_label; None: no names
    """

    task: str
    classes: tuple[str, ...] | None = None
    embeddings: bool = False
    probabilities: bool = False

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        found = ["id", "prediction"] + ["predicted_label"] * (self.classes is not None)
        found += ["probability"] * (self.task == "class")
        found += ["probabilities"] * (self.probabilities and self.task != "value")
        return found + ["split"] + ["embedding"] * self.embeddings


@dataclass(frozen=True)
class PredictTask:
    """A prediction with the weights of a checkpoint; rank r writes ``out/part-{r:05d}.parquet``.

    split            as for TrainTask
    feature_columns  which of the graph's features, in the model's order; None: all, in order
    out_remedy       remedy if a rank does not see ``out``

    columns: id, prediction (class number, list of classes, or value), predicted_label (the name of
    the class, or a list of them; not without names), probability (of the prediction; not for
    values), split, and with ``embeddings`` embedding: the last layer's input, a list of
    floats.
    """

    graph: Path
    partition: Path | None
    training: Training
    plan: ModelPlan
    checkpoint: Path
    out: Path
    columns: Columns
    feature_columns: tuple[int, ...] | None = None
    split: SplitFile | None = None
    out_remedy: str = ""
    base: PredictBase | None = None
