"""TU data sets, as etl reads them: their arcs become an IPC file.

Nodes are the rows of the indicator.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrow import as_arrow
from penstock.pipelines.centrality.inputs.ipc_files import Parsed, write_ipc
from penstock.pipelines.centrality.options import CentralityOptions


def parts(path: Path, files: list[Path]) -> Iterator[tuple[Any, int]]:
    """Yield the data set, which one task reads."""
    yield path, 1


def parse(
    path: Path, scratch: Path, name: str, directed: bool, options: CentralityOptions
) -> Parsed:
    """Write the IPC file; runs on a worker."""
    import pyarrow as pa

    from penstock.pipelines.etl.zoos.tu import read_tu

    data = read_tu(path, may_miss=True)  # features are not used
    nodes, arcs = len(data.graph_of), len(data.sources)
    # Every node has a row without a target, and every graph one without ends.
    graph = np.concatenate(
        [data.graph_of[data.sources], data.graph_of, np.arange(data.graphs)]
    ).astype(np.int64)
    sources = np.concatenate([data.sources, np.arange(nodes), np.zeros(data.graphs)])
    targets = np.concatenate([data.targets, np.zeros(nodes + data.graphs)])
    missing = np.arange(len(graph))
    table = pa.table(
        {
            "graph": as_arrow(graph + 1),
            "source": as_arrow(sources.astype(np.int64) + 1, missing >= arcs + nodes),
            "target": as_arrow(targets.astype(np.int64) + 1, missing >= arcs),
            "weight": as_arrow(np.ones(len(graph))),
        }
    )
    order = as_arrow(np.argsort(graph, kind="stable"))
    return Parsed(write_ipc(scratch, name, table.take(order)), "int64", "int64")
