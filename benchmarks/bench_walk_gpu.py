"""Walks on GPUs, compared with the floor and with FlowWalker's own code on an H200.

    python -P benchmarks/bench_walk_gpu.py [--scale 22] [--ablation]
    python -P benchmarks/bench_walk_gpu.py --devices 1,2,4

R-MAT of edge factor 16, symmetrised, duplicates and isolated nodes dropped, weights uniform in [1,
5), relations 0 to 4 at random; length 80 from every node. Every time follows a check in the same
run: steps are edges, and first steps from the largest hub have their chances. Times are medians
after a warm-up, without tables; "to host" is from the start of the walks to the last result in
page-locked memory (PPR: on the GPU). The floor counts 32-byte sectors at the rate of a copy on the
device, or the results at the rate to the host, whichever takes longer. Several devices have one
thread each, timed from a barrier to the last result. The exit code is 1 if a promise is broken.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import cupy as cp
import numpy as np
from scipy import stats

from penstock.kernels.cpu import rmat
from penstock.kernels.cuda import stream, walk
from penstock.kernels.cuda.walk.reservoir import walk_reservoir
from penstock.kernels.generate_rules import thresholds
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

DEVICE, TO_HOST, SECTOR = 4.25e12, 55e9, 32  # bytes per second, and bytes, docs: benchmarks/results
FLOWWALKER = {"deepwalk": 2404.0, "node2vec": 9491.0, "ppr": 1861.0, "metapath": 95.5}
PROMISES = {"deepwalk": 80.0, "node2vec": 300.0, "ppr": 40.0, "metapath": 8.0}
SPEEDUPS = {2: 1.9, 4: 3.7}
QUERIES, LENGTH = 4_000_000, 80
REPEATS = 5
REJECTION, ALIAS, ITS, RESERVOIR = Sampler.REJECTION, Sampler.ALIAS, Sampler.ITS, Sampler.RESERVOIR
NODE2VEC = {"second_order": True, "return_factor": 0.5, "far_factor": 2.0, "symmetric": True}
RULES = {
    "deepwalk": WalkRules(LENGTH, sampler=REJECTION),
    "node2vec": WalkRules(LENGTH, sampler=REJECTION, **NODE2VEC),
    "ppr": WalkRules(LENGTH, sampler=REJECTION, stop=0.2),
    "metapath": WalkRules(6, sampler=REJECTION, schema=(0, 1, 2, 3, 4)),
}
# Sectors of a step: the node's record, edges until one passes (1.65), the neighbour test of
# node2vec (the records of the candidate and about 0.6 searches of 4 sectors beyond the L2), paths.
SECTORS = {"deepwalk": 2.8, "node2vec": 6.3, "ppr": 2.8, "metapath": 2.8}


class Workload:
    """The graph of the current device, with walks from every node and from its largest hub."""

    def __init__(self, scale: int) -> None:
        n, count = 1 << scale, 16 << scale
        u, v = rmat.edges(0, scale, thresholds(0.57, 0.19, 0.19), 0, count)
        u, v = cp.asarray(u, cp.int64), cp.asarray(v, cp.int64)
        keys = cp.concatenate([u * n + v, v * n + u])[cp.tile(u != v, 2)]
        del u, v
        keys = cp.unique(keys)
        sources, targets = keys // n, keys % n
        degrees = cp.bincount(sources, minlength=n)
        names = cp.cumsum(degrees > 0) - 1
        sources, targets = names[sources].astype(cp.int32), names[targets].astype(cp.int32)
        self.degrees = degrees[degrees > 0]
        self.nodes, self.edges = len(self.degrees), len(targets)
        indptr = cp.zeros(self.nodes + 1, cp.int64)
        indptr[1:] = cp.cumsum(self.degrees)
        self.keys = sources.astype(cp.int64) * self.nodes + targets
        ends = sources.get(), targets.get()
        weights = cp.asarray(rmat.weights(0, *ends, 1.0, 5.0, ordered=False))
        relations = cp.asarray(rmat.relations(0, *ends, 5, ordered=False))
        self.rows = WalkGraph(indptr, targets, weights=weights)
        self.typed = replace(self.rows, relations=relations)
        self.hub = int(self.degrees.argmax())
        self.walks = cp.arange(self.nodes, dtype=cp.int64)
        self.starts = cp.arange(self.nodes, dtype=cp.int32)
        self.queries = cp.arange(QUERIES, dtype=cp.int64)
        self.hubs = cp.full(QUERIES, self.hub, cp.int32)

    def asked(self, app: str) -> tuple[Any, Any]:
        """Return walks and starts of an application."""
        return (self.queries, self.hubs) if app == "ppr" else (self.walks, self.starts)

    def check(self, rows: WalkGraph, rules: WalkRules, app: str, made: Callable[..., Any]) -> str:
        """Return "" if steps are edges and first steps from the hub have their chances."""
        walks, starts = self.asked(app)
        seed = int(time.time_ns() % 2**62)  # fresh numbers every time
        rules = replace(rules, seed=seed)
        paths = made(rows, rules, walks[-200_000:], starts[-200_000:])
        ends = paths[:, 1:].ravel()
        steps = (paths[:, :-1].ravel().astype(cp.int64) * self.nodes + ends)[ends >= 0]
        positions = cp.minimum(cp.searchsorted(self.keys, steps), self.edges - 1)
        if not len(steps) or not bool((self.keys[positions] == steps).all()):
            return "steps that are not edges"
        found = made(rows, replace(rules, length=2), self.queries, self.hubs)[:, 1].get()
        found = found[found >= 0]
        low, high = (int(each) for each in self.rows.indptr[self.hub : self.hub + 2])
        weights = self.rows.weights[low:high].get().astype(np.float64)
        if app == "metapath":
            weights[self.typed.relations[low:high].get() != 0] = 0
        targets = self.rows.indices[low:high].get()
        counts = np.bincount(found, minlength=self.nodes)[targets]
        if counts.sum() != len(found) or counts[weights == 0].any():
            return "steps to impossible nodes"
        expected = weights / weights.sum() * len(found)
        bins = np.arange(0, len(counts), 64)
        expected, counts = np.add.reduceat(expected, bins), np.add.reduceat(counts, bins)
        keep = expected > 0
        fit = stats.chisquare(counts[keep], expected[keep])
        return "" if fit.pvalue > 1e-6 else f"other chances, p = {fit.pvalue:.1e}"


def median_ms(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Return the median time of ``work`` on the device."""
    work()
    times = []
    for _ in range(repeats):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        kept = work()
        end.record()
        end.synchronize()
        times.append(cp.cuda.get_elapsed_time(begin, end))
        del kept
    return float(np.median(times))


