"""Training embeddings on several ranks, compared with one.

    python -P benchmarks/bench_embed_ranks.py [--quick] [--triples 52000000] [--folder FOLDER]

The graph is a knowledge graph of `penstock generate kg`; the model is RotatE with 200 values and
2,000 negatives for tails and for heads, on GPUs if there are two. Losses on a small graph, after
four epochs, may differ by 3 % from those of one rank; then the second epoch of the large graph is
timed: "trains" is the share of it in which kernels train, "exchange" that in which blocks change
hands; the rest are waits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, absent, gpus, main
from ranks import cluster_of

from penstock import embed, generate


def make(path: Path, entities: int, triples: int) -> Path:
    relations = 1000 if triples > 10**6 else 50
    sizes = {"entities": entities, "relations": relations, "triples": triples}
    generate("kg", path, valid=0.0, test=0.0, quiet=True, **sizes)
    return path


def trained(graph: Path, run: Path, ranks: int, on_gpu: bool, **how: Any) -> Timed:
    """Train; return the seconds of an epoch."""
    report = embed.train(
        graph,
        run,
        model="rotate",
        lr=0.05,
        parts=ranks,
        checkpoint_minutes=1000.0,
        cluster=cluster_of(ranks, on_gpu=on_gpu),
        overwrite=True,
        quiet=True,
        **how,
    )
    return Timed(report.trained.epoch_seconds, report.trained)


def check(values: dict[str, Any]) -> dict[str, Any]:
    mine, one = values["ours"], values["one rank"]
    np.testing.assert_allclose(mine.loss, one.loss, rtol=0.03)
    exchange = mine.exchange_seconds / mine.epochs / mine.epoch_seconds
    figures = {"loss": mine.loss, "loss of one": one.loss, "trains": mine.utilization}
    return figures | {"exchange": exchange, "GB exchanged": mine.bytes_exchanged / 1e9}


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, on_gpu = given.scratch, gpus(2)() is None
    if given.gpu and not on_gpu:
        yield absent("two ranks", "needs 2 GPUs")
        return
    small = make(folder / "small", 20_000, 400_000 if not given.quick else 40_000)
    triples = given.triples if on_gpu else given.triples // 200
    large = make(folder / "large", triples // 26, triples)
    ranks = [2, 4] if gpus(4)() is None else [2]
    # The first epoch also loads kernels and connects ranks: the second one is timed.
    wide = {"dim": 200, "negatives": 2000, "batch": 50_000, "epochs": 2}
    if not on_gpu:
        wide = {"dim": 32, "negatives": 200, "batch": 2000, "epochs": 2}
    for title, graph, how, faster, rounds in (
        ("a small graph", small, wide | {"epochs": 4, "batch": 2000}, {}, 3),
        (f"{triples:,} triples", large, wide, {2: 1.93, 4: 3.40} if on_gpu else {}, 1),
    ):
        run = partial(trained, graph, folder / "run", on_gpu=on_gpu, **how)
        one = partial(run, 1)
        for count in ranks:
            sides = {"one rank": Side(one, faster.get(count), 0.5)}
            yield Case(f"{title}, {count} ranks", partial(run, count), check, sides, rounds=rounds)


if __name__ == "__main__":
    size = Option("--triples", 52_000_000, 20_000_000, "on cores a 200th")
    sys.exit(main(__doc__, cases, size, gpu=cases))
