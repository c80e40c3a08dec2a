"""TU data sets, as etl reads them: nodes are the rows of the indicator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrow import as_arrow
from penstock.pipelines.centrality.inputs.parsed import Parsed
from penstock.pipelines.centrality.options import CentralityOptions


def parts(path: Path, files: list[Path]) -> Iterator[tuple[Any, int]]:
    """Yield the data set, which one task reads."""
    yield path, 1


def parse(path: Path, directed: bool, options: CentralityOptions) -> Parsed:
    """Read the edges; runs on a worker."""
    import pyarrow as pa

    from penstock.pipelines.etl.zoos.tu import read_tu

    data = read_tu(path, may_miss=True)  # features are not used
    nodes, edges = np.arange(len(data.graph_of)), len(data.sources)
    # Every node has a row without a target, and every graph one without ends.
    graph = np.concatenate([data.graph_of[data.sources], data.graph_of, np.arange(data.graphs)])
    sources, targets = (np.zeros(len(graph), np.int64) for _ in range(2))
    sources[:edges], sources[edges : edges + len(nodes)] = data.sources, nodes
    targets[:edges] = data.targets
    row = np.arange(len(graph))
    table = pa.table(
        {
            "graph": as_arrow(graph.astype(np.int64) + 1),
            "source": as_arrow(sources + 1, row >= edges + len(nodes)),
            "target": as_arrow(targets + 1, row >= edges),
        }
    )
    return Parsed(table, [], [])
