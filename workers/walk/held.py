"""The rows of a whole graph, which a worker keeps for all who walk over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.graph import Graph
from penstock.kernels.walk_rules import WalkGraph
from penstock.workers.plugin import Resources, resources
from penstock.workers.walk.rows import WalkGraphSpec


@dataclass(frozen=True, eq=False)
class _Kept:
    """A walk graph as a worker's cache keeps it; what is only mapped counts for nothing."""

    rows: WalkGraph
    nbytes: int


@contextmanager
def held_rows(graph: Path, version: str, spec: WalkGraphSpec) -> Iterator[WalkGraph]:
    """Give the rows of a graph, which this worker keeps for the tasks to come."""
    held = resources()
    key = ("walk rows", str(graph), version, spec)
    with held.cache.hold(key, lambda: _load(held, graph, spec)) as kept:
        yield kept.rows


def _load(held: Resources, path: Path, spec: WalkGraphSpec) -> _Kept:
    graph = Graph.open(held.stage(path))
    put: Any = np.asarray
    if held.device is not None:
        import cupy

        put = cupy.asarray
    columns = columns_of(graph, spec)
    size = spec.bytes(graph.num_nodes, graph.num_edges, columns["indices"].itemsize)
    return _Kept(spec.build(columns, put), size)


def columns_of(graph: Graph, spec: WalkGraphSpec) -> dict[str, Any]:
    """Return the columns of a graph that a spec reads."""
    columns: dict[str, Any] = dict(graph.csr().arrays())
    if spec.degrees:
        columns["degrees"] = np.diff(columns["indptr"]).astype(np.int32)
    if spec.labels:
        columns["labels"] = np.asarray(graph.labels(), np.int32)
    return columns
