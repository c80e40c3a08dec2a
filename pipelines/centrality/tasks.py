"""The tasks of a run: a piece of a zoo, or the end of one large graph; they run on workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.graph import Graph, load_npy
from penstock.kernels import kernel
from penstock.pipelines.centrality.compute import Columns, compute
from penstock.pipelines.centrality.options import OF_PATHS, CentralityOptions
from penstock.pipelines.centrality.output import CentralityWriter
from penstock.pipelines.centrality.pieces import Piece, on_device, read_piece
from penstock.pipelines.centrality.sources import Shares, from_shares
from penstock.workers.plugin import resources


@dataclass(frozen=True)
class CentralityTask:
    """One run, as its tasks see it.

    version  of the graph, so that a worker never takes an older copy for it
    """

    graph: Path
    version: str
    options: CentralityOptions
    write: CentralityWriter


def compute_piece(task: CentralityTask, number: int, first: int, stop: int) -> None:
    """Compute the graphs ``first .. stop`` of a zoo, and write them."""
    held = resources()
    path = Path(held.stage(task.graph))
    piece = read_piece(path, first, stop, weighted=task.options.weighted)
    found, distances = _computed(piece, task.options)
    task.write(number, piece, found, distances, first)


def finish_graph(task: CentralityTask, listed: str, count: int) -> None:
    """Compute what is left of one graph, once all shares of its sources are there, and write it."""
    held, records = resources(), task.write.records
    path = Path(held.stage(task.graph))
    piece = read_piece(path, 0, 1, weighted=task.options.weighted)
    shares = Shares(load_npy(records.folder / listed), count)
    found = from_shares(records, shares, piece.batch, task.options)
    rest = task.options.wanted - OF_PATHS
    if rest or task.options.distances:
        others = replace(task.options, metrics=",".join(sorted(rest)) or "component")
        more, distances = _computed(piece, others)
        if rest:
            found = Columns(
                found.nodes | more.nodes, found.graphs | more.graphs, found.edges, more.unfinished
            )
    else:
        distances = None
    task.write(0, piece, found, distances, 0)


def _computed(piece: Piece, options: CentralityOptions) -> tuple[Columns, Array | None]:
    """Return the columns of a piece and, if asked, its distances; on the worker's GPU if any."""
    batch: Any = piece.batch
    if resources().device is not None:
        batch = on_device(batch)
    found = compute(batch, options)
    if not options.distances:
        return found, None
    distances = kernel("centrality", batch.indptr).distances(batch)
    return found, np.asarray(distances.get() if hasattr(distances, "get") else distances)


def check_weights(path: str, number: int) -> str | None:
    """Return what is wrong with the weights of a shard, if anything is."""
    weights = Graph.open(path).shard(number).weights
    if weights is None:
        return None
    bad = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
    return f"an edge has the weight {weights[bad[0]]:g}" if len(bad) else None
