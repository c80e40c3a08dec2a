"""Which nodes and edges train, validate and test: how they are drawn, and the file with them.

Each node draws by its user's id, each edge by its ends and relation: draws do not depend on workers
or on other nodes and edges, and fractions hold in expectation.

A run of ``penstock gnn train`` keeps its split in split.parquet, one row per node of its graph:

id      the user's id
split   int8: 0 train, 1 valid, 2 test; null: none
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy, copy_columns, read_column, write_parquet
from penstock.errors import CorruptFile, UsageError
from penstock.graph import Graph, count_splits
from penstock.kernels import kernel
from penstock.kernels.streams import Stream
from penstock.sizes import need_memory

if TYPE_CHECKING:
    import pyarrow as pa

Fractions = tuple[float, float, float]

FILE_NAME = "split.parquet"
_EXACT = 1e-6  # fractions that add up to at least one less this leave no node out
_NODE_BYTES = 64  # while a split is drawn
_BATCH = 1 << 20  # nodes drawn at a time


# -- drawing ---------------------------------------------------------------------------------------


def split_edges(
    sources: Any,
    targets: Any,
    relations: Any | None,
    fractions: Fractions,
    seed: int,
    *,
    directed: bool,
) -> Any:
    """Return 0 (train), 1 (valid) or 2 (test) for each edge: (m,) int8, on ``sources``' device.

    Both directions of an undirected edge and all copies of an edge have the same split.
    """
    u, v = sources.astype(np.uint64), targets.astype(np.uint64)
    if not directed:
        u, v = np.minimum(u, v), np.maximum(u, v)
    step = 0 if relations is None else relations
    draws = kernel("philox", u).draws(seed, Stream.SPLIT_EDGES, _pair(u, v), step)
    return _splits(draws, fractions)


def split_nodes(
    keys: Array, fractions: Fractions, seed: int, classes: Array | None = None
) -> Array:
    """Return 0 (train), 1 (valid), 2 (test) or -1 (none) for each node: (nodes,) int8.

    keys     (nodes,) uint64, of ``id_keys``
    classes  (nodes,) class numbers, -1 for none: apply the fractions to each class, to within one
             node, instead of a draw per node
    """
    if classes is not None:
        return _split_classes(keys, fractions, seed, classes)
    splits = np.empty(len(keys), np.int8)
    for start in range(0, len(keys), _BATCH):
        rows = slice(start, start + _BATCH)
        splits[rows] = _splits(_draws(seed, keys[rows]), fractions)
    return splits


def id_keys(ids: pa.Array | pa.ChunkedArray) -> Array:
    """Return 64 bits of each user's id, an integer's own or a hash of bytes: (ids,) uint64."""
    parts = [_keys(chunk) for chunk in getattr(ids, "chunks", [ids])]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _keys(ids: pa.Array) -> Array:
    import pyarrow as pa

    from penstock.kernels.cpu.ids import hashes

    kind = ids.type
    if pa.types.is_integer(kind):
        return as_numpy(ids).astype(np.uint64)
    if not (pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        ids = ids.cast(pa.large_string())
    ids = ids.cast(pa.large_binary())
    _, offsets, data = ids.buffers()
    ends = np.frombuffer(offsets, np.int64)[ids.offset : ids.offset + len(ids) + 1]
    found: Array = hashes(np.frombuffer(data or b"\0", np.uint8), ends)
    return found


def _draws(seed: int, which: Array, step: int = 0) -> Array:
    draws: Array = kernel("philox", which).draws(seed, Stream.SPLIT_NODES, which, step)
    return draws


def _pair(u: Any, v: Any) -> Any:
    """Return one number for two: one-to-one below 2^32, and well mixed above."""
    return (u << np.uint64(32) | u >> np.uint64(32)) ^ v


def _splits(draws: Any, fractions: Fractions) -> Any:
    valid, test, none = np.round(np.cumsum(fractions) * 2**32).astype(np.int64).tolist()
    draws = draws.astype(np.int64)
    splits = (draws >= valid).astype(np.int8) + (draws >= test).astype(np.int8)
    if sum(fractions) <= 1 - _EXACT:
        splits[draws >= none] = -1
    return splits


def _split_classes(keys: Array, fractions: Fractions, seed: int, classes: Array) -> Array:
    splits = np.full(len(keys), -1, np.int8)
    nodes = np.flatnonzero(classes >= 0)
    nodes = nodes[np.lexsort((keys[nodes], _draws(seed, keys[nodes]), classes[nodes]))]
    sizes = np.bincount(classes[nodes])
    # Every class is spread evenly over 0 to 1 from its own start: rounding would leave all
    # classes of three nodes without validation nodes.
    starts = _draws(seed, np.arange(len(sizes), dtype=np.uint64), step=1) / 2.0**32
    rank = np.arange(len(nodes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = (rank + np.repeat(starts, sizes)) / np.repeat(sizes, sizes)
    ends = np.cumsum(fractions)
    if ends[-1] > 1 - _EXACT:
        ends[-1] = 2
    drawn = np.searchsorted(ends, at, side="right")
    splits[nodes] = np.where(drawn > 2, -1, drawn)
    return splits


# -- a training run's ------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnSplit:
    """How a run's split was drawn, and the result; its seed is the training's.

    nodes     numbers of nodes in train, valid and test
    replaces  the numbers of the graph's own split that it replaces
    """

    fractions: Fractions
    stratified: bool = False
    nodes: dict[str, int] | None = None
    replaces: dict[str, int] | None = None

    @property
    def declared(self) -> str:
        """The options that must be equal to resume a run."""
        return " ".join(map(repr, self.fractions)) + (" by class" if self.stratified else "")

    def text(self) -> str:
        """Return its numbers of nodes, and those of the graph's own split."""
        found = f"split {self.declared}: {counts_text(self.nodes or {})}"
        if self.replaces:
            found += f"; it replaces the graph's ({counts_text(self.replaces)})"
        return found