def tables(load: Workload, rules: WalkRules) -> tuple[WalkGraph, float]:
    """Return rows prepared for the rules, and the time of that."""

    def make() -> WalkGraph:
        rows = load.rows
        if rules.schema and rules.sampler != RESERVOIR:
            relations = cp.arange(5, dtype=cp.int32)
            rows = replace(walk.rows_by_relation(load.typed, relations), relations=None)
        elif rules.schema:
            return load.typed
        return rows if rules.sampler == RESERVOIR else walk.tables(rows, rules)

    return make(), 0.0 if rules.sampler == RESERVOIR else median_ms(make)


def measure(
    load: Workload, app: str, rules: WalkRules, made: Callable[..., Any], title: str
) -> bool:
    """Print a row of the table; return whether it keeps its promise."""
    repeats = 2 if rules.sampler == RESERVOIR else REPEATS
    rows, building = tables(load, rules)
    if wrong := load.check(rows, rules, app, made):
        print(f"| {app} | {title} | WRONG: {wrong} |", flush=True)
        return False
    walks, starts = load.asked(app)
    on_device = median_ms(lambda: made(rows, rules, walks, starts), repeats)
    paths = made(rows, rules, walks, starts)
    nodes, size = int((paths >= 0).sum()), paths.nbytes
    del paths
    total, back = on_device, 0.0
    if app != "ppr":
        out = stream.page_locked((len(walks), rules.length), np.int32)
        total, back = to_host(rows, rules, walks, starts, out, repeats), 1e3 * size / TO_HOST
        if not (out[-1000:] == made(rows, rules, walks[-1000:], starts[-1000:]).get()).all():
            print(f"| {app} | {title} | WRONG: the host has other walks |", flush=True)
            return False
    steps = nodes - len(walks)
    sectors = 1e3 * steps * SECTORS[app] * SECTOR / DEVICE
    floor = max(sectors, back) if rules.sampler == REJECTION else 0.0
    share = f"{floor:.1f} | {100 * floor / total:.0f} %" if floor else " | "
    published = FLOWWALKER[app]
    limit = published if rules.sampler == RESERVOIR else PROMISES[app]
    times = f"{building:.2f} | {on_device:.2f} | {total:.2f} | {steps / total / 1e6:.2f}"
    compared = f"{published:g} | {published / total:.0f} | {limit:g} | {share}"
    verdict = "kept" if total <= limit else "BROKEN"
    print(f"| {app} | {title} | {times} | {compared} | {verdict} |", flush=True)
    return total <= limit


def to_host(
    rows: WalkGraph, rules: WalkRules, walks: Any, starts: Any, out: Any, repeats: int
) -> float:
    """Return milliseconds until the last result is on the host."""
    times = []
    for _ in range(repeats + 1):
        cp.cuda.Device().synchronize()
        begin = time.perf_counter()
        stream.walk_to_host(rows, rules, walks, starts, out)
        times.append(1e3 * (time.perf_counter() - begin))
    return float(np.median(times[1:]))


