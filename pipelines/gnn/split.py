"""The split that a training run draws with ``--split`` or takes from its graph; both are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.graph import SPLITS, Graph
from penstock.sizes import need_memory
from penstock.workers.gnn.data.kept_split import SplitFile, copy_split, save_split

if TYPE_CHECKING:
    from penstock.pipelines.gnn.options import ModelOptions

FILE_NAME = "split.parquet"
_NODE_BYTES = 64  # while a split is drawn


@dataclass(frozen=True)
class DrawnSplit:
    """How a run's split was drawn, and what came of it; its seed is the training's.

    nodes     how many are in train, valid and test
    replaces  the same of the graph's own split, whose place it takes
    """

    fractions: tuple[float, float, float]
    stratified: bool = False
    nodes: dict[str, int] | None = None
    replaces: dict[str, int] | None = None

    @staticmethod
    def of(body: dict[str, Any] | None) -> DrawnSplit | None:
        """Return what run.json holds."""
        if body is None:
            return None
        first, second, third = body["fractions"]
        return DrawnSplit(**{**body, "fractions": (first, second, third)})

    @property
    def declared(self) -> str:
        """What must be the same for a run to go on."""
        return " ".join(map(repr, self.fractions)) + (" by class" if self.stratified else "")

    def text(self) -> str:
        """Return how many nodes it has, and what became of the graph's own."""
        found = f"split {self.declared}: {counts_text(self.nodes or {})}"
        if self.replaces:
            found += f"; it takes the place of the graph's ({counts_text(self.replaces)})"
        return found


def declared_split(options: ModelOptions) -> DrawnSplit | None:
    """Return the split that options declare, not drawn yet."""
    if options.split is None:
        return None
    return DrawnSplit(options.split, options.split_stratified)


def draw_split(declared: DrawnSplit, graph: Graph, seed: int) -> tuple[DrawnSplit, Array]:
    """Draw a split of the nodes that have a label; return what came of it, and all splits."""
    from penstock.pipelines.splits import draw_splits

    if declared.stratified and graph.manifest.labels != "class":
        raise UsageError(
            "--split-stratified draws class by class",
            expected="labels of kind class, one a node",
            got=f"labels of kind {graph.manifest.labels}",
            remedy="Leave --split-stratified out",
        )
    need_memory(
        graph.num_nodes * _NODE_BYTES,
        "drawing a split of the nodes",
        remedy="Keep one in the graph with penstock etl --split-nodes",
    )
    labelled = graph.labelled()
    classes = np.asarray(graph.labels()) if declared.stratified else None
    splits = draw_splits(_positions(graph), labelled, declared.fractions, seed, classes)
    nodes = {name: int(np.count_nonzero(splits == i)) for i, name in enumerate(SPLITS)}
    if not nodes["train"]:
        raise UsageError(
            f"--split leaves no node of {graph.path} to train on",
            expected="one or more",
            got=f"{declared.fractions[0]:g} of {np.count_nonzero(labelled):,} nodes with a label",
        )
    own = graph.manifest.splits
    return replace(declared, nodes=nodes, replaces=own if any(own.values()) else None), splits


def keep_split(folder: Path, graph: Graph, splits: Array | None) -> None:
    """Write a split into the folder of a run; None: the graph's own, if it is not there yet."""
    path = folder / FILE_NAME
    if splits is not None:
        save_split(path, graph, splits)
    elif graph.manifest.graphs is None and not path.is_file():
        copy_split(path, graph)


def split_file(run_at: Path, split: DrawnSplit | None, *, by_id: bool = False) -> SplitFile | None:
    """Return the split that a run drew; None: it goes by the graph's own."""
    return None if split is None else SplitFile((run_at / FILE_NAME).absolute(), by_id)


def own_split_file(run_at: Path) -> SplitFile | None:
    """Return the split of the graph that a run was trained on, for another graph's nodes.

    None where the run has none: one of an earlier version, or trained on a zoo.
    """
    path = (run_at / FILE_NAME).absolute()
    return SplitFile(path, by_id=True, rest=True) if path.is_file() else None


def counts_text(nodes: dict[str, int]) -> str:
    """Return how many nodes each split has: ``train 240, valid 80, test 80``."""
    return ", ".join(f"{name} {count:,}" for name, count in nodes.items())


def _positions(graph: Graph) -> Array | None:
    """Return each node's position among the user's ids, ascending, as penstock etl draws by it."""
    import pyarrow.compute as pc

    if graph.manifest.graphs is not None:  # ids of different graphs may be the same
        return None
    order = np.asarray(pc.sort_indices(graph.user_ids()))
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions
