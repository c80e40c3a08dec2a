"""Many small graphs in tables or text as an input: read by etl, sorted by graph.

1. ``read_runs`` of etl  rows are sorted by graph and written as runs: etl/zoos/runs.py
2. ``count_graphs``  counts the rows of each graph, range by range, and notes their order
3. graphs are cut into pieces by these counts; a piece reads its graphs from the runs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arrow import as_arrow, as_numpy
from penstock.errors import UsageError
from penstock.pipelines.centrality.inputs import CentralityInput
from penstock.pipelines.centrality.inputs.table_piece import TablePiece, as_short
from penstock.pipelines.centrality.options import COMMUNITIES, READING, CentralityOptions
from penstock.pipelines.centrality.pieces import PieceSpec, costs_of, cut
from penstock.pipelines.etl.job import EtlJob
from penstock.pipelines.etl.nodes.sorted_ids import as_user_has_them
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.layout import ZOOS, guess_format
from penstock.pipelines.etl.zoos.runs import GraphRange, Run, by_graph, choose_ranges, read_runs

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers

ROWS = 1 << 22  # rows whose graphs one task counts
LEAST_COST = 2e9  # rows of a piece: smaller ones take longer to read than to compute


class TableInput(CentralityInput):
    """Tables of edges with a column of graphs, or text of many graphs."""

    def __init__(self, path: str, options: CentralityOptions) -> None:
        given: dict[str, Any] = {name: getattr(options, name) for name in ("format", *READING)}
        given |= {"weight": options.weight if options.weighted else "none", "relation": "none"}
        if options.format == "auto":
            kind = guess_format([path], EtlOptions(**given))
            given["format"] = kind if kind in ZOOS else "zoo"
        self.job = self.reader = job = EtlJob(path, EtlOptions(**given)).open()
        if options.format == "auto" and isinstance(job.layout.graph, int) and not options.graph_id:
            raise UsageError(
                f"{path} has no column named graph_id",
                remedy="Give --format edgelists if every file is a graph, or --format zoo if the "
                "first column is the graph",
            )
        job.layout = replace(job.layout, lengths=True)
        self.path, self.options = path, options
        self.kind = "table" if job.format == "zoo" else job.format
        self.searched, self.files = job.searched(), list(job.inputs)
        self.has_weights = job.layout.weight is not None
        self.directed, self.bytes = bool(job.options.directed), job.size
        self.scratch_bytes = job.scratch_bytes
        self.nodes = self.scratch_bytes // 64  # nodes have some edges each

    def about(self) -> dict[str, Any]:
        """Return its entry in centrality.json."""
        return {"input": self.path, "input_format": self.kind, "directed": self.directed}

    def prepare(self, workers: Workers, output: Output) -> list[PieceSpec]:
        """Read the whole input into runs, and cut their graphs into pieces."""
        self.job.connected, self.job.partial = workers, output
        runs, samples = read_runs(self.job)
        self.bad_rows = self.job.counts.bad_rows
        ranges = choose_ranges(samples, ROWS)
        calls = [(part, part.of(runs), self.job.once) for part in ranges]
        sizes = [sum(rows for _, rows in samples) // len(ranges)] * len(ranges)
        counted = workers.tasks("count", count_graphs, calls, sizes, "edges")
        return list(self._pieces(runs, pa.concat_tables(counted)))

    def _pieces(self, runs: list[Run], table: pa.Table) -> Iterator[PieceSpec]:
        ids, rows = table.column("graph").combine_chunks(), as_numpy(table.column("rows"))
        self.graphs = len(ids)
        costs = costs_of(rows // 4 + 1, 2 * rows)  # guessed from edges alone
        items = 3 * rows
        if self.options.distances:
            items = items + rows**2 // 32
        users = as_user_has_them(ids, unsigned=self.job.layout.graph_type == "uint64")
        for first, stop, large in cut(costs, items, least_cost=LEAST_COST):
            part = GraphRange(ids[first].as_py(), ids[stop].as_py() if stop < len(ids) else None)
            yield TablePiece(
                ids=users.take(as_arrow(np.arange(first, stop))),
                items=4 * int(rows[first:stop].sum()) + (stop - first),
                cost=float(costs[first:stop].sum()),
                large=large,
                part=part,
                runs=part.of(runs),
                unsigned=self.job.layout.id_type == "uint64",
                directed=self.directed,
                # A TU folder lists the entries of a matrix, so an edge may occur once or in both
                # directions.
                added=self.kind != "tu" and bool(self.options.wanted & {"pagerank", *COMMUNITIES}),
            )


def count_graphs(part: GraphRange, runs: list[Run], once: str | None) -> pa.Table:
    """Return the graphs of a range, and their rows; on a worker."""
    named, rows = part.count(runs, once)
    graphs, starts, order = by_graph(named)
    rows = np.add.reduceat(rows if order is None else rows[order], starts[:-1])
    return pa.table([as_short(graphs.to_arrow()), as_arrow(rows)], names=["graph", "rows"])
