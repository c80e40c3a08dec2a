"""The checks of ``Graph.validate``: every byte against its checksum, then the content."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import CorruptFile
from penstock.files import check_sums
from penstock.manifest import COPY_AGAIN
from penstock.progress import Progress

if TYPE_CHECKING:
    from penstock.graph import Graph

_PIECE = 1 << 20  # edges checked together: small enough to stay in the cache


def check_graph(graph: Graph, *, quiet: bool = True) -> None:
    """Read everything and raise CorruptFile for the first fault."""
    check_sums(graph.path, graph.manifest.files.values(), remedy=COPY_AGAIN, quiet=quiet)
    _check_shards(graph, quiet)
    _check_nodes(graph)
    _check_features(graph)
    _check_heldout(graph)
    if graph.manifest.graphs is not None:
        path = graph.path / "graphs.parquet"
        _expect(path, "graphs", graph.manifest.graphs, _parquet_rows(path))


def _check_shards(graph: Graph, quiet: bool) -> None:
    manifest, row, edges, balance = graph.manifest, 0, 0, 0
    with Progress("check edges", total=graph.num_edges, unit="edges", quiet=quiet) as progress:
        for number, entry in enumerate(manifest.shards):
            shard, folder = graph.shard(number), graph.path / "shards" / f"{number:05d}"
            for name, array in shard.arrays():
                _expect(folder / f"{name}.npy", "dtype", manifest.dtypes[name], str(array.dtype))
            fault = next(_shard_faults(shard), None)
            if fault is None and (entry.start, entry.stop) != (row, row + shard.rows):
                fault = f"rows {entry.start}:{entry.stop} do not follow row {row}"
            if fault is not None:
                raise CorruptFile(f"{folder} is inconsistent", got=fault, remedy=COPY_AGAIN)
            if not manifest.directed:
                balance += _one_way(shard)
            row, edges = entry.stop, edges + shard.edges
            progress.advance(shard.edges)
    _expect(graph.path, "rows in all shards", graph.num_nodes, row)
    _expect(graph.path, "edges in all shards", graph.num_edges, edges)
    if balance % 2**64:
        raise CorruptFile(
            f"{graph.path} is not undirected",
            expected="every edge stored both ways",
            got="edges without their reverse",
            remedy=COPY_AGAIN,
        )


def _shard_faults(shard: CSR) -> Iterator[str]:
    """Yield the faults of a row range whose indices ``shard`` has checked."""
    for low, high in _pieces(shard.edges):
        if shard.weights is not None and not (
            np.isfinite(shard.weights[low:high]).all() and shard.weights[low:high].min() >= 0
        ):
            yield "a weight that is negative, infinite or not a number"
    yield from _order_faults(shard)


def _order_faults(shard: CSR) -> Iterator[str]:
    indptr = np.asarray(shard.indptr)
    for low, high in _pieces(shard.edges):
        high = min(high + 1, shard.edges)  # one into the next piece, so that no pair is missed
        steps = np.diff(shard.indices[low:high])
        wrong: Array = steps < 0
        if shard.relations is not None:
            wrong |= (steps == 0) & (np.diff(shard.relations[low:high]) < 0)
        # Neighbours may descend from one row to the next.
        for edge in low + 1 + np.flatnonzero(wrong):
            row = int(np.searchsorted(indptr, edge, side="right")) - 1
            if indptr[row] != edge:
                yield f"the neighbours of row {shard.first_row + row} do not ascend"


def _one_way(shard: CSR) -> int:
    """Return a fingerprint of the directed edges minus that of their reverses.

    Over all edges of an undirected graph the two cancel, modulo 2**64, in any order.
    """
    sources, total = shard.sources(), 0
    for low, high in _pieces(shard.edges):
        here, there = sources[low:high].astype(np.uint64), shard.indices[low:high].astype(np.uint64)
        salt: Any = np.uint64(1)
        if shard.relations is not None:
            salt = shard.relations[low:high].astype(np.uint64) * np.uint64(2) + np.uint64(1)
        total += int(_mix(here, there, salt).sum()) - int(_mix(there, here, salt).sum())
    return total


def _mix(first: Array, second: Array, salt: Any) -> Array:
    mixed: Any = first * np.uint64(0x9E3779B97F4A7C15) + second * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93) * salt
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def _check_nodes(graph: Graph) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    path = graph.path / "nodes.parquet"
    _expect(path, "rows", graph.num_nodes, _parquet_rows(path))
    ids = graph.node_column("id")
    _expect(path, "missing ids", 0, ids.null_count)
    if graph.manifest.graphs is None:
        different = pc.count_distinct(ids).as_py()
    else:
        # In a zoo ids are unique within a small graph.
        pairs = pa.table({"graph": graph.node_column("graph"), "id": ids})
        different = pairs.group_by(["graph", "id"]).aggregate([]).num_rows
    _expect(path, "different ids", graph.num_nodes, different)
    classes = graph.manifest.classes
    if graph.manifest.labels == "class" and classes is not None and graph.num_nodes:
        highest = int(np.asarray(graph.labels()).max())
        if highest >= len(classes):
            raise CorruptFile(
                f"{path} has a label that is not a class",
                expected=f"less than {len(classes)}",
                got=str(highest),
                remedy=COPY_AGAIN,
            )
    if (types := graph.manifest.types) != {}:
        found = graph.node_column("type").value_counts()
        counted = {one["values"]: one["counts"] for one in found.to_pylist()}
        _expect(path, "nodes of each type", {n: c for n, c in types.items() if c}, counted)
    for name, count in graph.manifest.splits.items():
        _expect(path, f"{name} nodes", count, int(np.count_nonzero(graph.split(name))))


def _check_features(graph: Graph) -> None:
    entry = graph.manifest.features
    if entry is None:
        return
    if (names := graph.manifest.feature_names) is not None:
        _expect(graph.path, "different names of features", entry.width, len({*names}))
    stops = [*entry.starts, graph.num_nodes][1:]
    for number, (start, stop) in enumerate(zip(entry.starts, stops, strict=True)):
        path = graph.path / "features" / f"{number:05d}"
        try:
            rows: Any = graph.feature_rows(number)
            if entry.kind == "sparse":
                rows.check_format()
        except ValueError as error:
            raise CorruptFile(
                f"{path} is inconsistent", got=str(error), remedy=COPY_AGAIN
            ) from error
        _expect(path, "shape", (stop - start, entry.width), rows.shape)
        _expect(path, "dtype", entry.dtype, str(rows.dtype))


def _check_heldout(graph: Graph) -> None:
    for name, count in graph.manifest.heldout.items():
        for column, array in graph.heldout(name).items():
            path = graph.path / "heldout" / name / f"{column}.npy"
            _expect(path, "edges", count, len(array))


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    return pairwise([*range(0, length, _PIECE), length])


def _parquet_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def _expect(path: Path, what: str, expected: object, got: object) -> None:
    if expected != got:
        raise CorruptFile(
            f"{path} does not agree with graph.json",
            expected=f"{expected} {what}" if isinstance(expected, int) else f"{what} {expected}",
            got=str(got),
            remedy=COPY_AGAIN,
        )
