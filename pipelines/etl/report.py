"""The report of ``penstock etl``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.paths import shown
from penstock.pipelines.display import Command, JobReport
from penstock.pipelines.job.following import after_graph
from penstock.sizes import format_bytes, format_count


@dataclass
class EtlReport(JobReport):
    """Counts of a run, for people and for ``--json``."""

    graph: str
    nodes: int = 0
    edges: int = 0
    directed: bool = False
    directed_because: str = "asked for"
    columns: dict[str, int] = field(default_factory=dict)  # of a text without names: {role: column}
    columns_unread: list[int] = field(default_factory=list)
    graphs: int | None = None
    bytes: int = 0
    rows_read: int = 0
    rows_filtered: int = 0
    bad_rows: int = 0
    first_bad_rows: list[dict[str, Any]] = field(default_factory=list)
    loops_dropped: int = 0
    loops_kept: int = 0
    loops_because: str = "asked for"
    duplicates_merged: int = 0
    ids_of_both_ends: int | None = None  # without types
    in_both_directions: int = 0
    both_directions: str = "add"
    nodes_dropped: int = 0
    added: int = 0  # these and others down to nodes_not_removed, of a base
    removed: int = 0
    not_removed: int = 0
    left_window: int = 0
    nodes_added: int = 0
    nodes_changed: int = 0
    nodes_gone: int = 0
    nodes_not_removed: int = 0
    features_filled: int = 0
    categories_unknown: int = 0
    columns_of_unknown: dict[str, int] = field(default_factory=dict)  # values by column
    heldout: dict[str, int] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)  # these four as in GraphInfo
    features: dict[str, Any] | None = None
    labels: dict[str, Any] | None = None
    splits: dict[str, int] = field(default_factory=dict)

    @property
    def change_set(self) -> dict[str, int]:
        """How many edges and nodes differ from those of the base, as far as that was counted."""
        names = ("added", "removed", "left_window", "nodes_added", "nodes_changed", "nodes_gone")
        return {name: count for name in names if (count := getattr(self, name))}

    def count_input(self, result: dict[str, Any]) -> None:
        """Add the counts of one piece of the input."""
        self.rows_read += sum(result["rows"]) + result["bad_count"] + result["filtered"]
        self.rows_filtered += result["filtered"]
        self.count_bad(result["bad"], result["bad_count"])

    def count_bad(self, first: list[dict[str, Any]], count: int) -> None:
        """Add rows that were skipped."""
        self.bad_rows += count
        self.first_bad_rows = (self.first_bad_rows + first)[:10]

    def count_loops(self, count: int, *, kept: bool) -> None:
        """Add edges from a node to itself, which were kept or dropped."""
        if kept:
            self.loops_kept += count
        else:
            self.loops_dropped += count

    def following(self) -> list[Command]:
        """Return the next commands for the graph."""
        from penstock.graph import Graph

        path = Path(self.graph)
        return after_graph(path, Graph.open(path).manifest)

    def lines(self) -> Iterable[str]:
        """Return the report as text."""
        from penstock.pipelines.info import node_lines

        edges = f"{self.edges:,} directed edges"
        if not self.directed:
            edges += " (each edge stored in both directions)"
        zoo = "" if self.graphs is None else f"{self.graphs:,} graphs, "
        # Shorter runs mostly time the start.
        rows = f"{format_count(self.rows_read / max(self.seconds, 1e-9))} rows/s"
        rate = f" ({rows})" if self.seconds > 2 else ""
        yield f"{shown(self.graph)}: {zoo}{self.nodes:,} nodes, {edges}, {format_bytes(self.bytes)}"
        yield f"read {self.rows_read:,} rows in {self.seconds:.1f} s{rate}"
        if self.directed_because != EtlReport.directed_because:
            kind = "directed" if self.directed else "undirected"
            yield f"{kind}, {self.directed_because}"
        if self.ids_of_both_ends:
            yield (
                f"{self.ids_of_both_ends:,} ids occur as source and as target, one node each "
                "(--source-type and --target-type keep two kinds of nodes apart)"
            )
        if self.columns_unread:
            taken = ", ".join(f"{role} is column {at}" for role, at in self.columns.items())
            rest = ", ".join(map(str, self.columns_unread))
            yield f"{taken}; not read: {rest} (--source, --target and others name columns)"
        both = "taken as duplicates" if self.both_directions == "add" else "taken once"
        new = ", ".join(self.columns_of_unknown)
        counts = [
            ("outside the time window", self.rows_filtered),
            ("bad rows skipped (the first ten are in bad_rows.json)", self.bad_rows),
            ("self loops dropped", self.loops_dropped),
            ("self loops kept", self.loops_kept),
            ("duplicate directed edges merged", self.duplicates_merged),
            (f"edges listed in both directions, {both}", self.in_both_directions),
            ("nodes dropped", self.nodes_dropped),
            ("edges added", self.added),
            ("edges removed", self.removed),
            ("edges of the base older than the window", self.left_window),
            ("edges to remove do not exist", self.not_removed),
            ("nodes added", self.nodes_added),
            ("nodes with new values", self.nodes_changed),
            ("nodes of the base gone", self.nodes_gone),
            ("nodes to remove do not exist", self.nodes_not_removed),
            ("missing features filled (--missing-features)", self.features_filled),
            (f"values of categories that --features-as lacks, of {new}", self.categories_unknown),
            *((f"edges held out for {name}", n) for name, n in self.heldout.items()),
        ]
        yield from (f"{count:,} {what}" for what, count in counts if count)
        yield "" if self.from_base is None else self.from_base.text()
        yield from (f"{what}: {found}" for what, found in node_lines(vars(self)) if what)
