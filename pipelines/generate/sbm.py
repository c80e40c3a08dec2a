"""Stochastic block model: densely knit blocks, features that hint at them, labels that name them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from penstock.csr import Array
from penstock.kernels.cpu import sbm as kernels
from penstock.kernels.cpu.scramble import scramble
from penstock.kernels.streams import Stream
from penstock.pipelines.generate.build import ShardBuilder
from penstock.pipelines.generate.options import SbmOptions
from penstock.pipelines.generate.report import Report, graph_report, how_made
from penstock.pipelines.generate.source import CHUNK, EdgeSource, Ends, Rules
from penstock.pipelines.generate.tables import node_splits, write_dense, write_nodes, write_sparse
from penstock.pipelines.generate.threads import Budget
from penstock.sizes import need_disk
from penstock.writer import FEATURE_FILE_BYTES, GraphWriter, create_graph


class SbmSource(EdgeSource):
    """Independent coin tosses for all pairs, drawn by row; positions are shuffled into ids."""

    def __init__(self, options: SbmOptions) -> None:
        self.options = options
        self.nodes = self.units = options.nodes
        block = options.nodes / options.blocks
        self.inside = _probability(options.p_inside, options.degree_inside, block - 1)
        self.outside = _probability(
            options.p_outside, options.degree_outside, options.nodes - block
        )
        per_row = self.inside * block + self.outside * (options.nodes - block)
        self.expected = max(1, round(options.nodes * per_row / 2))
        self.step = max(1, min(self.units, int(CHUNK / max(per_row, 1))))
        self.starts = np.arange(options.blocks + 1, dtype=np.int64) * options.nodes
        self.starts //= options.blocks
        self.names = np.empty(0, np.int32)

    def prepare(self) -> None:
        """Shuffle the ids; apart from ``__init__`` so that sizes can be judged first."""
        nodes, seed = self.nodes, self.options.seed
        self.names = scramble(seed, Stream.PERMUTE_NODES, 0, nodes, nodes)

    def labels(self) -> Array:
        """Return the block of each node: (nodes,) int32."""
        labels = np.empty(self.nodes, np.int32)
        blocks = np.arange(self.options.blocks, dtype=np.int32)
        labels[self.names] = np.repeat(blocks, np.diff(self.starts))
        return labels

    def draw(self, first: int, count: int) -> Ends:
        """Return the edges of some rows."""
        sources, targets = kernels.edges(
            self.options.seed, self.starts, _log_of_rest(self.inside), _log_of_rest(self.outside),
            first, count,
        )  # fmt: skip
        return self.names[sources], self.names[targets], None


def generate_sbm(out: Path, options: SbmOptions, *, quiet: bool) -> Report:
    """Write a stochastic block model to ``out``."""
    started = time.monotonic()
    source = SbmSource(options)
    budget = Budget(options.memory)
    budget.take(source.nodes * 8, "ids and labels of all nodes")
    per_node = {"dense": 4 * options.width, "sparse": 8 + 8 * options.words, "none": 0}
    features = per_node[options.features] * options.nodes
    need_disk(out.parent, source.expected * 8 + source.nodes * 20 + features, "the graph")
    with create_graph(out, overwrite=options.overwrite) as writer:
        builder = ShardBuilder(writer, source, Rules(), budget, quiet=quiet)
        source.prepare()
        built = builder.run()
        labels = source.labels()
        _write_nodes(writer, options, labels)
        threads = max(1, min(budget.threads, budget.left // (3 * FEATURE_FILE_BYTES)))
        _write_features(writer, options, labels, threads)
        writer.manifest = replace(
            writer.manifest,
            labels="class",
            classes=tuple(f"b{block}" for block in range(options.blocks)),
            made=how_made("sbm", options),
        )
    return graph_report(
        out, "stochastic block model", writer.manifest, built.drawn, started,
        blocks=options.blocks, features=options.features,
    )  # fmt: skip


def _write_nodes(writer: GraphWriter, options: SbmOptions, labels: Array) -> None:
    import pyarrow as pa

    shares = (options.train, options.valid, options.test)
    counts = np.zeros(3, np.int64)

    def columns(first: int, count: int) -> dict[str, pa.Array]:
        split = node_splits(options.seed, first, count, shares)
        counts[:] += np.bincount(split[split >= 0], minlength=3)
        return {
            "id": pa.array(np.arange(first, first + count, dtype=np.int64)),
            "label": pa.array(labels[first : first + count]),
            "split": pa.array(split, mask=split < 0),
        }

    write_nodes(writer, options.nodes, columns)
    splits = dict(zip(("train", "valid", "test"), counts.tolist(), strict=True))
    writer.manifest = replace(writer.manifest, splits=splits)


def _write_features(
    writer: GraphWriter, options: SbmOptions, labels: Array, threads: int
) -> None:
    seed, blocks, width = options.seed, options.blocks, options.width

    def dense(first: int, count: int) -> Array:
        rows = labels[first : first + count]
        return kernels.dense(seed, rows, blocks, width, options.noise, first)

    def sparse(first: int, count: int) -> tuple[Array, Array]:
        rows, topic = labels[first : first + count], round(options.topic * 2**32)
        return kernels.sparse(seed, rows, blocks, width, options.words, topic, first)

    if options.features == "dense":
        write_dense(writer, options.nodes, width, dense, threads)
    elif options.features == "sparse":
        write_sparse(writer, options.nodes, width, options.words, sparse, threads)


def _probability(given: float | None, degree: float, others: float) -> float:
    if given is not None:
        return given
    return min(1.0, degree / others) if others > 0 else 0.0


def _log_of_rest(probability: float) -> float:
    return math.log1p(-probability) if probability < 1 else -math.inf
