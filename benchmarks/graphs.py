"""Graphs that several benchmarks have; those of bench_gnn.py with first weights for PyG."""

import tarfile
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness import real
from scipy.io import loadmat

from penstock.csr import CSR
from penstock.writer import create_graph


@dataclass(frozen=True)
class Data:
    """A graph whose rows gather their columns, and its nodes."""

    csr: CSR
    features: Any
    labels: Any
    classes: int
    directed: bool = True


def power_law(nodes: int, edges: int, xp: Any = np) -> CSR:
    """Return rows whose columns, the sources of messages, follow a power law; all edges differ.

    The k-th of the sources has about k**-1/2 of the edges of the first; names are shuffled.
    """
    draw = xp.random.default_rng(0)
    names = xp.random.RandomState(0).permutation(nodes)
    keys = xp.zeros(0, xp.int64)
    while len(keys) < edges:
        more = (edges - len(keys)) * 11 // 10 + 1000
        sources = names[(draw.random(more) ** 2 * nodes).astype(xp.int64)]
        rows = draw.integers(0, nodes, more, dtype=xp.int64)
        keys = xp.sort(xp.concatenate([keys, rows * nodes + sources]))
        keys = keys[xp.concatenate([xp.ones(1, bool), keys[1:] != keys[:-1]])]
    keys = xp.sort(keys[xp.random.RandomState(1).permutation(len(keys))[:edges]])
    indptr = xp.zeros(nodes + 1, xp.int64)
    xp.cumsum(xp.bincount(keys // nodes, minlength=nodes), out=indptr[1:])
    arrays = indptr, (keys % nodes).astype(xp.int32)
    return CSR(*(a.get() if xp is not np else a for a in arrays))


def products_like(nodes: int, edges: int, width: int, classes: int, xp: Any = np) -> Data:
    """Return a graph with power-law sources and dense features."""
    draw = np.random.default_rng(1)
    features = draw.standard_normal((nodes, width), dtype=np.float32)
    csr = power_law(nodes, edges, xp)
    return Data(csr, features, draw.integers(0, classes, nodes).astype(np.int32), classes)


def fb15k(folder: Path) -> dict[str, Path]:
    """Return the texts of FB15k-237: train, valid and test, in a folder of this name."""
    if not folder.exists():
        with tarfile.open(real("kg/FB15k-237.tar.gz")) as archive:
            archive.extractall(folder, filter="data")
    return {name: next(folder.rglob(f"{name}.txt")) for name in ("train", "valid", "test")}


def blogcatalog() -> tuple[Any, Any]:
    """Return the adjacency matrix of BlogCatalog, and that of its nodes' groups."""
    loaded = loadmat(real("nodes/blogcatalog.mat"))
    return loaded["network"].tocoo(), loaded["group"].tocsr()


def cora() -> Data:
    """Return Cora, edges both ways, all 2,708 nodes."""
    with np.load(real("nodes/cora.npz"), allow_pickle=True) as file:
        adjacency, features = (
            sp.csr_matrix(
                (file[f"{n}_data"], file[f"{n}_indices"], file[f"{n}_indptr"]), file[f"{n}_shape"]
            )
            for n in ("adj", "attr")
        )
        labels = file["labels"].astype(np.int32)
    both = (adjacency + adjacency.T).tolil()
    both.setdiag(0)
    both = both.tocsr()
    both.eliminate_zeros()
    both.sort_indices()
    features.sort_indices()
    csr = CSR(both.indptr.astype(np.int64), both.indices.astype(np.int32))
    return Data(csr, features.astype(np.float32), labels, int(labels.max()) + 1, directed=False)


def cora_like(nodes: int, edges: int, width: int, words: int, classes: int = 7) -> Data:
    """Return a random graph whose nodes have some of ``width`` words, as ones."""
    draw = np.random.default_rng(0)
    ends = draw.integers(0, nodes, (2, edges))
    ends = ends[:, ends[0] != ends[1]]
    keys = np.unique(np.concatenate([ends[0] * nodes + ends[1], ends[1] * nodes + ends[0]]))
    indptr = np.searchsorted(keys, np.arange(nodes + 1) * nodes)
    csr = CSR(indptr.astype(np.int64), (keys % nodes).astype(np.int32))
    chosen = np.argpartition(draw.random((nodes, width), dtype=np.float32), words, axis=1)
    chosen = np.sort(chosen[:, :words], axis=1).astype(np.int32)
    ones = np.ones(nodes * words, np.float32)
    starts = np.arange(nodes + 1, dtype=np.int32) * words
    features = sp.csr_matrix((ones, chosen.ravel(), starts), (nodes, width))
    labels = draw.integers(0, classes, nodes).astype(np.int32)
    return Data(csr, features, labels, classes, directed=False)


def write_case(folder: Path, data: Data, widths: list[int]) -> None:
    """Write the graph, and arrays and first weights for PyG; every node is trained on."""
    write_graph(folder / "graph", data, np.zeros(data.csr.rows, np.int8))
    arrays: dict[str, Any] = {"indptr": data.csr.indptr, "indices": data.csr.indices}
    if isinstance(data.features, np.ndarray):
        arrays["features"] = data.features
    else:
        for part in ("indptr", "indices", "data"):
            arrays[f"feature_{part}"] = getattr(data.features, part)
        arrays["width"] = data.features.shape[1]
    first = first_weights(widths)
    np.savez(
        folder / "peer.npz",
        labels=data.labels,
        train=np.ones(data.csr.rows, bool),
        **arrays,
        **first,
    )


def write_graph(path: Path, data: Data, roles: Any) -> None:
    """Write a graph directory."""
    with create_graph(path, overwrite=True) as writer:
        writer.edges(data.csr, shard_edges=1 << 40)
        writer.nodes(label=data.labels, split=roles)
        writer.features(data.features)
        classes = tuple(f"c{number}" for number in range(data.classes))
        writer.manifest = replace(
            writer.manifest, directed=data.directed, labels="class", classes=classes
        )


def first_weights(widths: list[int]) -> dict[str, Any]:
    """Return the first weights of Penstock's network, for seed 0; biases begin at 0."""
    from penstock.workers.gnn.layers.parameters import Parameters, constant, glorot

    entries = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        entries.append(glorot(f"layers.{number}.weight", inputs, outputs))
        entries.append(constant(f"layers.{number}.bias", outputs))
    named = Parameters(entries, np.float32, 0, device=False).named()
    return {f"weight{i}": named[f"layers.{i}.weight"] for i in range(len(widths) - 1)}
