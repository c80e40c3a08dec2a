"""The edges of a generated graph: drawn ones become shards, in bounded memory.

Drawing is cheap and counted, so edges that do not fit in memory are not spilled: they are drawn
again for every range of rows that fits. The output does not depend on that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, EDGE_COLUMNS, id_dtype, offsets_of
from penstock.errors import UsageError
from penstock.kernels.cpu import csr as csr_kernels
from penstock.kernels.cpu.rmat import mark_ends
from penstock.pipelines.generate.budget import Budget
from penstock.progress import Progress
from penstock.threads import results
from penstock.writer import SHARD_EDGES, GrowingGraph, row_cuts, write_shard

Ends = tuple[Array, Array, "Array | None"]

CHUNK = 1 << 21  # edges drawn at a time
BIN_ARCS = 1 << 16  # arcs sorted at a time, about: they stay within L2
_MOST_BIN_BITS = 13
_KEY_BYTES = 8


class EdgeSource(ABC):
    """Edges that can be drawn in any part, at any time, any number of times, on any thread.

    nodes      ids are below this
    units      number of draws (edges, or rows of edges)
    step       number of units for about CHUNK edges
    expected   approximate number of edges
    relations  number of relations that distinguish edges, 0 for none
    columns    names of the edge columns that ``edge_columns`` makes
    """

    nodes: int
    units: int
    step: int = CHUNK
    expected: int
    relations: int = 0
    columns: tuple[str, ...] = ()

    @abstractmethod
    def prepare(self, threads: int) -> None:
        """Make what draws need, once the memory for it is known to be there."""

    @abstractmethod
    def draw(self, first: int, count: int) -> Ends:
        """Return the sources, targets and relations (or None) of some units: int32 arrays."""

    def edge_columns(self, sources: Array, targets: Array) -> dict[str, Array]:
        """Return the edge columns that depend only on an edge's two ends."""
        return {}

    def keep(self, sources: Array, targets: Array, relations: Array | None) -> Array | None:
        """Return which of some finished edges stay in the graph, or None for all."""
        return None


@dataclass(frozen=True)
class EdgeRules:
    """The steps applied to drawn edges."""

    undirected: bool = True
    deduplicate: bool = True
    keep_loops: bool = False
    keep_isolated: bool = True


@dataclass(frozen=True)
class BinnedKeys:
    """The keys of one chunk of edges, bin after bin, from bin ``low`` on."""

    drawn: int
    keys: Array
    offsets: Array
    low: int = 0

    def bin(self, number: int) -> Array:
        """Return the keys of one bin."""
        base = self.offsets[self.low]
        return self.keys[self.offsets[number] - base : self.offsets[number + 1] - base]

    def only(self, low: int, high: int) -> BinnedKeys:
        """Return a copy of bins ``low:high``, in no more memory than they need."""
        keys = self.keys[self.offsets[low] : self.offsets[high]].copy()
        return BinnedKeys(self.drawn, keys, self.offsets, low)


