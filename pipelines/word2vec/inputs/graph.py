"""A graph: words are its nodes, and sentences walks that are never written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.csr import id_dtype
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.kernels.word2vec_rules import MAX_WORDS
from penstock.pipelines.walk.choice import SamplerChoice, check_graph, choose
from penstock.pipelines.walk.starts import checked_count, find_starts, listed_starts
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

    def _starts(self) -> int:
        listed = listed_starts(self._graph, self.options)
        return self._graph.num_nodes if listed is None else len(listed)

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
        starts = find_starts(graph, options, scratch)
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
