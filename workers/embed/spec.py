"""The options of training, independent of graph, disk and backend."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from penstock.errors import UsageError
from penstock.kernels.embed_rules import EmbedRules, Loss, Model, Optimizer, Side
from penstock.options import Rules, options, refuse_ignored
from penstock.partition.order import PartitionOrder, order

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]

# Options that may change when a run is resumed: the vectors at an epoch do not depend on them
# (on epochs only if the learning rate does).
RESUMABLE = (
    "epochs",
    "validate_every",
    "patience",
    "checkpoint_epochs",
    "checkpoint_minutes",
    "prefetch",
    "storage",
)
Storage = Literal["threads", "kvikio", "queues"]
DISTANCES = ("transe", "rotate")  # models whose score is a distance
MATRICES = ("rescal", "tucker")  # models whose relations are matrices
PAIRED = ("complex", "rotate")  # models with complex numbers: a vector has two halves
# Options that would be ignored; if no model is given, the graph decides.
_IGNORED: Rules = (
    (("buffer",), "with --order cover, which has four in memory", lambda o: o.order == "cover"),
    (("norm",), "without --model transe", lambda o: o.model != "transe"),
    (("relation_dim",), "without --model tucker", lambda o: o.model != "tucker"),
    (
        ("n3",),
        "without --model complex, distmult, rescal or tucker",
        lambda o: o.model in ("dot", "transe", "rotate"),
    ),
    (("n3",), "with --l2: give one of the two penalties", lambda o: bool(o.n3 and o.l2)),
    (("reciprocal",), "with --model dot", lambda o: o.reciprocal and not o.has_relations),
    (
        ("reciprocal",),
        "without --corrupt both: it predicts heads and tails",
        lambda o: o.reciprocal and o.corrupt != "both",
    ),
    (
        ("margin",),
        "without --loss margin or self-adversarial",
        lambda o: o.loss not in ("margin", "self-adversarial"),
    ),
    (
        ("temperature",),
        "without --loss self-adversarial",
        lambda o: o.loss != "self-adversarial",
    ),
    (("beta1", "beta2"), "without --optimizer adam", lambda o: o.optimizer != "adam"),
    (("epsilon",), "with --optimizer sgd", lambda o: o.optimizer == "sgd"),
    (("degree_exponent",), "without --by-degree", lambda o: not o.by_degree),
    (
        ("chunk", "by_degree"),
        "with --negatives all, which all edges share",
        lambda o: o.negatives == "all",
    ),
)
BATCH = 1000
SOFT = ("softmax", "contrastive")
_N3, _PRODUCTS = 0.03, ("complex", "distmult")
_MARGINS = {"margin": 1.0, "self-adversarial": 9.0}


def _number(value: Any) -> Any:
    """Convert a number of the command line, since choices are compared without conversion."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


