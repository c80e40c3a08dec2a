"""Features, labels and splits, cut into the rows that each part owns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy, lists_of
from penstock.files import FileEntry
from penstock.graph import Graph
from penstock.partition.build.columns import GrowingArray, save_arrays
from penstock.partition.part import part_folder
from penstock.threads import spread

CHUNK_BYTES = 1 << 26


def write_features(graph: Graph, owned: list[Array], root: Path) -> list[FileEntry]:
    """Write the features of each part's nodes, reading the graph's feature files once."""
    entry = graph.manifest.features
    if entry is None:
        return []
    if entry.kind == "sparse":
        return _write_sparse(graph, owned, root)
    ends = (*entry.starts[1:], graph.num_nodes)
    files = list(zip(range(len(ends)), entry.starts, ends, strict=True))
    out = [
        GrowingArray(
            root, f"{part_folder(rank)}/features.npy", (len(ids), entry.width), entry.dtype
        )
        for rank, ids in enumerate(owned)
    ]
    step = max(1, CHUNK_BYTES // max(entry.width * np.dtype(entry.dtype).itemsize, 1))
    for number, start, stop in files:
        rows = graph.feature_rows(number)

        def append(rank: int, rows: Any = rows, start: int = start, stop: int = stop) -> None:
            ids = owned[rank]
            here = ids[slice(*np.searchsorted(ids, [start, stop]))] - start
            for first in range(0, len(here), step):
                out[rank].append(rows[here[first : first + step]])

        spread(append, range(len(owned)))
    return [column.close() for column in out]


def _write_sparse(graph: Graph, owned: list[Array], root: Path) -> list[FileEntry]:
    entries: list[FileEntry] = []
    for rank, ids in enumerate(owned):
        matrix = graph.features(ids)
        named = {f"features.{n}": getattr(matrix, n) for n in ("indptr", "indices", "data")}
        entries += save_arrays(root, rank, named)
    return entries


def write_labels(graph: Graph, owned: list[Array], root: Path) -> list[FileEntry]:
    """Write the labels and splits of each part's nodes, if the graph has them."""
    entries: list[FileEntry] = []
    if graph.manifest.splits:
        roles = as_numpy(graph.node_column("split"), -1)
        entries += _write_rows(roles.astype(np.int8), "split", owned, root)
    if graph.manifest.labels == "multi":
        entries += _write_lists(graph, owned, root)
    elif graph.manifest.labels is not None:
        entries += _write_rows(np.asarray(graph.labels()), "labels", owned, root)
    return entries


def _write_rows(values: Array, name: str, owned: list[Array], root: Path) -> list[FileEntry]:
    return [save_arrays(root, rank, {name: values[ids]})[0] for rank, ids in enumerate(owned)]


def _write_lists(graph: Graph, owned: list[Array], root: Path) -> list[FileEntry]:
    import pyarrow as pa

    column = graph.node_column("label").combine_chunks()
    entries: list[FileEntry] = []
    for rank, ids in enumerate(owned):
        indptr, indices, labelled = lists_of(column.take(pa.array(ids)))
        named = {"labelled": labelled, "labels.indptr": indptr, "labels.indices": indices}
        entries += save_arrays(root, rank, named)
    return entries
