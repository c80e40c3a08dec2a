"""What differs between two graphs: the comparison of every job with a base.

Nodes are compared by internal id, which ``etl --base`` keeps. Files with the same SHA-256 in both
manifests are not read, so that a comparison costs what changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, EDGE_COLUMNS, offsets_of
from penstock.errors import InputError
from penstock.graph import Graph

_EDGES = 1 << 20  # compared together: small enough to stay in the cache
_ROWS = 1 << 16  # of features
_WAYS = ("undirected", "directed")


def another_kind(path: Any, what: str, before: Any, now: Any) -> InputError:
    """Return the error of a base that differs from today's graph in ``what``."""
    return InputError(
        f"{path} is a base of another kind: {what}",
        expected=str(before),
        got=str(now),
        remedy="Make both graphs with the same options, or leave --base out",
    )


def check_base(base: Graph, graph: Graph) -> None:
    """Raise InputError unless the graphs agree in direction, types, relations and kind of ids."""
    before, now = base.manifest, graph.manifest
    known = now.relations and now.relations[: len(before.relations or ())]
    compared = {
        "edges": (_WAYS[before.directed], _WAYS[now.directed]),
        "relations": (before.relations, known),
        "zoo": (before.graphs is not None, now.graphs is not None),
        **{
            f"type of {name}": (before.dtypes.get(name), now.dtypes.get(name))
            for name in sorted(before.dtypes.keys() | now.dtypes.keys())
        },
        "ids": (_id_type(base), _id_type(graph)),
    }
    for what, (one, other) in compared.items():
        if one != other:
            raise another_kind(base.path, what, one, other)


def changed_rows(base: Graph, graph: Graph, *, columns: Collection[str] = EDGE_COLUMNS) -> Array:
    """Return which nodes of ``graph`` have another row in ``base``: (nodes,) bool.

    A new node has, and so has one whose internal id is another user's id there. Neighbours are
    compared by internal id.

    columns  those that count, besides the neighbours
    """
    check_base(base, graph)
    changed = _other_ids(base, graph)
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
    cuts = np.searchsorted(now.indptr, np.arange(0, now.edges, _EDGES))
    cuts = np.unique([0, *cuts, now.rows])
    found = [np.empty(0, bool)]
    for low, high in pairwise(cuts.tolist()):
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


def _id_type(graph: Graph) -> str:
    import pyarrow.parquet as pq

    kind = pq.read_schema(graph.ids_file).field("id").type
    return str(kind).removeprefix("large_")


def _other_ids(base: Graph, graph: Graph) -> Array:
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
