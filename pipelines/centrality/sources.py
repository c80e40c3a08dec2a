"""One large graph: its sources in shares, one a task, whose sums are added up in their order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.files import save_npy
from penstock.graph import Graph, load_npy
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import GraphBatch, Paths, betweenness_scale
from penstock.pipelines.centrality.compute import Columns, _host, of_paths
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.pieces import batch_of, on_device
from penstock.pipelines.job.partial import Records
from penstock.workers.plugin import resources

_SHARES = 256  # at most; they follow from the input alone
_LEAST_COST = 1e8  # of a share: some tenths of a second
_CHANCE = 0.1  # that the error of some node is larger than the bound
_FIELDS = ("reached", "total", "inverse", "eccentricity")


@dataclass(frozen=True)
class Shares:
    """The sources of one graph: all, or those that were drawn, in shares.

    listed  (sources,) int64, ascending; count: of shares
    """

    listed: Array
    count: int

    @staticmethod
    def of(graph: Graph, options: CentralityOptions) -> Shares:
        """Draw the sources, if they are to be drawn, and cut them into shares."""
        nodes = graph.num_nodes
        listed = np.arange(nodes, dtype=np.int64)
        wanted = sample_size(nodes, options)
        if wanted is not None:
            drawn = np.random.Generator(np.random.Philox(options.seed)).permutation(nodes)
            listed = np.sort(drawn[:wanted]).astype(np.int64)
        cost = float(len(listed)) * (nodes + graph.num_edges)
        count = int(min(_SHARES, max(1, len(listed)), max(1, cost // _LEAST_COST)))
        return Shares(listed, count)

    def share(self, number: int) -> Array:
        """Return the sources of a share."""
        bounds = np.linspace(0, len(self.listed), self.count + 1).astype(np.int64)
        return self.listed[bounds[number] : bounds[number + 1]]


def sample_size(nodes: int, options: CentralityOptions) -> int | None:
    """Return how many sources are drawn; None: all nodes are sources.

    What each adds to a node's normalized betweenness lies between 0 and 1, so by Hoeffding's bound
    ln(2 n / chance) / (2 epsilon^2) of them are enough.
    """
    if options.epsilon is not None:
        enough = math.log(2 * max(nodes, 1) / _CHANCE) / (2 * options.epsilon**2)
        return min(nodes, math.ceil(enough))
    return None if options.samples is None else min(nodes, options.samples)


def error_bound(nodes: int, samples: int) -> float:
    """Return within what the normalized betweenness of all nodes lies, but for the chance."""
    if samples >= nodes:
        return 0.0
    return math.sqrt(math.log(2 * nodes / _CHANCE) / (2 * samples))


def sum_share(
    path: Path,
    version: str,
    options: CentralityOptions,
    records: Records,
    listed: str,
    number: int,
    count: int,
) -> None:
    """Compute one share and note its sums; runs on a worker."""
    held = resources()

    def load() -> GraphBatch:
        graph = Graph.open(held.stage(path))
        whole = np.array([0, graph.num_nodes])
        batch, failed = batch_of(graph.csr(), whole, graph, weighted=options.weighted)
        assert not failed, "the client has looked at the weights"
        return batch if held.device is None else on_device(batch)

    sources = Shares(load_npy(records.folder / listed), count).share(number)
    with held.cache.hold(("centrality", str(path), version, options.weighted), load) as batch:
        kernels = kernel("centrality", batch.indptr)
        sums: dict[str, Array] = {}
        if options.wanted & {"closeness", "harmonic", "eccentricity", "diameter"}:
            paths = kernels.shortest_paths(batch, sources)
            sums |= {name: _host(getattr(paths, name)) for name in _FIELDS}
        if options.wanted & {"betweenness", "edge-betweenness"}:
            edges = "edge-betweenness" in options.wanted
            nodes, arcs = kernels.betweenness(
                batch, sources, endpoints=options.endpoints, edges=edges,
                dtype=np.dtype(options.dtype),
            )  # fmt: skip
            sums["betweenness"] = _host(nodes)
            if arcs is not None:
                sums["edges"] = _host(arcs)
    stem = f"share-{number:05d}"
    for name, values in sums.items():
        save_npy(records.folder, f"{stem}-{name}.npy", values)
    records.save(stem, {"sums": sorted(sums)}, [])


def added(records: Records, shares: Shares, name: str) -> Array:
    """Return the sum of all shares, in their order."""
    total = np.array(load_npy(records.folder / f"share-00000-{name}.npy"))
    for number in range(1, shares.count):
        total += load_npy(records.folder / f"share-{number:05d}-{name}.npy")
    return total


def from_shares(
    records: Records, shares: Shares, batch: GraphBatch, options: CentralityOptions
) -> Columns:
    """Return the columns of the whole graph from its shares."""
    nodes: dict[str, Array] = {}
    graphs: dict[str, Array] = {}
    edges = None
    size, drawn = batch.nodes, len(shares.listed)
    if options.wanted & {"closeness", "harmonic", "eccentricity", "diameter"}:
        paths = Paths(*(added(records, shares, name) for name in _FIELDS))
        nodes |= of_paths(paths, batch.ptr, options)
        if options.sampled:
            nodes |= _estimated(paths, shares, size, options)
        if "diameter" in options.wanted:
            graphs["diameter"] = np.array([paths.eccentricity.max(initial=0)])
            graphs["radius"] = np.array([paths.eccentricity.min() if size else 0.0])
    given = {"directed": batch.directed, "normalized": options.normalized}
    if "betweenness" in options.wanted:
        sums = added(records, shares, "betweenness")
        if options.sampled and drawn < size:
            scale = _sampled_scale(shares, size, options, directed=batch.directed)
        else:
            scale = betweenness_scale(batch.ptr, endpoints=options.endpoints, **given)
        nodes["betweenness"] = sums * scale
    if "edge-betweenness" in options.wanted:
        edges = added(records, shares, "edges")
        edges *= betweenness_scale(batch.ptr, endpoints=True, **given)
    return Columns(nodes, graphs, edges, np.empty(0, np.int64))


def _estimated(
    paths: Paths, shares: Shares, size: int, options: CentralityOptions
) -> dict[str, Array]:
    """Return closeness and harmonic centrality as the drawn sources, others than the node, say."""
    others = np.full(size, len(shares.listed), np.float64)
    others[shares.listed] -= 1
    found = {}
    if "closeness" in options.wanted:
        near = np.divide(paths.reached, paths.total, out=np.zeros(size), where=paths.total > 0)
        if options.wf_improved:
            near *= np.divide(paths.reached, others, out=np.zeros(size), where=others > 0)
        found["closeness"] = near
    if "harmonic" in options.wanted:
        share = np.divide(paths.inverse, others, out=np.zeros(size), where=others > 0)
        found["harmonic"] = share * (size - 1)
    return found


def _sampled_scale(
    shares: Shares, size: int, options: CentralityOptions, *, directed: bool
) -> Array:
    """Return a factor a node, as NetworkX scales what ``k`` sources come to.

    Without endpoints a node that was drawn has one source less: itself.
    """
    drawn, ends = len(shares.listed), size if options.endpoints else size - 1
    factor = np.full(size, 1.0)
    if ends < 2:
        return factor
    sources = np.full(size, float(drawn))
    if not options.endpoints:
        sources[shares.listed] -= 1
    pairs = sources * (ends - 1) if options.normalized else sources * (1 if directed else 2) / ends
    found: Array = np.divide(1.0, pairs, out=np.full(size, np.nan), where=pairs > 0)
    return found
