"""The files of a training run's folder, and the content of run.json.

run.json                        model, training, graph, state, identity and report
split.parquet                   training, validation and test nodes
metrics.jsonl, plan.txt         one line per epoch; the plan
checkpoints/{last,best}.safetensors
profile.json                    with --profile
init.safetensors                the checkpoint of --init
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.pipelines.gnn.declare import EdgeRules
from penstock.pipelines.job.training import TrainingRun, run_format
from penstock.splits import DrawnSplit
from penstock.workers.gnn.plan.spec import Model, Training

FORMAT = run_format("gnn")


@dataclass(frozen=True)
class Run(TrainingRun):
    """The content of run.json.

    model     complete: the width of its last layer follows from the graph's labels
    task      kind of prediction: class, multi or value
    features  number per node; feature_names: their names, if the graph has them;
              feature_scales: mean and deviation of the standardised columns
    classes   their names, if the graph has them
    edges     how those of the graph were made
    split     the result of --split; None: the graph's own split
    parts     number of parts of the graph, last time
    """

    format = FORMAT
    model: Model
    training: Training
    task: str
    features: int
    edges: EdgeRules
    classes: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    feature_scales: dict[str, list[float]] | None = None
    split: DrawnSplit | None = None
    parts: int = 1

    @property
    def outputs(self) -> int:
        """The number of outputs per node."""
        return self.model.layers[-1].channels or 1

    def to_dict(self) -> dict[str, Any]:
        """Return the content of run.json."""
        return {**super().to_dict(), "model": self.model.to_dict()}