def draw_split(declared: DrawnSplit, graph: Graph, seed: int) -> tuple[DrawnSplit, Array]:
    """Draw a split of the labelled nodes; return the result, and all splits."""
    about = graph.manifest
    if declared.stratified and about.labels != "class":
        raise UsageError(
            "--split-stratified draws class by class",
            expected="labels of kind class, one per node",
            got=f"labels of kind {about.labels}",
            remedy="Leave --split-stratified out",
        )
    need_memory(
        graph.num_nodes * _NODE_BYTES,
        "drawing a split of the nodes",
        remedy="Keep one in the graph with penstock etl --split-nodes",
    )
    keys = id_keys(graph.user_ids())
    if about.graphs is not None:  # graphs may share ids
        graphs = id_keys(read_column(graph.path / "graphs.parquet", "id"))
        keys = _pair(graphs[as_numpy(graph.node_column("graph"))], keys)
    labelled = graph.labelled()
    classes = np.asarray(graph.labels()) if declared.stratified else None
    splits = split_nodes(keys, declared.fractions, seed, classes)
    splits[~labelled] = -1
    nodes = count_splits(splits)
    if not nodes["train"]:
        raise UsageError(
            f"--split leaves no node of {graph.path} to train on",
            expected="one or more",
            got=f"{declared.fractions[0]:g} of {np.count_nonzero(labelled):,} nodes with a label",
        )
    own = about.splits
    return replace(declared, nodes=nodes, replaces=own if any(own.values()) else None), splits


def counts_text(nodes: dict[str, int]) -> str:
    """Return the number of nodes in each split: ``train 240, valid 80, test 80``."""
    return ", ".join(f"{name} {count:,}" for name, count in nodes.items())


@dataclass(frozen=True)
class SplitFile:
    """A split.parquet, and how to find its rows for a graph's nodes.

    by_id  by the user's ids, for a graph other than its own: nodes that it does not list are in no
           split. Otherwise row i is node i
    rest   nodes without a split here use their graph's, if it has one
    """

    path: Path
    by_id: bool = False
    rest: bool = False

    def splits(self, graph: Graph, nodes: Array | None = None) -> Array:
        """Return 0, 1, 2 or -1 (none) for nodes of a graph, by default all: (nodes,) int8."""
        if not self.path.is_file():
            raise self._damaged("no such file")
        splits = as_numpy(read_column(self.path, "split"), -1).astype(np.int8)
        if self.by_id:
            listed, splits = splits, np.full(graph.num_nodes, -1, np.int8)
            with suppress(UsageError):  # ids of another type are other nodes
                numbers = graph.internal_ids(read_column(self.path, "id").combine_chunks())
                splits[numbers[numbers >= 0]] = listed[numbers >= 0]
        elif len(splits) != graph.num_nodes:
            raise self._damaged(f"{len(splits)} rows for {graph.num_nodes} nodes")
        if self.rest:
            splits = np.where(splits >= 0, splits, own_splits(graph))
        return splits if nodes is None else splits[nodes]

    def differs(self, graph: Graph) -> bool:
        """Return whether a node has another split than the graph's own."""
        return bool((self.splits(graph) != own_splits(graph)).any())

    def _damaged(self, got: str) -> CorruptFile:
        return CorruptFile(
            f"{self.path} is damaged",
            expected="the split that the run was trained on, one row per node",
            got=got,
            remedy="Copy the run again, or train again with --overwrite",
        )


def split_file(run_at: Path, split: DrawnSplit | None, *, by_id: bool = False) -> SplitFile | None:
    """Return the split that a run drew; None: it uses the graph's own."""
    return None if split is None else SplitFile((run_at / FILE_NAME).absolute(), by_id)


def own_split_file(run_at: Path) -> SplitFile | None:
    """Return the split of the graph that a run was trained on, for another graph's nodes.

    None if the run has none, as it was trained on a zoo.
    """
    path = (run_at / FILE_NAME).absolute()
    return SplitFile(path, by_id=True, rest=True) if path.is_file() else None


def keep_split(folder: Path, graph: Graph, splits: Array | None) -> None:
    """Write a split into the folder of a run; None: the graph's own, unless it exists."""
    path = folder / FILE_NAME
    if splits is not None:
        save_split(path, graph, splits)
    elif graph.manifest.graphs is None and not path.is_file():
        copy_columns(graph.ids_file, path, ["id", "split"])


def save_split(path: Path, graph: Graph, splits: Array) -> None:
    """Write split.parquet for the nodes of a graph."""
    import pyarrow as pa

    table = pa.table({"id": graph.user_ids(), "split": as_arrow(splits, splits < 0)})
    write_parquet(path, [table])


def own_splits(graph: Graph) -> Array:
    """Return the graph's own split of its nodes, as ``SplitFile.splits`` returns one."""
    if not graph.manifest.splits:
        return np.full(graph.num_nodes, -1, np.int8)
    return as_numpy(graph.node_column("split"), -1).astype(np.int8)
