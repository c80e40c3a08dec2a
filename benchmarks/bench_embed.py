"""Steps of training embeddings, compared with PyTorch and with products alone; and their quality.

    python -P benchmarks/bench_embed.py [--quick] --peers VENV/bin/python      has torch

On CPUs: batches of 10,000 edges with 1,000 shared negatives for tails and for heads, vectors of 100
values of 200,000 nodes, Adagrad. On a GPU: 100,000 edges, 5 million nodes, tails replaced, or both
sides. Losses and rows of small batches must be those of the naive kernels, and on CPUs the loss of
the first timed batch that of NumPy. PyTorch (embed_peer.py) trains such batches with as many
threads: eager, with the loss compiled by torch.compile, and on a GPU with products in float16, as
Penstock's are; it runs once, as it compiles for longer than it trains. The floor is the time of a
step's products alone: 4 on a GPU (6 if scores are kept, as on CPUs) of 2 S E N d each, at the
measured rate of products in TF32; of distances on a GPU, its instructions (L1 10, RotatE 16) at one
per lane and clock.

Quality: the filtered MRR of the whole test set of FB15k-237 with default options, in memory (at
least 0.31) and out of core (12 partitions, three of them in memory: at most 2 % less).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gnn_rates import tf32_rate
from graphs import fb15k
from harness import (
    Case,
    Side,
    Timed,
    by_peer,
    data,
    gpus,
    in_peers,
    main,
    on_gpu,
    slow,
    tampered,
    timed,
    wanted,
)

from penstock import embed, etl
from penstock.kernels.embed_rules import Batch, EmbedRules, Model, NegativePool, Table
from penstock.kernels.embed_rules import Side as Corrupted
from penstock.kernels.naive import embed as naive

RELATIONS, NEGATIVES, DIM = 500, 1000, 100
PRODUCTS = 1.2  # times ours, in CPU seconds: OpenBLAS's threads wait busily
ONE, BOTH = (Corrupted.TAIL,), (Corrupted.TAIL, Corrupted.HEAD)
INSTRUCTIONS = {Model.TRANSE_L1: 10, Model.ROTATE: 16}
# Measured: the time of compiled PyTorch (of L2: of cdist) over ours, and the share of the floor.
CORES: dict[Any, Any] = {
    (Model.DOT, BOTH): (1.2, None),
    (Model.COMPLEX, BOTH): (1.15, None),
}
GPUS: dict[Any, Any] = {
    (Model.DOT, ONE): (4.4, 0.34),
    (Model.DOT, BOTH): (3.7, 0.43),
    (Model.DISTMULT, ONE): (4.7, 0.27),
    (Model.COMPLEX, ONE): (5.0, 0.28),
    (Model.COMPLEX, BOTH): (4.8, 0.37),
    (Model.TRANSE_L1, ONE): (None, 0.32),
    (Model.TRANSE_L2, ONE): (7.0, 0.23),
    (Model.ROTATE, ONE): (None, 0.46),
}


class Steps:
    """Steps of a model on this machine's device."""

    def __init__(
        self,
        model: Model,
        sides: tuple[Corrupted, ...],
        *,
        device: bool,
        dim: int = DIM,
        edges: int = 0,
    ) -> None:
        self.nodes, usual = (5_000_000, 100_000) if device else (200_000, 10_000)
        self.edges = edges or usual
        self.rules = EmbedRules(model, dim, sides=sides, chunk=self.edges)
        self.device, self.number = device, 0
        if device:
            import cupy as xp

            from penstock.kernels.cuda import embed as kernels
        else:
            from penstock.kernels.cpu import embed as kernels

            xp: Any = np
        self.xp, self.kernels = xp, kernels
        self.threads = os.cpu_count() or 1
        self.trained: tuple[Table, Table | None] | None = None
        self.losses: tuple[float, float] | None = None  # of the first timed batch, and by NumPy

    def tables(self, nodes: int, first: float = 0.0) -> tuple[Table, Table | None]:
        """Return random vectors, and Adagrad's state of them."""
        rng = self.xp.random.default_rng(0)

        def table(rows: int, width: int) -> Table:
            values = 0.1 * rng.standard_normal((rows, width), dtype=np.float32)
            return Table(values, self.xp.full_like(values, first))

        width = self.rules.relation_width
        return table(nodes, self.rules.dim), table(RELATIONS, width) if width else None

    def edges_of(self, nodes: int, edges: int, number: int) -> tuple[Any, Any, Any]:
        """Return random heads, relations and tails."""
        rng = self.xp.random.default_rng(number)
        heads, tails = (rng.integers(0, nodes, edges).astype(np.int32) for _ in range(2))
        typed = rng.integers(0, RELATIONS, edges).astype(np.int32)
        return heads, typed if self.rules.relation_width else None, tails

    def batch(self, nodes: int, ends: tuple[Any, Any, Any], negatives: int, number: int) -> Batch:
        """Return edges and drawn negatives."""
        pool = NegativePool(self.xp.zeros(1, np.int64), self.xp.asarray([0, nodes], dtype=np.int64))
        sides, chunks = len(self.rules.sides), self.rules.chunks(len(ends[0]))
        drawn = self.kernels.draw_negatives(number, number, sides, chunks, negatives, pool)
        return Batch(*ends, drawn)

    def workspace(self) -> Any:
        return self.kernels.workspace() if self.device else self.kernels.workspace(self.threads)

    def __call__(self) -> Timed:
        """Train batches with drawn negatives; return the seconds of one."""
        if self.trained is None:
            self.trained = self.tables(self.nodes)
        nodes, relations = self.trained
        # As PyTorch's: a GPU takes half of a millisecond to begin a generator.
        some = [self.edges_of(self.nodes, self.edges, number) for number in range(8)]

        def batch(number: int) -> Batch:
            return self.batch(self.nodes, some[number % 8], NEGATIVES, number)

        with self.workspace() as work:

            def step() -> Any:
                self.number += 1
                return self.kernels.step(
                    nodes, relations, batch(self.number), self.rules, 0.1, self.number, work
                )

            if self.device:
                run = on_gpu(step, 8 if self.rules.model in INSTRUCTIONS else 40, warm=3)
                assert np.isfinite(float(run.value))
                return Timed(run.seconds)
            step()
            truth = None if self.losses else self.loss(batch(self.number + 1))
            runs = [timed(step) for _ in range(5)]
        if truth is not None:
            self.losses = float(runs[0].value), truth
        return Timed(statistics.median(run.seconds for run in runs))

    def loss(self, batch: Batch) -> float:
        """Return the loss of a batch of products, by NumPy: all edges have the same negatives."""
        (nodes, relations), total = self.trained, 0.0
        for place, side in enumerate(self.rules.sides):
            asked, answers = (batch.heads, batch.tails)[:: 1 if side == Corrupted.TAIL else -1]
            table = None if relations is None else relations.values
            made = nodes.values, table, asked, batch.relations, side, self.rules
            queries, others = naive.queries(*made), batch.negatives[place, 0]
            scores = queries @ nodes.values[others].T
            scores[answers[:, None] == others] = -np.inf
            positive = (queries * nodes.values[answers]).sum(axis=1)
            scores = np.concatenate([positive[:, None], scores], axis=1)
            total += float((logsumexp(scores, axis=1) - positive).sum(dtype=np.float64))
        return total

    def check(self, values: dict[str, Any]) -> None:
        """Compare three steps' losses and rows with the naive kernels."""
        if self.losses:
            mine, truth = self.losses
            np.testing.assert_allclose(tampered(mine), truth, rtol=1e-6)
        seed, close = time.time_ns() % 10**6, 5e-3
        if not self.device or self.rules.model in INSTRUCTIONS:
            close = 1e-3
        # From 0, Adagrad's first steps have the length of the rate, so only the sign matters.
        ours, theirs = self.tables(3000, 0.7), self.tables(3000, 0.7)
        theirs = tuple(each and Table(*map(host, (each.values, each.state))) for each in theirs)
        with self.workspace() as work:
            for number in range(1, 4):
                ends = self.edges_of(3000, 500, seed + number)
                batch = self.batch(3000, ends, 200, seed + number)
                loss = self.kernels.step(*ours, batch, self.rules, 0.1, number, work)
                parts = (batch.heads, batch.relations, batch.tails, batch.negatives)
                on_host = Batch(*map(host, parts))
                expected = naive.step(*theirs, on_host, self.rules, 0.1, number)
                np.testing.assert_allclose(tampered(float(loss)), expected, rtol=close)
        for mine, truth in zip(ours, theirs, strict=True):
            if mine is not None and truth is not None:
                apart = np.abs(host(mine.values) - truth.values) > close * (
                    1 + np.abs(truth.values)
                )
                # The slope of L1 changes its sign at 0, and rounding may decide it.
                assert apart.sum() <= (100 if self.rules.model == Model.TRANSE_L1 else 0)

    def floor(self, rate: float) -> Timed:
        """Return the seconds of products, or of instructions, at a rate per second."""
        work = len(self.rules.sides) * self.edges * NEGATIVES * self.rules.dim
        if self.device and self.rules.model in INSTRUCTIONS:
            about = self.xp.cuda.Device().attributes
            lanes = about["MultiProcessorCount"] * 128 * about["ClockRate"] * 1e3
            return Timed(INSTRUCTIONS[self.rules.model] * work / lanes)
        return Timed(8 * work / rate)

    def products(self) -> None:
        """Multiply what a step on CPUs multiplies: scores and two gradients, for each side."""
        dim = self.rules.dim
        queries, others = (np.ones((n, dim), np.float32) for n in (self.edges, NEGATIVES))
        for _ in self.rules.sides:
            scores = queries @ others.T
            scores @ others
            scores.T @ queries