class ShardBuilder:
    """One run: draw everything, then sort and write shard after shard."""

    def __init__(
        self, source: EdgeSource, rules: EdgeRules, budget: Budget, *, quiet: bool
    ) -> None:
        self.source, self.rules = source, rules
        self.budget, self.quiet = budget, quiet
        arcs = source.expected * (2 if rules.undirected else 1)
        self.target_bits = max(source.nodes - 1, 1).bit_length()
        self.relation_bits = max(source.relations - 1, 0).bit_length()
        bin_bits = min((arcs // BIN_ARCS).bit_length(), _MOST_BIN_BITS, self.target_bits)
        shift = self.target_bits - bin_bits
        if shift + self.target_bits + self.relation_bits > 64:
            raise UsageError("too many nodes and relations: an edge needs more than 64 bits")
        borders = np.arange(((source.nodes - 1) >> shift) + 2, dtype=np.int64) << shift
        self.starts = np.minimum(borders, source.nodes)
        self._set_memory_aside(arcs)
        self.touched = np.zeros(0 if rules.keep_isolated else source.nodes, np.bool_)

    def run(self, graph: GrowingGraph) -> tuple[int, Array, Array | None]:
        """Write the shards and list them in the manifest.

        Return how many edges were drawn, the degrees, and the ids of the nodes kept, None for all.
        """
        self.source.prepare(self.budget.threads)
        chunks, offsets, drawn = self._draw_all()
        cuts = row_cuts(offsets, SHARD_EDGES)
        arcs = [int(offsets[high] - offsets[low]) for low, high in cuts]
        ids, self.rank, nodes = None, None, self.source.nodes
        if not self.rules.keep_isolated:
            ids = np.flatnonzero(self.touched).astype(np.int32)
            self.rank = np.cumsum(self.touched, dtype=np.int32) - np.int32(1)
            nodes = len(ids)
        self.id_dtype = id_dtype(nodes)
        degrees: list[Array] = []
        listed: list[dict[str, Any]] = []
        total = int(offsets[-1])
        with Progress("write shards", total=total, unit="edges", quiet=self.quiet) as progress:
            for first, last in self._groups(arcs):
                held = chunks or self._draw_bins(cuts[first][0], cuts[last - 1][1])
                shards = [(n, *cuts[n], arcs[n]) for n in range(first, last)]
                written = results(
                    partial(self._write, graph.root, held), shards, self.budget.threads
                )
                for number, (shard_degrees, entry) in enumerate(written, first):
                    degrees.append(shard_degrees)
                    listed.append(entry)
                    progress.advance(arcs[number])
                del held, written
        graph.shards(listed)
        graph.add(directed=not self.rules.undirected)
        return drawn, np.concatenate(degrees), ids

    # -- memory --------------------------------------------------------------------------------

    def _set_memory_aside(self, arcs: int) -> None:
        nodes = self.source.nodes
        renumbering = 0 if self.rules.keep_isolated else nodes * (1 + 4 + 4)
        self.budget.take(renumbering + nodes * 2 * 4, "a table of all nodes")
        columns = len(self.source.columns) + bool(self.source.relations)
        shard = min(arcs, SHARD_EDGES) * 4 * (1 + columns)
        chunk = min(arcs, 2 * CHUNK) * (2 * _KEY_BYTES + 4 + 4)
        self.budget.take_per_thread(max(shard, chunk), "a shard in progress")
        self.everything_fits = arcs * _KEY_BYTES < self.budget.left

    def _groups(self, arcs: list[int]) -> list[tuple[int, int]]:
        """Return the ranges of shards whose keys fit in memory together."""
        if self.everything_fits:
            return [(0, len(arcs))]
        if (largest := max(arcs) * _KEY_BYTES) > self.budget.left:
            self.budget.take(largest, "the shard with the most edges")
        return row_cuts(offsets_of(np.array(arcs) * _KEY_BYTES), self.budget.left)

    # -- drawing -------------------------------------------------------------------------------

    def _draw_all(self) -> tuple[list[BinnedKeys], Array, int]:
        """Draw every edge once: its keys if they fit in memory, counts per bin, the total."""
        chunks: list[BinnedKeys] = []
        offsets = np.zeros(len(self.starts), np.int64)
        drawn = 0
        for chunk in self._draw(self._first_look, "draw edges"):
            offsets += chunk.offsets
            drawn += chunk.drawn
            if self.everything_fits:
                chunks.append(chunk)
        return chunks, offsets, drawn

    def _first_look(self, first: int) -> BinnedKeys:
        sources, targets, relations = self._ends(first)
        if len(self.touched):
            mark_ends(sources, targets, self.touched, keep_loops=self.rules.keep_loops)
        chunk = self._bin(sources, targets, relations)
        return chunk if self.everything_fits else chunk.only(0, 0)

    def _draw_bins(self, low: int, high: int) -> list[BinnedKeys]:
        def draw(first: int) -> BinnedKeys:
            return self._bin(*self._ends(first)).only(low, high)

        return list(self._draw(draw, "draw edges again"))

    def _draw(self, task: Callable[[int], BinnedKeys], title: str) -> Iterator[BinnedKeys]:
        firsts = range(0, self.source.units, self.source.step)
        expected = self.source.expected
        with Progress(title, total=expected, unit="edges", quiet=self.quiet) as progress:
            for chunk in results(task, firsts, self.budget.threads):
                progress.advance(chunk.drawn)
                yield chunk

    def _ends(self, first: int) -> tuple[Array, Array, Array | None]:
        return self.source.draw(first, min(self.source.step, self.source.units - first))

    def _bin(self, sources: Array, targets: Array, relations: Array | None) -> BinnedKeys:
        keys, _, offsets = csr_kernels.bin_edges(
            sources,
            targets,
            relations,
            self.starts,
            self.target_bits,
            self.relation_bits,
            both_ways=self.rules.undirected,
            keep_loops=self.rules.keep_loops,
        )
        return BinnedKeys(len(sources), keys, offsets)

    # -- writing -------------------------------------------------------------------------------

    def _write(
        self, root: Path, chunks: list[BinnedKeys], shard: tuple[int, int, int, int]
    ) -> tuple[Array, dict[str, Any]]:
        """Write a shard: its number, its bins ``low:high``, its arcs with duplicates."""
        shard_number, low, high, arcs = shard
        names = [*self.source.columns, *(["relations"] if self.source.relations else [])]
        indices = np.empty(arcs, self.id_dtype)
        columns: dict[str, Any] = {
            name: np.empty(arcs, np.float32 if name == "weights" else np.int32)
            for name in EDGE_COLUMNS
            if name in names
        }
        degrees: list[Array] = []
        end = 0
        for number in range(low, high):
            keys = np.concatenate([chunk.bin(number) for chunk in chunks])
            row_degrees, targets, edge_columns = self._rows(number, keys)
            start, end = end, end + len(targets)
            indices[start:end] = targets if self.rank is None else self.rank[targets]
            for name, values in edge_columns.items():
                columns[name][start:end] = values
            degrees.append(row_degrees)
        all_degrees = np.concatenate(degrees)
        columns = {name: array[:end] for name, array in columns.items()}
        csr = CSR(offsets_of(all_degrees), indices[:end], **columns)
        return all_degrees, write_shard(root, shard_number, csr)

    def _rows(self, number: int, keys: Array) -> tuple[Array, Array, dict[str, Array]]:
        first, last = int(self.starts[number]), int(self.starts[number + 1])
        local_bits = max(last - first - 1, 0).bit_length()
        keys, _ = csr_kernels.sort_keys(
            keys, local_bits + self.target_bits + self.relation_bits, with_order=False
        )
        indptr, targets, relations, _ = csr_kernels.build_rows(
            keys, last - first, self.target_bits, self.relation_bits, merge=self.rules.deduplicate
        )
        degrees = np.diff(indptr).astype(np.int32)
        sources = np.repeat(np.arange(first, last, dtype=np.int32), degrees)
        if self.source.relations and relations is None:
            relations = np.zeros(len(targets), np.int32)
        kept = self.source.keep(sources, targets, relations)
        if kept is not None:
            sources, targets = sources[kept], targets[kept]
            relations = None if relations is None else relations[kept]
            degrees = np.bincount(sources - first, minlength=last - first).astype(np.int32)
        columns = self.source.edge_columns(sources, targets)
        if relations is not None:
            columns["relations"] = relations
        if self.rank is not None:
            degrees = degrees[self.touched[first:last]]
        return degrees, targets, columns
