"""Very many small graphs, written shard by shard in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.files import FileEntry
from penstock.kernels import generate_rules
from penstock.kernels.cpu import zoo as kernels
from penstock.kernels.streams import Stream
from penstock.pipelines.generate.budget import shuffle
from penstock.pipelines.generate.job import Generator
from penstock.pipelines.generate.options import ZooOptions
from penstock.progress import Progress
from penstock.threads import results
from penstock.writer import SHARD_EDGES, GrowingGraph, row_cuts, write_shard, write_table

# SwarmGraph, table 3: of a million graphs, the number of each size and kind.
SIZES = (32, 64, 128, 256, 512, 1024)
SHARES = {
    generate_rules.RMAT: (57_795, 58_881, 110_831, 104_287, 105_780, 107_020),
    generate_rules.RANDOM: (42_205, 41_119, 89_169, 95_713, 94_220, 92_980),
}


class Zoo:
    """The shape of every graph: its size, kind, number of edges, and position."""

    def __init__(self, options: ZooOptions, threads: int) -> None:
        graphs, seed = options.graphs, options.seed
        cells = [(size, kind) for kind in SHARES for size in SIZES]
        counts = scaled([share for kind in SHARES for share in SHARES[kind]], graphs)
        # Shuffled, so that any range of graphs is a fair sample of all.
        position = shuffle(seed, Stream.PERMUTE_NODES, graphs, threads)
        cell = np.repeat(np.arange(len(cells), dtype=np.int8), counts)[position]
        self.sizes = np.array([size for size, _ in cells], np.int64)[cell]
        self.kinds = np.array([kind for _, kind in cells], np.int8)[cell]
        self.edges = kernels.edge_counts(
            seed, self.sizes, options.least_degree, options.most_degree, 0
        )
        self.first_node = offsets_of(self.sizes)
        self.first_arc = offsets_of(2 * self.edges)
        self.graphs, self.seed = graphs, seed
        self.nodes, self.arcs = int(self.first_node[-1]), int(self.first_arc[-1])
        self.id_dtype = id_dtype(self.nodes)

    def shard(self, low: int, high: int) -> CSR:
        """Return the rows of graphs ``low:high``."""
        degrees, targets = kernels.edges(
            self.seed, self.sizes[low:high], self.edges[low:high], self.kinds[low:high], low
        )
        first = self.first_node[low:high].astype(self.id_dtype)
        targets = targets.astype(self.id_dtype, copy=False)
        targets += np.repeat(first, 2 * self.edges[low:high])
        return CSR(offsets_of(degrees), targets, first_row=int(self.first_node[low]))

    def node_columns(self, first: int, count: int) -> dict[str, Array]:
        """Return the columns of nodes.parquet for some nodes."""
        rows = np.arange(first, first + count)
        low, high = np.searchsorted(self.first_node, [first, first + count - 1], side="right") - 1
        ends = np.clip(self.first_node[low : high + 2], first, first + count)
        graph = np.repeat(np.arange(low, high + 1), np.diff(ends))
        numbers = rows - self.first_node[graph]
        return {"id": numbers.astype(np.int32), "graph": graph.astype(np.int32)}


def scaled(shares: list[int], total: int) -> list[int]:
    """Return integers in proportion to ``shares`` that add up to ``total``."""
    whole = sum(shares)
    counts = [share * total // whole for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda i: (-(shares[i] * total % whole), i))
    for i in by_rest[: total - sum(counts)]:
        counts[i] += 1
    return counts


class ZooGenerator(Generator):
    """Writes a zoo of small graphs."""

    kind = "zoo"
    title = "zoo of small graphs"
    options: ZooOptions

    def sizes(self) -> int:
        """Draw the shape of every graph, and return the size of all."""
        self.budget.take(self.options.graphs * 60, "the shapes of all graphs")
        self.zoo = zoo = Zoo(self.options, self.budget.threads)
        self.nodes, self.edges = zoo.nodes, zoo.arcs // 2
        self.budget.take_per_thread(min(zoo.arcs, SHARD_EDGES) * 9, "a shard in progress")
        return zoo.arcs * zoo.id_dtype.itemsize + zoo.nodes * 10

    def fill(self, graph: GrowingGraph, *, quiet: bool) -> None:
        """Write shards, nodes, and graphs.parquet."""
        zoo = self.zoo
        _write_shards(graph, zoo, self.budget.threads, quiet=quiet)
        graph.node_rows(zoo.node_columns)
        graph.add(_write_graphs(graph.root, zoo), graphs=zoo.graphs, made=self.how)
        kinds = {"rmat": generate_rules.RMAT, "random": generate_rules.RANDOM}
        counts = {name: int(np.sum(zoo.kinds == kind)) for name, kind in kinds.items()}
        self.drawn, self.details = self.edges, {"graphs": zoo.graphs, **counts}


def _write_shards(graph: GrowingGraph, zoo: Zoo, threads: int, *, quiet: bool) -> None:
    cuts = row_cuts(zoo.first_arc, SHARD_EDGES)

    def write(number: int) -> dict[str, Any]:
        return write_shard(graph.root, number, zoo.shard(*cuts[number]))

    written = []
    with Progress("write graphs", total=zoo.graphs, unit="graphs", quiet=quiet) as progress:
        for (low, high), shard in zip(cuts, results(write, range(len(cuts)), threads), strict=True):
            written.append(shard)
            progress.advance(high - low)
    graph.shards(written)
    graph.add(directed=False)


def _write_graphs(root: Path, zoo: Zoo) -> FileEntry:
    table = pa.table(
        {
            "id": np.arange(zoo.graphs, dtype=np.int64),
            "first": zoo.first_node[:-1],
            "nodes": zoo.sizes.astype(np.int32),
            "label": zoo.kinds.astype(np.int32),
        }
    )
    return write_table(root, "graphs.parquet", [table])
