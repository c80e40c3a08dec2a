"""Yesterday's walks: those whose nodes all have the rows of yesterday are kept.

A walk is a function of its number and of the rows that it visits. So the result is that of walking
anew, to the bit. Every output keeps its rules, 64 bits of each row of its graph, and which nodes
the walks of each file visit: a file without a changed one is linked, and not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy, lists_of
from penstock.csr import EDGE_COLUMNS, id_dtype
from penstock.errors import InputError
from penstock.files import FileEntry, part_name, read_file_table, save_npy, sha256_of
from penstock.graph import Graph, load_npy
from penstock.graph_changes import RowPrints
from penstock.kernels.walk_rules import Sampler, WalkRules
from penstock.output import Output
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.output import FORMAT, block_name, visits_name
from penstock.pipelines.walk.starts import named, share
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.walk.starts import Starts

_IDS = 1 << 16  # read at a time
# The least share of walks to keep for which reading a file takes less than walking anew: never if
# a step reads one edge, which takes less than to read a node of a walk from Parquet.
LEAST_KEPT, LEAST_KEPT_OF_LONG_STEPS = 1.1, 0.2
_GONE = -2  # a node that today's graph lacks
_SPARSE = 8  # a table of ids may be this much larger than the number of ids


def rules_of(spec: WalkGraphSpec, step: int) -> dict[str, Any]:
    """Return what a base has to have the same, as JSON: what decides a step besides the graph, and
    how many nodes have a bit of the visits.
    """
    found: dict[str, Any] = json.loads(json.dumps(asdict(spec)))
    return {**found.pop("rules"), **found, "step": step}


def prints_of(graph: Graph, spec: WalkGraphSpec, known: RowPrints | None) -> RowPrints:
    """Return the bits of all that a step reads of a node."""
    reads = {"weights": spec.weighted, "relations": spec.relations, "times": spec.times}
    nodes = [np.asarray(graph.degrees)] if spec.degrees else []
    nodes += [np.asarray(graph.labels())] if spec.labels else []
    columns = [name for name in EDGE_COLUMNS if reads[name]]
    return RowPrints.of(graph, columns, nodes=nodes, known=known)


@dataclass(frozen=True)
class Base:
    """Yesterday's walks that follow the same rules, for tasks.

    made      the digest of their manifest
    starts    their number of starts; walks: of all
    internal  whether paths hold internal ids; blocks: whether there are blocks of them
    changed   a file: which nodes of either graph have another row, or are gone
    bits      a file: the same in the bits of visits
    places    a file: the place of each start of today among those of the base, -1: none; None: the
              same one
    """

    path: Path
    made: str
    starts: int
    walks: int
    internal: bool
    blocks: bool
    changed: Path
    bits: Path
    places: Path | None

    def known(self, first: int, last: int, count: int) -> Array:
        """Return the place of walks ``first .. last`` among those of the base, -1 if not there."""
        rounds, places = np.divmod(np.arange(first, last, dtype=np.int64), max(count, 1))
        if self.places is not None:
            places = load_npy(self.places)[places]
        places = np.where(places < self.starts, places, -1)
        found = np.where(places < 0, -1, rounds * self.starts + places)
        return np.where(found < self.walks, found, -1)

    def kept(
        self, first: int, last: int, starts: Starts, rules: WalkRules, graph: Path
    ) -> tuple[Array, Array]:
        """Return paths of walks ``first .. last``, and which of them are those of today."""
        begin = starts.of(first, last)
        paths = np.full((len(begin), rules.length), -1, begin.dtype)
        kept = np.zeros(len(begin), bool)
        long = rules.second_order or rules.sampler == Sampler.RESERVOIR
        worth = LEAST_KEPT_OF_LONG_STEPS if long else LEAST_KEPT
        if worth > 1:
            return paths, kept
        at = self.known(first, last, starts.count)
        there = np.flatnonzero(at >= 0)
        # Of _GONE, and beyond the end of a walk.
        changed = np.append(load_npy(self.changed)[: starts.nodes], [True, False])
        read = right = 0
        for paths_there in self._read(at[there], rules.length, graph, starts.nodes):
            some = there[read : read + len(paths_there)]
            paths[some] = paths_there
            kept[some] = ~changed[paths_there].any(axis=1) & (paths_there[:, 0] == begin[some])
            read, right = read + len(some), right + int(kept[some].sum())
            if right < worth * read:
                break
        self._check()
        return paths, kept

    def untouched(self, number: int) -> bool:
        """Return whether the walks of a part of the base visit no node with another row."""
        visits = load_npy(self.path / visits_name(number), remedy=FORMAT.restore)
        return not (visits & load_npy(self.bits)[: len(visits)]).any()

    def part(
        self, number: int, first: int, last: int, count: int, *, npy: bool
    ) -> tuple[dict[str, int], list[FileEntry]] | None:
        """Return counts and files of a part of the base, but its visits, if it has exactly these
        walks.

        count  today's starts
        """
        there = _manifest(self)
        if number >= len(there.parts) or (npy and not self.blocks):
            return None
        part = there.parts[number]
        same = (part["first"], part["walks"]) == (first, last - first)
        if not same or (self.known(first, last, count) != np.arange(first, last)).any():
            return None
        names = [f"{part_name(number)}.parquet", *([block_name(number)] if npy else [])]
        counts = {name: part[name] for name in ("walks", "nodes")}
        return counts, [there.files[name] for name in names]

    def _read(self, at: Array, length: int, graph: Path, nodes: int) -> Iterator[Array]:
        """Yield walks at ascending places as (walks, length) internal ids of today's graph."""
        there, size = _manifest(self), max(1, _IDS // length)
        ends = np.searchsorted(at, [*there.firsts, self.walks])
        for number in np.flatnonzero(np.diff(ends)).tolist():
            wanted = at[ends[number] : ends[number + 1]] - there.firsts[number]
            if self.blocks:
                block = load_npy(self.path / block_name(number), remedy=FORMAT.restore)
                for some in range(0, len(wanted), size):
                    found = np.array(block[wanted[some : some + size]])
                    found[(found >= nodes) | (found < -1)] = _GONE
                    yield found
            else:
                yield from self._lists(number, wanted, size, length, graph, nodes)

    def _lists(
        self, number: int, wanted: Array, size: int, length: int, graph: Path, nodes: int
    ) -> Iterator[Array]:
        import pyarrow.parquet as pq

        from penstock.workers.plugin import resources

        path, row = self.path / f"{part_name(number)}.parquet", 0
        key = ("numbers of ids", str(graph), self.made)
        with (
            resources().cache.hold(key, lambda: _Numbers(graph, internal=self.internal)) as numbers,
            pq.ParquetFile(path, memory_map=True) as file,
        ):
            for batch in file.iter_batches(size, columns=["path"]):
                inside = np.searchsorted(wanted, [row, row + len(batch)])
                rows = wanted[slice(*inside)] - row
                row += len(batch)
                if len(rows):
                    lists = batch.column(0)
                    offsets, _, _ = lists_of(lists)
                    found = np.full((len(lists), length), -1, id_dtype(nodes))
                    lengths = np.diff(offsets)
                    if lengths.max() > length:
                        raise FORMAT.damaged(self.path, got=f"walks of {lengths.max()} nodes")
                    found[np.arange(length) < lengths[:, None]] = numbers.of(lists.flatten(), nodes)
                    yield found if len(rows) == len(found) else found[rows]

    def _check(self) -> None:
        """Raise InputError if another output has come to the path."""
        if sha256_of(self.path / FORMAT.file) != self.made:
            raise InputError(f"{self.path} changed while it was read", remedy="Run it again")


@dataclass(frozen=True, eq=False)
class _Parts:
    """The parts of a base, the first walk of each, and all files."""

    parts: list[dict[str, int]]
    firsts: Array
    files: dict[str, FileEntry]


@lru_cache(1)
def _manifest(base: Base) -> _Parts:
    base._check()
    body = FORMAT.load(base.path)
    with FORMAT.reading(base.path):
        firsts = np.array([part["first"] for part in body["parts"]], np.int64)
        return _Parts(body["parts"], firsts, read_file_table(body["files"]))


class _Numbers:
    """Internal ids of users' ids, by a table if these are dense; they may be internal already."""

    def __init__(self, graph: Path, *, internal: bool) -> None:
        self.nbytes, self._table, self._ids = 0, None, None
        if internal:
            return
        import pyarrow as pa

        ids = Graph.open(graph).user_ids().combine_chunks()
        self._ids = ids.chunk(0) if isinstance(ids, pa.ChunkedArray) else ids
        self.nbytes = self._ids.nbytes
        if pa.types.is_integer(self._ids.type) and len(self._ids):
            values = as_numpy(self._ids)
            self._low = int(values.min())
            span = int(values.max()) - self._low + 1
            if span <= _SPARSE * len(values):
                self._table = np.full(span + 1, _GONE, id_dtype(len(values)))  # the last: no id
                self._table[(values - values.dtype.type(self._low)).astype(np.int64)] = np.arange(
                    len(values)
                )
                self.nbytes += self._table.nbytes

    def of(self, values: Any, nodes: int) -> Array:
        """Return the internal id of each value, ``_GONE`` if the graph has none."""
        import pyarrow.compute as pc

        if self._table is not None:
            given = as_numpy(values)
            last = len(self._table) - 1
            known = (given >= self._low) & (given < self._low + last)
            places = np.where(known, given - given.dtype.type(self._low), last)
            return self._table[places.astype(np.int64)]
        if self._ids is None:
            given = as_numpy(values)
            return np.where((given >= 0) & (given < nodes), given, _GONE)
        found = pc.index_in(values.cast(self._ids.type), value_set=self._ids)
        return as_numpy(found.fill_null(_GONE))


def open_base(
    graph: Graph,
    options: WalkOptions,
    spec: WalkGraphSpec,
    step: int,
    listed: Array | None,
    out: Output,
) -> tuple[RowPrints, Base | None, str]:
    """Return the bits of today's rows, the walks of ``--base``, and why none of them is kept.

    step    how many nodes have a bit of the visits
    listed  the starts; None: all nodes
    """
    path = options.base
    if path is None:
        return prints_of(graph, spec, None), None, ""
    body = FORMAT.load(path)
    made = sha256_of(path / FORMAT.file)
    with FORMAT.reading(path):
        for entry in read_file_table(body["files"]).values():
            entry.check_size(path, listed_in=FORMAT.file, remedy=FORMAT.restore)
        before = RowPrints.load(path, body["rows"])
        rules, now = body["rules"], rules_of(spec, step)
        count, is_named = body["starts"]["count"], body["starts"]["named"]
        fraction, nodes = body["starts"]["fraction"], before.bits.shape[1]
    why = next((f"{name} differs" for name in now if rules.get(name) != now[name]), "")
    if is_named != named(options):
        why = why or "starts are given in another way"
    prints = prints_of(graph, spec, None if why else before)
    changed = prints.changed_since(before, path)
    if why:
        return prints, None, why
    changed = np.append(changed, np.ones(max(0, nodes - len(changed)), bool))
    starts = np.arange(0, len(changed), step)
    base = Base(
        path,
        made,
        count,
        body["walks"],
        body["ids"] == "internal",
        block_name(0) in body["files"],
        _saved(out, "changed", changed),
        _saved(out, "bits", np.packbits(np.logical_or.reduceat(changed, starts))),
        None,
    )
    if is_named or (listed is None and fraction is None):
        return prints, base, ""
    old = np.arange(nodes) if fraction is None else share(nodes, fraction, options.seed)
    today = np.arange(graph.num_nodes) if listed is None else listed
    places = np.minimum(np.searchsorted(old, today), max(len(old) - 1, 0))
    places = np.where(old[places] == today, places, -1) if len(old) else np.full(len(today), -1)
    return prints, replace(base, places=_saved(out, "places", places)), ""


def _saved(out: Output, name: str, array: Array) -> Path:
    save_npy(out.scratch, f"{name}.npy", array)
    return out.scratch / f"{name}.npy"
