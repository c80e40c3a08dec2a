"""Which graphs lie where in tables of edges, how they are cut into pieces, and what these read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.pipelines.centrality.inputs.chunks import Chunk, ColumnNames, Survey
from penstock.pipelines.centrality.pieces import costs_of, cut

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST_COST = 2e9  # of a piece: below, reading it takes longer than computing it
_MOST_ROWS = 1 << 23  # of a chunk that is read as it lies
# Pieces read ranges of row groups, each from its beginning: so often at most, then they are sorted.
_READ_AGAIN = 4
_FEW_ROWS = 1 << 24


@dataclass(frozen=True, eq=False)
class Read:
    """A range of rows of a chunk.

    graphs, counts  the numbers in the piece of the graphs that these rows are, and how many rows
                    each has; None: there may be rows of other pieces between
    """

    chunk: Chunk
    low: int
    high: int
    graphs: Array | None
    counts: Array | None


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """Which graphs lie where: an entry for every chunk and graph in it.

    ids     (graphs,) in the order of their first rows; rows: (graphs,) of each
    graph, chunk, low, high   (entries,) int64: the rows of a graph in a chunk, or all of that chunk
    """

    chunks: list[Chunk]
    surveys: list[Survey]
    ids: pa.Array
    rows: Array
    graph: Array
    chunk: Array
    low: Array
    high: Array
    counts: Array

    @staticmethod
    def of(
        chunks: list[Chunk],
        surveys: list[Survey],
        columns: ColumnNames,
        like: GraphIndex | None = None,
    ) -> GraphIndex:
        """Number the graphs of all chunks, as ``like`` does where that is given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = {"int64": pa.int64(), "uint64": pa.uint64(), "string": pa.string()}
        parts = [one.ids.cast(kind[columns.graph_type]) for one in surveys]
        named = pa.chunked_array(parts, kind[columns.graph_type])
        if like is None:
            ids = named.unique()
            ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        else:
            ids = like.ids
        graph = as_numpy(pc.index_in(named, value_set=ids)).astype(np.int64)
        lengths = [len(one.ids) for one in surveys]
        chunk = np.repeat(np.arange(len(surveys)), lengths)
        counts = np.concatenate([np.empty(0, np.int64), *(one.counts for one in surveys)])
        ends = np.cumsum(counts)
        before = np.concatenate([[0], np.cumsum([int(one.counts.sum()) for one in surveys])])
        high = ends - before[chunk]
        low = high - counts
        ordered = np.array([one.ordered for one in surveys], bool)[chunk]
        whole = np.array([one.rows for one in chunks], np.int64)[chunk]
        low, high = np.where(ordered, low, 0), np.where(ordered, high, whole)
        rows = np.bincount(graph, weights=counts, minlength=len(ids)).astype(np.int64)
        return GraphIndex(chunks, surveys, ids, rows, graph, chunk, low, high, counts)

    def numbers(self, failed: list[tuple[Any, str]]) -> dict[int, str]:
        """Return reasons by the number of the graph instead of its id."""
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pa.array([str(graph) for graph, _ in failed], pa.string())
        positions = as_numpy(pc.index_in(words, value_set=self.ids.cast(pa.string()))).tolist()
        return {n: reason for n, (_, reason) in zip(positions, failed, strict=True)}

    def in_several_chunks(self) -> list[int]:
        """Return the numbers of the graphs that have rows in more than one chunk."""
        found: list[int] = np.flatnonzero(np.bincount(self.graph) > 1).tolist()
        return found

    @property
    def costs(self) -> Array:
        """What all shortest paths of each graph cost, guessed from its edges alone."""
        return costs_of(self.rows // 4 + 1, 2 * self.rows)

    def pieces(self, *, distances: bool) -> list[tuple[int, int, bool]]:
        """Cut the graphs, in their order, into pieces that begin where chunks do, if they can."""
        first = np.full(len(self.ids), len(self.chunks), np.int64)
        np.minimum.at(first, self.graph, self.chunk)
        items = 3 * self.rows
        if distances:
            items = items + self.rows**2 // 32
        return cut(self.costs, items, aligned=first, least_cost=_LEAST_COST)

    def reads(self, pieces: list[tuple[int, int, bool]]) -> list[list[Read]]:
        """Return what each piece reads: a range of rows of every chunk that has some of it."""
        stops = np.array([stop for _, stop, _ in pieces], np.int64)
        piece = np.searchsorted(stops, self.graph, side="right")
        key = piece * max(len(self.chunks), 1) + self.chunk
        order = np.argsort(key, kind="stable")
        found: list[list[Read]] = [[] for _ in pieces]
        if not len(order):
            return found
        starts = np.concatenate([[0], np.flatnonzero(np.diff(key[order])) + 1])
        low = np.minimum.reduceat(self.low[order], starts)
        high = np.maximum.reduceat(self.high[order], starts)
        count = np.add.reduceat(self.counts[order], starts)
        firsts = np.array([first for first, *_ in pieces], np.int64)
        ends = np.append(starts[1:], len(order))
        for i, entry in enumerate(order[starts]):
            number, mine = int(self.chunk[entry]), int(piece[entry])
            graphs = lengths = None
            if self.surveys[number].ordered and high[i] - low[i] == count[i]:
                entries = order[starts[i] : ends[i]]
                graphs, lengths = self.graph[entries] - firsts[mine], self.counts[entries]
            read = Read(self.chunks[number], int(low[i]), int(high[i]), graphs, lengths)
            found[mine].append(read)
        return found

    def apart(self, reads: list[list[Read]]) -> bool:
        """Return whether graphs lie so far apart that rows would be read again and again."""
        total = sum(chunk.rows for chunk in self.chunks)
        decoded = sum(
            one.high if one.chunk.group >= 0 else one.high - one.low
            for each in reads
            for one in each
        )
        most = max((one.high - one.low for each in reads for one in each), default=0)
        return decoded > _READ_AGAIN * total + _FEW_ROWS or most > _MOST_ROWS
