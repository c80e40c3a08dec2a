"""Stochastic block model: dense blocks, features that hint at them, labels to learn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.graph import count_splits
from penstock.kernels.cpu import sbm as kernels
from penstock.kernels.streams import Stream
from penstock.pipelines.generate.budget import shuffle
from penstock.pipelines.generate.build import CHUNK, EdgeRules, EdgeSource, Ends, ShardBuilder
from penstock.pipelines.generate.job import Generator
from penstock.pipelines.generate.options import SbmOptions
from penstock.splits import split_nodes
from penstock.writer import FEATURE_FILE_BYTES, GrowingGraph


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

    def prepare(self, threads: int) -> None:
        """Shuffle the ids."""
        nodes, seed = self.nodes, self.options.seed
        self.names = shuffle(seed, Stream.PERMUTE_NODES, nodes, threads)

    def labels(self) -> Array:
        """Return the block of each node: (nodes,) int32."""
        labels = np.empty(self.nodes, np.int32)
        blocks = np.arange(self.options.blocks, dtype=np.int32)
        labels[self.names] = np.repeat(blocks, np.diff(self.starts))
        return labels

    def draw(self, first: int, count: int) -> Ends:
        """Return the edges of some rows."""
        sources, targets = kernels.edges(
            self.options.seed,
            self.starts,
            _log_of_rest(self.inside),
            _log_of_rest(self.outside),
            first,
            count,
        )
        return self.names[sources], self.names[targets], None


class SbmGenerator(Generator):
    """Writes a stochastic block model."""

    kind = "sbm"
    title = "stochastic block model"
    options: SbmOptions

    def sizes(self) -> int:
        """Reserve memory for edges, nodes and features; return the size."""
        options = self.options
        self.source = source = SbmSource(options)
        self.nodes, self.edges = source.nodes, source.expected
        self.budget.take(source.nodes * 9, "ids and labels of all nodes")
        per_node = {"dense": 4 * options.width, "sparse": 8 + 8 * options.words, "none": 0}
        features = per_node[options.features] * options.nodes
        if features:
            self.budget.take(3 * min(features, FEATURE_FILE_BYTES), "a file of features")
        return source.expected * 8 + source.nodes * 20 + features

    def fill(self, graph: GrowingGraph, *, quiet: bool) -> None:
        """Write shards, then labels, splits and features of nodes."""
        options, source = self.options, self.source
        builder = ShardBuilder(source, EdgeRules(), self.budget, quiet=quiet)
        self.drawn, _, _ = builder.run(graph)
        labels = source.labels()
        shares = (options.train, options.valid, options.test)
        split = split_nodes(np.arange(options.nodes, dtype=np.uint64), shares, options.seed)
        graph.node_rows(partial(_node_columns, labels, split))
        graph.add(splits=count_splits(split))
        if options.features != "none":
            graph.feature_rows(options.nodes, options.width, partial(_features, options, labels))
        graph.add(
            labels="class",
            classes=tuple(f"b{block}" for block in range(options.blocks)),
            made=self.how,
        )
        self.details = {"blocks": options.blocks, "features": options.features}


def _node_columns(labels: Array, split: Array, first: int, count: int) -> dict[str, pa.Array]:
    rows = slice(first, first + count)
    return {
        "id": pa.array(np.arange(first, first + count, dtype=np.int64)),
        "label": pa.array(labels[rows]),
        "split": pa.array(split[rows], mask=split[rows] < 0),
    }


def _features(options: SbmOptions, labels: Array, start: int, stop: int) -> Any:
    rows, width = labels[start:stop], options.width
    if options.features == "dense":
        return kernels.dense(options.seed, rows, options.blocks, width, options.noise, start)
    import scipy.sparse as sp

    topic = round(options.topic * 2**32)
    indptr, indices = kernels.sparse(
        options.seed, rows, options.blocks, width, options.words, topic, start
    )
    ones = np.ones(len(indices), np.float32)
    return sp.csr_matrix((ones, indices, indptr), shape=(stop - start, width))


def _probability(given: float | None, degree: float, others: float) -> float:
    if given is not None:
        return given
    return min(1.0, degree / others) if others > 0 else 0.0


def _log_of_rest(probability: float) -> float:
    return math.log1p(-probability) if probability < 1 else -math.inf
