"""Yesterday's centralities: a graph that has not changed takes its values from them.

A graph is known by 128 bits of its structure. Every output keeps them in structure/00000.npy, one
row per graph of a part, with its number of nodes; a graph that failed has zeros, so that it is
computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import (
    as_numpy,
    one_array,
    positions,
    read_schema,
    read_table,
    reading_parquet,
)
from penstock.csr import offsets_of, ranges
from penstock.errors import BaseRefused, CorruptFile
from penstock.files import part_name, sha256_of
from penstock.graph import load_npy
from penstock.graph_changes import another_kind, check_kind
from penstock.kernels.centrality_rules import GraphBatch
from penstock.options import given_options
from penstock.pipelines.centrality.compute import Columns
from penstock.pipelines.centrality.options import CentralityOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipelines.centrality.inputs import CentralityInput

# Options with which the same graph has the same values.
_DECIDING = (
    "weighted",
    "wf_improved",
    "normalized",
    "endpoints",
    "alpha",
    "tol",
    "max_iter",
    "dtype",
    "resolution",
    "seed",
)


def structures_of(batch: GraphBatch) -> Array:
    """Return 128 bits of each graph of a batch, and its number of nodes: (graphs, 3) uint64."""
    from penstock.kernels.cpu.small_graphs import structures

    weights = [one for one in (batch.weights, batch.sums) if one is not None]
    return structures(batch.ptr, batch.indptr, batch.indices, *weights)


@dataclass(frozen=True)
class Base:
    """An earlier output with the same metrics and options.

    made  the digest of its manifest: another output may come to the same path
    """

    path: Path
    made: str

    @classmethod
    def open(cls, path: Path, source: CentralityInput, options: CentralityOptions) -> Base:
        """Open the output that ``--base`` names, of graphs of the same kind."""
        from penstock.pipelines.centrality.output import FORMAT

        if source.one and "pagerank" not in options.wanted:
            raise BaseRefused(
                "--base of one graph is for PageRank: other metrics are computed anew",
                remedy="Leave --base out",
            )
        body = FORMAT.load(path)
        # Of one graph PageRank begins there, and comes to the same ranks.
        deciding = ("weighted",) if source.one else options.with_effect(_DECIDING)
        before, now = (
            {n: given.get(n) for n in deciding}
            for given in (body["options"], given_options(options))
        )
        before["directed"], now["directed"] = body.get("directed"), source.directed
        if missing := set(options.names).difference(body["metrics"]):
            before["metrics"], now["metrics"] = ", ".join(body["metrics"]), ", ".join(missing)
        check_kind(path, before, now)
        parts = sorted(name for name in FORMAT.files(path, body) if name.startswith("nodes/"))
        kinds = ("one graph", "several graphs")
        if parts and (named := "graph_id" in read_schema(path / parts[0]).names) == source.one:
            raise another_kind(path, "input", kinds[named], kinds[not named])
        return cls(path, sha256_of(path / FORMAT.file))

    def ranks(self, nodes: pa.Array) -> Array:
        """Return the PageRank that nodes of the one graph had; new ones have an average one."""
        import pyarrow as pa

        files = sorted((self.path / "nodes").glob("*.parquet"))
        table = pa.concat_tables(read_table(file, ["node", "pagerank"]) for file in files)
        ids = one_array(table.column("node"))
        if ids.type != nodes.type:
            raise another_kind(self.path, "ids", ids.type, nodes.type)
        average = 1 / max(len(ids), 1)
        ranks = np.append(as_numpy(table.column("pagerank"), average), average)
        found = ranks[positions(ids, nodes)]
        return np.asarray(found / found.sum(), np.float64)

    def look_up(self, structure: Array) -> Known:
        """Return which graphs the base has, and where."""
        (first, second), _ = _index(self)
        at = np.minimum(np.searchsorted(first, structure[:, 0]), len(first) - 1)
        same = (first[at] == structure[:, 0]) & (second[at] == structure[:, 1])
        return Known(self, same & (structure[:, 0] > 0), at)


@lru_cache(1)
def _index(base: Base) -> tuple[Array, Array]:
    """Return the bits of all graphs of a base, (2, graphs), ascending, and their places.

    A place is a part, the graph's number there, and its first node there: (3, graphs).
    """
    import pyarrow.parquet as pq

    bits, places = [np.zeros((1, 2), np.uint64)], [np.zeros((1, 3), np.int64)]  # of no graph
    for file in sorted((base.path / "structure").glob("*.npy")):  # of large graphs there is none
        part, nodes = load_npy(file), base.path / "nodes" / f"{part_name(int(file.stem))}.parquet"
        with reading_parquet(nodes):
            rows = pq.read_metadata(nodes).num_rows
        if len(part) and (part[:, 2].max() > rows or part[:, 2].sum() != rows):
            raise CorruptFile(f"{file} is damaged", expected=f"graphs of {rows:,} nodes together")
        before = offsets_of(part[:, 2].astype(np.int64))[:-1]
        numbers = np.full(len(part), int(file.stem)), np.arange(len(part))
        bits.append(part[:, :2])
        places.append(np.stack([*numbers, before], axis=1))
    whole = np.concatenate(bits)
    order = np.argsort(whole[:, 0], kind="stable")
    return whole[order].T.copy(), np.concatenate(places)[order].T.copy()


@dataclass(frozen=True)
class Known:
    """Which graphs of a batch a base has: a mask, and their places in its index."""

    base: Base
    mask: Array
    at: Array

    def rest(self, batch: GraphBatch) -> GraphBatch:
        """Return the other graphs of the batch."""
        of_nodes = np.repeat(~self.mask, batch.sizes)
        degrees = np.diff(batch.indptr)
        of_edges = np.repeat(of_nodes, degrees)
        number = np.cumsum(of_nodes) - 1
        weights, sums = (a if a is None else a[of_edges] for a in (batch.weights, batch.sums))
        return replace(
            batch,
            ptr=offsets_of(batch.sizes[~self.mask]),
            indptr=offsets_of(degrees[of_nodes]),
            indices=number[batch.indices[of_edges]].astype(batch.indices.dtype),
            weights=weights,
            sums=sums,
        )

    def joined(self, batch: GraphBatch, computed: Columns) -> Columns:
        """Return the results of the whole batch: those computed, and those of the base."""
        _, (of_graphs, numbers, firsts) = _index(self.base)
        known, other = np.flatnonzero(self.mask), np.flatnonzero(~self.mask)
        sizes, of_nodes = batch.sizes, np.repeat(self.mask, batch.sizes)
        nodes = {name: _spread(values, ~of_nodes) for name, values in computed.nodes.items()}
        graphs = {name: _spread(values, ~self.mask) for name, values in computed.graphs.items()}
        parts = of_graphs[self.at[known]]
        for part in np.unique(parts):
            chosen = known[parts == part]
            places = self.at[chosen]
            rows = ranges(batch.ptr[chosen], sizes[chosen])
            there = ranges(firsts[places], sizes[chosen])
            for name, values in _columns(self.base.path, "nodes", int(part), nodes):
                nodes[name][rows] = values[there]
            for name, values in _columns(self.base.path, "graphs", int(part), graphs):
                graphs[name][chosen] = values[numbers[places]]
        lacking = {metric: other[some] for metric, some in computed.lacking.items()}
        return Columns(nodes, graphs, lacking=lacking)


def _columns(path: Path, kind: str, part: int, names: Iterable[str]) -> list[tuple[str, Any]]:
    if not (wanted := list(names)):
        return []
    table = read_table(path / kind / f"{part_name(part)}.parquet", wanted)
    return [(name, as_numpy(table.column(name), 0)) for name in wanted]


def _spread(values: Array, where: Array) -> Array:
    """Return an array with the values at the places of a mask."""
    found = np.zeros(len(where), values.dtype)
    found[where] = values
    return found