def one_gpu(scale: int, *, ablation: bool) -> bool:
    """Print the table of one GPU."""
    load = Workload(scale)
    scanned = float((load.degrees.astype(cp.float64) ** 2).sum()) / load.edges
    print(
        f"R-MAT {scale}: {load.nodes:,} nodes, {load.edges:,} edges, largest degree "
        f"{int(load.degrees.max()):,}; the row of a step has {scanned:,.0f} edges\n"
    )
    print(
        "| app | sampler | tables ms | walk ms | to host ms | G steps/s | FlowWalker ms | times "
        "faster | at most ms | floor ms | of it | |\n" + "|---" * 12 + "|",
        flush=True,
    )
    kept = [measure(load, app, rules, walk.walk, "rejection") for app, rules in RULES.items()]
    for sampler in (ALIAS, ITS):
        for app in ("deepwalk", "node2vec"):
            rules = replace(RULES[app], sampler=sampler)
            measure(load, app, rules, walk.walk, sampler.name.lower())
    for app, rules in RULES.items():
        rules = replace(rules, sampler=RESERVOIR)
        kept.append(measure(load, app, rules, walk.walk, "reservoir"))
    if ablation:
        ways: list[tuple[str, dict[str, Any]]] = [
            ("long rows from 1,024", {"long_from": 1024}),
            ("long rows from 16,384", {"long_from": 16384}),
            ("ZPRS as published", {"method": "zprs", "long_from": 1024, "pool": 64}),
            ("DPRS as published", {"method": "dprs", "long_from": 1024, "pool": 64}),
        ]
        few = slice(None, None, 16)
        print(f"\nreservoir, {len(load.walks[few]):,} walks\n\n| way | deepwalk ms | node2vec ms |")
        print("|---|---|---|")
        for title, how in [("ours", {}), *ways]:
            times = []
            for app in ("deepwalk", "node2vec"):
                rules = replace(RULES[app], sampler=RESERVOIR)
                some = load.walks[few].copy(), load.starts[few].copy()
                sample = partial(walk_reservoir, load.rows, rules, *some, **how)
                times.append(median_ms(sample, 1))
            print(f"| {title} | {times[0]:.1f} | {times[1]:.1f} |", flush=True)
    return all(kept)


def several(scale: int, counts: list[int]) -> bool:
    """Print the times of several GPUs that share the walks; each has the whole graph."""
    most = max(counts)
    heads = " | ".join(f"{n} GPU ms" for n in counts)
    print(f"\n| app | {heads} | times as fast |\n" + "|---" * (len(counts) + 2) + "|")
    loads: dict[int, Workload] = {}

    def make(device: int) -> None:
        with cp.cuda.Device(device):
            loads[device] = Workload(scale)

    together(make, most)
    kept = True
    for app in ("deepwalk", "node2vec", "ppr"):
        seconds = {n: shared(loads, app, n) for n in counts}
        faster = {n: seconds[counts[0]] / seconds[n] for n in counts[1:]}
        kept &= all(faster[n] >= least for n, least in SPEEDUPS.items() if n in faster)
        shown = " | ".join(f"{1e3 * seconds[n]:.2f}" for n in counts)
        print(f"| {app} | {shown} | {', '.join(f'{f:.2f}' for f in faster.values())} |", flush=True)
    return kept


def shared(loads: dict[int, Workload], app: str, count: int) -> float:
    """Return the seconds that ``count`` GPUs take for all walks, each with its share."""
    ready, runs = threading.Barrier(count), 6
    begun, ended = np.zeros((runs, count)), np.zeros((runs, count))

    def one(device: int) -> None:
        with cp.cuda.Device(device):
            load, rules = loads[device], RULES[app]
            rows, _ = tables(load, rules)
            walks, starts = (each[device::count].copy() for each in load.asked(app))
            out = stream.page_locked((len(walks), rules.length), np.int32)
            for run in range(runs):
                cp.cuda.Device().synchronize()
                ready.wait()
                begun[run, device] = time.perf_counter()
                if app == "ppr":
                    walk.walk(rows, rules, walks, starts)
                    cp.cuda.Device().synchronize()
                else:
                    stream.walk_to_host(rows, rules, walks, starts, out)
                ended[run, device] = time.perf_counter()

    together(one, count)
    return float(np.median((ended.max(axis=1) - begun.min(axis=1))[2:]))


def together(work: Callable[[int], None], count: int) -> None:
    """Call ``work`` for each device in a thread of its own."""
    threads = [threading.Thread(target=work, args=(device,)) for device in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=22)
    parser.add_argument("--ablation", action="store_true", help="other ways to sample by reservoir")
    parser.add_argument("--devices", help="numbers of GPUs to compare, such as 1,2,4")
    asked = parser.parse_args()
    name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    driver = cp.cuda.runtime.driverGetVersion()
    print(f"{name}, CUDA driver {driver}, CuPy {cp.__version__}")
    if asked.devices:
        return int(not several(asked.scale, [int(n) for n in asked.devices.split(",")]))
    return int(not one_gpu(asked.scale, ablation=asked.ablation))


if __name__ == "__main__":
    sys.exit(main())
