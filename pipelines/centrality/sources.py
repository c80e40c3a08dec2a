"""One large graph: its sources in shares, one per task; their sums are added in order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.arrays import Array
from penstock.files import save_npy
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import GraphBatch, Paths
from penstock.output import Pieces
from penstock.pipelines.centrality.compute import (
    Columns,
    compute,
    of_searches,
    passages_from,
)
from penstock.pipelines.centrality.one_graph import on_device
from penstock.pipelines.centrality.options import (
    OF_DISTANCES,
    OF_PATHS,
    OF_PATHS_THROUGH,
    CentralityOptions,
)
from penstock.pipelines.centrality.pieces import PieceSpec
from penstock.workers.plugin import resources
from penstock.workers.resources.device import to_host

_SHARES, _SHARES_ON_GPU = 256, 32  # at most; the shares depend on the input and device alone
LEAST_COST = 1e8  # cost of a share: some tenths of a second
# Sources of one graph that a GPU searches from at once, for betweenness and for distances.
_AT_ONCE, _AT_ONCE_BY_BITS = 4, 256
_CHANCE = 0.1  # probability that the error of some node exceeds the bound
_FIELDS = ("reached", "total", "inverse", "eccentricity")


@dataclass(frozen=True)
class Shares:
    """The sources of one graph, all or drawn ones, in shares.

    listed  (sources,) int64, ascending; count: number of shares
    """

    listed: Array
    count: int

    @staticmethod
    def of(nodes: int, edges: int, options: CentralityOptions, *, on_gpu: bool = False) -> Shares:
        """Draw the sources, or take all nodes, and cut them into shares, which keep a GPU busy."""
        if not options.wanted & OF_PATHS:
            return Shares(np.empty(0, np.int64), 0)
        listed = np.arange(nodes, dtype=np.int64)
        wanted = sample_size(nodes, options)
        if wanted is not None:
            drawn = np.random.Generator(np.random.Philox(options.seed)).permutation(nodes)
            listed = np.sort(drawn[:wanted]).astype(np.int64)
        cost = float(len(listed)) * (nodes + edges)
        most = min(_SHARES, len(listed))
        if on_gpu:
            at_once = _AT_ONCE_BY_BITS if options.wanted & OF_DISTANCES else _AT_ONCE
            most = min(_SHARES_ON_GPU, -(-len(listed) // at_once))
        count = int(min(max(1, most), max(1, cost // LEAST_COST)))
        return Shares(listed, count)

    def share(self, number: int) -> Array:
        """Return the sources of a share."""
        bounds = np.linspace(0, len(self.listed), self.count + 1).astype(np.int64)
        return self.listed[bounds[number] : bounds[number + 1]]

    def save(self, records: Pieces, piece: int) -> None:
        """Write the sources of a piece, for ``load``."""
        save_npy(records.folder, f"sources-{piece:05d}.npy", self.listed)

    @staticmethod
    def load(records: Pieces, piece: int, count: int) -> Shares:
        """Read the sources, on a worker."""
        return Shares(load_npy(records.folder / f"sources-{piece:05d}.npy"), count)


def sample_size(nodes: int, options: CentralityOptions) -> int | None:
    """Return the number of drawn sources; None: all nodes are sources.

    The share that each adds to a node's normalized betweenness is between 0 and 1, so by
    Hoeffding's bound ln(2 n / chance) / (2 epsilon^2) of them are enough; and one more, because a
    drawn node adds nothing to its own.
    """
    if options.epsilon is not None:
        enough = math.log(2 * max(nodes, 1) / _CHANCE) / 2 / options.epsilon
        # Divided twice, and compared before: the square of a tiny epsilon is 0.
        if enough >= nodes * options.epsilon:
            return nodes
        return min(nodes, math.ceil(enough / options.epsilon) + 1)
    return None if options.samples is None else min(nodes, options.samples)


def error_bound(nodes: int, samples: int) -> float:
    """Return the error bound of the normalized betweenness of all nodes, except by chance."""
    if samples >= nodes:
        return 0.0
    if samples < 2:
        return 1.0
    return min(1.0, math.sqrt(math.log(2 * nodes / _CHANCE) / (2 * (samples - 1))))


def share_name(piece: int, number: int, count: int) -> str:
    """Return the name of a share's record; another device may have another number of them."""
    return f"share-{piece:05d}-{number:05d}-of-{count}"


def share_bytes(nodes: int, edges: int, options: CentralityOptions) -> int:
    """Return the bytes of a share's sums on the disk."""
    wanted = options.wanted
    node = len(_FIELDS) * bool(wanted & OF_DISTANCES) + bool(wanted & OF_PATHS_THROUGH)
    return 8 * (nodes * node + edges * ("edge-betweenness" in wanted))


