"""A model and its training, as declared: independent of graphs and backends.

    Model(layers=[Layer("gcn", 64, dropout=0.5), Layer("gcn")])
    read_model("model.yaml")

In YAML:

    input_dropout: 0.6
    layers:
      - {kind: gat, channels: 64, heads: 8, activation: elu, dropout: 0.6, attention_dropout: 0.6}
      - {kind: gat}
"""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass

from penstock.documents import read_yaml
from penstock.errors import UsageError
from penstock.kernels.gnn_rules import LAYER_BITS
from penstock.options import options

T = TypeVar("T")


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):  # YAML's on, which Python treats as 1
        raise ValueError("Input should be a number")
    return value


Number = Annotated[float, BeforeValidator(_no_bool)]
Share = Annotated[Number, Field(ge=0, lt=1)]
Positive = Annotated[int, BeforeValidator(_no_bool), Field(ge=1)]
_STRICT = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)

# Options of training that may differ on resume: the weights at an epoch do not depend on them, or
# (epochs) only with a schedule that does.
RESUMABLE = (
    "epochs",
    "patience",
    "evaluate_every",
    "checkpoint_epochs",
    "checkpoint_minutes",
    "overlap",
    "precompute",
    "feature_layout",
    "order",
    "profile",
    "cuda_graph",
    "measure_overlap",
)
LEAST_ROUNDS = 7  # of a measurement with a meaningful spread
# The widest spread of a measurement's quartiles, as a share of its reference. At this spread, the
# median of 15 rounds has a standard error of 0.93 * 0.75 / sqrt(15) = 18 points.
WIDEST = 0.75
# The loss of each kind of labels, not an option.
LOSSES = {"class": "cross_entropy", "multi": "binary", "value": "squared"}


def _own_errors(cls: type[T]) -> type[T]:
    checked_init: Any = cls.__init__

    def __init__(self: T, *values: Any, **named: Any) -> None:  # noqa: N807
        try:
            checked_init(self, *values, **named)
        except ValidationError as error:
            raise _bad_declaration(error, f"the {cls.__name__}", cls) from None

    made: Any = cls
    made.__init__ = functools.wraps(checked_init)(__init__)
    return cls


@_own_errors
@dataclass(frozen=True, config=_STRICT)
class Layer:
    """One layer of a model.

    Attributes
    ----------
    kind
        gcn, sage, gin or gat.
    channels
        Values per node after it; None in the last: the number of classes.
    activation
        None: ReLU, and in the last layer none.
    dropout
        Of the output, so of the next layer's input.
    norm
        Before the activation.
    residual
        The node's value before the layer is added.
    bias
        None before a batch norm, which would cancel it.
    aggregate
        sage: mean, max or sum of the neighbours.
    heads, concat
        gat: heads are concatenated (channels / heads values each), or their mean is taken
        (channels values each).
    negative_slope
        gat: of the leaky ReLU of scores.
    attention_dropout
        gat: of the attention's weights.
    eps
        gin: the weight of the node itself is 1 + eps.
    hidden
        gin: values between its two products; None: like channels.

    Examples
    --------
    >>> Layer("gat", 64, heads=8, activation="elu", dropout=0.6)
    """

    kind: Literal["gcn", "sage", "gin", "gat"] = "gcn"
    channels: Positive | None = None
    activation: Literal["none", "relu", "leaky_relu", "elu", "tanh", "sigmoid"] | None = None
    dropout: Share = 0.0
    norm: Literal["none", "layer", "batch"] = "none"
    residual: bool = False
    bias: bool = True
    aggregate: Literal["mean", "max", "sum"] = "mean"
    heads: Positive = 1
    concat: bool = True
    negative_slope: Number = 0.2
    attention_dropout: Share = 0.0
    eps: Number = 0.0
    hidden: Positive | None = None

    @property
    def acts(self) -> Literal["none", "relu", "leaky_relu", "elu", "tanh", "sigmoid"]:
        """The activation; ReLU if none is named."""
        return self.activation or "relu"

    @property
    def is_linear(self) -> bool:
        """Whether it sums neighbours, weighted or not: no maximum, no attention."""
        return self.kind != "gat" and not (self.kind == "sage" and self.aggregate == "max")

    def needs_dense(self, features: int) -> bool:
        """Whether it reads that many features as a matrix, for a maximum or a residual."""
        maximum = self.kind == "sage" and self.aggregate == "max"
        return maximum or (self.residual and self.channels == features)


