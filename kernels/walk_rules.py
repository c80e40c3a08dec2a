"""What a walk is, in the words that all three backends share.

A walk of at most ``length`` nodes has a number. The draws for its step from the k-th node to the
next are counted: ``which = walk | k << 40`` of the stream WALK_STEP, and Philox's ``step`` is n for
that step's n-th draw, so nothing else than (seed, walk, k, n) decides. A draw has four
words of 32 bits; words 0 and 1 make one number of 64 bits, ``wide = word1 << 32 | word0``.

A step first finds the candidates, a range of a row: the row of the node, of its edges of one
relation, or of those that are late enough. Then one is proposed:

DIRECT     the ``wide * count >> 64``-th: edges are alike
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

RESERVOIR reads every edge of the row once and needs no table: any weight will do, known only now.

Only comparisons of exactly rounded doubles and integers decide in DIRECT and REJECTION, judged or
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
    """What a step reads, as arrays of one backend.

    indptr     (rows * groups + 1,) int64; node v's candidates of group g are row v * groups + g
    indices    (edges,) int32 or int64: ids over the whole graph
    weights    (edges,) float32, or None: all alike
    relations  (edges,) int32, or None; read by RESERVOIR only
    times      (edges,) int64 keys, ascending in each row, or None (RESERVOIR: in any order)
    groups     how many rows a node has: 1, or one for each relation of a schema
    neighbours (indptr, indices) ascending in each row, for second-order walks, where ``indptr``
               and ``indices`` are not; None: they are
    degrees, labels  (nodes,) int32 of all nodes, for expressions that name them, else None
    bounds     (rows * groups,) float32: the largest weight of a row; with weights
    prefix     (edges,) float64: running sums of weights in each row; for ITS
    chance, other  (edges,) float32, int32: the share of a slot that is its edge's own, and the
               place in the row of the edge that has the rest; for ALIAS
    packed     what a backend makes of these for speed
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
    """What a step does.

    stop, restart  probabilities, asked before every step
    second_order   judge proposals by the previous node, with the two factors
    symmetric      every edge is there in both directions: u is in v's row if v is in u's
    schema         for the k-th step, the group of rows (RESERVOIR: the relation) to choose from;
                   () is no schema; ``cyclic``: it begins again when it ends, else the walk ends
    timed          a step's edge is not earlier than the one before
    earliest, latest  keys of the times that may be taken at all, where the rows have times
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
        """No factor is larger."""
        return max(self.return_factor, 1.0, self.far_factor)

    @property
    def stop_below(self) -> int:
        """What a word of 32 bits must be below for the walk to stop."""
        return round(self.stop * 2**32)

    @property
    def restart_below(self) -> int:
        """What a word of 32 bits must be below for the walk to begin again."""
        return round(self.restart * 2**32)


@dataclass(frozen=True, eq=False)
class Owned:
    """Which rows are here, of a graph that lies in parts.

    rank        the part that is here; its rows are the local ids of its nodes
    assignment  (nodes,) int32: the part of each node
    local       (nodes,) int32 or int64: the row of each node in its part
    """

    rank: int
    assignment: AnyArray
    local: AnyArray


@dataclass(frozen=True, eq=False)
class Walkers:
    """Walks on their way through the parts of a graph; arrays of equal length.

    walk       int64: the walk's number
    slot       int64: its row in the table of paths
    start      ids: its first node
    node       ids: where it is
    previous   ids: where it was before, -1 at the start
    candidate  ids: a proposal to be judged where the row of ``previous`` is, or -1
    coin       uint32: word 3 of the draw that proposed the candidate
    step       int32: how many nodes its path has
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
