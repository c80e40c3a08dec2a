"""Earlier predictions: what they keep of their graph, and what differs today.

_rows.npy       64 bits of each node's row
_features.npy   64 bits of each node's features
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import BaseRefused
from penstock.files import FileEntry, save_npy
from penstock.graph import Graph, load_npy
from penstock.graph_changes import RowPrints, another_kind, differing
from penstock.prints import print_factors, prints_of, words
from penstock.workers.gnn.plan.lowering import ModelPlan

if TYPE_CHECKING:
    from penstock.pipelines.gnn.prediction import OpenedRun

_FEATURES = "_features.npy"


@dataclass(frozen=True, eq=False)
class Prints:
    """Bits of each node's row and features, and how they were computed.

    inputs  the files that the features are in, and which of their columns are read
    how     the order of each layer's steps: another one rounds otherwise
    """

    rows: RowPrints
    features: Array
    inputs: str
    how: str

    @classmethod
    def of(
        cls, opened: OpenedRun, plan: ModelPlan, device: str, known: Prints | None = None
    ) -> Prints:
        """Return those of a graph today; features in the files of ``known`` are not read again."""
        graph, columns = opened.graph, opened.features.columns
        weighted = ("weights",) if opened.run.training.weighted else ()
        rows = RowPrints.of(graph, weighted)
        files = [
            (name, entry.sha256)
            for name, entry in graph.manifest.files.items()
            if name.startswith("features/")
        ]
        inputs = sha256(repr((sorted(files), columns)).encode()).hexdigest()
        orders = [(layer.order, layer.precomputed) for layer in plan.layers]
        how = repr((orders, plan.sparse, device))
        if known is not None and known.inputs == inputs:
            return cls(rows, known.features, inputs, how)
        return cls(rows, _feature_bits(graph, columns), inputs, how)

    @property
    def about(self) -> dict[str, Any]:
        """What a manifest keeps of them."""
        return {"rows": self.rows.about, "inputs": self.inputs, "how": self.how}

    def save(self, root: Path) -> list[FileEntry]:
        """Write them."""
        return [self.rows.save(root), save_npy(root, _FEATURES, self.features)]

    def changed(self, before: Prints, path: Path) -> Array:
        """Return which nodes have another row, and other features, than before: (2, nodes) bool."""
        rows = self.rows.changed_since(before.rows, path)
        features = differing(before.features, self.features)
        if self.how != before.how:  # everything is computed again
            rows[:] = True
        return np.stack([rows, features])


def prints_of_base(path: Path, columns: list[str], sha256: str) -> Prints:
    """Open predictions that have these columns, and were made with these weights."""
    from penstock.pipelines.gnn.prediction import FORMAT

    body = FORMAT.load(path)
    with FORMAT.reading(path):
        about = body.get("prints")
        before = [*body["columns"]]
        made = str(body["checkpoint_sha256"])
    if made != sha256:
        raise another_kind(path, "weights", made[:12], sha256[:12])
    if about is None:
        raise BaseRefused(
            f"{path} cannot be a base", expected="predictions of one graph by one rank"
        )
    if sorted(before) != sorted(columns):
        raise another_kind(path, "columns", ", ".join(before), ", ".join(columns))
    FORMAT.files(path, body)
    with FORMAT.reading(path):
        rows = RowPrints.load(path, about["rows"])
        return Prints(rows, load_npy(path / _FEATURES), about["inputs"], about["how"])


def _feature_bits(graph: Graph, columns: tuple[int, ...] | None) -> Array:
    """Return 64 bits of each node's features, in the order in which the model reads them."""
    entry = graph.manifest.features
    assert entry is not None, "checked before"
    read = np.arange(entry.width) if columns is None else np.asarray(columns)
    factors = np.zeros(entry.width, np.uint64)
    factors[read] = print_factors(len(read))
    found = np.zeros(graph.num_nodes, np.uint64)
    for number, start in enumerate(entry.starts):
        rows: Any = graph.feature_rows(number)
        if entry.kind == "dense":
            found[start : start + len(rows)] = prints_of(rows, factors)
            continue
        parts = (words(rows.data) + np.uint64(1)) * factors[rows.indices]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(parts)])
        found[start : start + rows.shape[0]] = np.diff(sums[rows.indptr])
    return found
