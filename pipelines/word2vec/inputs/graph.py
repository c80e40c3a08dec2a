"""A graph: words are its nodes, and sentences walks that are never written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.csr import EDGE_COLUMNS, id_dtype
from penstock.errors import UsageError
from penstock.graph import Graph, load_npy
from penstock.graph_changes import RowPrints
from penstock.kernels.word2vec_rules import MAX_WORDS
from penstock.pipelines.changed_rows import rows_to_train
from penstock.pipelines.vectors.store import FORMAT as VECTORS
from penstock.pipelines.walk.choice import SamplerChoice, bytes_of, check_graph, choose
from penstock.pipelines.walk.starts import (
    STARTS,
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

    def __init__(self, sources: list[str], options: Word2vecOptions, kind: str) -> None:
        self._graph = Graph.open(sources[0])
        super().__init__(sources, options, kind, self._graph)
        self._choice: SamplerChoice | None = None
        self._rows: RowPrints | None = None

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
        self._start_at(listed_starts(graph, options))
        checked_count(self._starts, rounds, graph.num_nodes)

    def rows(self) -> RowPrints:
        """Return bits of the rows that a later training with --share compares."""
        return self._rows or RowPrints.of(self._graph, self._columns())

    def _columns(self) -> list[str]:
        return [name for name in EDGE_COLUMNS if name in self._graph.manifest.dtypes]

    def _start_at(self, listed: Array | None) -> None:
        """Walk from these nodes; None: from all."""
        self._listed = listed
        self._starts = self._graph.num_nodes if listed is None else len(listed)
        # As if no walk ended early.
        self.tokens = self._starts * self.options.walks * self.options.length

    def choose(self, scratch: Path | None) -> None:
        """Walk from rows that differ from those of --init, and from a share of the others."""
        graph, options, listed = self._graph, self.options, self._listed
        if options.share is None or options.init is None:
            return
        if scratch is not None:
            self._start_at(load_npy(scratch / STARTS))
            return
        about = VECTORS.load(options.init).get("prints")
        self._rows, chosen = rows_to_train(graph, self._columns(), options, VECTORS, about, listed)
        if listed is None:
            listed = np.arange(graph.num_nodes, dtype=id_dtype(graph.num_nodes))
        self._start_at(listed[chosen[listed]])

    def held_bytes(self, workers: Workers) -> int:
        """Return the bytes of the rows, the sampler's tables, and the kept walks."""
        kept = 4 * min(self.tokens or 0, COUNTED_WORDS)
        return bytes_of(self._graph, self._spec(workers)) + kept

    def prepare(self, workers: Workers, scratch: Path) -> Prepared:
        """Choose how to walk; nothing is walked yet."""
        graph, options = self._graph, self.options
        spec = self._spec(workers)
        starts = kept_starts(self._listed, graph.num_nodes, scratch, named(options))
        walks = GraphWalks(
            graph.path, graph.digest, spec, starts, options.walks, options.same_walks
        )
        return Prepared(walks, None, starts.count * options.walks * options.length)

    def _spec(self, workers: Workers) -> WalkGraphSpec:
        """Return the corpus of a rank; the weights decide the sampler."""
        if self._choice is None:
            statistics = inspect_weights(workers, self._graph, self.options)
            rows = workers.capacity.rows
            self._choice = choose(self._graph, self.options, statistics, rows)
        return self._choice.spec