def open_large(
    spec: PieceSpec, piece: int, records: Pieces, *, weighted: bool
) -> tuple[PieceSpec, int, int, str | None]:
    """Read a large graph, and keep it for its shares unless it was only mapped.

    Return an object that reads it again, its numbers of nodes and edges, and why it failed.
    """
    found = spec.read(weighted=weighted)
    spec = spec.keep(found, records.folder / f"large-{piece:05d}")
    return spec, found.batch.nodes, len(found.batch.indices), found.failed.get(0)


def sum_share(
    spec: PieceSpec,
    version: str,
    options: CentralityOptions,
    records: Pieces,
    piece: int,
    number: int,
    count: int,
) -> None:
    """Compute one share and record its sums; runs on a worker."""
    held = resources()

    def load() -> GraphBatch:
        read = spec.read(weighted=options.weighted)
        assert not read.failed, "the client has checked the weights"
        if held.device is None:
            return read.batch
        if options.weighted:
            return on_device(read.batch)
        return read.one.merged_on_gpu()

    sources = Shares.load(records, piece, count).share(number)
    key = ("centrality", version, piece, options.weighted)
    with held.cache.hold(key, load) as batch:
        kernels = kernel("centrality", batch.indptr)
        sums: dict[str, Array] = {}
        if options.wanted & OF_DISTANCES:
            paths = kernels.shortest_paths(batch, sources)
            sums |= {name: to_host(getattr(paths, name)) for name in _FIELDS}
        if options.wanted & OF_PATHS_THROUGH:
            sums["betweenness"], arcs = passages_from(kernels, batch, options, sources)
            if arcs is not None:
                sums["edges"] = arcs
    stem = share_name(piece, number, count)
    for name, values in sums.items():
        save_npy(records.folder, f"{stem}-{name}.npy", values)
    records.save(stem, {"sums": sorted(sums)}, [])


def rows_name(piece: int) -> str:
    """Return the name of the record of what ranks computed of one graph."""
    return f"rows-{piece:05d}"


def keep_rows(records: Pieces, piece: int, found: Columns) -> None:
    """Keep what ranks computed of one graph."""
    for name, values in found.nodes.items():
        save_npy(records.folder, f"{rows_name(piece)}-{name}.npy", values)
    graphs = {name: values.tolist() for name, values in found.graphs.items()}
    lacking = {name: some.tolist() for name, some in found.lacking.items()}
    about = {"nodes": list(found.nodes), "graphs": graphs, "lacking": lacking}
    records.save(rows_name(piece), about, [])


def kept_rows(records: Pieces, piece: int) -> Columns:
    """Return what ``keep_rows`` was given."""
    about, _ = records.load(rows_name(piece))
    files = {name: records.folder / f"{rows_name(piece)}-{name}.npy" for name in about["nodes"]}
    return Columns(
        nodes={name: np.asarray(load_npy(file)) for name, file in files.items()},
        graphs={name: np.array(values) for name, values in about["graphs"].items()},
        lacking={name: np.array(some, np.int64) for name, some in about["lacking"].items()},
    )


def added(records: Pieces, piece: int, shares: Shares, name: str) -> Array:
    """Return the sum of all shares, in their order."""
    count = shares.count
    files = [f"{share_name(piece, number, count)}-{name}.npy" for number in range(count)]
    total = np.array(load_npy(records.folder / files[0]))
    for file in files[1:]:
        total += load_npy(records.folder / file)
    return total


def without_columns(batch: GraphBatch, options: CentralityOptions) -> Columns:
    """Return columns of arbitrary values for a graph that failed."""
    none = np.zeros(0, np.int32)
    empty = GraphBatch(np.zeros(2, np.int64), np.zeros(1, np.int64), none, directed=batch.directed)
    found = compute(empty, options, options.wanted)
    return replace(
        found,
        nodes={name: np.zeros(batch.nodes, one.dtype) for name, one in found.nodes.items()},
        edges=None if found.edges is None else np.zeros(len(batch.indices)),
    )


def from_shares(
    records: Pieces, piece: int, shares: Shares, batch: GraphBatch, options: CentralityOptions
) -> Columns:
    """Return the columns of the whole graph from its shares."""
    paths = passages = arcs = None
    if options.wanted & OF_DISTANCES:
        paths = Paths(*(added(records, piece, shares, name) for name in _FIELDS))
    if options.wanted & OF_PATHS_THROUGH:
        passages = added(records, piece, shares, "betweenness")
    if "edge-betweenness" in options.wanted:
        arcs = added(records, piece, shares, "edges")
    drawn = shares.listed if options.sampled else None
    return of_searches(batch, options, paths, passages, arcs, drawn)
