"""R-MAT: a graph directory, or the raw edges as a Parquet dataset."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.arrow import as_numbers
from penstock.files import FileEntry, file_table, part_name
from penstock.kernels import generate_rules
from penstock.kernels.cpu import rmat as kernels
from penstock.kernels.cpu.philox import random_words
from penstock.kernels.streams import Stream
from penstock.output import Output
from penstock.pipelines.generate.budget import shuffle
from penstock.pipelines.generate.build import CHUNK, EdgeRules, EdgeSource, Ends, ShardBuilder
from penstock.pipelines.generate.job import EDGES, Generator
from penstock.pipelines.generate.options import RmatOptions, weight_range
from penstock.pipelines.generate.report import GenerateReport
from penstock.progress import Progress
from penstock.threads import results
from penstock.writer import GrowingGraph, write_table


class RmatSource(EdgeSource):
    """Edges of the endless R-MAT list that the options describe, up to its edge factor."""

    def __init__(self, options: RmatOptions) -> None:
        self.options = options
        self.nodes = 1 << options.scale
        self.units = self.expected = max(1, round(options.edge_factor * self.nodes))
        self.range = weight_range(options.weights) if options.weights else None
        columns = {"weights": self.range, "relations": options.relations}
        self.columns = tuple(name for name, wanted in columns.items() if wanted)
        self.thresholds = generate_rules.thresholds(options.a, options.b, options.c)
        self.names: Array | None = None

    def prepare(self, threads: int) -> None:
        """Shuffle the ids."""
        if self.options.scramble:
            self.names = shuffle(self.options.seed, Stream.RMAT_SCRAMBLE, self.nodes, threads)

    def draw(self, first: int, count: int) -> Ends:
        """Return some edges."""
        options = self.options
        sources, targets = kernels.edges(
            options.seed, options.scale, self.thresholds, first, count, self.names
        )
        return sources, targets, None

    def edge_columns(self, sources: Array, targets: Array) -> dict[str, Array]:
        """Return the requested weights and relations of the edges."""
        options, columns = self.options, {}
        ordered = not options.undirected
        if self.range is not None:
            columns["weights"] = kernels.weights(
                options.seed, sources, targets, *self.range, ordered=ordered
            )
        if options.relations:
            columns["relations"] = kernels.relations(
                options.seed, sources, targets, options.relations, ordered=ordered
            )
        return columns


class RmatGenerator(Generator):
    """Writes an R-MAT graph, or its edges as a Parquet dataset."""

    kind = "rmat"
    title = "R-MAT"
    options: RmatOptions

    def sizes(self) -> int:
        """Reserve memory for arcs and nodes, or Parquet files; return the size."""
        options = self.options
        self.source = source = RmatSource(options)
        self.nodes, self.edges = source.nodes, source.expected
        if options.scramble:
            self.budget.take(source.nodes * 4, "the shuffle of all nodes")
        if options.format == "parquet":
            return source.units * (16 + 4 * len(source.columns))
        arcs = source.expected * (2 if options.undirected else 1)
        return arcs * 4 * (1 + len(source.columns)) + source.nodes * 12

    def fill(self, graph: GrowingGraph, *, quiet: bool) -> None:
        """Write shards, nodes and labels."""
        options, source = self.options, self.source
        rules = EdgeRules(
            options.undirected, options.deduplicate, options.keep_loops, options.keep_isolated
        )
        # As of etl, for changes of the graph.
        kept = {"duplicates": not options.deduplicate, "self_loops": options.keep_loops}
        made = self.how | {"options": dict.fromkeys((n for n in kept if kept[n]), "keep")}
        builder = ShardBuilder(source, rules, self.budget, quiet=quiet)
        self.drawn, degrees, ids = builder.run(graph)
        graph.node_rows(functools.partial(_node_columns, options, ids, degrees))
        graph.add(
            relations=tuple(f"r{i}" for i in range(options.relations)) or None,
            labels="class" if options.labels else None,
            classes=tuple(f"c{i}" for i in range(options.labels)) or None,
            made=made,
        )

    def write(self, out: Output, *, quiet: bool) -> GenerateReport:
        """Write the graph, or with ``--format parquet`` the drawn edges."""
        if self.options.format == "graph":
            return super().write(out, quiet=quiet)
        source, written = self.source, []
        self.budget.take_per_thread(min(_PART, source.units) * 80, "a file of edges")
        firsts = range(0, source.units, _PART)
        with Progress("write edges", total=source.units, unit="edges", quiet=quiet) as progress:
            source.prepare(self.budget.threads)
            write = functools.partial(_write_part, out.result, source)
            for count, entry in results(write, firsts, self.budget.threads):
                written.append(entry)
                progress.advance(count)
        out.describe(EDGES, {"made": self.how, "files": file_table(written)})
        return GenerateReport(
            path=str(out.named),
            kind="R-MAT edge list",
            nodes=self.nodes,
            edges=source.units,
            drawn=source.units,
            shards=len(firsts),
            bytes=sum(one.bytes for one in written),
        )


def _node_columns(
    options: RmatOptions, ids: Array | None, degrees: Array, first: int, count: int
) -> dict[str, Array]:
    rows = slice(first, first + count)
    user_ids = np.arange(first, first + count) if ids is None else ids[rows].astype(np.int64)
    columns: dict[str, Array] = {"id": user_ids}
    if options.labels and options.label_by == "degree":
        order = np.frexp(degrees[rows].astype(np.float64))[1]
        columns["label"] = np.clip(order - 1, 0, options.labels - 1).astype(np.int32)
    elif options.labels:
        # By the id, not the row: a node has its label whether or not isolated ones are kept.
        low, high = (int(user_ids[0]), int(user_ids[-1]) + 1) if len(user_ids) else (0, 0)
        words = random_words(options.seed, Stream.RMAT_LABEL, low, high - low)
        word = words[user_ids - low, 0].astype(np.uint64)
        columns["label"] = ((word * np.uint64(options.labels)) >> np.uint64(32)).astype(np.int32)
    return columns


_PART = 2 * CHUNK  # edges in a Parquet file


def _write_part(root: Path, source: RmatSource, first: int) -> tuple[int, FileEntry]:
    sources, targets, _ = source.draw(first, min(_PART, source.units - first))
    columns = source.edge_columns(sources, targets)
    singular = {"weights": "weight", "relations": "relation"}
    table = pa.table(
        {"src": sources.astype(np.int64), "dst": targets.astype(np.int64)}
        | {singular[name]: values for name, values in columns.items()}
    )
    name = f"{part_name(first // _PART)}.parquet"
    entry = write_table(root, name, [table], **as_numbers(table.schema))
    return len(sources), entry
