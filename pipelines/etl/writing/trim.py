"""Which nodes are dropped, and the order of the others: decided on the built rows, by shard.

Steps, in this order: --min-degree, --largest-component, --drop-isolated, --relabel degree. Each
applies to the graph that the step before left. Arrays of one number per node live on the client;
edges are mapped and read once per step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, offsets_of
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.pipelines.etl.base import stable_order
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.shuffle import Edges, Shape, write_segments

# Bytes per node on the client while nodes are chosen: degrees, forest, labels, new ids.
NODE_BYTES = 40


def trims(options: EtlOptions) -> bool:
    """Return whether any option asks for another pass over the built rows."""
    return bool(
        options.min_degree
        or options.largest_component
        or options.drop_isolated
        or options.relabel == "degree"
    )


@dataclass(frozen=True)
class Renumbering:
    """The new id of each old one, and the reverse."""

    new_id: Array  # (old nodes,) int64; -1: dropped
    old_id: Array  # (new nodes,) int64
    bounds: Array  # (new nodes,) int64: out-degree of each new node


def choose_nodes(
    shards: Callable[[], Iterator[CSR]],
    nodes: int,
    options: EtlOptions,
    keep: Array | None,
    base_ids: Array | None,
) -> Renumbering:
    """Return which nodes stay and their new order; ``shards`` gives the rows, mapped.

    keep      (nodes,) bool: nodes that may stay at all; None: all
    base_ids  (nodes,) int64: their ids in the base, -1 if new; None: there is no base
    """
    keep = np.ones(nodes, bool) if keep is None else keep.copy()
    if options.min_degree:
        keep &= _degrees(shards, keep, inward=bool(options.directed)) >= options.min_degree
    if options.largest_component:
        keep &= _largest_component(shards, keep)
    if options.drop_isolated:
        keep &= _degrees(shards, keep, inward=bool(options.directed)) > 0
    old_id = np.flatnonzero(keep)
    if options.relabel == "degree":
        degrees = _degrees(shards, keep, inward=bool(options.directed))[old_id]
        old_id = old_id[np.argsort(-degrees, kind="stable")]
    if base_ids is not None:
        old_id = old_id[stable_order(base_ids[old_id])]
    new_id = np.full(nodes, -1, np.int64)
    new_id[old_id] = np.arange(len(old_id))
    bounds = _degrees(shards, keep, inward=False)[old_id]
    return Renumbering(new_id, old_id, bounds)


def load_shard(root: Path, number: int, first_row: int) -> CSR:
    """Map a shard whose manifest is not written yet."""
    files = (root / "shards" / f"{number:05d}").glob("*.npy")
    return CSR(first_row=first_row, **{file.stem: load_npy(file) for file in files})


def shuffle_shard(
    root: Path, number: int, first_row: int, new_id: Path, shape: Shape, folder: Path
) -> dict[str, Any]:
    """Send a built shard's kept edges to the bins of their new rows; a step for ``once``."""

    def make(folder: Path) -> dict[str, Any]:
        shard = load_shard(root, number, first_row)
        ids = load_npy(new_id)
        sources = ids[shard.sources()].astype(shape.dtype)
        targets = ids[shard.indices].astype(shape.dtype)
        columns = {name: np.asarray(a) for name, a in shard.columns() if name != "relations"}
        relations = None if shard.relations is None else np.asarray(shard.relations)
        edges = Edges(sources, targets, relations, columns)
        edges = edges.where((sources >= 0) & (targets >= 0))
        return write_segments(edges, shape, folder, both_ways=False, keep_loops=True)

    return spill.once(folder, make)


def _degrees(shards: Callable[[], Iterator[CSR]], keep: Array, *, inward: bool) -> Array:
    degrees, add = np.zeros(len(keep), np.int64), kernel("degrees", keep).add_degrees
    for shard in shards():
        add(shard.indptr, shard.indices, shard.first_row, keep, degrees, inward=inward)
    return degrees


def _largest_component(shards: Callable[[], Iterator[CSR]], keep: Array) -> Array:
    components = kernel("components", keep)
    parent = components.new_forest(len(keep))
    for shard in shards():
        rows = keep[shard.first_row : shard.first_row + shard.rows]
        kept = np.repeat(rows, shard.degrees()) & keep[shard.indices]
        before = offsets_of(kept)
        components.union_rows(parent, before[shard.indptr], shard.indices[kept], shard.first_row)
    labels = components.component_labels(parent)
    if not keep.any():
        return keep
    # Dropped nodes are components of their own and must not count.
    sizes = np.bincount(labels[keep])
    return np.asarray(labels == sizes.argmax())
