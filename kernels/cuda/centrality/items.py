"""The work of the teams of a launch: sources of graphs, by size, and their output slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Array

ITEM = np.dtype(
    {
        "names": ["first_node", "first_source", "last_source", "slot", "nodes", "graph"],
        "formats": ["i8", "i8", "i8", "i8", "i4", "i4"],
    }
)
assert ITEM.itemsize == 40  # as Item of team.cuh


@dataclass(frozen=True, eq=False)
class Items:
    """The items of a batch, largest graphs first, and the positions of their values.

    items  (items,) of ITEM
    slots  number of values that are written
    parts  of graphs that several items share: the nodes and slots of the second, third, ... items
    """

    items: Array
    slots: int
    parts: tuple[tuple[Array, Array], ...]


def plan_items(ptr: Array, source_starts: Array, width: int, wanted: int) -> Items:
    """Cut a batch into items; every graph has one; if graphs are few, each has several.

    source_starts  (graphs + 1,): the start of the sources of each graph
    width          number of sources that a team takes at a time
    wanted         number of items that keep the GPU busy
    """
    sizes, counts = np.diff(ptr), np.diff(source_starts)
    graphs = len(sizes)
    rounds = np.maximum(-(-counts // width), 1)
    most = -(-wanted // max(graphs, 1))
    each = -(-rounds // np.minimum(rounds, most))  # rounds of an item
    shares = -(-rounds // each)
    graph = np.repeat(np.arange(graphs), shares)
    part = np.arange(len(graph)) - np.repeat(np.cumsum(shares) - shares, shares)
    items = np.zeros(len(graph), ITEM)
    items["graph"], items["nodes"], items["first_node"] = graph, sizes[graph], ptr[:-1][graph]
    first = source_starts[:-1][graph] + part * each[graph] * width
    items["first_source"] = first
    items["last_source"] = np.minimum(first + each[graph] * width, source_starts[1:][graph])
    # First items of graphs write at the final positions of their nodes, others behind.
    later = part > 0
    behind = np.cumsum(np.where(later, sizes[graph], 0))
    items["slot"] = np.where(later, ptr[-1] + behind - sizes[graph], ptr[:-1][graph])
    parts = tuple(_places(items[part == k]) for k in range(1, int(shares.max(initial=1))))
    order = np.argsort(-items["nodes"], kind="stable")
    return Items(items[order], int(ptr[-1] + behind[-1]) if len(graph) else 0, parts)


def by_size(items: Array, bounds: tuple[int, ...]) -> Iterator[tuple[int, Array]]:
    """Yield the number of a size class and its items; class i has up to ``bounds[i]`` nodes.

    Larger graphs are in class ``len(bounds)``. The largest come first.
    """
    classes = np.searchsorted(np.array(bounds), items["nodes"])
    for number in range(len(bounds), -1, -1):
        chosen = items[classes == number]
        if len(chosen):
            yield number, chosen


def _places(items: Array) -> tuple[Array, Array]:
    sizes = items["nodes"].astype(np.int64)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(items["first_node"], sizes) + within, np.repeat(items["slot"], sizes) + within