@_own_errors
@dataclass(frozen=True, config=_STRICT)
class Model:
    """A model to train: layers in order.

    Attributes
    ----------
    layers
        At least one; the last may leave its channels to the classes of the graph.
    input_dropout
        The share of features dropped before the first layer.

    Examples
    --------
    >>> Model(layers=(Layer("sage", 64, aggregate="max"), Layer("sage")))
    """

    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=1 << LAYER_BITS)]
    input_dropout: Share = 0.0

    def complete(self, outputs: int) -> Model:
        """Return the model with all channels and activations named; the last gives ``outputs``."""
        *first, last = self.layers
        layers = [replace(layer, activation=layer.acts) for layer in first]
        layers.append(replace(last, channels=outputs, activation=last.activation or "none"))
        # The gradient of a bias before a batch norm consists of rounding errors, which Adam would
        # turn into steps.
        layers = [replace(la, bias=la.bias and la.norm != "batch") for la in layers]
        for number, layer in enumerate(layers):
            _check_layer(number, layer, self.layers[number])
        if last.channels not in (None, outputs):
            raise UsageError(
                f"the last layer has {last.channels} channels",
                expected=f"{outputs}, for the labels",
                remedy="Leave the channels of the last layer out",
            )
        if last.dropout:
            raise UsageError("the last layer has dropout", expected="dropout between layers only")
        return replace(self, layers=tuple(layers))

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration, without defaults."""
        plain = Layer()
        default = asdict(plain)
        layers = [
            {"kind": layer.kind}
            | {name: v for name, v in asdict(layer).items() if v != default[name]}
            for layer in self.layers
        ]
        return {"input_dropout": self.input_dropout, "layers": layers}


def _check_layer(number: int, layer: Layer, given: Layer) -> None:
    where = f"layer {number + 1} ({layer.kind})"
    if layer.channels is None:
        raise UsageError(
            f"{where} has no channels", expected="a number for every layer but the last"
        )
    if layer.kind == "gat" and layer.concat and layer.channels % layer.heads:
        raise UsageError(
            f"{where} cannot share {layer.channels} channels among {layer.heads} heads",
            expected="a multiple of the heads, or concat: false",
        )
    own = {"aggregate": "sage", "heads": "gat", "attention_dropout": "gat", "eps": "gin"}
    for name, kind in own.items():
        if layer.kind != kind and getattr(given, name) != getattr(Layer(), name):
            raise UsageError(f"{where} has no {name}", expected=f"{name} with kind {kind} only")


def _bad_declaration(error: ValidationError, where: str, of: type[Any] | None = None) -> UsageError:
    """Return the first error of a declaration, with its place.

    of  the class, if made in Python, whose values may have no names
    """
    first = error.errors(include_url=False, include_input=False)[0]
    path = [*first["loc"]]
    if path and isinstance(path[0], int):
        path[0] = [*(of or Model).__dataclass_fields__][path[0]]
    location = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
    what = f"{where} has a bad value at {location or 'the top, at layers:'}"
    message = first["msg"].removeprefix("Value error, ")
    return UsageError(f"{what}: {message}")


def read_model(path: str | Path) -> Model:
    """Return the model that a YAML file declares; errors name the place."""
    declared = read_yaml(Path(path), "model file")
    try:
        return TypeAdapter(Model).validate_python(declared)
    except ValidationError as error:
        raise _bad_declaration(error, str(path)) from None


@options
class Training:
    """How a model is trained and computed."""

    epochs: Positive = 200
    """number of epochs"""
    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    """optimizer"""
    lr: Annotated[float, Field(gt=0)] = 0.01
    """learning rate"""
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    """L2 penalty (decoupled in adamw)"""
    momentum: Share = 0.9
    """sgd: momentum"""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """adam, adamw: decay of the first moment"""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """adam, adamw: decay of the second moment"""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """adam, adamw: added to the denominator, for numerical stability"""
    schedule: Literal["constant", "cosine", "step"] = "constant"
    """learning rate after the warm-up: constant, cosine (to 0 at the last epoch), or decayed in
    steps"""
    step_every: Positive = 50
    """step: epochs between two steps"""
    step_factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    """step: factor of the learning rate at each step"""
    warmup: Annotated[int, Field(ge=0)] = 0
    """epochs of linear warm-up of the learning rate"""
    clip: Annotated[float, Field(gt=0)] | None = None
    """maximum norm of all gradients together [default: no clipping]"""
    patience: Positive | None = None
    """early stopping: evaluations (see --evaluate-every) without a better validation loss, or
    training loss without validation nodes [default: never]"""
    evaluate_every: Positive = 1
    """epochs from one evaluation on the training, validation and test nodes to the next; the last
    epoch is always evaluated"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed of initial weights, dropout and --split"""
    weighted: bool = False
    """use the graph's edge weights; gat and sage max do not use them"""
    checkpoint_epochs: Annotated[int, Field(ge=0)] = 50
    """epochs between checkpoints; 0: only by the minutes"""
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0
    """minutes between checkpoints; 0: only by the epochs"""
    overlap: bool = True
    """overlap communication with computation"""
    precompute: bool = True
    """precompute the first aggregation if it is the same in every epoch"""
    feature_layout: Literal["auto", "dense", "sparse"] = "auto"
    """dense or sparse (CSR) features; auto: the faster one on this machine"""
    order: Literal["auto", "transform", "aggregate"] = "auto"
    """what a layer does first, the product with its weights (transform) or the aggregation over
    neighbours; auto: the cheaper one; gat, sage max and sparse features have one order"""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """on GPUs: tf32 for matrix products; bf16: that, and neighbours' rows are aggregated as
    bfloat16, with float32 sums"""
    profile: bool = False
    """measure the parts of an epoch's time, as a table and a timeline of one epoch"""

    cuda_graph: bool = True
    """on one GPU, capture the epoch in a CUDA graph"""
    measure_overlap: Annotated[int, Field(ge=LEAST_ROUNDS)] | None = None
    """with several ranks: after training, measure the share of communication that is hidden, in
    this many rounds of three epochs, at least 7, which do not change the weights"""

    def lr_at(self, epoch: int) -> float:
        """Return the learning rate of epoch 0, 1, ..."""
        if epoch < self.warmup:
            return self.lr * (epoch + 1) / self.warmup
        if self.schedule == "step":
            steps = (epoch - self.warmup) // self.step_every
            return float(self.lr * self.step_factor**steps)
        if self.schedule == "cosine":
            share = (epoch - self.warmup) / max(self.epochs - self.warmup, 1)
            return self.lr * (1 + math.cos(math.pi * share)) / 2
        return self.lr
