"""The meaning of training embeddings of nodes and relations, for all backends.

**Scores.** A node is a row of ``dim`` float32; of complex numbers, the real parts and then the
imaginary ones. The score of (h, r, t):

DOT        sum h t                  no relations
DISTMULT   sum h r t
COMPLEX    Re sum h r conj(t)
RESCAL     h R t                    R is a matrix, a row of dim * dim values, row after row
TUCKER     h R t                    R = sum_k r_k C_k: all relations share the matrices C
TRANSE_L1  -sum |h + r - t|
TRANSE_L2  -sqrt(sum (h + r - t)^2)
ROTATE     -sum |h exp(i r) - t|    moduli of complex numbers; r are dim / 2 phases

Each is a function of a query, a row of ``dim`` values made of the relation and the given node, and
of a candidate for the other node: the sum of their product, or their negative distance. The queries
of a side are

          TAIL: h, r are given   HEAD: t, r are given
DOT       h                      t
DISTMULT  h r                    r t
COMPLEX   h r                    conj(r) t
RESCAL    h R                    R t                     so has TUCKER
TRANSE    h + r                  t - r
ROTATE    h exp(i r)             t exp(-i r)

With ``inverse`` (reciprocal relations) the HEAD side is the TAIL query of t and the relations' row
``r + inverse``.

**Loss.** Edge e of a batch lies in chunk ``e // chunk``, whose edges share ``N`` negatives for each
side. Of every edge and side, p is the score of the true answer and n_j that of the j-th negative.
A negative that is the edge's own answer is left out: as if n_j were -infinity.

SOFTMAX           -p + log(exp(p) + sum exp(n_j))
CONTRASTIVE       -p + log(sum exp(n_j)); 0 if no negative is left
LOGISTIC          softplus(-p) + sum softplus(n_j) / N
MARGIN            sum max(0, margin - p + n_j) / N
SELF_ADVERSARIAL  softplus(-p - margin) + sum w_j softplus(n_j + margin), where w is the softmax of
                  ``temperature * n`` over what is left, and a constant for gradients

If edges have weights, the loss of each, and so its gradients, is multiplied by its weight. To it,
of every edge and side, come penalties, not multiplied: ``node_penalty * |x|^power`` summed over the
values of h and t, and ``relation_penalty * |x|^power`` over the relation's, where complex numbers
have moduli; phases have none. The loss of a batch is the sum over its edges and sides, in float64;
it is NaN if a score is.

If a distance has no derivative (at 0), or a margin is met exactly, the gradient is 0.

**Update.** All gradients are taken before anything changes. The gradients g of a row that the batch
names several times are summed; every row that it names, as a negative too, is then changed once:

ADAGRAD  s += g^2;  x -= lr g / (sqrt(s) + epsilon)
SGD      x -= lr g
ADAM     m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
         x -= lr / (1 - beta1^n) m / (sqrt(v / (1 - beta2^n)) + epsilon), n = 1 in the first batch

**Negatives.** Place j of chunk c of side s (0 or 1) of a batch is decided by

    philox(seed, EMBED_NEGATIVE, which = number << CHUNK_BITS | s * chunks + c, step = j)

whose words 0 and 1 make ``wide = word1 << 32 | word0``: the slot is ``wide * total >> 64``. An
alias table changes it to ``other[slot]`` unless ``word3 < chance[slot] * 2**32``. A slot is a row:
slots count the rows of the pool's ranges one after another.

**Ranks.** The score of a query and a candidate is that of float64 arithmetic on their float32
values: faster arithmetic may decide only certain cases. NaN is less than any number
and equal to itself; the rank is 1 + greater + equal / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from penstock.arrays import AnyArray, OptionalArray

CHUNK_BITS = 24  # of ``which``; the rest counts batches


class Model(IntEnum):
    """How triples are scored."""

    DOT = 0
    DISTMULT = 1
    COMPLEX = 2
    RESCAL = 3
    TUCKER = 4
    TRANSE_L1 = 5
    TRANSE_L2 = 6
    ROTATE = 7


class Loss(IntEnum):
    """The minimised function."""

    SOFTMAX = 0
    CONTRASTIVE = 1
    LOGISTIC = 2
    MARGIN = 3
    SELF_ADVERSARIAL = 4


class Optimizer(IntEnum):
    """How gradients change rows."""

    ADAGRAD = 0
    SGD = 1
    ADAM = 2


class Side(IntEnum):
    """Which node of an edge is queried, or replaced in a negative."""

    TAIL = 0
    HEAD = 1


@dataclass(frozen=True)
class EmbedRules:
    """The parameters of a training step; see the module.

    dim       values of a node; even for COMPLEX and ROTATE
    sides     which nodes are replaced, in this order
    chunk     edges that share negatives
    inverse   0, or the distance from a relation's row to its inverse's
    relation_dim  TUCKER: values of a relation
    power     of penalties: 2 (L2) or 3 (N3)
    """

    model: Model
    dim: int
    loss: Loss = Loss.SOFTMAX
    sides: tuple[Side, ...] = (Side.TAIL, Side.HEAD)
    chunk: int = 1000
    inverse: int = 0
    margin: float = 0.0
    temperature: float = 1.0
    power: int = 3
    node_penalty: float = 0.0
    relation_penalty: float = 0.0
    optimizer: Optimizer = Optimizer.ADAGRAD
    epsilon: float = 1e-10
    beta1: float = 0.9
    beta2: float = 0.999
    relation_dim: int = 0

    @property
    def is_complex(self) -> bool:
        """Whether a node's values are complex numbers."""
        return self.model in (Model.COMPLEX, Model.ROTATE)

    @property
    def is_distance(self) -> bool:
        """Whether the score is a negative distance, and not a sum of products."""
        return self.model >= Model.TRANSE_L1

    @property
    def has_matrices(self) -> bool:
        """Whether a query is the product of a node and a matrix."""
        return self.model in (Model.RESCAL, Model.TUCKER)

    @property
    def shared_rows(self) -> int:
        """The rows that follow relations and inverses, and belong to all: value k of row
        ``i * dim + j`` is that of C_k in row i and column j. Every batch changes them."""
        return self.dim * self.dim if self.model == Model.TUCKER else 0

    @property
    def relation_width(self) -> int:
        """The number of values per relation."""
        if self.model == Model.DOT:
            return 0
        if self.has_matrices:
            return self.relation_dim if self.model == Model.TUCKER else self.dim * self.dim
        return self.dim // 2 if self.model == Model.ROTATE else self.dim

    def state_width(self, width: int) -> int:
        """Return how many float32 of state the optimizer keeps for a row of ``width`` values.

        Adam's are all the means, then all the squares.
        """
        return {Optimizer.ADAGRAD: 1, Optimizer.SGD: 0, Optimizer.ADAM: 2}[self.optimizer] * width

    def chunks(self, edges: int) -> int:
        """Return the number of chunks of a batch; the last may be shorter."""
        return -(-edges // self.chunk)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows that are trained, as arrays of one backend, changed in place.

    values  (rows, width) float32
    state   (rows, state_width(width)) float32, 0 at first
    """

    values: Any  # in GPU or host memory, by backend
    state: Any


@dataclass(frozen=True, eq=False)
class Batch:
    """Edges to train at once, and their negatives; rows of tables, as int32 or int64.

    heads, tails  (edges,)
    relations     (edges,), or None for DOT
    negatives     (sides, chunks, N): for each side of the rules; the first two may be 1 if all
                  sides or chunks share the same negatives, for example all nodes
    weights       (edges,) float32, or None: all are 1
    """

    heads: AnyArray
    relations: OptionalArray
    tails: AnyArray
    negatives: AnyArray
    weights: OptionalArray = None


@dataclass(frozen=True, eq=False)
class NegativePool:
    """Rows to draw negatives from: ranges of rows, one after another.

    first          (ranges,) int64: the first row of each
    start          (ranges + 1,) int64: the number of rows before each; the last is the total,
                   below 2**31
    chance, other  (total,) float32 and int32: the alias table of slots; None: all are as likely
    """

    first: AnyArray
    start: AnyArray
    chance: OptionalArray = None
    other: OptionalArray = None


@dataclass(frozen=True, eq=False)
class Known:
    """True answers of each query, which are not candidates.

    indptr   (queries + 1,) int64
    indices  int32 or int64 ids of candidates, ascending in each row
    """

    indptr: AnyArray
    indices: AnyArray
