"""``penstock gnn plan``: what a training would compute, in which order, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cluster.connect import connect, kind_for
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, UsageError
from penstock.graph import Graph
from penstock.partition.part import partition_path, partitions
from penstock.pipelines.gnn.memory import need_room
from penstock.pipelines.gnn.options import ModelOptions
from penstock.pipelines.gnn.ranks import Ranks, facts_and_rates
from penstock.pipelines.gnn.training import complete
from penstock.workers.gnn.plan.spec import Model


def plan_model(
    path: Path, options: ModelOptions, cluster: ClusterSpec, declared: Model | None = None
) -> tuple[Any, CapacityError | None]:
    """Return the plan, and what says that it does not fit."""
    from penstock.pipelines.job.capacity import capacity_of
    from penstock.workers.gnn.plan.lowering import lower

    graph = Graph.open(path)
    model, training = complete(graph, options, declared)
    spec = cluster.configured()
    ranks_there = spec.workers if kind_for(spec, 0, None, on_gpu=True) == "mpi" else None
    count = options.parts or ranks_there or 1
    partition = _partition(graph, count) if count > 1 else None
    # One worker is enough to see what workers are like.
    with connect(spec, on_gpu=True) as client:
        ranks = Ranks(client, count, partition, capacity_of(client, spec))
        facts, rates = facts_and_rates(ranks, graph, training)
        plan = lower(model, facts, training, rates)
        try:
            need_room(ranks, model, facts, training, rates)
        except CapacityError as error:
            return plan, error
    return plan, None


def _partition(graph: Graph, k: int) -> Path:
    path = partition_path(graph, k)
    if not path.exists():
        others = [found.name.removeprefix("k") for found in partitions(graph)]
        raise UsageError(
            f"{graph.path} has no partition into {k} parts",
            got=f"partitions into {', '.join(others)}" if others else "no partition",
            remedy=f"Make it with penstock partition {graph.path} -k {k}, or have penstock gnn "
            "train make it",
        )
    return path
