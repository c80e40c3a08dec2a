"""Arguments and meaning of the kernels of graph neural networks, on all three backends.

A layer gathers over the rows of a ``ScaledCSR``. Row r of an aggregation is

    left[r] * (sum of weights[e] * right[c] * x[c] over r's edges + diagonal[r] * right[r] * x[r])

with c the column of e; missing arrays count as 1 (``diagonal``: as 0). Its transpose has left and
right exchanged. A graph's block has the owned nodes as rows, and the owned nodes, then the ghosts,
as columns; a sparse feature matrix is a block too, with features as columns: gathering weights over
it is the product of features and weights.

The epilogue of a layer is ``out = drop(act(z + bias + skip))``. A value is dropped if its word is
below ``Dropout.below``, else divided by the share of kept values. The word of feature f of row r is
word ``f % 4`` of

    philox(seed, stream, which = ids[r] | (f // 4) << 40, step = epoch << 6 | layer)

so that it depends neither on the number of ranks nor on the order of rows.

Attention of head h gives the edge from row r to column c the weight

    alpha = exp(leaky(left[r, h] + right[c, h]) - peak[r, h]) / total[r, h]

where a row's edges are those of the block and one to itself. No array has one value per edge:
``peak`` and ``total`` of each row suffice to recompute any alpha. A weight is dropped by
word ``h % 4`` of philox(seed, stream, which = ids[r] * nodes + ids[c], step =
(epoch << 6 | layer) * ceil(heads / 4) + h // 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from penstock.arrays import AnyArray

ID_BITS = 40  # of ``which`` of a dropped value; the rest counts features in fours
LAYER_BITS = 6  # of ``step``; the rest counts epochs
EPSILON = 1e-5  # added to variances, in layer norm and batch norm


class Activation(IntEnum):
    """The activation of a layer; SLOPE of values below 0 belongs to LEAKY_RELU."""

    NONE = 0
    RELU = 1
    LEAKY_RELU = 2
    ELU = 3
    TANH = 4
    SIGMOID = 5


SLOPE = 0.01


class Graded(NamedTuple):
    """The outputs of a model, and what losses write about their rows: see naive/loss.py."""

    values: AnyArray
    splits: AnyArray
    scale: float
    grad: AnyArray | None
    sums: AnyArray


class Factors(NamedTuple):
    """The values of each column that batch norm multiplies by, or adds."""

    mean: AnyArray
    inverse: AnyArray
    scale: AnyArray
    shift: AnyArray


class Descent(NamedTuple):
    """The numbers of one step of an optimizer.

    scale      multiplies gradients first (clipping)
    step       1, 2, ...
    decoupled  AdamW, not Adam
    """

    lr: float
    scale: float
    step: int
    weight_decay: float
    momentum: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    epsilon: float = 0.0
    decoupled: bool = False


@dataclass(frozen=True, eq=False)
class ScaledCSR:
    """Rows over which a layer gathers, as arrays of one backend.

    indptr    (rows + 1,) int64
    indices   (edges,) int32 or int64, columns; ascending within a row
    columns   number of columns
    weights   (edges,) floating, or None
    left      (rows,) floating, or None
    right     (columns,) floating, or None
    diagonal  (rows,) floating, or None: the weight of the column with the row's number; then there
              are at least as many columns as rows
    """

    indptr: AnyArray
    indices: AnyArray
    columns: int
    weights: AnyArray | None = None
    left: AnyArray | None = None
    right: AnyArray | None = None
    diagonal: AnyArray | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def edges(self) -> int:
        """Number of edges, without the diagonal."""
        return len(self.indices)

    def as_own_transpose(self) -> ScaledCSR:
        """Return the transpose of a square block whose edges and weights are symmetric."""
        return replace(self, left=self.right, right=self.left)


@dataclass(frozen=True, eq=False)
class Dropout:
    """Which values are dropped: those whose word is below ``below``, of 2**32.

    ids       (rows,) int64: the number of each row in the whole graph; for attention, of each
              column
    epoch_at  location of the epoch on the GPU, (1,) uint32: read there, instead of ``epoch``, so
              that a CUDA graph can be launched again in another epoch
    """

    seed: int
    stream: int
    epoch: int
    layer: int
    below: int
    ids: AnyArray
    nodes: int = 0
    epoch_at: AnyArray | None = None

    @property
    def step(self) -> int:
        """The step of Philox, which attention multiplies."""
        return self.epoch << LAYER_BITS | self.layer

    @property
    def scale(self) -> float:
        """Factor of the kept values."""
        return 1 / (1 - self.below / 2**32)


@dataclass(frozen=True, eq=False)
class Epilogue:
    """The end of a layer's product or sum; arrays are (width,) and (rows, width)."""

    bias: AnyArray | None = None
    skip: AnyArray | None = None
    activation: Activation = Activation.NONE
    drop: Dropout | None = None


@dataclass(frozen=True, eq=False)
class Heads:
    """Attention's values per node and head, all (nodes, heads) and of x's type.

    left, right  (columns, heads): scores of a node as the one that gathers, and as the gathered
    peak, total  (rows, heads): the largest score of a row's edges, and the sum of exponentials
    slope        of leaky below 0
    drop         of weights, or None
    """

    left: AnyArray
    right: AnyArray
    peak: AnyArray
    total: AnyArray
    slope: float = 0.2
    drop: Dropout | None = None

    @property
    def count(self) -> int:
        """Number of heads."""
        return int(self.left.shape[1])