class Torch:
    """PyTorch's steps, those of all cases in one process."""

    def __init__(self, given: argparse.Namespace, *, device: bool) -> None:
        self.given, self.device = given, "gpu" if device else "cpu"
        self.jobs, self.found = list[tuple[Any, ...]](), list[float]()

    def side(self, some: Steps, ratio: float | None, *, compiled: bool, half: bool = False) -> Side:
        """Return a side whose first run waits for the steps of all sides."""
        number = len(self.jobs)
        self.jobs.append((some.rules.model.name, len(some.rules.sides), compiled, half))

        def run() -> Timed:
            if not self.found:
                about = {"device": self.device, "nodes": some.nodes, "edges": some.edges}
                about |= {"dim": some.rules.dim, "relations": RELATIONS, "negatives": NEGATIVES}
                about |= {"threads": some.threads, "steps": 5 if self.given.quick else 15}
                about["clock"] = "process_time" if self.given.cpu else "perf_counter"
                script = Path(__file__).with_name("embed_peer.py")
                asked = json.dumps(about | {"jobs": self.jobs})
                self.found += by_peer(self.given.peers, script, asked)
            return Timed(self.found[number])

        return Side(run, ratio, needs=[in_peers(self.given, "torch")], once=True)


def host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else None if array is None else array.copy()


