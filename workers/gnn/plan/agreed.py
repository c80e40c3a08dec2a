"""The plan that all ranks of a training or a prediction follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.graph import Graph
from penstock.workers.gnn.data.features import nonzeros
from penstock.workers.gnn.data.local import Local
from penstock.workers.gnn.plan.facts import Facts, facts_of
from penstock.workers.gnn.plan.lowering import Plan, lower
from penstock.workers.gnn.plan.rates import GUESS, Rates, machine_rates
from penstock.workers.gnn.plan.spec import Model, Training
from penstock.workers.resources.device import gpu


def plan_of(comm: Any, task: Any, local: Local, outputs: int | None = None) -> tuple[Plan, Model]:
    """Return what runs, the same on every rank, and the model with every width named."""
    training: Training = task.training
    facts = _facts(comm, task, local)
    if outputs is not None:
        facts = replace(facts, outputs=outputs)
    rates = _rates(comm)
    model = task.model.complete(facts.outputs)
    return lower(task.model, facts, training, rates), model


def _facts(comm: Any, task: Any, local: Local) -> Facts:
    facts = facts_of(Graph.open(task.graph), task.partition, training=task.training, on_gpu=gpu())
    # All ranks take the path that suits all of the features.
    counts = np.array([nonzeros(local.features), local.owned], np.int64)
    if comm is not None:
        comm.allreduce(counts)
    stored = round(int(counts[0]) / max(int(counts[1]), 1) * facts.rows)
    return replace(
        facts,
        features=int(local.features.shape[1]),  # which need not be all of the graph's
        nonzeros=stored,
        outputs=local.outputs or facts.outputs,
    )


def _rates(comm: Any) -> Rates:
    """Return rank 0's rates: plans that differ would wait for each other."""
    device = "gpu" if gpu() else "cpu"
    if comm is None:
        return machine_rates(device)
    mine = machine_rates(device) if comm.rank == 0 else GUESS[device]
    first: Rates = comm.allgather(mine)[0]
    return first
