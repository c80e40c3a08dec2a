"""The source of a generated graph's edges, and the steps applied to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.arrays import Array

Ends = tuple[Array, Array, "Array | None"]

CHUNK = 1 << 21  # edges drawn at a time


class EdgeSource(ABC):
    """Edges that can be drawn in any part, at any time, any number of times, on any thread.

    nodes      ids are below this
    units      number of draws (edges, or rows of edges)
    step       number of units for about CHUNK edges
    expected   approximate number of edges
    relations  number of relations that distinguish edges, 0 for none
    columns    names of the edge columns that ``edge_columns`` makes
    """

    nodes: int
    units: int
    step: int = CHUNK
    expected: int
    relations: int = 0
    columns: tuple[str, ...] = ()

    @abstractmethod
    def prepare(self, threads: int) -> None:
        """Make what draws need, once the memory for it is known to be there."""

    @abstractmethod
    def draw(self, first: int, count: int) -> Ends:
        """Return the sources, targets and relations (or None) of some units: int32 arrays."""

    def edge_columns(self, sources: Array, targets: Array) -> dict[str, Array]:
        """Return the edge columns that depend only on an edge's two ends."""
        return {}

    def keep(self, sources: Array, targets: Array, relations: Array | None) -> Array | None:
        """Return which of some finished edges stay in the graph, or None for all."""
        return None


@dataclass(frozen=True)
class EdgeRules:
    """The steps applied to drawn edges."""

    undirected: bool = True
    deduplicate: bool = True
    keep_loops: bool = False
    keep_isolated: bool = True


@dataclass(frozen=True)
class BinnedKeys:
    """The keys of one chunk of edges, bin after bin, from bin ``low`` on."""

    drawn: int
    keys: Array
    offsets: Array
    low: int = 0

    def bin(self, number: int) -> Array:
        """Return the keys of one bin."""
        base = self.offsets[self.low]
        return self.keys[self.offsets[number] - base : self.offsets[number + 1] - base]

    def only(self, low: int, high: int) -> BinnedKeys:
        """Return a copy of bins ``low:high``, in no more memory than they need."""
        keys = self.keys[self.offsets[low] : self.offsets[high]].copy()
        return BinnedKeys(self.drawn, keys, self.offsets, low)
