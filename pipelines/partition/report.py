"""Cost and balance of a partition, for people and programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.paths import shown
from penstock.pipelines.display import Command, OutputReport
from penstock.pipelines.job.following import learnable, sibling
from penstock.sizes import format_bytes

if TYPE_CHECKING:
    from penstock.partition.manifest import PartitionManifest

_VALUE_BYTES = 4  # float32


@dataclass(frozen=True)
class PartitionReport(OutputReport):
    """The report of ``penstock partition``.

    cut_edges           directed edges whose ends have different owners; an undirected edge counts
                        twice, as it is stored
    ghosts, max_ghosts  nodes of other parts that parts read, over all parts and in the worst part
    replication         stored nodes including ghosts, over nodes
    node_imbalance      nodes of the fullest part over the mean
    load_imbalance      sum of out-degrees of the fullest part over the mean
    reachable_load      the least imbalance that the heaviest node allows
    halo_bytes          {width: bytes that all parts together receive in one layer of float32}
    max_halo_bytes      the same for the part that receives most
    """

    path: str
    k: int
    method: str
    made_by: str
    steps: tuple[dict[str, str], ...]
    nodes: int
    arcs: int
    cut_edges: int
    cut_share: float
    ghosts: int
    max_ghosts: int
    replication: float
    node_imbalance: float
    load_imbalance: float
    reachable_load: float
    halo_bytes: dict[str, int]
    max_halo_bytes: dict[str, int]
    parts: tuple[dict[str, int], ...]
    seconds: dict[str, float]

    @staticmethod
    def of(path: str, manifest: PartitionManifest, reachable: float, width: int) -> PartitionReport:
        """Sum up the parts of a manifest; halo bytes are for ``width`` columns and for one."""
        parts, k = manifest.parts, manifest.k
        ghosts, most = sum(p.ghosts for p in parts), max(p.ghosts for p in parts)
        cut = sum(p.cut for p in parts)
        widths = sorted({1, width})
        return PartitionReport(
            path=path,
            k=k,
            method=manifest.method,
            made_by=manifest.made_by,
            steps=manifest.steps,
            nodes=manifest.nodes,
            arcs=manifest.edges,
            cut_edges=cut,
            cut_share=cut / max(manifest.edges, 1),
            ghosts=ghosts,
            max_ghosts=most,
            replication=(manifest.nodes + ghosts) / manifest.nodes,
            node_imbalance=max(p.nodes for p in parts) * k / manifest.nodes,
            load_imbalance=max(p.edges for p in parts) * k / manifest.edges
            if manifest.edges
            else 1.0,
            reachable_load=reachable,
            halo_bytes={str(w): ghosts * w * _VALUE_BYTES for w in widths},
            max_halo_bytes={str(w): most * w * _VALUE_BYTES for w in widths},
            parts=tuple(asdict(p) for p in parts),
            seconds=manifest.seconds,
        )

    def following(self) -> list[Command]:
        """Return a job that runs on that number of ranks."""
        from penstock.graph import Graph

        graph, k = Path(self.path).parents[1], str(self.k)
        if learnable(Graph.open(graph).manifest):
            return [("gnn", "train", graph, sibling(graph, "run"), "-k", k)]
        return [("walk", graph, sibling(graph, "walks"), "--parts", k)]

    def lines(self) -> Iterable[str]:
        """Return aligned lines and, for up to 32 parts, a table."""
        width = max(self.halo_bytes, key=int)
        halo, worst = self.halo_bytes[width], self.max_halo_bytes[width]
        forced = ""
        if self.reachable_load > 1.05:
            forced = f" (the heaviest node forces {self.reachable_load:.3f})"
        rows = {
            **{step["phase"]: f"{step['outcome']}: {step['why']}" for step in self.steps},
            "edge cut": f"{self.cut_edges:,} directed edges, {self.cut_share:.2%}",
            "ghosts": f"{self.ghosts:,}, at most {self.max_ghosts:,} per part; "
            f"replication {self.replication:.3f}",
            "imbalance": f"load {self.load_imbalance:.3f}{forced}, nodes {self.node_imbalance:.3f}",
            "halo per layer": f"{format_bytes(halo)}, at most {format_bytes(worst)} per part, "
            f"for {width} float32 columns",
            "time": ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.seconds.items()),
        }
        yield (
            f"{shown(self.path)}: {self.nodes:,} nodes and {self.arcs:,} directed edges "
            f"in {self.k} parts"
        )
        yield from (f"{name:<18}{text}" for name, text in rows.items())
        if self.k <= 32:
            yield f"{'part':>6}" + "".join(f"{name:>14}" for name in self.parts[0])
            for rank, part in enumerate(self.parts):
                yield f"{rank:>6}" + "".join(f"{count:>14,}" for count in part.values())
