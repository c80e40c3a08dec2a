"""Walks on one part of a graph, on the GPU: names and meaning are naive/walk.py's."""

from __future__ import annotations

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.errors import UsageError
from penstock.kernels.cuda.module import c_name, launch
from penstock.kernels.cuda.walk.arguments import step_arguments
from penstock.kernels.cuda.walk.tables import deciding, pack
from penstock.kernels.walk_rules import Owned, Sampler, Walkers, WalkGraph, WalkRules
from penstock.kernels.walkers import NAMES


def advance(
    rows: WalkGraph, rules: WalkRules, owned: Owned, walkers: Walkers, paths: DeviceArray
) -> None:
    """Move each walker as far as possible on this part; change walkers and paths in place.

    Rows are packed on every call unless ``tables`` made them.
    """
    if rules.sampler == Sampler.RESERVOIR:
        raise UsageError(
            "Walkers that migrate between parts do not use the reservoir sampler on a GPU.",
            expected="one of direct, rejection, its, alias",
            got="reservoir",
            remedy="Choose another sampler, replicate the graph, or walk on CPUs.",
        )
    rows = pack(rows, rules)
    launch(
        "walk/walkers",
        f"advance_walkers<{c_name(rows.indices)}, {int(deciding(rows, rules))}>",
        len(walkers.walk),
        *step_arguments(rows, rules),
        cp.int32(rules.length),
        cp.int32(rules.second_order),
        cp.int32(owned.rank),
        owned.assignment,
        owned.local,
        cp.int32(owned.local.dtype.itemsize == 8),
        cp.int64(len(walkers.walk)),
        *(getattr(walkers, name) for name in NAMES),
        paths,
    )