@options
class Training:
    """A model, its loss, negatives and optimizer, and how it is computed."""

    model: Literal["dot", "distmult", "complex", "rescal", "tucker", "transe", "rotate"] | None = (
        None
    )
    """score of an edge [default: complex, or dot if edges have no relations]"""
    dim: Annotated[int, Field(ge=1, le=4096)] = 100
    """values in the vector of a node; for complex and rotate one half real, one imaginary"""
    relation_dim: Annotated[int, Field(ge=1, le=4096)] | None = None
    """tucker: values in the vector of a relation [default: as in that of a node]"""
    norm: Annotated[Literal[1, 2] | None, BeforeValidator(_number)] = None
    """transe: L1 or L2 distance [default: 1]"""
    reciprocal: bool | None = None
    """train a second vector for each relation, its inverse, by which heads are predicted as tails
    [default: with relations, but not for transe and rotate]"""
    init_scale: Positive | None = None
    """standard deviation of initial vectors [default: 0.001; for dot, transe and rotate
    1 / sqrt(dim)]"""

    loss: Literal["softmax", "contrastive", "logistic", "margin", "self-adversarial"] = "softmax"
    """loss of an edge against its negatives; contrastive: softmax without the edge in its sum"""
    weighted: bool = False
    """multiply the loss of each edge by its weight, over the mean weight"""
    margin: Positive | None = None
    """margin, self-adversarial: margin of the loss [default: 1; self-adversarial: 9]"""
    temperature: Positive | None = None
    """self-adversarial: negatives are weighted by the softmax of this times their score
    [default: 1]"""
    l2: NotNegative | None = None
    """L2 penalty on the vectors of every edge [default: none]"""
    n3: NotNegative | None = None
    """complex, distmult, rescal, tucker: N3 penalty on the vectors of every edge [default: 0.03
    with softmax and contrastive, unless there is --l2]"""

    negatives: Count | Literal["all"] = 256
    """negatives per edge and side (head or tail), shared by a chunk; all: every node in memory"""
    by_degree: Annotated[float, Field(ge=0, le=1)] = 0.0
    """share of the negatives that are drawn by degree; the others are uniform"""
    degree_exponent: Positive = 1.0
    """by degree, negatives are drawn in proportion to degrees to this power"""
    corrupt: Literal["tail", "head", "both"] = "both"
    """what negatives replace"""
    batch: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    """edges in a batch, at most; out of core they are between two partitions [default: 1000]"""
    chunk: Count | None = None
    """edges that share negatives [default: a batch]"""

    optimizer: Literal["adagrad", "sgd", "adam"] = "adagrad"
    """optimizer"""
    lr: Positive = 0.3
    """learning rate"""
    schedule: Literal["linear", "constant"] = "linear"
    """learning rate over the epochs: linear falls to 0; a run with a constant rate can be resumed
    with more --epochs"""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """adam: decay of the first moment"""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """adam: decay of the second moment"""
    epsilon: Positive = 1e-10
    """adagrad, adam: added to the denominator of an update"""
    epochs: Count = 30
    """passes over all edges"""
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] = 0
    """seed of initial vectors, negatives and the order of edges"""

    validate_every: Count = 5
    """epochs between two evaluations on held-out edges, if the graph has some"""
    validate_sample: Count = 2000
    """number of validation edges to evaluate; all if there are fewer"""
    patience: Count | None = None
    """stop after this many evaluations without a better MRR [default: train all epochs]"""
    checkpoint_epochs: Annotated[int, Field(ge=0)] = 0
    """epochs between checkpoints; 0: only by minutes, and at the end"""
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0
    """minutes between checkpoints, saved at the end of the epoch or, out of core, of the current
    state of the buffer; 0: only by epochs"""

    partitions: Count | None = None
    """partitions of the nodes; --buffer is the number in memory [default: one if it fits, else the
    fewest that fit]"""
    buffer: Annotated[int, Field(ge=3)] = 3
    """partitions in memory; a larger number means fewer swaps"""
    order: Literal["prefetch", "beta", "cover"] = "prefetch"
    """order in which partitions meet in the buffer"""
    prefetch: bool = True
    """swap partitions while others are trained"""
    storage: Storage | None = None
    """how partitions are read and written: threads with O_DIRECT, kvikio, or queues that a kernel
    fills and the host serves [default: kvikio if GPUDirect Storage works, else threads]"""

    def __post_init__(self) -> None:
        if self.model in PAIRED and self.dim % 2:
            raise UsageError(
                f"--dim {self.dim} is odd, and {self.model} pairs real with imaginary values",
                expected="an even dimension",
                got=str(self.dim),
                remedy=f"Take --dim {self.dim + 1}",
            )
        if self.chunk is not None and self.chunk > (self.batch or BATCH):
            raise UsageError(
                "--chunk is a part of a batch",
                expected=f"at most --batch {self.batch or BATCH}",
                got=str(self.chunk),
            )
        refuse_ignored(self, _IGNORED)

    @property
    def held(self) -> int:
        """The number of partitions in the buffer."""
        return 4 if self.order == "cover" else self.buffer

    def in_order(self, partitions: int) -> PartitionOrder:
        """Return the order of ``partitions`` partitions in the buffer of a rank."""
        return order(self.order, partitions, self.held)

    def for_graph(self, *, has_relations: bool) -> Training:
        """Return these options with a model: if none is given, the graph decides."""
        return self if self.model else replace(self, model="complex" if has_relations else "dot")

    @property
    def has_relations(self) -> bool:
        """Whether the model has vectors of relations."""
        return self.model != "dot"

    @property
    def is_reciprocal(self) -> bool:
        """Whether relations have a second vector."""
        if self.reciprocal is not None:
            return self.reciprocal and self.has_relations
        return self.has_relations and self.model not in DISTANCES and self.corrupt == "both"

    @property
    def scale(self) -> float:
        """The standard deviation of initial vectors."""
        if self.init_scale is not None:
            return self.init_scale
        return 1e-3 if self.model in _PRODUCTS else self.dim**-0.5

    @property
    def penalty(self) -> tuple[int, float]:
        """The power and the weight of the penalty on vectors."""
        if self.l2:
            return 2, self.l2
        given = self.n3 is not None or self.l2 is not None
        if not given and self.model in (*_PRODUCTS, *MATRICES) and self.loss in SOFT:
            return 3, _N3
        return 3, self.n3 or 0.0

    def rules(self, relations: int) -> EmbedRules:
        """Return the parameters of kernels.

        relations  the number of relations of the graph
        """
        sides = {"tail": (Side.TAIL,), "head": (Side.HEAD,), "both": (Side.TAIL, Side.HEAD)}
        assert self.model is not None  # for_graph
        name = f"transe_l{self.norm or 1}" if self.model == "transe" else self.model
        power, weight = self.penalty
        return EmbedRules(
            model=Model[name.upper()],
            dim=self.dim,
            loss=Loss[self.loss.replace("-", "_").upper()],
            sides=sides[self.corrupt],
            chunk=self.chunk or self.batch or BATCH,
            inverse=relations if self.is_reciprocal else 0,
            margin=self.margin or _MARGINS.get(self.loss, 0.0),
            temperature=self.temperature or 1.0,
            power=power,
            node_penalty=weight,
            relation_penalty=weight if self.has_relations else 0.0,
            optimizer=Optimizer[self.optimizer.upper()],
            epsilon=self.epsilon,
            beta1=self.beta1,
            beta2=self.beta2,
            relation_dim=(self.relation_dim or self.dim) if self.model == "tucker" else 0,
        )

    def lr_at(self, share: float) -> float:
        """Return the learning rate when a share of the training run is done."""
        return self.lr * (1 - share) if self.schedule == "linear" else self.lr
