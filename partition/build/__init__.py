"""From an assignment to the data of each rank: local CSR, ghosts, send and receive lists.

Out of core: the graph is read once, shard by shard, and its rows are spooled to the parts that own
them; then each part is renumbered separately. Memory: a few numbers per node, and a few more per
thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import id_dtype, offsets_of
from penstock.files import FileEntry, link_same, save_npy
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.partition.base import Base
from penstock.partition.build.columns import GrowingArray, Spool, save_arrays
from penstock.partition.manifest import PartEntry
from penstock.partition.build.node_data import write_features, write_labels
from penstock.partition.part import part_folder
from penstock.threads import spread
from penstock.progress import Progress
from penstock.writer import row_cuts

PIECE_EDGES = 1 << 22


def disk_needed(graph: Graph) -> int:
    """Return about how many bytes the parts take while they are built."""
    sizes = {name: entry.bytes for name, entry in graph.manifest.files.items()}
    edges = sum(size for name, size in sizes.items() if name.startswith("shards/"))
    features = sum(size for name, size in sizes.items() if name.startswith("features/"))
    # Spooled and finished rows exist side by side; a part's spool is dropped when it is done.
    return 2 * edges + features + 16 * graph.num_nodes


def memory_needed(graph: Graph, threads: int) -> int:
    """Return about how many bytes building the parts takes."""
    id_bytes = id_dtype(graph.num_nodes).itemsize
    return graph.num_nodes * (24 + threads * (id_bytes + 1)) + threads * PIECE_EDGES * 40


def build_parts(
    graph: Graph,
    parts: Array,
    k: int,
    root: Path,
    *,
    base: Base | None = None,
    quiet: bool = True,
) -> tuple[list[PartEntry], list[FileEntry]]:
    """Write every part of ``graph`` under ``root``; return their counts and files.

    parts  (nodes,) int32 in 0 .. k - 1
    base   yesterday's partition: what is the same is linked
    """
    builder = _Builder(graph, parts, k, root)
    total = 2 * graph.num_edges
    with Progress("build parts", total=total, unit="edges", quiet=quiet) as progress:
        builder.spool_rows(progress)
        builder.renumber(progress)
    builder.write_sends()
    builder.files += write_features(graph, builder.owned, root)
    builder.files += write_labels(graph, builder.owned, root)
    builder.files += [
        save_npy(root, "assignment.npy", parts),
        save_npy(root, "local.npy", builder.local),
    ]
    if base is not None:
        old = base.partition
        link_same(old.path, old.manifest.files, root, builder.files)
    return builder.entries(), builder.files


class _Builder:
    """Writes parts.

    owned  the nodes that each part owns, ascending
    local  (nodes,) the position of each node among them
    """

    def __init__(self, graph: Graph, parts: Array, k: int, root: Path) -> None:
        self._graph, self._parts, self._k, self._root = graph, parts, k, root
        ids = id_dtype(graph.num_nodes)
        # NumPy sorts 16-bit integers by radix, in linear time.
        keys = parts.astype(np.int16) if k < 1 << 15 else parts
        order = np.argsort(keys, kind="stable").astype(ids)
        self.owned = np.split(order, offsets_of(np.bincount(parts, minlength=k))[1:-1])
        self.local = np.empty(graph.num_nodes, ids)
        for nodes in self.owned:
            self.local[nodes] = np.arange(len(nodes), dtype=ids)
        self._columns = [n for n in graph.manifest.dtypes if n not in ("indptr", "indices")]
        self._kernels = kernel("halo", parts)
        self._ghosts: list[Array] = [np.empty(0)] * self._k
        self._cut = np.zeros(self._k, np.int64)
        self._sends = np.zeros(self._k, np.int64)
        self.files: list[FileEntry] = []

    def spool_rows(self, progress: Progress) -> None:
        """Read the graph once and append each part's rows, columns as they are, to its spools."""
        dtypes = self._graph.manifest.dtypes
        self._spools = {
            rank: {
                name: Spool(self._root / part_folder(rank) / f"{name}.spool", dtypes[name])
                for name in ("indices", *self._columns)
            }
            for rank in range(self._k)
        }
        for number in range(self._graph.num_shards):
            shard = self._graph.shard(number)
            first, stop = shard.first_row, shard.first_row + shard.rows

            def append(rank: int, shard: Any = shard, first: int = first, stop: int = stop) -> None:
                owned = self.owned[rank]
                rows = owned[slice(*np.searchsorted(owned, [first, stop]))] - first
                for name, spool in self._spools[rank].items():
                    column = getattr(shard, name)
                    spool.append(self._kernels.gather_rows(shard.indptr, rows, column))

            spread(append, range(self._k))
            progress.advance(shard.edges)

    def renumber(self, progress: Progress) -> None:
        """Turn each part's spools into its local rows; this finds its ghosts."""

        def work(rank: int) -> None:
            self._renumber_part(rank)
            progress.advance(int(self._graph.degrees[self.owned[rank]].sum()))

        spread(work, range(self._k))

    def _renumber_part(self, rank: int) -> None:
        parts, owned, folder = self._parts, self.owned[rank], part_folder(rank)
        spools = self._spools[rank]
        neighbours = spools["indices"].map()
        foreign = np.zeros(len(parts), bool)
        for start in range(0, len(neighbours), PIECE_EDGES):
            piece = neighbours[start : start + PIECE_EDGES]
            self._kernels.mark_foreign(piece, parts, rank, foreign)
        ghosts = np.flatnonzero(foreign).astype(owned.dtype)
        del foreign
        owners = parts[ghosts]
        ghosts = ghosts[np.argsort(owners, kind="stable")]
        starts = offsets_of(np.bincount(owners, minlength=self._k))
        local = np.empty(len(parts), id_dtype(len(owned) + len(ghosts)))
        local[owned] = np.arange(len(owned))
        local[ghosts] = np.arange(len(owned), len(owned) + len(ghosts))

        indptr = offsets_of(self._graph.degrees[owned])
        dtypes = {**self._graph.manifest.dtypes, "indices": local.dtype}
        out = {
            name: GrowingArray(self._root, f"{folder}/{name}.npy", neighbours.shape, dtypes[name])
            for name in spools
        }
        columns = {name: spools[name].map() for name in self._columns}
        bounds = (len(owned) + starts[:-1]).astype(local.dtype)
        for start, stop in row_cuts(indptr, PIECE_EDGES):
            low, high = indptr[start], indptr[stop]
            rows = indptr[start : stop + 1] - low
            found, order = self._kernels.local_rows(
                rows, neighbours[low:high], local, bounds, bool(columns)
            )
            self._cut[rank] += np.count_nonzero(found >= len(owned))
            out["indices"].append(found)
            for name, column in columns.items():
                out[name].append(column[low:high][order])
        for spool in spools.values():
            spool.drop()
        self._ghosts[rank] = ghosts
        self.files += [column.close() for column in out.values()]
        named = {"indptr": indptr, "owned": owned, "ghosts": ghosts, "receive_starts": starts}
        self.files += save_arrays(self._root, rank, named)

    def write_sends(self) -> None:
        """Write the rows that each part sends: ghosts of other parts that it owns."""
        wanted: list[list[Array]] = [[] for _ in range(self._k)]
        for ghosts in self._ghosts:
            owners = self._parts[ghosts]
            cuts = np.searchsorted(owners, np.arange(1, self._k))
            for owner, nodes in enumerate(np.split(self.local[ghosts], cuts)):
                wanted[owner].append(nodes)
        for rank, lists in enumerate(wanted):
            starts = offsets_of(np.array([len(nodes) for nodes in lists]))
            self._sends[rank] = starts[-1]
            named = {"send": np.concatenate(lists), "send_starts": starts}
            self.files += save_arrays(self._root, rank, named)

    def entries(self) -> list[PartEntry]:
        return [
            PartEntry(
                nodes=len(owned),
                ghosts=len(self._ghosts[rank]),
                edges=int(self._graph.degrees[owned].sum()),
                cut=int(self._cut[rank]),
                sends=int(self._sends[rank]),
            )
            for rank, owned in enumerate(self.owned)
        ]
