"""The reports of ``penstock gnn``, for people and for ``--json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.graph import SPLITS
from penstock.paths import shown
from penstock.pipelines.display import Command, JobReport
from penstock.pipelines.gnn.profile import profile_text
from penstock.pipelines.job.following import sibling
from penstock.sizes import format_bytes, format_count, plural
from penstock.splits import DrawnSplit
from penstock.workers.gnn.task import Trained
from penstock.workers.training.stopped import Stopped

_SCORES = {"class": "accuracy", "multi": "micro F1", "value": ""}


@dataclass
class TrainReport(JobReport):
    """The result of a training run.

    Attributes
    ----------
    run, graph
        The folders of the run and of the graph.
    task
        Kind of prediction: class, multi or value.
    model
        The declaration, complete.
    patience, evaluate_every
        The options of these names.
    ranks, device
        Number of ranks, and their device: cpu or gpu.
    trained
        Epochs, metrics of the best one, times, memory.
    seconds
        Of the whole command.
    on_gpu
        Whether GPUs trained.
    split
        The split that the run drew; None: the graph's own.
    ignored
        Of edges: relations, times.
    profile
        The file of a profile, if one was made.

    Examples
    --------
    >>> report = gnn.train("g", "run", epochs=50)
    >>> report.trained.best_epoch, report.trained.metrics["valid"]["loss"]
    >>> print(report.text())
    """

    run: str
    graph: str
    task: str
    model: dict[str, Any]
    patience: int | None
    evaluate_every: int
    ranks: int
    device: str
    trained: Trained
    on_gpu: bool = False
    split: DrawnSplit | None = None
    ignored: list[str] = field(default_factory=list)
    profile: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        body = self.to_record()
        trained = body.pop("trained")
        body["profile"] = self._profile()
        return {**body, **trained, "seconds": self.seconds, "edges_per_second": self._speed()}

    def following(self) -> list[Command]:
        """Return the commands that apply the weights, and score them if test nodes exist."""
        run = Path(self.run)
        predict: Command = ("gnn", "predict", run, sibling(run, "predictions"))
        if "test" not in self.trained.metrics:
            return [predict]
        return [("gnn", "evaluate", run), predict]

    def lines(self) -> Iterable[str]:
        """Return the text for people."""
        done = self.trained
        kinds = [layer["kind"] for layer in self.model["layers"]]
        channels = [str(layer["channels"]) for layer in self.model["layers"]]
        alike = len(set(kinds)) == 1
        layers = plural(len(kinds), f"{kinds[0]} layer" if alike else "layer")
        layers += "" if alike else f" ({', '.join(kinds)})"
        run = shown(self.run)
        yield (
            f"{run}: {layers} of {', '.join(channels)} channels; "
            f"{plural(done.parameters, 'parameter')}; "
            f"{'sparse' if done.sparse else 'dense'} features"
        )
        yield from self._scores()
        if done.known:
            of = plural(done.parameters, "parameter")
            yield f"{done.known:,} of {of} began with the weights of --init"
        again = f", resumed after epoch {done.first_epoch}" if done.first_epoch else ""
        why = "; early stopping" if done.stopped is Stopped.PATIENCE else ""
        yield f"best epoch {done.best_epoch} of {done.epochs}{again}{why}"
        if done.epochs > done.first_epoch:
            epoch = ""
            if (speed := self._speed()) is not None:
                on = " on a GPU" if self.on_gpu else ""
                epoch = (
                    f"{_time(done.epoch_seconds)} per epoch{on}, {format_count(speed)} edges/s, "
                )
            whose = "the" if self.ranks == 1 else "rank 0, its"
            measured = "GPU" if self.on_gpu else "whole process"
            yield (
                f"{epoch}{self.seconds:.1f} s in total; {format_bytes(done.memory)} peak memory "
                f"of {whose} {measured}"
            )
        if self.ranks > 1:
            yield f"{self.ranks} ranks; {_communication(done.shares)}"
            if done.overlap is not None:
                yield from overlap_lines(done.overlap)
        if self.split is not None:
            yield self.split.text()
        yield f"{run}/checkpoints/best.safetensors, metrics.jsonl, plan.txt"
        if (profile := self._profile()) is not None:
            yield from profile_text(profile).splitlines()

    def _scores(self) -> Iterable[str]:
        score = _SCORES[self.task]
        yield f"       {'loss':>8}  {score:>9}".rstrip()
        for split in SPLITS:
            if (found := self.trained.metrics.get(split)) is not None:
                share = f"{100 * found['score']:.2f} %" if score else ""
                yield f"{split:<5}  {found['loss']:>8.4f}  {share:>9}".rstrip()

    def _speed(self) -> float | None:
        """Return how many edges are aggregated per second, each once per layer and epoch.

        None if no epoch was timed: the first, which compiles, is not.
        """
        if not self.trained.epoch_seconds:
            return None
        return self.trained.edges * len(self.model["layers"]) / self.trained.epoch_seconds

    def _profile(self) -> Any:
        if self.profile is None or not Path(self.profile).is_file():
            return None
        return json.loads(Path(self.profile).read_text(encoding="utf-8"))


@dataclass
class PredictReport(JobReport):
    """The result of a prediction.

    Attributes
    ----------
    predictions, run, graph
        The folders of the dataset, the training run and the graph.
    checkpoint
        Whose weights predicted: best or last.
    ranks, device
        Number of ranks, and their device: cpu or gpu.
    nodes, bytes, files
        Counts of the output.
    features_by
        How features were found: graph, if it is that of the training run, by name or by order.
    features_ignored
        Features that the run was not trained on.
    elsewhere
        Options that name another graph than that of the training run, and its split.
    tested
        Whether nodes exist to evaluate the run.
    seconds
        Of the whole command.

    Examples
    --------
    >>> report = gnn.predict("run", "predictions")
    >>> report.nodes, report.files
    """

    predictions: str
    run: str
    graph: str
    checkpoint: str
    ranks: int
    device: str
    nodes: int
    bytes: int
    files: int
    features_by: str
    features_ignored: tuple[str, ...]
    elsewhere: tuple[str, ...]
    tested: bool

    def following(self) -> list[Command]:
        """Return the command that evaluates the predictions."""
        return [("gnn", "evaluate", Path(self.run), *self.elsewhere)] if self.tested else []

    def lines(self) -> Iterable[str]:
        """Return the text for people."""
        yield (
            f"{shown(self.predictions)}: {plural(self.nodes, 'prediction')} in "
            f"{plural(self.files, 'file')}, {format_bytes(self.bytes)}"
        )
        yield f"with the {self.checkpoint} weights of {shown(self.run)}, in {self.seconds:.1f} s"
        yield "" if self.from_base is None else self.from_base.text()


@dataclass
class EvaluateReport(JobReport):
    """The result of an evaluation.

    Attributes
    ----------
    run, graph
        The folders of the training run and of the graph.
    split
        The scored nodes.
    drawn
        Whether the training run drew the split.
    split_by
        Whose split counts: run, that of its split.parquet; graph, the graph's own.
    checkpoint
        Whose weights predicted: best or last.
    task, classes
        Kind of prediction, and the names of classes: those of the run, then ``new_classes``.
    new_classes
        Classes that the run does not know, with the number of scored nodes of each: predictions of
        these nodes are wrong.
    features_by, features_ignored, elsewhere
        As in ``PredictReport``.
    seconds
        Of the whole command.
    scores
        Accuracy, F1, ROC-AUC and the confusion matrix, or errors of values.

    Examples
    --------
    >>> report = gnn.evaluate("run", split="valid")
    >>> report.scores["accuracy"], report.scores["confusion"]
    """

    run: str
    graph: str
    split: str
    drawn: bool
    split_by: str
    checkpoint: str
    task: str
    classes: tuple[str, ...]
    features_by: str
    features_ignored: tuple[str, ...]
    elsewhere: tuple[str, ...]
    new_classes: dict[str, int] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        body = asdict(self)
        scores = body.pop("scores")
        return {**body, **scores}

    def following(self) -> list[Command]:
        """Return the command that writes the predictions."""
        run = Path(self.run)
        return [("gnn", "predict", run, sibling(run, "predictions"), *self.elsewhere)]

    def lines(self) -> Iterable[str]:
        """Return the text for people."""
        found = self.scores
        kept = ", as the training run drew it" if self.drawn else ", as in the training run"
        split = f"{self.split}{kept * (self.split_by == 'run')}"
        nodes = plural(found["nodes"], "node")
        yield f"{shown(self.run)}: {nodes} of {split}, {shown(self.graph)}"
        names = {"accuracy": "accuracy", "macro_f1": "macro F1", "micro_f1": "micro F1"}
        for key, name in names.items():
            if key in found:
                yield f"{name}  {100 * found[key]:6.2f} %"
        if "roc_auc" in found:
            area = found["roc_auc"]
            yield f"ROC-AUC   {'undefined: one class only' if area is None else f'{area:.4f}'}"
        for key, name in (("mse", "MSE"), ("mae", "MAE"), ("r2", "R2")):
            if key in found:
                value = found[key]
                yield f"{name:<4}  {'none' if value is None else f'{value:.6g}'}"
        for name, count in self.new_classes.items():
            yield f"{plural(count, 'node')} of {name}, which the run does not know: wrong"
        if self.task == "class":
            yield from self._confusions()

    def _confusions(self) -> Iterable[str]:
        pairs = [
            (count, self.classes[truth], self.classes[given])
            for truth, row in enumerate(self.scores["confusion"])
            for given, count in enumerate(row)
            if truth != given and count
        ]
        pairs.sort(key=lambda pair: -pair[0])
        if pairs:
            yield "most frequent confusions (the whole matrix with --json):"
        for n, one, other in pairs[:5]:
            yield f"  {n:>{len(f'{pairs[0][0]:,}')},}  {one} predicted as {other}"


def overlap_lines(found: dict[str, Any]) -> list[str]:
    """Return the hidden share of the communication, and its parts."""
    exposed, whole = (_quartiles(found[name], _time) for name in ("exposed", "whole"))
    share = "too little to tell"
    if found["hidden"] is not None:
        share = _quartiles(found["hidden"], lambda value: f"{100 * value:.0f} %")
    return [
        f"hidden communication: {share} (by {found['transport']}; {found['rounds']} rounds)",
        f"  exposed {exposed}: time of an epoch, minus its time without communication",
        f"  whole {whole}: the same without overlap",
    ]


def _quartiles(values: list[float], text: Callable[[float], str]) -> str:
    lower, middle, upper = map(text, values)
    return f"{middle} ({lower} to {upper})"


def _communication(shares: dict[str, float]) -> str:
    """Return an epoch's time in communication, the mean over ranks."""
    if not shares:
        return "no communication"
    return (
        f"per epoch {_time(shares['halo'])} of halo exchange, {_time(shares['gradient'])} of "
        "gradient allreduce, including waits for slower ranks"
    )


def _time(seconds: float) -> str:
    if abs(seconds) < 1e-3:
        return f"{1e6 * seconds:.0f} us"
    return f"{1e3 * seconds:.3g} ms" if abs(seconds) < 1 else f"{seconds:.3g} s"
