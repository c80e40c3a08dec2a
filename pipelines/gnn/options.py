"""What ``penstock gnn`` can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import ClientPath, check_fractions, flag, options
from penstock.workers.gnn.plan.spec import LEAST_ROUNDS

_MODEL = Group("The model", sort_key=2)
_TRAINING = Group("Its training", sort_key=3)
_WORK = Group("How it is computed", sort_key=4)

Share = Annotated[float, Field(ge=0, lt=1), Parameter(group=_MODEL)]
Count = Annotated[int, Field(ge=1)]

# Flags that declare the model: --spec says all of it.
_DECLARING = (
    "model", "layers", "hidden", "heads", "aggregate", "activation",
    "dropout", "input_dropout", "attention_dropout", "norm", "residual",
)  # fmt: skip
# Flags of layers before the last, which a model of one layer has not.
_BETWEEN = ("hidden", "heads", "activation", "dropout", "norm", "residual")
# Options that mean something to one choice only.
_BELONGS = {
    "heads": ("model", ("gat",)),
    "attention_dropout": ("model", ("gat",)),
    "aggregate": ("model", ("sage",)),
    "momentum": ("optimizer", ("sgd",)),
    "beta1": ("optimizer", ("adam", "adamw")),
    "beta2": ("optimizer", ("adam", "adamw")),
    "epsilon": ("optimizer", ("adam", "adamw")),
    "step_every": ("schedule", ("step",)),
    "step_factor": ("schedule", ("step",)),
}


@options
class ModelOptions:
    """A model, its training, and how it is computed: all that decides a plan."""

    model: Annotated[Literal["gcn", "sage", "gin", "gat"], Parameter(group=_MODEL)] = "gcn"
    """what the layers are"""
    layers: Annotated[int, Field(ge=1, le=64), Parameter(group=_MODEL)] = 2
    """how many; with 1 it is the last, and options of the layers before it are refused"""
    hidden: Annotated[Count, Parameter(group=_MODEL)] = 64
    """values of a node between layers; for gat, those of all heads together"""
    heads: Annotated[Count | None, Parameter(group=_MODEL)] = None
    """gat: attention heads of each layer but the last, which has one [default: 8]"""
    aggregate: Annotated[Literal["mean", "max", "sum"] | None, Parameter(group=_MODEL)] = None
    """sage: how neighbours come together [default: mean]"""
    activation: Annotated[
        Literal["none", "relu", "leaky_relu", "elu", "tanh", "sigmoid"] | None,
        Parameter(group=_MODEL),
    ] = None
    """what each layer but the last does to its values [default: relu; gat: elu]"""
    dropout: Share = 0.5
    """share of the values between layers that is dropped in training"""
    input_dropout: Share = 0.0
    """share of the features that is dropped in training"""
    attention_dropout: Share = 0.0
    """gat: share of the attention's weights that is dropped in training"""
    norm: Annotated[Literal["none", "layer", "batch"] | None, Parameter(group=_MODEL)] = None
    """normalise what each layer but the last gives, by node or by column [default: none; batch for
    gin, whose sums grow with degrees]"""
    residual: Annotated[bool, Parameter(negative="", group=_MODEL)] = False
    """add a node's value before each layer but the last to what the layer gives"""
    spec: Annotated[ClientPath | None, Parameter(group=_MODEL)] = None
    """a YAML file that declares the model, layer by layer, in place of these options"""

    split: Annotated[tuple[float, float, float] | None, Parameter(group=_TRAINING)] = None
    """draw which nodes train, validate and test: fractions of those with a label, by --seed; the
    rest is in no split [default: the graph's own split]"""
    split_stratified: Annotated[bool, Parameter(negative="", group=_TRAINING)] = False
    """take the fractions of every class"""
    epochs: Annotated[Count, Parameter(group=_TRAINING)] = 200
    """how often all nodes are looked at"""
    optimizer: Annotated[Literal["sgd", "adam", "adamw"], Parameter(group=_TRAINING)] = "adam"
    """how the weights move"""
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False), Parameter(group=_TRAINING)] = 0.01
    """the learning rate"""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False), Parameter(group=_TRAINING)] = (
        5e-4
    )
    """how strongly weights are pulled to 0"""
    momentum: Annotated[float | None, Field(ge=0, lt=1), Parameter(group=_TRAINING)] = None
    """sgd: share of the last step that goes into the next [default: 0.9]"""
    beta1: Annotated[float, Field(ge=0, lt=1), Parameter(group=_TRAINING)] = 0.9
    """adam, adamw: how slowly the mean of gradients moves"""
    beta2: Annotated[float, Field(ge=0, lt=1), Parameter(group=_TRAINING)] = 0.999
    """adam, adamw: how slowly the mean of their squares moves"""
    epsilon: Annotated[float, Field(gt=0), Parameter(group=_TRAINING)] = 1e-8
    """adam, adamw: added to what is divided by"""
    schedule: Annotated[Literal["constant", "cosine", "step"], Parameter(group=_TRAINING)] = (
        "constant"
    )
    """the rate after the warm-up: constant, down to 0 at the last epoch, or down by steps"""
    step_every: Annotated[Count | None, Parameter(group=_TRAINING)] = None
    """step: epochs between two steps [default: 50]"""
    step_factor: Annotated[float | None, Field(gt=0, le=1), Parameter(group=_TRAINING)] = None
    """step: what each multiplies the rate with [default: 0.5]"""
    warmup: Annotated[int, Field(ge=0), Parameter(group=_TRAINING)] = 0
    """epochs in which the rate rises from 0"""
    clip: Annotated[float | None, Field(gt=0), Parameter(group=_TRAINING)] = None
    """the largest norm of all gradients together [default: any]"""
    patience: Annotated[Count | None, Parameter(group=_TRAINING)] = None
    """end after so many evaluations (see --evaluate-every) without a better validation loss, or
    training loss where no node validates [default: never]"""
    evaluate_every: Annotated[Count, Parameter(group=_TRAINING)] = 1
    """epochs from one evaluation to the next, of the training, validation and test nodes; the last
    epoch is always evaluated"""
    seed: Annotated[int, Field(ge=0, lt=2**63), Parameter(group=_TRAINING)] = 0
    """the same seed gives the same weights at the start, drops the same values, and draws the same
    split"""
    weighted: Annotated[bool, Parameter(negative="", group=_TRAINING)] = False
    """take the graph's weights of edges"""
    checkpoint_epochs: Annotated[int, Field(ge=0), Parameter(group=_TRAINING)] = 50
    """save the state after so many epochs; 0: only by the minutes"""
    checkpoint_minutes: Annotated[float, Field(ge=0), Parameter(group=_TRAINING)] = 5.0
    """save the state after so many minutes; 0: only by the epochs"""

    parts: Annotated[Count | None, Parameter(alias="-k", group=_WORK)] = None
    """cut the graph into so many parts, each on a rank of its own [default: ranks of --cluster mpi,
    else 1]"""
    overlap: Annotated[bool, Parameter(group=_WORK)] = True
    """let ranks exchange while they compute"""
    fold: Annotated[bool, Parameter(group=_WORK)] = True
    """compute once what is the same in every epoch"""
    path: Annotated[Literal["auto", "dense", "sparse"], Parameter(group=_WORK)] = "auto"
    """how features are held; auto: what is faster on this machine"""
    transpose: Annotated[Literal["keep", "implicit"], Parameter(group=_WORK)] = "keep"
    """keep the transposed edges for the backward pass, or do it over the edges as they are: less
    memory, more time; only for parts and directed graphs, not for gat and sage max"""
    order: Annotated[Literal["auto", "transform", "aggregate"], Parameter(group=_WORK)] = "auto"
    """what a layer does first; auto: what costs less"""
    precision: Annotated[Literal["fp32", "tf32", "bf16"], Parameter(group=_WORK)] = "fp32"
    """of a GPU: tf32 rounds the factors of products to 10 bits; bf16 does so too, and rounds what
    is gathered to 8 bits, sums staying in float32"""
    record: Annotated[bool, Parameter(group=_WORK)] = True
    """on one GPU, record an epoch's kernels and launch them as one"""
    profile: Annotated[bool, Parameter(negative="", group=_WORK)] = False
    """measure where the time goes: a table, and a timeline of one epoch"""
    measure_overlap: Annotated[int | None, Field(ge=LEAST_ROUNDS), Parameter(group=_WORK)] = None
    """of several ranks: after the training, measure which share of their communication is hidden,
    in so many rounds of three epochs, at least 7, which change nothing"""

    def __post_init__(self) -> None:
        if self.split is not None:
            check_fractions("split", self.split, some_left=True)
            if self.split[0] == 0:
                raise UsageError("--split leaves no node to train on", expected="more than 0 first")
        elif self.split_stratified:
            raise UsageError("--split-stratified needs --split, the fractions to take")
        if self.spec is not None and (changed := self._changed(_DECLARING)):
            raise UsageError(
                f"{flag(changed[0])} and --spec cannot go together",
                remedy="Say it in the file, or leave --spec out",
            )
        if self.layers == 1 and (changed := self._changed(_BETWEEN)):
            raise UsageError(
                f"option {flag(changed[0])} needs --layers 2 or more",
                got="--layers 1, whose only layer is the last",
                remedy=f"Leave {flag(changed[0])} away, or declare the layer in a file: --spec",
            )
        for name, (of, choices) in _BELONGS.items():
            said = getattr(self, of)
            if self._changed((name,)) and said not in choices:
                raise UsageError(
                    f"option {flag(name)} needs {flag(of)} {' or '.join(choices)}",
                    got=f"{flag(of)} {said}",
                )
        if self.measure_overlap is not None and not self.overlap:
            raise UsageError(
                "--measure-overlap and --no-overlap cannot go together",
                expected="a training whose ranks exchange while they compute",
                remedy="Leave --no-overlap out: epochs without overlap are measured too",
            )

    def _changed(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) != getattr(type(self), name)]


