"""A graph: words are its nodes, and sentences walks that are never written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import EDGE_COLUMNS, id_dtype
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.graph_changes import RowPrints
from penstock.kernels.word2vec_rules import MAX_WORDS
from penstock.pipelines.changed_rows import rows_to_train
from penstock.pipelines.vectors.store import FORMAT as VECTORS
from penstock.pipelines.walk.choice import SamplerChoice, check_graph, choose
from penstock.pipelines.walk.starts import (
    checked_count,
    kept_starts,
    listed_starts,
    named,
)
from penstock.pipelines.walk.weights import inspect_weights
from penstock.pipelines.word2vec.inputs import Input, Prepared
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.word2vec.corpus import COUNTED_WORDS, GraphWalks

if TYPE_CHECKING:
    from penstock.pipelines.job.workers import Workers
    from penstock.pipelines.word2vec.options import Word2vecOptions


class GraphInput(Input):
    """A graph that is walked during training."""

    def __init__(self, sources: Sequence[str], options: Word2vecOptions, kind: str) -> None:
        super().__init__(sources, options, kind)
        self._graph = Graph.open(sources[0])
        self._choice: SamplerChoice | None = None

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    @property
    def files(self) -> list[str]:
        """The files of its rows."""
        names = (name for name in self._graph.manifest.files if name.startswith("shards/"))
        return [str(self._graph.path / name) for name in names]

    def check(self) -> None:
        """Refuse options and graphs that cannot be trained on."""
        graph, options = self._graph, self.options
        if graph.manifest.graphs is not None:
            raise UsageError(
                f"{graph.path} is a zoo, whose graphs may share node ids",
                expected="a graph whose nodes have unique ids",
            )
        check_graph(graph, options)
        if graph.num_edges == 0:
            raise UsageError(
                f"{graph.path} has no edges, so every walk has one node, and no contexts"
            )
        if options.length < 2:
            raise UsageError(
                "walks of one node have no contexts to train on",
                expected="--length 2 or more",
                got=f"--length {options.length}",
            )
        if graph.num_nodes > MAX_WORDS:
            raise UsageError(
                f"{graph.path} has more nodes than a vocabulary can hold",
                expected=f"at most {MAX_WORDS:,}",
                got=f"{graph.num_nodes:,}",
            )
        rounds = options.walks * options.rounds(self.kind)
        checked_count(self._starts(), rounds, graph.num_nodes)

    @cached_property
    def rows(self) -> RowPrints:
        """Bits of the rows that a later training with --share compares."""
        columns = [name for name in EDGE_COLUMNS if name in self._graph.manifest.dtypes]
        return RowPrints.of(self._graph, columns, known=self._before)

    @cached_property
    def _before(self) -> RowPrints | None:
        """The rows that the vectors of --init were trained on, if --share asks for them."""
        path = self.options.init
        if self.options.share is None or path is None:
            return None
        body = VECTORS.load(path)
        if "prints" not in body:
            raise UsageError(
                f"{path} does not know which edges it was trained on, as --share needs",
                expected="vectors that word2vec train made from a graph",
            )
        with VECTORS.reading(path):
            return RowPrints.load(path, body["prints"])

    @cached_property
    def _listed(self) -> Array | None:
        """The nodes from which to walk; None: all."""
        graph, options = self._graph, self.options
        listed = listed_starts(graph, options)
        if self._before is None or options.share is None or options.init is None:
            return listed
        given = self._before, options.init, options.share, options.seed, listed
        chosen = rows_to_train(graph, self.rows, *given)
        nodes = np.arange(graph.num_nodes, dtype=id_dtype(graph.num_nodes))
        return (nodes if listed is None else listed)[chosen if listed is None else chosen[listed]]

    def _starts(self) -> int:
        return self._graph.num_nodes if self._listed is None else len(self._listed)

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of the graph."""
        return {**self._graph.stamps()}

    @property
    def tokens(self) -> int:
        """Nodes of all walks of an epoch, as if none ended early."""
        return self._starts() * self.options.walks * self.options.length

    def held_bytes(self, workers: Workers, rows: int) -> int:
        """Return the bytes of the rows, the sampler's tables, and the kept walks."""
        nodes, edges = self._graph.num_nodes, self._graph.num_edges
        kept = 4 * min(self.tokens, COUNTED_WORDS)
        return self._spec(workers, rows).bytes(nodes, edges, id_dtype(nodes).itemsize) + kept

    def prepare(self, workers: Workers, rows: int, scratch: Path) -> Prepared:
        """Choose how to walk; nothing is walked yet."""
        graph, options = self._graph, self.options
        spec = self._spec(workers, rows)
        starts = kept_starts(self._listed, graph.num_nodes, scratch, named(options))
        walks = GraphWalks(
            graph.path, graph.digest, spec, starts, options.walks, options.same_walks
        )
        return Prepared(walks, None, starts.count * options.walks * options.length)

    def _spec(self, workers: Workers, rows: int) -> WalkGraphSpec:
        """Return the corpus of a rank; the weights decide the sampler."""
        if self._choice is None:
            statistics = inspect_weights(workers, self._graph, self.options)
            self._choice = choose(self._graph, self.options, statistics, rows)
        return self._choice.spec
