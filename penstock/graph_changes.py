"""What differs between two graphs: the comparison of every job with a base.

Nodes are compared by internal id, which ``etl --base`` keeps. Files with the same SHA-256 in both
manifests are not read, so that a comparison costs what changed.

``changed_rows`` compares with a graph that is there; ``RowPrints`` with one that is gone, whose
output kept 64 bits of each row: in a flow today's graph takes the place of yesterday's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, EDGE_COLUMNS, offsets_of
from penstock.errors import BaseRefused, CorruptFile
from penstock.files import FileEntry, save_npy
from penstock.graph import Graph, load_npy
from penstock.threads import spread
from penstock.writer import row_cuts

_EDGES = 1 << 18  # compared together: small enough to stay in the cache
_ROWS = 1 << 16  # of features
_PRINTS = "_rows.npy"
_FACTORS = tuple(0x9E3779B97F4A7C15 * odd % 2**64 for odd in (1, 3, 5, 7, 9))
_WAYS = ("undirected", "directed")


def another_kind(path: Any, what: str, before: Any, now: Any) -> BaseRefused:
    """Return the error of a base that differs from today's graph in ``what``."""
    return BaseRefused(
        f"{path} is a base of another kind: {what}",
        expected=str(before),
        got=str(now),
        remedy="Make both graphs with the same options, or leave --base out",
    )


def check_base(base: Graph, graph: Graph) -> None:
    """Raise BaseRefused unless the graphs agree in direction, types, relations and kind of ids."""
    _check_kind(base.path, _kind_of(base), _kind_of(graph))


def _kind_of(graph: Graph) -> dict[str, Any]:
    import pyarrow.parquet as pq

    about, ids = graph.manifest, pq.read_schema(graph.ids_file).field("id").type
    return {
        "edges": _WAYS[about.directed],
        "zoo": about.graphs is not None,
        "ids": str(ids).removeprefix("large_"),
        **{f"type of {name}": about.dtypes.get(name) for name in ("indices", *EDGE_COLUMNS)},
        "relations": None if about.relations is None else [*about.relations],
    }


