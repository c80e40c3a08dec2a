"""Speed of training embeddings on CPUs, compared with PyTorch, and their quality.

    python -P benchmarks/bench_embed.py [--torch VENV/bin/python] [--threads 2]
    python -P benchmarks/bench_embed.py quality [--epochs 30]      FB15k-237, of PENSTOCK_DATA

Speed: batches of 10,000 edges with 1,000 shared negatives for tails and for heads, vectors of 100
values of 200,000 nodes, Adagrad. Before any timing, losses and rows of a batch are compared with
the naive kernels. PyTorch trains the same batch with the same number of threads: scores by matrix
products, cross-entropy against the true answer, sparse gradients summed by row, Adagrad only on
those rows (its own optimizer is slower); it may have a separate environment. It runs twice: eager
(2 times its speed are required), and with the loss compiled by ``torch.compile``, if it finds a C++
compiler.

Quality: the filtered MRR of the whole test set with default options, in memory and out of core (12
partitions, three of them in memory).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from penstock import embed, etl
from penstock.kernels.cpu import embed as cpu
from penstock.kernels.embed_rules import Batch, EmbedRules, Model, NegativePool, Side, Table
from penstock.kernels.naive import embed as naive

NODES, RELATIONS, DIM, BATCH, NEGATIVES = 200_000, 500, 100, 10_000, 1000
TIMES_PYTORCH, WITHIN, LEAST_MRR = 2.0, 0.02, 0.31  # requirements
MODELS = {"Dot": Model.DOT, "DistMult": Model.DISTMULT, "ComplEx": Model.COMPLEX}

PEER = """
import json, sys, time
import torch
nodes, relations, dim, batch, negatives, threads, steps, model, compiled = json.loads(sys.argv[1])
torch.set_num_threads(threads)
torch.manual_seed(0)
E, R = torch.randn(nodes, dim) * 0.1, torch.randn(max(relations, 1), dim) * 0.1
SE, SR = torch.zeros_like(E), torch.zeros_like(R)
half = dim // 2

def times(x, r, conj):
    if model == "Dot":
        return x
    if model == "DistMult":
        return x * r
    a, b, c, d = x[:, :half], x[:, half:], r[:, :half], r[:, half:]
    if conj:
        d = -d
    return torch.cat([a * c - b * d, a * d + b * c], 1)

def update(table, state, rows, slopes):
    unique, where = torch.unique(rows, return_inverse=True)
    total = torch.zeros(len(unique), dim).index_add_(0, where, slopes)
    squares = state[unique] + total * total
    state[unique] = squares
    table[unique] -= 0.1 * total / (squares.sqrt() + 1e-10)

def contrast(query, answer, others):
    positive = (query * answer).sum(1)
    return (torch.logaddexp(positive, (query @ others.T).logsumexp(1)) - positive).sum()

def cross_entropy(query, answer, others):
    scores = torch.cat([(query * answer).sum(1, keepdim=True), query @ others.T], 1)
    target = torch.zeros(len(query), dtype=torch.long)
    return torch.nn.functional.cross_entropy(scores, target, reduction="sum")

compare = torch.compile(contrast) if compiled else cross_entropy

def step(h, r, t, nt, nh):
    rows = torch.cat([h, t, nt, nh])
    x = E[rows].requires_grad_()
    y = R[r].requires_grad_() if model != "Dot" else None
    xh, xt, xnt, xnh = x.split([len(h), len(t), len(nt), len(nh)])
    loss = 0.0
    for given, answer, others, conj in ((xh, xt, xnt, False), (xt, xh, xnh, True)):
        loss = loss + compare(times(given, y, conj), answer, others)
    loss.backward()
    update(E, SE, rows, x.grad)
    if model != "Dot":
        update(R, SR, r, y.grad)

def draw():
    ids = lambda n, of: torch.randint(0, of, (n,))
    return (ids(batch, nodes), ids(batch, max(relations, 1)), ids(batch, nodes),
            ids(negatives, nodes), ids(negatives, nodes))

for _ in range(3):
    step(*draw())
found = []
for _ in range(steps):
    begun = time.perf_counter()
    step(*draw())
    found.append(time.perf_counter() - begun)
print(json.dumps([found, torch.__version__]))
"""


def tables(rules: EmbedRules, nodes: int, relations: int) -> tuple[Table, Table | None]:
    """Return random vectors, and Adagrad's state of them."""
    rng = np.random.default_rng(0)

    def table(rows: int, width: int) -> Table:
        values = (0.1 * rng.standard_normal((rows, width))).astype(np.float32)
        return Table(values, np.zeros_like(values))

    typed = table(relations, rules.relation_width) if rules.relation_width else None
    return table(nodes, rules.dim), typed