@options
class GnnOptions(ModelOptions):
    """What ``penstock gnn train`` can be told."""

    resume: Annotated[bool, Parameter(negative="")] = False
    """go on from the last checkpoint of the run that is there"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """begin anew where there is a run already"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.overwrite:
            raise UsageError("--resume and --overwrite cannot go together")


@options
class WeightsOptions:
    """Which weights predict, on which graph and how many ranks."""

    graph: ClientPath | None = None
    """another graph with the same features, found by name [default: the one of the run]"""
    checkpoint: Literal["best", "last"] = "best"
    """weights of the epoch with the best validation loss (training loss where no node validates),
    or of the last one saved"""
    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """cut the graph into so many parts, each on a rank of its own [default: as for train]"""


@options
class PredictOptions(WeightsOptions):
    """What ``penstock gnn predict`` can be told."""

    embeddings: Annotated[bool, Parameter(negative="")] = False
    """also write what the last layer is given, as a list of numbers"""
    probabilities: Annotated[bool, Parameter(negative="")] = False
    """also write the probabilities of all classes, as a list of numbers"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the output if it holds predictions already"""


@options
class EvaluateOptions(WeightsOptions):
    """What ``penstock gnn evaluate`` can be told."""

    split: Literal["train", "valid", "test", "all"] = "test"
    """which nodes count, by the split that the run was trained on; all: every node with a label"""


def as_plain(given: Any) -> dict[str, Any]:
    """Return options that differ from their defaults, for a manifest."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name in given.__dataclass_fields__
        if (value := getattr(given, name)) != getattr(type(given), name)
    }
