"""The owner of each node: Morphling's algorithm 4, and streaming for graphs too large for METIS.

The load of a node is its out-degree: the length of its CSR row, which is the work that SpMM does
for it. A part's load is the sum over its nodes.

    1.03  METIS' target (phase I), and the limit for packing components without METIS
    1.05  accepted from METIS and from streaming, after our own moves
    1.20  limit of the relaxed phases: recursive bisection aims at it, packing must keep it

A node heavier than the bound makes it unreachable: then the heaviest node is the bound.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import PenstockError, UsageError
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.partition import scatter
from penstock.partition.assignment import METHODS, check_parts, memory_for
from penstock.partition.balance import Balance, even_out, fill_empty, part_loads
from penstock.partition.base import Base
from penstock.partition.metis import (
    SILENT,
    Adjacency,
    MetisError,
    adjacency_needed,
    memory_needed,
    run_metis,
    seconds_needed,
    shared_adjacency,
)
from penstock.partition.stream import cut_share, place_new, stream
from penstock.sizes import format_bytes, need_memory

AIM, ACCEPTED, RELAXED = 1.03, 1.05, 1.20
# A partition with a base is cut whole if the share of cut edges is more than 1.1 times that of the
# last whole cut, and one per cent of all edges more.
CUT_ANEW, MORE_CUT = 1.1, 0.01
# If nodes too heavy for any part touch this share of the edges, no cut can keep them.
HUBS_DOMINATE = 0.9
_PASSES = 8
# Measured: benchmarks/results/partition.md.
_GIVEN_UP = (
    "streamed parts cut 0.85 to 3.4 times as many edges, 56 to 144 times in a shuffled mesh, and "
    "their counts of nodes may be uneven (docs/partition.md)"
)


def assign(
    graph: Graph,
    k: int,
    *,
    method: str = "auto",
    base: Base | None = None,
    **how: Any,
) -> Assignment:
    """Return which of ``k`` parts owns each node of ``graph``.

    base  yesterday's partition, whose nodes keep their parts unless the cut is too bad
    how   fields of ``Assignment``: seed, memory_limit, ...
    """
    if k < 1:
        raise UsageError("a partition needs parts", expected="-k of at least 1", got=str(k))
    if method not in METHODS:
        raise UsageError(f"unknown method {method!r}", expected=f"one of {', '.join(METHODS)}")
    check_parts(graph, k)
    made = Assignment(graph, k, **how)
    made.choose(method, base)
    return made


@dataclass(eq=False)
class Assignment:
    """The part of each node; the first phase of algorithm 4 that ``take``s parts ends it.

    memory_limit   bytes that METIS and refinement may use [default: nine tenths of what is
                   available now]
    passes         how often the streaming method reads the graph
    time_limit     seconds that METIS may take, by estimate, if the method is ``auto``
    timeout        seconds without computing after which METIS' process is killed
    parts          (nodes,) int32, each in 0 .. k - 1, none of them empty
    made_by        the way that made them: one, base, metis-kway, metis-recursive, components,
                   greedy, random, hash, streaming
    steps          everything that was tried, in order: its phase, its outcome (taken, refused as
                   out of bound, failed, skipped), and why
    metis_seconds  that METIS itself took
    """

    graph: Graph
    k: int
    seed: int = 0
    memory_limit: int | None = None
    passes: int = 10
    time_limit: float = float("inf")
    timeout: float = SILENT
    quiet: bool = True
    parts: Array = field(init=False)
    made_by: str = ""
    metis_seconds: float = 0.0
    metis_starved: bool = False
    steps: list[dict[str, str]] = field(default_factory=list)
    _packing: Array | None = None

    @property
    def balance(self) -> Balance:
        """The balance of nodes and of load."""
        return Balance.of(self.parts, self.graph.degrees, self.k)

    def choose(self, method: str, base: Base | None) -> None:
        """Choose the parts by a method, or with a base by it if that is good enough."""
        if self.k == 1:
            self._take("one", np.zeros(self.graph.num_nodes, np.int32), "one part owns everything")
        elif base is None or not self._by_base(base):
            getattr(self, f"_by_{method}")()
        moved = fill_empty(self.parts, self.graph.degrees, self.k)
        if moved:
            self._note("fill", "taken", f"{moved} empty parts got the lightest node of the largest")

    def _note(self, phase: str, outcome: str, why: str) -> None:
        self.steps.append({"phase": phase, "outcome": outcome, "why": why})

    def _take(self, made_by: str, parts: Array, why: str) -> None:
        self.parts, self.made_by = parts, made_by
        self._note(made_by, "taken", why)

    def _by_base(self, base: Base) -> bool:
        """Keep the parts of known nodes, stream new ones; return whether the cut is good enough."""
        parts, degrees = base.known.copy(), self.graph.degrees
        new = parts < 0
        counts = np.bincount(parts[~new], minlength=self.k)
        place_new(
            self.graph,
            parts,
            part_loads(parts[~new], degrees[~new], self.k),
            counts,
            self._bound(ACCEPTED),
        )
        said = f"{int(new.sum()):,} new nodes placed: {self._balance(parts)}"
        needed, limit = adjacency_needed(self.graph), self._memory()
        if not Balance.of(parts, degrees, self.k).within(ACCEPTED) and needed <= limit:
            with shared_adjacency(self.graph) as adjacency:
                moved = self._moved(adjacency, parts)
            said += f"; {moved:,} moves reach {self._balance(parts)}"
        cut = cut_share(self.graph, parts)
        most = max(CUT_ANEW * base.whole_cut, base.whole_cut + MORE_CUT)
        said += f"; {cut:.2%} of the edges are cut, and {base.whole_cut:.2%} at the last whole cut"
        good = Balance.of(parts, degrees, self.k).within(RELAXED) and cut <= most
        if good:
            self._take("base", parts, f"{said}; it is cut whole above {most:.2%} or load {RELAXED}")
        else:
            self._note("base", "refused", f"{said}; at most {most:.2%} and load {RELAXED}")
        return good

    # -- the methods ---------------------------------------------------------------------------

    def _by_auto(self) -> None:
        if self._pack(AIM, "no edge is cut, and the load is within METIS' aim"):
            return
        needed, limit = memory_needed(self.graph), self._memory()
        if needed > limit:
            why = f"METIS needs about {format_bytes(needed)}, {format_bytes(limit)} are allowed"
            self._skip_metis(why, "a larger --memory-limit allows METIS")
            self._by_streaming()
            return
        if not self._hubs_dominate():
            if self._takes_too_long():
                self._by_streaming()
                return
            if self._metis(must=False):
                return
            if self.metis_starved:
                self._by_streaming()
                return
        if not self._pack(RELAXED, "no edge is cut"):
            self._by_greedy()

    def _by_metis(self) -> None:
        needed, limit = memory_needed(self.graph), self._memory()
        remedy = "Give --method streaming or auto, or raise --memory-limit"
        need_memory(needed, f"METIS of {self.graph.path}", remedy=remedy, limit=limit)
        if not self._metis(must=True):
            raise PenstockError(
                f"METIS could not cut {self.graph.path} into {self.k} parts",
                got=self.steps[-1]["why"],
                remedy="Give --method auto, which falls back to other methods",
            )

    def _by_components(self) -> None:
        self._pack(float("inf"), "no edge is cut")

    def _by_greedy(self) -> None:
        parts = kernel("greedy", self.graph.degrees).place_by_load(self.graph.degrees, self.k)
        self._take("greedy", parts, f"heaviest node first: {self._balance(parts)}")

    def _by_random(self) -> None:
        parts = scatter.random_parts(self.graph.num_nodes, self.k, self.seed)
        self._take("random", parts, "a random permutation, cut into equal counts of nodes")

    def _by_hash(self) -> None:
        parts = scatter.hashed_parts(self.graph, self.k, self.seed)
        self._take("hash", parts, "by a hash of the user's id, the same in every day's graph")

    def _by_streaming(self) -> None:
        """Stream, then move nodes to the part of most of their neighbours, if memory allows."""
        parts = stream(self.graph, self.k, self._bound(AIM), self.passes, quiet=self.quiet)
        said = f"{self.passes} passes of Fennel: {self._balance(parts)}"
        needed, limit = adjacency_needed(self.graph), self._memory()
        if needed > limit:
            said += (
                f"; not refined: needs {format_bytes(needed)}, {format_bytes(limit)} may be used"
            )
        else:
            with shared_adjacency(self.graph) as adjacency:
                moved = self._moved(adjacency, parts, balances=False)
            said += f"; {moved:,} moves reach {self._balance(parts)}"
        self._take("streaming", parts, said)

    def _takes_too_long(self) -> bool:
        seconds = seconds_needed(self.graph)
        if seconds <= self.time_limit:
            return False
        self._skip_metis(
            f"METIS would take about {_minutes(seconds)}, {_minutes(self.time_limit)} are allowed",
            "--method metis, or a larger --time-limit, waits for METIS",
        )
        return True

    def _skip_metis(self, why: str, instead: str) -> None:
        """Record the loss of quality, and print a short message at once."""
        self._note("metis-kway", "skipped", f"{why}; {_GIVEN_UP}; {instead}")
        if not self.quiet:
            print(f"Streams the graph: {why}", file=sys.stderr, flush=True)

    # -- the phases ----------------------------------------------------------------------------

    def _metis(self, *, must: bool) -> bool:
        """Run phase I; with ``must``, METIS' last result is accepted even out of bound."""
        best: tuple[str, Array, str] | None = None
        with shared_adjacency(self.graph) as adjacency:
            for path, tolerance, recursive in (
                ("metis-kway", AIM, False),
                ("metis-recursive", RELAXED, True),
            ):
                started = time.monotonic()
                try:
                    parts, cut = run_metis(
                        adjacency,
                        self.k,
                        tolerance=tolerance,
                        recursive=recursive,
                        seed=self.seed,
                        timeout=self.timeout,
                        quiet=self.quiet,
                    )
                except MetisError as failure:
                    self._note(path, "failed", str(failure))
                    if failure.memory:
                        self.metis_starved = True
                        break
                    continue
                finally:
                    self.metis_seconds += time.monotonic() - started
                why = self._improve(adjacency, parts, cut)
                if Balance.of(parts, self.graph.degrees, self.k).within(ACCEPTED):
                    self._take(path, parts, why)
                    return True
                self._note(path, "refused", f"{why}; at most {ACCEPTED} is accepted")
                best = path, parts, why
        if must and best is not None:
            self._take(*best)
            return True
        return False

    def _improve(self, adjacency: Adjacency, parts: Array, cut: int) -> str:
        """Move nodes if METIS left the load out of bound or a better cut; return a description."""
        said = f"METIS cut {cut:,} edges at {self._balance(parts)}"
        even_out(parts, np.flatnonzero(np.diff(adjacency.indptr) == 0), self.k)
        moved = fill_empty(parts, self.graph.degrees, self.k) + self._moved(adjacency, parts)
        return f"{said}; {moved:,} moves reach {self._balance(parts)}" if moved else said

    def _moved(self, adjacency: Adjacency, parts: Array, *, balances: bool = True) -> int:
        """Move nodes to the part of most of their neighbours, and if the load is out of bound,
        first to lighter parts; return how many moves."""
        common = adjacency.indptr, adjacency.indices, self.graph.degrees, parts, self.k
        moves, moved, bound = kernel("refine", parts), 0, self._bound(AIM)
        if balances and not Balance.of(parts, self.graph.degrees, self.k).within(AIM):
            moved = moves.balance(*common, bound, _PASSES)
        heaviest = Balance.of(parts, self.graph.degrees, self.k).heaviest_part
        return int(moved + moves.refine(*common, max(bound, heaviest), _PASSES))

    def _pack(self, tolerance: float, why: str) -> bool:
        """Run phase II: bin-pack components, if that stays within ``tolerance``."""
        if self._packing is None:
            self._packing = self._packed_components()
        balance = Balance.of(self._packing, self.graph.degrees, self.k)
        found = f"{self._components:,} components packed to {self._balance(self._packing)}"
        if balance.within(tolerance):
            self._take("components", self._packing, f"{found}: {why}")
            return True
        self._note("components", "refused", f"{found}; at most {tolerance} is accepted")
        return False

    def _packed_components(self) -> Array:
        rows = [self.graph.shard(number) for number in range(self.graph.num_shards)]
        labels = kernel("components", self.graph.degrees).components(
            rows, symmetric=not self.graph.manifest.directed
        )
        loads = np.zeros(int(labels.max()) + 1, np.int64)
        np.add.at(loads, labels, self.graph.degrees)
        self._components = len(loads)
        parts: Array = kernel("greedy", loads).place_by_load(loads, self.k)[labels]
        return parts

    def _hubs_dominate(self) -> bool:
        loads = self.graph.degrees
        hubs = loads[loads > self._bound(ACCEPTED, reachable=False)]
        # An undirected edge of a hub is also in its other end's load.
        share = hubs.sum() * (1 if self.graph.manifest.directed else 2) / max(loads.sum(), 1)
        if share < HUBS_DOMINATE:
            return False
        why = (
            f"{len(hubs)} nodes too heavy for any part touch {min(share, 1):.0%} of the edges, "
            "so that no cut can keep these together"
        )
        self._note("metis-kway", "skipped", why)
        return True

    def _memory(self) -> int:
        return memory_for(self.memory_limit)

    def _bound(self, tolerance: float, *, reachable: bool = True) -> int:
        degrees = self.graph.degrees
        bound = int(tolerance * int(degrees.sum()) / self.k)
        return max(bound, int(degrees.max())) if reachable else bound

    def _balance(self, parts: Array) -> str:
        balance = Balance.of(parts, self.graph.degrees, self.k)
        return f"load {balance.load:.3f}, nodes {balance.nodes:.3f}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"