def _check_kind(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    for what, old in before.items():
        new = now[what]
        if what == "relations" and old is not None and new is not None:
            new = new[: len(old)]  # new ones follow
        if old != new:
            raise another_kind(path, what, old, new)


def changed_rows(base: Graph, graph: Graph, *, columns: Collection[str] = EDGE_COLUMNS) -> Array:
    """Return which nodes of ``graph`` have another row in ``base``: (nodes,) bool.

    A new node has, and so has one whose internal id is another user's id there. Neighbours are
    compared by internal id.

    columns  those that count, besides the neighbours
    """
    check_base(base, graph)
    changed = other_ids(base, graph)
    names = ["indptr", "indices", *(n for n in columns if n in graph.manifest.dtypes)]
    before, now = base.manifest.shards, graph.manifest.shards
    ends = min(base.num_nodes, graph.num_nodes)
    for old, new, low, high in _overlaps(
        [shard.start for shard in before], [shard.start for shard in now], ends
    ):
        same_range = (before[old].start, before[old].stop) == (now[new].start, now[new].stop)
        files = [(f"shards/{old:05d}/{n}.npy", f"shards/{new:05d}/{n}.npy") for n in names]
        if not (same_range and _same_files(base, graph, files)):
            one, other = (
                g.shard(number).row_range(low - entry.start, high - entry.start)
                for g, number, entry in ((base, old, before[old]), (graph, new, now[new]))
            )
            changed[low:high] |= _rows_differ(one, other, names[1:])
    return changed


def changed_features(base: Graph, graph: Graph) -> Array:
    """Return which nodes of ``graph`` have other features in ``base``, or are new: (nodes,) bool.

    Without features in either graph, only new nodes are.
    """
    check_base(base, graph)
    before, now = base.manifest.features, graph.manifest.features
    kinds = (
        one and (one.kind, one.width, one.dtype, about.feature_names)
        for one, about in ((before, base.manifest), (now, graph.manifest))
    )
    if len({*(pair := tuple(kinds))}) > 1:
        raise another_kind(base.path, "features", *(kind and kind[:3] for kind in pair))
    changed = np.zeros(graph.num_nodes, bool)
    changed[base.num_nodes :] = True
    if before is None or now is None:
        return changed
    parts = ("",) if now.kind == "dense" else (".indptr", ".indices", ".data")
    stops = [[*one.starts[1:], g.num_nodes] for one, g in ((before, base), (now, graph))]
    for old, new, low, high in _overlaps(
        before.starts, now.starts, min(base.num_nodes, graph.num_nodes)
    ):
        first = before.starts[old], now.starts[new]
        same_range = first[0] == first[1] and stops[0][old] == stops[1][new]
        files = [(f"features/{old:05d}{p}.npy", f"features/{new:05d}{p}.npy") for p in parts]
        if same_range and _same_files(base, graph, files):
            continue
        one: Any = base.feature_rows(old)[low - first[0] : high - first[0]]
        other: Any = graph.feature_rows(new)[low - first[1] : high - first[1]]
        if now.kind == "dense":
            for row in range(0, high - low, _ROWS):
                unequal = _bits(one[row : row + _ROWS]) != _bits(other[row : row + _ROWS])
                changed[low + row : low + row + len(unequal)] = unequal.any(axis=1)
        else:
            one, other = (CSR(m.indptr, m.indices, weights=m.data) for m in (one, other))
            changed[low:high] |= _rows_differ(one, other, ["indices", "weights"])
    return changed


@dataclass(frozen=True, eq=False)
class RowPrints:
    """64 bits of each node's row, and of its user's id, which an output keeps of its graph.

    bits   (2, nodes) uint64: of rows, and of ids
    kind   of the graph, as JSON; files: what the bits were made of, by range of rows
    """

    bits: Array
    kind: dict[str, Any]
    files: dict[str, str]

    @classmethod
    def of(
        cls,
        graph: Graph,
        columns: Collection[str] = (),
        *,
        nodes: Sequence[Array] = (),
        known: RowPrints | None = None,
    ) -> RowPrints:
        """Return the prints of a graph.

        columns  edge columns that count, besides the neighbours
        nodes    (nodes,) columns whose values of the neighbours count, too
        known    earlier prints, whose ranges with the same files are not read
        """
        from penstock.splits import id_keys

        bits = np.zeros((2, graph.num_nodes), np.uint64)
        files, missing = {}, []
        for number, shard in enumerate(graph.manifest.shards):
            names = ("indptr", "indices", *sorted(columns))
            sums = [graph.manifest.files[f"shards/{number:05d}/{n}.npy"].sha256 for n in names]
            name = f"{shard.start}:{shard.stop} {' '.join(names)}"
            files[name] = sha256("".join(sums).encode()).hexdigest()
            if not nodes and known is not None and known.files.get(name) == files[name]:
                bits[0, shard.start : shard.stop] = known.bits[0, shard.start : shard.stop]
            else:
                missing.append(number)

        def read(number: int) -> None:
            rows = graph.shard(number)
            bits[0, rows.first_row : rows.first_row + rows.rows] = _bits_of_rows(
                rows, columns, nodes
            )

        spread(read, missing)
        files["ids"] = graph.manifest.files[graph.ids_file.name].sha256
        if known is not None and known.files["ids"] == files["ids"]:
            bits[1] = known.bits[1]
        else:
            bits[1] = id_keys(graph.user_ids())
        return cls(bits, _kind_of(graph), files)

    def changed_since(self, before: RowPrints, path: Path) -> Array:
        """Return which nodes have another row or user's id than ``before``, or are new: (nodes,)
        bool.

        path  of the base, for the error if the graphs are of different kinds
        """
        _check_kind(path, before.kind, self.kind)
        both = min(before.bits.shape[1], self.bits.shape[1])
        changed = np.ones(self.bits.shape[1], bool)
        changed[:both] = (before.bits[:, :both] != self.bits[:, :both]).any(axis=0)
        return changed

    def save(self, root: Path) -> FileEntry:
        """Write the bits; ``about`` belongs into the manifest."""
        return save_npy(root, _PRINTS, self.bits)

    @property
    def about(self) -> dict[str, Any]:
        """The kind of the graph, and what the bits were made of."""
        return {"kind": self.kind, "files": self.files}

    @classmethod
    def load(cls, root: Path, about: dict[str, Any]) -> RowPrints:
        """Read what ``save`` wrote."""
        bits = load_npy(root / _PRINTS)
        if bits.ndim != 2 or len(bits) != 2 or bits.dtype != np.uint64:
            raise CorruptFile(f"{root / _PRINTS} is damaged", expected="(2, nodes) uint64")
        return cls(bits, about["kind"], about["files"])


def _bits_of_rows(rows: CSR, columns: Collection[str], nodes: Sequence[Array]) -> Array:
    from penstock.kernels.cpu.small_graphs import structures

    found = np.empty(rows.rows, np.uint64)
    for low, high in row_cuts(rows.indptr, _EDGES):
        some = rows.row_range(low, high)
        keys = some.indices.astype(np.int64)
        more = [getattr(some, name) for name in sorted(columns)]
        more += [column[some.indices] for column in nodes]
        for column, factor in zip(more, _FACTORS, strict=False):
            keys ^= (_bits(column).astype(np.uint64) * np.uint64(factor)).view(np.int64)
        keys += np.repeat(np.arange(some.rows), some.degrees())  # a row as a graph of one node
        ends = np.arange(some.rows + 1), np.asarray(some.indptr)
        found[low:high] = structures(*ends, keys)[:, 0] ^ some.degrees().astype(np.uint64)
    return found


def _overlaps(
    before: Sequence[int], now: Sequence[int], ends: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the numbers of a range of each list of starts, and the rows that both have."""
    cuts = sorted({start for start in (*before, *now) if start < ends} | {ends})
    for low, high in pairwise(cuts):
        old, new = (int(np.searchsorted(s, low, side="right")) - 1 for s in (before, now))
        yield old, new, low, high


def _same_files(base: Graph, graph: Graph, pairs: list[tuple[str, str]]) -> bool:
    before, now = base.manifest.files, graph.manifest.files
    return all(before[old].sha256 == now[new].sha256 for old, new in pairs)


def _rows_differ(before: CSR, now: CSR, names: list[str]) -> Array:
    """Return which of the same rows of two graphs differ: (rows,) bool."""
    found = [np.empty(0, bool)]
    for low, high in row_cuts(now.indptr, _EDGES):
        one, other = before.row_range(low, high), now.row_range(low, high)
        changed = one.degrees() != other.degrees()
        if changed.any():  # compare the edges of the other rows
            one, other = _without(one, changed), _without(other, changed)
        unequal = np.zeros(other.edges, bool)
        for name in names:
            unequal |= _bits(getattr(one, name)) != _bits(getattr(other, name))
        at = np.searchsorted(other.indptr, np.flatnonzero(unequal), side="right") - 1
        changed[at] = True
        found.append(changed)
    return np.concatenate(found)


def _without(csr: CSR, rows: Array) -> CSR:
    """Return all rows, those of a mask without edges."""
    degrees = csr.degrees()
    kept = np.repeat(~rows, degrees)
    columns = {name: array[kept] for name, array in csr.arrays() if name != "indptr"}
    return CSR(offsets_of(np.where(rows, 0, degrees)), first_row=csr.first_row, **columns)


def _bits(array: Array) -> Array:
    """Return numbers as whole ones of their size, so that NaN equals itself."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def other_ids(base: Graph, graph: Graph) -> Array:
    """Return which nodes are new, or have another user's id in the base."""
    changed = np.zeros(graph.num_nodes, bool)
    changed[base.num_nodes :] = True
    name = graph.ids_file.name
    if base.manifest.files[name].sha256 != graph.manifest.files[name].sha256:
        import pyarrow.compute as pc

        both = min(base.num_nodes, graph.num_nodes)
        one, other = (g.user_ids().slice(0, both) for g in (base, graph))
        changed[:both] = pc.not_equal(one.cast(other.type), other)
    return changed
