"""The options of ``penstock gnn``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from pydantic import BeforeValidator, Field, WithJsonSchema

from penstock.errors import UsageError
from penstock.options import (
    ClientPath,
    Rules,
    check_fractions,
    headings,
    options,
    refuse_ignored,
)
from penstock.paths import client_path
from penstock.workers.gnn.plan.spec import Model, Training

if TYPE_CHECKING:
    from penstock.manifest import Manifest

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
# A file, or in Python the model itself.
Declared = Annotated[
    Path | Model,
    BeforeValidator(lambda given: given if isinstance(given, Model) else client_path(given)),
    WithJsonSchema({"type": "string", "format": "path"}),
    Parameter(converter=lambda kind, tokens: client_path(tokens[0].value), accepts_keys=False),
]

# Options that declare the model; --spec replaces them.
_DECLARING = (
    "model",
    "layers",
    "hidden",
    "heads",
    "aggregate",
    "activation",
    "dropout",
    "input_dropout",
    "attention_dropout",
    "norm",
    "residual",
)
# Options of the layers before the last, which a one-layer model does not have.
_BETWEEN = ("hidden", "heads", "activation", "dropout", "norm", "residual")
# Those that depend on other options.
_IGNORED: Rules = (
    (_DECLARING, "with --spec, which declares the model", lambda o: o.spec is not None),
    (_BETWEEN, "with --layers 1, whose only layer is the last", lambda o: o.layers == 1),
    (("heads", "attention_dropout"), "without --model gat", lambda o: o.model != "gat"),
    (("aggregate",), "without --model sage", lambda o: o.model != "sage"),
    (("momentum",), "without --optimizer sgd", lambda o: o.optimizer != "sgd"),
    (("beta1", "beta2", "epsilon"), "with --optimizer sgd", lambda o: o.optimizer == "sgd"),
    (("step_every", "step_factor"), "without --schedule step", lambda o: o.schedule != "step"),
    (("split_stratified",), "without --split, the fractions to take", lambda o: o.split is None),
    (
        ("measure_overlap",),
        "with --no-overlap: it also measures epochs without overlap",
        lambda o: not o.overlap,
    ),
    (
        ("order",),
        "with --feature-layout sparse: the product of sparse features comes first",
        lambda o: o.order == "aggregate" and o.feature_layout == "sparse",
    ),
)
# Those that depend on the model, the graph's manifest and the ranks; None: any number.
_IGNORED_IN_TRAINING: Rules = (
    (
        ("order", "weighted"),
        "in layers of gat and sage max, which have one order and use no weights",
        lambda o, model, graph, ranks: not any(layer.is_linear for layer in model.layers),
    ),
    (
        ("overlap", "measure_overlap"),
        "on one rank, which does not communicate",
        lambda o, model, graph, ranks: ranks == 1,
    ),
    (
        ("feature_layout",),
        "if the first layer needs dense features, for a maximum or a residual connection",
        lambda o, model, graph, ranks: (
            o.feature_layout == "sparse" and model.layers[0].needs_dense(graph.features.width)
        ),
    ),
    (
        ("feature_layout",),
        "on features without zeros",
        lambda o, model, graph, ranks: (
            o.feature_layout == "sparse" and graph.features.sparsity(graph.nodes) == 0
        ),
    ),
)
_IGNORED_IN_PREDICTIONS: Rules = (
    (
        ("parts",),
        "with --base, with which one rank predicts",
        lambda o: o.base is not None,
    ),
)
_IGNORED_IN_SCORES: Rules = ((("split_by",), "with --split all", lambda o: o.split == "all"),)


@options
@headings(
    model="Model",
    epochs="Training",
    overlap="Computation",
    init="Training",
    parts="Computation",
)
class GnnOptions(Training):
    """Options of ``penstock gnn train``: a model, its training, and its computation."""

    model: Literal["gcn", "sage", "gin", "gat"] = "gcn"
    """kind of the layers"""
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    """number of layers; with 1 only the last one exists, without the options of hidden
    layers"""
    hidden: Count = 64
    """hidden channels; for gat, of all heads together"""
    heads: Count | None = None
    """gat: attention heads of each layer except the last, which has one [default: 8]"""
    aggregate: Literal["mean", "max", "sum"] | None = None
    """sage: aggregation over neighbours [default: mean]"""
    activation: Literal["none", "relu", "leaky_relu", "elu", "tanh", "sigmoid"] | None = None
    """activation of each layer except the last [default: relu; gat: elu]"""
    dropout: Share = 0.5
    """dropout between layers"""
    input_dropout: Share = 0.0
    """dropout of the input features"""
    attention_dropout: Share = 0.0
    """gat: dropout of the attention weights"""
    norm: Literal["none", "layer", "batch"] | None = None
    """normalization of each layer except the last [default: none; batch for gin, whose sums grow
    with degrees]"""
    residual: Annotated[bool, Parameter(negative="")] = False
    """residual connections around each layer except the last"""
    spec: Declared | None = None
    """a YAML file that declares the model, layer by layer, instead of these options"""

    init: ClientPath | None = None
    """warm start from the last checkpoint of this run: weights of equal name and shape keep their
    values, with the optimizer's state if the optimizer is the same; others are random, and so is
    the first layer if features have other names, and the last if classes do"""
    split: tuple[float, float, float] | None = None
    """draw training, validation and test nodes: fractions of the labelled ones; the rest is in no
    split. Each node draws by --seed and its id, independent of other nodes; sizes are approximate
    [default: the graph's own split]"""
    split_stratified: Annotated[bool, Parameter(negative="")] = False
    """apply these fractions to every class, to within one node; if nodes of a class are added or
    removed, some others of it change their split"""

    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """partition the graph into this many parts, one per rank [default: ranks of --cluster mpi,
    else 1]"""

    def __post_init__(self) -> None:
        if self.split is not None:
            check_fractions("split", self.split, some_left=True)
            if self.split[0] == 0:
                raise UsageError("--split leaves no node to train on", expected="more than 0 first")
        refuse_ignored(self, _IGNORED)

    def check_effect(self, model: Model, graph: Manifest, ranks: int | None) -> None:
        """Raise if an option has no effect when ``ranks`` ranks train a model on a graph."""
        refuse_ignored(self, _IGNORED_IN_TRAINING, model, graph, ranks)

    @property
    def training(self) -> Training:
        """The options for ranks, without the model."""
        return Training(**{name: getattr(self, name) for name in Training.__dataclass_fields__})


@options
class WeightsOptions:
    """The weights that predict, the graph, and the number of ranks."""

    graph: ClientPath | None = None
    """another graph with the same features, matched by name [default: the graph of the run]"""
    split_by: Literal["run", "graph"] = "run"
    """the split on another graph: run: that of the run, by id, so that no node is tested that was
    trained on; graph: the graph's own, if its ids are those of other nodes"""
    checkpoint: Literal["best", "last"] = "best"
    """weights of the epoch with the best validation loss (training loss without validation
    nodes), or of the last checkpoint"""
    verify: Annotated[bool, Parameter(negative="")] = False
    """first compare every file of the graph and its partition with its SHA-256"""
    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """partition the graph into this many parts, one per rank [default: as for train]"""


@options
class PredictOptions(WeightsOptions):
    """Options of ``penstock gnn predict``."""

    embeddings: Annotated[bool, Parameter(negative="")] = False
    """also write embeddings, the input of the last layer, as a list of numbers"""
    probabilities: Annotated[bool, Parameter(negative="")] = False
    """also write the probabilities of all classes, as a list of numbers"""
    base: ClientPath | None = None
    """earlier predictions with the same weights: only nodes that a changed row or feature can have
    reached are computed again"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED_IN_PREDICTIONS)


@options
class EvaluateOptions(WeightsOptions):
    """Options of ``penstock gnn evaluate``."""

    split: Literal["train", "valid", "test", "all"] = "test"
    """nodes to score, by the split that the run was trained on; all: every labelled node"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED_IN_SCORES)
