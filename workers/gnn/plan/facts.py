"""What a plan needs to know about a graph, or about the largest of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.graph import Graph
from penstock.partition.manifest import PartitionManifest
from penstock.workers.gnn.plan.spec import Training


@dataclass(frozen=True)
class Facts:
    """Counts of one rank's share: of the whole graph, or of the largest part.

    rows, columns, edges  owned nodes, owned nodes and ghosts, edges
    nodes                 of the whole graph
    features, nonzeros    width, and number of values that are not 0 in these rows
    labels                kind: class, multi, value, or None
    """

    rows: int
    columns: int
    edges: int
    nodes: int
    ranks: int
    features: int
    nonzeros: int
    labels: str | None
    outputs: int
    symmetric: bool
    weighted: bool
    on_gpu: bool
    index_bytes: int = 4

    @property
    def sparsity(self) -> float:
        """The share of feature values that are 0."""
        return 1 - self.nonzeros / max(self.rows * self.features, 1)


def facts_of(
    graph: Graph, partition: Path | None, *, training: Training, on_gpu: bool = False
) -> Facts:
    """Return the facts, without reading the whole graph."""
    manifest = graph.manifest
    assert manifest.features is not None, "checked before"
    rows, edges = graph.num_nodes, graph.num_edges
    columns, ranks = rows, 1
    if partition is not None:
        parts = PartitionManifest.load(partition)
        ranks = parts.k
        rows = max(part.nodes for part in parts.parts)
        edges = max(part.edges for part in parts.parts)
        columns = max(part.nodes + part.ghosts for part in parts.parts)
    return Facts(
        rows=rows,
        columns=columns,
        edges=edges,
        nodes=graph.num_nodes,
        ranks=ranks,
        features=manifest.features.width,
        nonzeros=round(manifest.features.nonzeros * rows / max(graph.num_nodes, 1)),
        labels=manifest.labels,
        outputs=outputs_of(graph),
        symmetric=not manifest.directed and ranks == 1,
        weighted=training.weighted,
        on_gpu=on_gpu,
    )


def outputs_of(graph: Graph) -> int:
    """Return the number of values of the last layer for the labels of a graph."""
    about = graph.manifest
    if about.labels in (None, "value"):
        return 1
    if about.classes:
        return len(about.classes)
    # A graph without names of classes.
    labels = graph.labels()
    if isinstance(labels, list):
        return 1 + max((max(row) for row in labels if row), default=0)
    return 1 + int(labels.max(initial=0))
