"""The meaning of a walk, for all three backends.

A walk of at most ``length`` nodes has a number. The draws for its step from the k-th node to the
next are counted: ``which = walk | k << 40`` of the stream WALK_STEP, and Philox's ``step`` is n for
that step's n-th draw, so only (seed, walk, k, n) decide. A draw has four
words of 32 bits; words 0 and 1 make one number of 64 bits, ``wide = word1 << 32 | word0``.

A step first finds the candidates, a range of a row: the row of the node, its edges of one relation,
or those that are late enough. Then one is proposed:

DIRECT     the ``wide * count >> 64``-th: edges are equally likely
REJECTION  the same, taken if ``word2 * bound < weight * 2**32``, where ``bound`` is the largest
           weight of the row; else the next draw. After TRIALS that failed, the next draw decides
           exactly: with weights rounded down to multiples of ``bound * 2**-bits``, as integers,
           ``bits = 62 - bit_length(count)``, it is the edge in which their running sum passes
           ``wide * total >> 64``
ITS        the edge in which the running sum of weights passes ``u * total``, u of ``wide``'s
           upper 53 bits
ALIAS      the slot as in DIRECT; its edge if ``word2 < chance * 2**32``, else its other one

A second-order walk (Node2Vec) then judges the proposal: its factor is ``return_factor`` if it leads
back, 1 if it leads to a neighbour of the previous node, else ``far_factor``; it is taken if
``word3 * largest < factor * 2**32``, word3 of the draw that proposed it, else all starts again with
the next draw. (The first step has no previous node and takes the first proposal.)

RESERVOIR reads every edge of the row once and needs no table: weights may be computed on the fly.

Only comparisons of exactly rounded doubles and integers decide DIRECT and REJECTION, judged or
not: those walks are the same on every backend. The others agree in distribution.

Before a step, word 0 of draw 0 of WALK_STOP, same ``which``, ends the walk if it is below
``stop * 2**32``; else, if word 1 is below ``restart * 2**32``, the next node is the start again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.arrays import AnyArray, OptionalArray

NEVER = -(1 << 63)  # before every time
TRIALS = 32
WALK_BITS = 40  # of ``which``; the rest counts the steps
MAX_WALKS = 1 << WALK_BITS
MAX_LENGTH = 1 << (64 - WALK_BITS)


class Sampler(IntEnum):
    """How an edge is proposed."""

    DIRECT = 0
    REJECTION = 1
    ITS = 2
    ALIAS = 3
    RESERVOIR = 4


@dataclass(frozen=True, eq=False)
class WalkGraph:
    """The graph that a step reads, as arrays of one backend.

    indptr     (rows * groups + 1,) int64; node v's candidates of group g are row v * groups + g
    indices    (edges,) int32 or int64: ids over the whole graph
    weights    (edges,) float32, or None: all equal
    relations  (edges,) int32, or None; read by RESERVOIR only
    times      (edges,) int64 keys, ascending in each row, or None (RESERVOIR: in any order)
    groups     how many rows a node has: 1, or one per relation of a schema
    neighbours (indptr, indices) ascending in each row, for second-order walks, if ``indptr`` and
               ``indices`` are not; None: they are
    degrees, labels  (nodes,) int32 of all nodes, for expressions that use them, else None
    bounds     (rows * groups,) float32: the largest weight of a row; with weights
    prefix     (edges,) float64: running sums of weights in each row; for ITS
    chance, other  (edges,) float32, int32: the share of a slot for its own edge, and the place
               in the row of the edge with the rest; for ALIAS
    packed     a backend's faster form of these
    """

    indptr: AnyArray
    indices: AnyArray
    weights: OptionalArray = None
    relations: OptionalArray = None
    times: OptionalArray = None
    groups: int = 1
    neighbours: tuple[AnyArray, AnyArray] | None = None
    degrees: OptionalArray = None
    labels: OptionalArray = None
    bounds: OptionalArray = None
    prefix: OptionalArray = None
    chance: OptionalArray = None
    other: OptionalArray = None
    packed: Any = None

    @property
    def adjacency(self) -> tuple[AnyArray, AnyArray]:
        """indptr and indices of rows whose neighbours ascend."""
        return self.neighbours or (self.indptr, self.indices)


@dataclass(frozen=True)
class WalkRules:
    """The parameters of a step.

    stop, restart  probabilities, applied before every step
    second_order   judge proposals by the previous node, with the two factors
    symmetric      every edge is there in both directions: u is in v's row if v is in u's
    schema         for the k-th step, the group of rows (RESERVOIR: the relation) to choose from;
                   () is no schema; ``cyclic``: it begins again when it ends, else the walk ends
    timed          a step's edge is not earlier than the one before
    earliest, latest  keys of the permitted times, if the rows have times
    expression     RESERVOIR only: the weight of an edge (kernels/expression.py); rows have the
                   columns that it names
    """

    length: int
    seed: int = 0
    sampler: Sampler = Sampler.DIRECT
    stop: float = 0.0
    restart: float = 0.0
    second_order: bool = False
    return_factor: float = 1.0
    far_factor: float = 1.0
    symmetric: bool = False
    schema: tuple[int, ...] = ()
    cyclic: bool = False
    timed: bool = False
    earliest: int = NEVER
    latest: int = (1 << 63) - 1
    expression: str | None = None

    @property
    def largest_factor(self) -> float:
        """The largest possible factor."""
        return max(self.return_factor, 1.0, self.far_factor)

    @property
    def stop_below(self) -> int:
        """The bound of a 32-bit word below which the walk stops."""
        return round(self.stop * 2**32)

    @property
    def restart_below(self) -> int:
        """The bound of a 32-bit word below which the walk restarts."""
        return round(self.restart * 2**32)


@dataclass(frozen=True, eq=False)
class Owned:
    """The rows of one part of a graph.

    rank        the part; its rows are the local ids of its nodes
    assignment  (nodes,) int32: the part of each node
    local       (nodes,) int32 or int64: the row of each node in its part
    """

    rank: int
    assignment: AnyArray
    local: AnyArray


@dataclass(frozen=True, eq=False)
class Walkers:
    """Walkers that move through the parts of a graph; arrays of equal length.

    walk       int64: the walk's number
    slot       int64: its row in the table of paths
    start      ids: its first node
    node       ids: its current node
    previous   ids: its previous node, -1 at the start
    candidate  ids: a proposal to judge at the row of ``previous``, or -1
    coin       uint32: word 3 of the draw that proposed the candidate
    step       int32: the number of nodes in its path
    draw       int32: the next draw of this step
    now        int64: the key of the time of its last edge (at first the smallest int64)
    then       int64: the key of the candidate's time
    to         int32: the part that it waits for, -1 once it has ended
    """

    walk: AnyArray
    slot: AnyArray
    start: AnyArray
    node: AnyArray
    previous: AnyArray
    candidate: AnyArray
    coin: AnyArray
    step: AnyArray
    draw: AnyArray
    now: AnyArray
    then: AnyArray
    to: AnyArray
