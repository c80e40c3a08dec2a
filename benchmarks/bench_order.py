"""The time to make a partition order, compared with BETA.

    python -P benchmarks/bench_order.py [--quick]

Orders of many partitions come from a construction; others are stored. An order may have no more
buffer states than BETA, and none has fewer than the bound.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Side, main, tampered

from penstock.partition.order import beta, lower_bound, prefetch


def check(n: int, values: dict[str, Any]) -> dict[str, Any]:
    ours, marius = values["ours"], values["beta"]
    io = tampered(ours.io)
    assert lower_bound(n) <= io <= marius.io
    figures = {"prefetch": io, "bound": lower_bound(n), "beta": marius.io}
    for name, each in (("prefetch", ours), ("beta", marius)):
        figures |= {f"{name} hidden": each.hidden_share, f"{name} moved": each.volume}
    return figures


def cases(given: argparse.Namespace) -> Iterator[Case]:
    for n in (128,) if given.quick else (96, 128, 256):
        theirs = {"beta": Side(partial(beta, n), 0.29)}
        yield Case(f"prefetch, {n} partitions", partial(prefetch, n), partial(check, n), theirs)


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
