"""Inspection of all weights before the first walk: invalid ones, and their spread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.csr import CSR
from penstock.errors import InputError
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.walk.options import WalkingOptions
from penstock.workers.walk.rows import single


@dataclass(frozen=True)
class WeightStatistics:
    """Statistics of the weights.

    alike    all are equal, so that edges need no weights
    trials   uniform proposals until one passes, on average over steps
    zero     nodes with edges of weight 0 only
    """

    alike: bool = True
    trials: float = 1.0
    zero: int = 0


def weighted(graph: Graph, options: WalkingOptions) -> bool:
    """Return whether walks read the graph's weights."""
    if options.app == "custom":
        return "weight" in options.names
    return options.weighted and "weights" in graph.manifest.dtypes


def inspect_weights(
    workers: Workers | None, graph: Graph, options: WalkingOptions
) -> WeightStatistics:
    """Read all weights, one shard per task; raise InputError at the first invalid one.

    If walks use none, nothing is read. Without workers this process does it.
    """
    if not weighted(graph, options):
        return WeightStatistics()
    if workers is None:
        found = [_inspect(graph.shard(number)) for number in range(graph.num_shards)]
    else:
        calls = [(str(graph.path), number) for number in range(graph.num_shards)]
        sizes = [shard.edges for shard in graph.manifest.shards]
        found = workers.tasks("inspect weights", inspect_shard, calls, sizes, "edges")
    own = options.app == "custom"  # it defines the meaning of a weight of 0
    for shard in found:
        if shard["bad"] is not None:
            source, target, weight = shard["bad"]
            raise InputError(
                f"{graph.path} has a weight that walks cannot use, on the edge from "
                f"{_name(graph, source)} to {_name(graph, target)}",
                expected="weights of 0 or more, finite in single precision",
                got=str(weight),
                remedy="Correct the weight and run penstock etl again, or "
                + ("leave weight out of --weight" if own else "give --no-weighted"),
            )
    zero = 0 if own else sum(shard["zero"] for shard in found)
    if zero and options.zero_rows == "error":
        node = next(shard["first_zero"] for shard in found if shard["zero"])
        more = f" and {zero - 1:,} other nodes" if zero > 1 else ""
        raise InputError(
            f"all edges of node {_name(graph, node)}{more} have weight 0",
            expected="a weight above 0 on at least one edge of every node that has edges",
            remedy="Drop these edges, or give --zero-rows end: walks end there",
        )
    lows = [shard["low"] for shard in found if shard["edges"]]
    highs = [shard["high"] for shard in found if shard["edges"]]
    edges = sum(shard["edges"] for shard in found)
    return WeightStatistics(
        alike=not edges or (min(lows) == max(highs) and max(highs) > 0),
        trials=sum(shard["trials"] for shard in found) / max(edges, 1),
        zero=zero,
    )


def inspect_shard(graph: str, number: int) -> dict[str, Any]:
    """Return the statistics of one shard; runs on a worker."""
    from penstock.workers.plugin import resources

    with resources().copies.hold(Path(graph), f"shards/{number:05d}") as path:
        return _inspect(Graph.open(path).shard(number))


def _inspect(csr: CSR) -> dict[str, Any]:
    """Return counts of a range of rows that add up over ranges."""
    assert csr.weights is not None
    indptr, indices, first_row = csr.indptr, csr.indices, csr.first_row
    weights = single(csr.weights)
    bounds, bad, zero = kernel("walk", indptr).check_weights(indptr, weights)
    found: dict[str, Any] = {"edges": len(weights), "bad": None, "zero": 0, "trials": 0.0}
    if bad >= 0:
        row = int(np.searchsorted(indptr, bad, side="right")) - 1
        found["bad"] = (first_row + row, int(indices[bad]), float(weights[bad]))
    if bad >= 0 or not len(weights):
        return found
    degrees = np.diff(indptr)
    full = np.flatnonzero(degrees)
    sums = np.add.reduceat(weights, indptr[:-1][full], dtype=np.float64)
    some = sums > 0
    # A step reaches a row in proportion to its number of edges.
    trials = degrees[full][some] ** 2 * bounds[full][some].astype(np.float64) / sums[some]
    found |= {
        "zero": int(np.sum(~some)),
        "first_zero": first_row + zero,
        "low": float(weights.min()),
        "high": float(bounds.max()),
        "trials": float(trials.sum()),
    }
    return found


def _name(graph: Graph, node: int) -> str:
    return str(graph.user_ids([node])[0].as_py())
