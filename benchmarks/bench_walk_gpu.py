"""Walks on GPUs, compared with the floor and with FlowWalker's own time on an H200.

    python -P benchmarks/bench_walk_gpu.py [--quick] [--scale 22]

R-MAT of edge factor 16, symmetrised, duplicates and isolated nodes dropped, weights uniform in [1,
5), relations 0 to 4 at random; length 80 from every node (PPR: many walks from the largest hub).
Steps must be edges, and steps from hubs and small nodes must have the chances of the naive twin, in
the same run. Times end with the last result in page-locked memory (PPR: on the GPU); tables are
built before. The floor counts 32-byte sectors at the rate of a copy on the device, or the results
at the rate to the host, whichever takes longer; of the reservoir sampler, which reads whole rows,
the bytes of the rows. Several GPUs have one thread each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_walk import RULES, check_app, make_graph
from gnn_rates import copy_rate
from harness import Case, Option, Side, Timed, alike, gpus, main, on_gpu, tampered, together

from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

ALIAS, ITS, RESERVOIR = Sampler.ALIAS, Sampler.ITS, Sampler.RESERVOIR
# Sectors of a step: the node's record, edges until one passes (1.65), the neighbour test of
# node2vec (the records of the candidate and about 0.6 searches of 4 sectors beyond the L2), paths.
SECTORS = {"deepwalk": 2.8, "node2vec": 6.3, "ppr": 2.8, "metapath": 2.8}
# Measured on one H200, at scale 22: the share of the floor, and FlowWalker's own seconds over ours.
SHARES = {
    ("deepwalk", Sampler.REJECTION): 0.89,
    ("node2vec", Sampler.REJECTION): 0.42,
    ("ppr", Sampler.REJECTION): 0.12,
    ("metapath", Sampler.REJECTION): 0.73,
    ("deepwalk", ALIAS): 0.93,
    ("node2vec", ALIAS): 0.55,
    ("deepwalk", ITS): 0.27,
    ("node2vec", ITS): 0.20,
}
FLOWWALKER = {
    "deepwalk": (2.404, 3.8),
    "node2vec": (9.491, 11.7),
    "ppr": (1.861, 50),
    "metapath": (0.0955, 1.8),
}
PUBLISHED = {  # ways of FlowWalker's paper by our kernels, over ours: deepwalk and node2vec
    "ZPRS": ({"method": "zprs", "long_from": 1024, "pool": 64}, {"deepwalk": 3.2, "node2vec": 22}),
    "DPRS": ({"method": "dprs", "long_from": 1024, "pool": 64}, {"deepwalk": 9.8, "node2vec": 18}),
}


class Workload:
    """A graph on the current device, with walks from every node and from its largest hub."""

    def __init__(self, typed: WalkGraph, queries: int) -> None:
        import cupy as cp

        arrays = (typed.indptr, typed.indices, typed.weights, typed.relations)
        self.typed = WalkGraph(*map(cp.asarray, arrays))
        self.rows = replace(self.typed, relations=None)
        self.degrees = cp.diff(self.typed.indptr)
        nodes = len(self.degrees)
        self.walks, self.queries = (cp.arange(count, dtype=cp.int64) for count in (nodes, queries))
        self.starts = cp.arange(nodes, dtype=cp.int32)
        self.hubs = cp.full(queries, int(self.degrees.argmax()), cp.int32)

    def asked(self, app: str) -> tuple[Any, Any]:
        """Return walks and starts of an application."""
        return (self.queries, self.hubs) if app == "ppr" else (self.walks, self.starts)

    def prepared(self, rules: WalkRules) -> WalkGraph:
        """Return rows for the rules, with their tables."""
        import cupy as cp

        from penstock.kernels.cuda import walk

        if rules.sampler == RESERVOIR:
            return self.typed if rules.schema else self.rows
        rows = self.rows
        if rules.schema:
            rows = walk.rows_by_relation(self.typed, cp.arange(5, dtype=cp.int32))
        return walk.tables(replace(rows, relations=None), rules)


class Walker:
    """All walks of an application by one sampler."""

    def __init__(self, load: Workload, app: str, rules: WalkRules) -> None:
        from penstock.kernels.cuda import stream

        self.load, self.app, self.rules = load, app, rules
        self.rows, self.steps = load.prepared(rules), 0
        shape = (len(load.walks), rules.length)
        self.out = None if app == "ppr" else stream.page_locked(shape, np.int32)

    def __call__(self) -> Timed:
        """Walk to the host; PPR on the device."""
        import cupy as cp

        from penstock.kernels.cuda import stream, walk

        walks, starts = self.load.asked(self.app)
        if self.out is None:
            run = on_gpu(lambda: walk.walk(self.rows, self.rules, walks, starts), 1, warm=0)
            paths = run.value
        else:
            cp.cuda.Device().synchronize()
            begun = time.perf_counter()
            stream.walk_to_host(self.rows, self.rules, walks, starts, self.out)
            run, paths = Timed(time.perf_counter() - begun), self.out
        if not self.steps:
            self.steps = int((paths >= 0).sum()) - len(walks)
        return Timed(run.seconds)

    def check(self, host: WalkGraph, values: dict[str, Any]) -> dict[str, Any]:
        import cupy as cp

        from penstock.kernels.cuda import walk

        draw = np.random.default_rng()

        def made(walks: Any, starts: Any, length: int) -> Any:
            rules = replace(self.rules, length=length, seed=int(draw.integers(1 << 62)))
            paths = walk.walk(self.rows, rules, cp.asarray(walks), cp.asarray(starts, cp.int32))
            return tampered(paths.get())

        least = check_app(made, host, self.rules, draw)
        if self.steps and self.out is not None:
            walks, starts = (each[-1000:] for each in self.load.asked(self.app))
            last = walk.walk(self.rows, self.rules, walks, starts).get()
            assert np.array_equal(self.out[-1000:], last), "the host has other walks"
        return {"steps": self.steps, "least chance": least}

    def floor(self, device: float, to_host: float) -> Timed:
        """Return the least seconds of sectors and results, at bytes per second."""
        size = 0 if self.out is None else self.out.nbytes
        bytes_read = self.steps * SECTORS[self.app] * 32.0
        return Timed(max(bytes_read / device, size / to_host))


def rates() -> tuple[float, float]:
    """Return bytes per second of a copy on the device, read and written, and of one to the host."""
    import cupy as cp

    from penstock.kernels.cuda import stream

    source, there = cp.ones(1 << 28, cp.float32), stream.page_locked((1, 1 << 28), np.float32)[0]
    to_host = source.nbytes / on_gpu(lambda: source.get(out=there)).seconds
    return copy_rate(2 << 30), to_host


def published(load: Workload, rules: WalkRules, how: dict[str, Any]) -> Timed:
    """Sample by reservoir from every sixteenth node."""
    from penstock.kernels.cuda.walk.reservoir import walk_reservoir

    some = load.walks[::16].copy(), load.starts[::16].copy()
    return Timed(on_gpu(lambda: walk_reservoir(load.rows, rules, *some, **how), 1).seconds)


def shared(loads: dict[int, Workload], host: WalkGraph, app: str, devices: int) -> Timed:
    """Walk on several GPUs, each with the whole graph and its share of the walks."""
    from penstock.kernels.cuda import stream

    rules, prepared = RULES[app], {}

    def make(device: int) -> None:
        if device not in loads:
            loads[device] = Workload(host, 4_000_000)
        rows = loads[device].prepared(rules)
        walks, starts = (each[device::devices].copy() for each in loads[device].asked(app))
        out = stream.page_locked((len(walks), rules.length), np.int32)
        prepared[device] = rows, walks, starts, out

    def work(device: int) -> None:
        rows, walks, starts, out = prepared[device]
        stream.walk_to_host(rows, rules, walks, starts, out)

    together(make, devices)
    together(work, devices)  # warms up
    seconds, _ = together(work, devices)
    return Timed(seconds, sum(int((out >= 0).sum()) for *_, out in prepared.values()))


def ablation(load: Workload, host: WalkGraph) -> Iterator[Case]:
    """Yield the cases of the reservoir sampler beside the paper's."""
    for app in ("deepwalk", "node2vec"):
        rules = replace(RULES[app], sampler=RESERVOIR)
        walker = Walker(load, app, rules)
        sides = {
            f"{way} as published": Side(partial(published, load, rules, how), ratio[app])
            for way, (how, ratio) in PUBLISHED.items()
        }
        few: Callable[[], Timed] = partial(published, load, rules, {})
        yield Case(f"{app}, reservoir, ablation", few, partial(walker.check, host), sides, rounds=2)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    host = make_graph(given.scratch / "g", given.scale, scramble=False)
    load, (device, to_host) = Workload(host, given.queries), rates()
    samplers = [(app, rules, Sampler.REJECTION) for app, rules in RULES.items()]
    samplers += [(app, RULES[app], way) for way in (ALIAS, ITS) for app in ("deepwalk", "node2vec")]
    samplers += [(app, rules, RESERVOIR) for app, rules in RULES.items()]
    for app, rules, sampler in samplers:
        rules = replace(rules, sampler=sampler)
        walker = Walker(load, app, rules)
        sides = {}
        if sampler != RESERVOIR:  # which reads whole rows, most of them in the cache
            floor = partial(walker.floor, device, to_host)
            sides["floor"] = Side(floor, SHARES[app, sampler], floor=True)
        elif given.scale == 22:
            seconds, ratio = FLOWWALKER[app]
            # Its own code on an H200; on another GPU the ratio says less.
            sides["FlowWalker"] = Side(partial(Timed, seconds), ratio)
        name, check = f"{app}, {sampler.name.lower()}", partial(walker.check, host)
        yield Case(name, walker, check, sides, rounds=2 if sampler == RESERVOIR else None)
    yield from ablation(load, host)
    loads: dict[int, Workload] = {}
    for app, faster in (("deepwalk", 1.82), ("node2vec", 1.90)):
        run = partial(shared, loads, host, app)
        one = Side(partial(run, 1), faster)
        yield Case(f"{app}, two GPUs", partial(run, 2), alike, {"one GPU": one}, needs=[gpus(2)])


if __name__ == "__main__":
    sizes = Option("--scale", 22, 18, "of R-MAT"), Option("--queries", 4_000_000, 400_000, "of PPR")
    sys.exit(main(__doc__, cases, *sizes, needs=(gpus(1),), gpu=cases))