def knowledge(folder: Path) -> tuple[Path, dict[str, Path]]:
    """Return FB15k-237 as a graph, and its texts."""
    graph, texts = folder / "fb15k", fb15k(folder / "texts")
    if not graph.exists():
        heldout = {name: texts[name] for name in ("valid", "test")}
        etl(texts["train"], graph, format="triples", quiet=True, **heldout)
    return graph, texts


def quality(folder: Path, name: str, **more: Any) -> dict[str, float]:
    """Train on FB15k-237; return the scores of the test set."""
    graph, _ = knowledge(folder)
    embed.train(graph, folder / name, epochs=30, overwrite=True, quiet=True, **more)
    return dict(embed.evaluate(folder / name, filtered=True, quiet=True).scores)


def check_quality(values: dict[str, Any]) -> dict[str, Any]:
    outside, inside = values["ours"]["mrr"], values["in memory"]["mrr"]
    assert 0.31 <= inside <= 1
    assert 0.98 * inside <= outside <= 1, (outside, inside)
    return {"MRR": outside, "MRR in memory": inside}


def step_cases(
    rows: Mapping[Any, Any], given: argparse.Namespace, *, title: str = "", **size: int
) -> Iterator[Case]:
    """Yield the steps of models and sides, with their ratios; PyTorch's are of one process."""
    device = gpus(1)() is None
    os.environ["CUPY_TF32"] = "1"  # before cupy is first imported, which reads it
    rate = tf32_rate() if device else 0.0
    torch, every = Torch(given, device=device), list[Case]()
    for (model, sides), (ratio, share) in rows.items():
        name = f"{title}{model.name}, {'tails' if sides == ONE else 'both sides'}"
        if not wanted(name, given):
            continue
        steps = Steps(model, sides, device=device, **size)
        # Of differences only the fused way, which nothing was measured of; of L2 cdist is best.
        by_cdist, differs = model == Model.TRANSE_L2, model in (Model.TRANSE_L1, Model.ROTATE)
        run = {"PyTorch, compiled": torch.side(steps, None if by_cdist else ratio, compiled=True)}
        if not differs:
            run["PyTorch"] = torch.side(steps, ratio if by_cdist else None, compiled=False)
        if device and not differs and not by_cdist:
            run["PyTorch, compiled, float16"] = torch.side(steps, None, compiled=True, half=True)
        least = partial(steps.floor, rate) if device else steps.products
        run["floor"] = Side(least, share, None if device else PRODUCTS, floor=True)
        every.append(Case(name, steps, steps.check, run, (steps.edges, "edges")))
    for case in every:
        yield case
        case.ours.trained = None


def cases(given: argparse.Namespace) -> Iterator[Case]:
    yield from step_cases(GPUS if gpus(1)() is None else CORES, given)
    yield Case(
        "FB15k-237 out of core",
        partial(quality, given.scratch, "outside", partitions=12),
        check_quality,
        {"in memory": Side(partial(quality, given.scratch, "inside"), once=True)},
        rounds=1,
        needs=[data, gpus(1), *slow(given)],
    )


if __name__ == "__main__":
    sys.exit(main(__doc__, cases, gpu=cases))
