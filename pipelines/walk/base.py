"""Yesterday's walks: a file whose walks visit only nodes with the rows of yesterday is linked.

A walk is a function of its number and of the rows that it visits. So the result is that of walking
anew, to the bit. Every output keeps its rules, 64 bits of each row of its graph, and which nodes
the walks of each file visit, so that no walk is read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from penstock.csr import EDGE_COLUMNS
from penstock.files import FileEntry, part_name, save_npy, sha256_of
from penstock.formats import read_file_table
from penstock.graph import Graph, load_npy
from penstock.graph_changes import RowPrints
from penstock.output import Output
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.output import FORMAT, block_name, visits_name
from penstock.pipelines.walk.starts import named
from penstock.workers.walk.rows import WalkGraphSpec

_CHANGED = "bits.npy"


def rules_of(spec: WalkGraphSpec, step: int) -> dict[str, Any]:
    """Return what a base has to have the same, as JSON: what decides a step besides the graph, and
    how many nodes have a bit of the visits.
    """
    found: dict[str, Any] = json.loads(json.dumps(asdict(spec)))
    return {**found.pop("rules"), **found, "step": step}


def prints_of(graph: Graph, spec: WalkGraphSpec) -> RowPrints:
    """Return the bits of all that a step reads of a node."""
    reads = {"weights": spec.weighted, "relations": spec.relations, "times": spec.times}
    nodes = [np.asarray(graph.degrees)] if spec.degrees else []
    nodes += [np.asarray(graph.labels())] if spec.labels else []
    columns = [name for name in EDGE_COLUMNS if reads[name]]
    return RowPrints.of(graph, columns, nodes=nodes)


@dataclass(frozen=True)
class Base:
    """Yesterday's walks that follow the same rules, for tasks.

    made      the digest of their manifest
    starts    their number of starts, with which today's begin, or which begin with today's
    internal  whether paths hold internal ids; blocks: whether there are blocks of them
    bits      a file: which nodes of either graph have another row, or are gone, as visits have it
    """

    path: Path
    made: str
    starts: int
    internal: bool
    blocks: bool
    bits: Path

    def part(
        self, number: int, first: int, last: int, count: int, *, npy: bool
    ) -> tuple[dict[str, int], list[FileEntry]] | None:
        """Return counts and files of a part of the base, but its visits, if it has exactly these
        walks, and they visit no node with another row.

        count  today's starts
        """
        parts, files = _manifest(self)
        if number >= len(parts) or (npy and not self.blocks):
            return None
        part = parts[number]
        # With another number of starts, only the first walk of a start has the same number.
        same_starts = count == self.starts or last <= min(count, self.starts)
        if not same_starts or (part["first"], part["walks"]) != (first, last - first):
            return None
        visits = load_npy(self.path / visits_name(number), remedy=FORMAT.restore)
        if (visits & load_npy(self.bits)[: len(visits)]).any():
            return None
        names = [f"{part_name(number)}.parquet", *([block_name(number)] if npy else [])]
        counts = {name: part[name] for name in ("walks", "nodes")}
        return counts, [files[name] for name in names]


@lru_cache(1)
def _manifest(base: Base) -> tuple[list[dict[str, int]], dict[str, FileEntry]]:
    """Return the parts of a base, and all files."""
    body = FORMAT.load(base.path)
    with FORMAT.reading(base.path):
        return body["parts"], read_file_table(body["files"])


def open_base(
    graph: Graph,
    options: WalkOptions,
    spec: WalkGraphSpec,
    step: int,
    out: Output,
) -> tuple[RowPrints, Base | None, str]:
    """Return the bits of today's rows, the walks of ``--base``, and why none of them is kept.

    step  how many nodes have a bit of the visits
    """
    path, prints = options.base, prints_of(graph, spec)
    if path is None:
        return prints, None, ""
    body = FORMAT.load(path)
    made = sha256_of(path / FORMAT.file)
    with FORMAT.reading(path):
        FORMAT.files(path, body)
        before = RowPrints.load(path, body["rows"])
        rules, now = body["rules"], rules_of(spec, step)
        count, is_named = body["starts"]["count"], body["starts"]["named"]
        fraction, nodes = body["starts"]["fraction"], before.bits.shape[1]
    why = next((f"{name} differs" for name in now if rules.get(name) != now[name]), "")
    if is_named or named(options):
        why = why or "starts are named"
    if fraction != options.fraction:
        why = why or "fraction differs"
    changed = prints.changed_since(before, path)
    if why:
        return prints, None, why
    changed = np.append(changed, np.ones(max(0, nodes - len(changed)), bool))
    starts = np.arange(0, len(changed), step)
    bits = np.packbits(np.logical_or.reduceat(changed, starts))
    save_npy(out.scratch, _CHANGED, bits)
    internal, blocks = body["ids"] == "internal", block_name(0) in body["files"]
    return prints, Base(path, made, count, internal, blocks, out.scratch / _CHANGED), ""
