"""The options of ``penstock gnn``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import ClientPath, check_fractions, flag, headings, options
from penstock.workers.gnn.plan.spec import Training

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]

# Options that declare the model, in place of which --spec declares all of it.
_DECLARING = (
    "model", "layers", "hidden", "heads", "aggregate", "activation",
    "dropout", "input_dropout", "attention_dropout", "norm", "residual",
)  # fmt: skip
# Options of the layers before the last, which a model of one layer does not have.
_BETWEEN = ("hidden", "heads", "activation", "dropout", "norm", "residual")
# Options that have a meaning with one choice of another option only.
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
@headings(
    model="Model",
    epochs="Training",
    overlap="Computation",
    split="Training",
    parts="Computation",
)
class ModelOptions(Training):
    """A model, its training, and how that is computed: everything that decides a plan.

    Parameters
    ----------
    model, layers, hidden, ...
        The options of ``penstock gnn train`` but for ``verify``, ``resume`` and
        ``overwrite``, each with the text under its field below.

    Raises
    ------
    UsageError
        An option has a bad value, or two cannot go together.

    Examples
    --------
    >>> gnn.ModelOptions(model="gat", hidden=64, heads=8).training.epochs
    200
    """

    model: Literal["gcn", "sage", "gin", "gat"] = "gcn"
    """kind of the layers"""
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    """number of layers; with 1 there is the last one only, which has none of the options of hidden
    layers"""
    hidden: Count = 64
    """hidden channels; for gat, of all heads together"""
    heads: Count | None = None
    """gat: attention heads of each layer but the last, which has one [default: 8]"""
    aggregate: Literal["mean", "max", "sum"] | None = None
    """sage: aggregation over neighbours [default: mean]"""
    activation: Literal["none", "relu", "leaky_relu", "elu", "tanh", "sigmoid"] | None = None
    """activation of each layer but the last [default: relu; gat: elu]"""
    dropout: Share = 0.5
    """dropout between layers"""
    input_dropout: Share = 0.0
    """dropout of the input features"""
    attention_dropout: Share = 0.0
    """gat: dropout of the attention weights"""
    norm: Literal["none", "layer", "batch"] | None = None
    """normalization of each layer but the last [default: none; batch for gin, whose sums grow with
    degrees]"""
    residual: Annotated[bool, Parameter(negative="")] = False
    """residual connections around each layer but the last"""
    spec: ClientPath | None = None
    """a YAML file that declares the model, layer by layer, in place of these options"""

    split: tuple[float, float, float] | None = None
    """draw training, validation and test nodes: fractions of the labelled ones, by --seed; the
    rest is in no split [default: the graph's own split]"""
    split_stratified: Annotated[bool, Parameter(negative="")] = False
    """draw the fractions of every class"""

    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """partition the graph into this many parts, one per rank [default: ranks of --cluster mpi,
    else 1]"""

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
                remedy=f"Leave {flag(changed[0])} out, or declare the layer in a file: --spec",
            )
        for name, (of, choices) in _BELONGS.items():
            chosen = getattr(self, of)
            if self._changed((name,)) and chosen not in choices:
                raise UsageError(
                    f"option {flag(name)} needs {flag(of)} {' or '.join(choices)}",
                    got=f"{flag(of)} {chosen}",
                )
        if self.measure_overlap is not None and not self.overlap:
            raise UsageError(
                "--measure-overlap and --no-overlap cannot go together",
                expected="a training run that overlaps communication with computation",
                remedy="Leave --no-overlap out: epochs without overlap are measured too",
            )

    @property
    def training(self) -> Training:
        """What ranks are given of these options, besides the model."""
        return Training(**{name: getattr(self, name) for name in Training.__dataclass_fields__})

    def _changed(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) != getattr(type(self), name)]


@options
class GnnOptions(ModelOptions):
    """Options of ``penstock gnn train``.

    Parameters
    ----------
    model, layers, hidden, ...
        The options of ``penstock gnn train --help``, each with the text under its field below.

    Raises
    ------
    UsageError
        An option has a bad value, or two cannot go together.

    Examples
    --------
    >>> gnn.GnnOptions(model="sage", layers=3, epochs=100, resume=True)
    """

    verify: Annotated[bool, Parameter(negative="")] = False
    """before anything else, compare every file of the graph and its partition with its SHA-256"""
    resume: Annotated[bool, Parameter(negative="")] = False
    """resume from the last checkpoint of the run"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace an existing run"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.overwrite:
            raise UsageError("--resume and --overwrite cannot go together")


@options
class WeightsOptions:
    """Which weights predict, on which graph and how many ranks."""

    graph: ClientPath | None = None
    """another graph with the same features, matched by name [default: the graph of the run]"""
    checkpoint: Literal["best", "last"] = "best"
    """weights of the epoch with the best validation loss (training loss where there are no
    validation nodes), or of the last checkpoint"""
    verify: Annotated[bool, Parameter(negative="")] = False
    """before anything else, compare every file of the graph and its partition with its SHA-256"""
    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """partition the graph into this many parts, one per rank [default: as for train]"""


@options
class PredictOptions(WeightsOptions):
    """Options of ``penstock gnn predict``.

    Parameters
    ----------
    graph, checkpoint, embeddings, ...
        The options of ``penstock gnn predict --help``, each with the text under its field below.

    Raises
    ------
    UsageError
        An option has a bad value, or two cannot go together.

    Examples
    --------
    >>> gnn.PredictOptions(embeddings=True, checkpoint="last")
    """

    embeddings: Annotated[bool, Parameter(negative="")] = False
    """also write embeddings, the input of the last layer, as a list of numbers"""
    probabilities: Annotated[bool, Parameter(negative="")] = False
    """also write the probabilities of all classes, as a list of numbers"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace existing predictions"""


@options
class EvaluateOptions(WeightsOptions):
    """Options of ``penstock gnn evaluate``.

    Parameters
    ----------
    graph, checkpoint, split, ...
        The options of ``penstock gnn evaluate --help``, each with the text under its field below.

    Raises
    ------
    UsageError
        An option has a bad value, or two cannot go together.

    Examples
    --------
    >>> gnn.EvaluateOptions(split="valid")
    """

    split: Literal["train", "valid", "test", "all"] = "test"
    """nodes to score, by the split that the run was trained on; all: every labelled node"""
