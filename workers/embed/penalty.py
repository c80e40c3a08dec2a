"""The penalty in a loss: see the penalties of ``penstock.kernels.embed_rules``."""

from __future__ import annotations

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.kernels.embed_rules import Batch, EmbedRules, Model, Side, Table
from penstock.workers.resources.device import to_device, to_host


def mean_penalty(nodes: Table, relations: Table | None, batch: Batch, rules: EmbedRules) -> float:
    """Return the mean penalty in the loss of a batch's edges, with the current vectors."""
    total = 0.0
    for side in rules.sides:
        for ends in (batch.heads, batch.tails):
            total += _powers(nodes.values, ends, rules.node_penalty, rules)
        if relations is not None and rules.model != Model.ROTATE:  # phases have none
            rows = batch.relations + (rules.inverse if side == Side.HEAD else 0)
            # A matrix is large, and many edges have the same.
            distinct, counts = np.unique(to_host(rows), return_counts=True)
            of = relations.values, to_device(distinct), rules.relation_penalty
            total += _powers(*of, rules, counts)
    return total


def _powers(
    values: AnyArray, rows: AnyArray, weight: float, rules: EmbedRules, counts: Array | None = None
) -> float:
    if weight == 0:
        return 0.0
    squares = values[rows] ** 2
    if rules.is_complex:
        half = rules.dim // 2
        squares = squares[:, :half] + squares[:, half:]
    sums = to_host((squares ** (rules.power / 2)).sum(axis=1))
    return weight * float(np.average(sums, weights=counts))
