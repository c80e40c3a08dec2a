"""What differs between two graphs: the comparison of every job with a base.

An output keeps 64 bits of each row of its graph, because in a flow today's graph takes the place of
yesterday's. Nodes are compared by internal id, which ``etl --base`` keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_schema
from penstock.csr import CSR, EDGE_COLUMNS
from penstock.errors import BaseRefused, CorruptFile
from penstock.files import FileEntry, save_npy
from penstock.graph import Graph, load_npy
from penstock.prints import print_factors, words
from penstock.threads import spread
from penstock.writer import row_cuts

_EDGES = 1 << 18  # looked at together: small enough to stay in the cache
_PRINTS = "_rows.npy"
WAYS = ("undirected", "directed")


def another_kind(path: Any, what: str, before: Any, now: Any) -> BaseRefused:
    """Return the error of a base that differs from today's graph in ``what``."""
    return BaseRefused(
        f"{path} is a base of another kind: {what}",
        expected=str(before),
        got=str(now),
        remedy="Make both graphs with the same options, or leave --base out",
    )


def _kind_of(graph: Graph) -> dict[str, Any]:
    about, ids = graph.manifest, read_schema(graph.ids_file).field("id").type
    return {
        "edges": WAYS[about.directed],
        "zoo": about.graphs is not None,
        "ids": str(ids).removeprefix("large_"),
        **{f"type of {name}": about.dtypes.get(name) for name in ("indices", *EDGE_COLUMNS)},
        "relations": None if about.relations is None else [*about.relations],
    }


def check_kind(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise BaseRefused, with the first difference, if a base is of another kind."""
    for what, old in before.items():
        new = now[what]
        if what == "relations" and old is not None and new is not None:
            new = new[: len(old)]  # new ones follow
        if old != new:
            raise another_kind(path, what, old, new)


def same_nodes(before: Graph, now: Graph) -> Array:
    """Return which nodes of ``now`` have the user's id of that node ``before``: (nodes,) bool.

    Raise if the graphs are of different kinds.
    """
    from penstock.splits import id_keys

    check_kind(before.path, _kind_of(before), _kind_of(now))
    return ~differing(*(id_keys(one.user_ids()) for one in (before, now)))


def differing(before: Array, now: Array) -> Array:
    """Return which entries differ from those of before, or are new: (now,) bool."""
    both, found = min(len(before), len(now)), np.ones(len(now), bool)
    found[:both] = before[:both] != now[:both]
    return found


@dataclass(frozen=True, eq=False)
class RowPrints:
    """64 bits of each node's row, and of its user's id, which an output keeps of its graph.

    bits   (2, nodes) uint64: of rows, and of ids
    kind   of the graph, as JSON
    """

    bits: Array
    kind: dict[str, Any]

    @classmethod
    def of(
        cls,
        graph: Graph,
        columns: Collection[str] = (),
        *,
        nodes: Sequence[Array] = (),
    ) -> RowPrints:
        """Return the prints of a graph.

        columns  edge columns that count, besides the neighbours
        nodes    (nodes,) columns whose values of the neighbours count, too
        """
        from penstock.splits import id_keys

        bits = np.empty((2, graph.num_nodes), np.uint64)

        def read(number: int) -> None:
            rows = graph.shard(number)
            bits[0, rows.first_row : rows.first_row + rows.rows] = _bits_of_rows(
                rows, columns, nodes
            )

        spread(read, range(graph.num_shards))
        bits[1] = id_keys(graph.user_ids())
        return cls(bits, _kind_of(graph))

    def changed_since(self, before: RowPrints, path: Path) -> Array:
        """Return which nodes have another row or user's id than ``before``, or are new: (nodes,)
        bool.

        path  of the base, for the error if the graphs are of different kinds
        """
        check_kind(path, before.kind, self.kind)
        return differing(before.bits[0], self.bits[0]) | differing(before.bits[1], self.bits[1])

    def replaced(self, before: RowPrints) -> Array:
        """Return which nodes have the internal id that another user's node had: (nodes,) bool."""
        found = differing(before.bits[1], self.bits[1])
        found[before.bits.shape[1] :] = False
        return found

    def save(self, root: Path) -> FileEntry:
        """Write the bits; ``about`` belongs into the manifest."""
        return save_npy(root, _PRINTS, self.bits)

    @property
    def about(self) -> dict[str, Any]:
        """What a manifest keeps besides the bits."""
        return {"kind": self.kind}

    @classmethod
    def load(cls, root: Path, about: dict[str, Any]) -> RowPrints:
        """Read what ``save`` wrote."""
        bits = load_npy(root / _PRINTS)
        if bits.ndim != 2 or len(bits) != 2 or bits.dtype != np.uint64:
            raise CorruptFile(f"{root / _PRINTS} is damaged", expected="(2, nodes) uint64")
        return cls(bits, about["kind"])


def _bits_of_rows(rows: CSR, columns: Collection[str], nodes: Sequence[Array]) -> Array:
    from penstock.kernels.cpu.row_prints import row_prints

    if not columns and not nodes:
        return row_prints(rows.indptr, rows.indices)
    found = np.zeros(rows.rows, np.uint64)
    for low, high in row_cuts(rows.indptr, _EDGES):
        some = rows.row_range(low, high)
        more = [getattr(some, name) for name in sorted(columns)]
        if more:  # draws and sums depend on the order of parallel edges: their places count
            more.append(np.arange(some.edges) - np.repeat(some.indptr[:-1], some.degrees()))
        more += [column[some.indices] for column in nodes]
        bits = np.zeros(some.edges, np.uint64)
        for column, factor in zip(more, print_factors(len(more)), strict=True):
            bits ^= words(column) * factor
        found[low:high] = row_prints(some.indptr, some.indices, bits)
    return found