def batch_of(rules: EmbedRules, nodes: int, edges: int, negatives: int, number: int) -> Batch:
    """Return random edges and drawn negatives."""
    rng = np.random.default_rng(number)
    heads, tails = rng.integers(0, nodes, (2, edges)).astype(np.int32)
    typed = rng.integers(0, RELATIONS, edges).astype(np.int32) if rules.relation_width else None
    pool = NegativePool(np.zeros(1, np.int64), np.array([0, nodes], np.int64))
    sides, chunks = len(rules.sides), rules.chunks(edges)
    drawn = cpu.draw_negatives(number, number, sides, chunks, negatives, pool)
    return Batch(heads, typed, tails, drawn)


def check(model: Model, threads: int) -> None:
    """Raise unless a batch changes rows like the naive kernels."""
    rules = EmbedRules(model, DIM, sides=(Side.TAIL, Side.HEAD), chunk=500)
    seed = time.time_ns() % 10**6
    batch = batch_of(rules, 3000, 500, 200, seed)
    ours, theirs = tables(rules, 3000, RELATIONS), tables(rules, 3000, RELATIONS)
    with cpu.workspace(threads) as work:
        loss = cpu.step(*ours, batch, rules, 0.1, 1, work)
    expected = naive.step(*theirs, batch, rules, 0.1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for mine, their in zip(ours, theirs, strict=True):
        if mine is not None and their is not None:
            # Adagrad's first step has the length of the rate for any gradient: if the gradient is
            # near 0, rounding decides its sign.
            clear = their.state > 1e-10
            close = np.isclose(mine.values, their.values, rtol=1e-3, atol=1e-4) | ~clear
            assert close.mean() > 0.9999, f"{model.name}: {np.count_nonzero(~close)} values differ"


def ours(model: Model, threads: int, steps: int) -> list[float]:
    """Return the seconds of batches, with drawn negatives."""
    rules = EmbedRules(model, DIM, sides=(Side.TAIL, Side.HEAD), chunk=BATCH)
    nodes, relations = tables(rules, NODES, RELATIONS)
    found = []
    with cpu.workspace(threads) as work:
        for number in range(steps + 3):
            begun = time.perf_counter()
            batch = batch_of(rules, NODES, BATCH, NEGATIVES, number)
            cpu.step(nodes, relations, batch, rules, 0.1, number + 1, work)
            found.append(time.perf_counter() - begun)
    return found[3:]


def pytorch(args: argparse.Namespace, name: str, *, compiled: bool = False) -> tuple[float, str]:
    """Return PyTorch's edges per second, and its version."""
    given = [NODES, RELATIONS, DIM, BATCH, NEGATIVES, args.threads, args.steps, name, compiled]
    done = subprocess.run(
        [args.torch, "-c", PEER, json.dumps(given)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(args.threads)},
    )
    seconds, version = json.loads(done.stdout)
    return BATCH / float(np.median(seconds)), version


def speed(args: argparse.Namespace) -> bool:
    """Check, time, print; return whether the requirement is met."""
    good = True
    for name, model in MODELS.items():
        check(model, args.threads)
        mine = BATCH / float(np.median(ours(model, args.threads, args.steps)))
        # Two sides, forward, and two products back; each value a multiplication and an addition.
        flops = mine * 2 * 3 * 2 * NEGATIVES * DIM / 1e9
        line = f"{name:9} checked; ours {mine:,.0f} edges/s ({flops:.0f} GFLOP/s in products)"
        if args.torch is not None:
            theirs, version = pytorch(args, name)
            line += f"; PyTorch {version} {theirs:,.0f}; {mine / theirs:.2f} x"
            good &= mine >= TIMES_PYTORCH * theirs
            theirs, _ = pytorch(args, name, compiled=True)
            line += f"; compiled {theirs:,.0f}; {mine / theirs:.2f} x"
        print(line, flush=True)
    return good


def quality(args: argparse.Namespace) -> bool:
    """Train on FB15k-237 in memory and out of core; return whether both meet the requirements."""
    import tarfile

    source = Path(os.environ["PENSTOCK_DATA"]) / "kg/FB15k-237.tar.gz"
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        (train,) = folder.rglob("train.txt")
        heldout = {name: train.with_name(f"{name}.txt") for name in ("valid", "test")}
        etl(train, folder / "g", format="triples", **heldout)
        for name, more in (("in memory", {}), ("12 partitions", {"partitions": 12})):
            begun = time.monotonic()
            embed.train(folder / "g", folder / name, epochs=args.epochs, **more)
            seconds = time.monotonic() - begun
            scores = embed.evaluate(folder / name, filtered=True).scores
            found[name] = scores["mrr"]
            print(f"{name:14} filtered test {scores}, trained in {seconds:.0f} s", flush=True)
    ratio = found["12 partitions"] / found["in memory"]
    print(f"out of core {100 * (ratio - 1):+.2f} %")
    return found["in memory"] >= LEAST_MRR and ratio >= 1 - WITHIN


def main() -> int:
    """Run the requested part; return 1 if a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("speed", "quality"), default="speed")
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, NumPy {np.__version__}")
    good = speed(args) if args.what == "speed" else quality(args)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
