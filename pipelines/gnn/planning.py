"""What a training run or prediction would compute, its cost, and whether it fits.

The client lowers a model to a plan once; the ranks follow it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.graph import Graph
from penstock.partition.part import partition_path
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.job.tasks import run_tasks
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.partition import partition_graph
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import ModelPlan, lower
from penstock.workers.gnn.plan.spec import Model, Training

if TYPE_CHECKING:
    from penstock.workers.gnn.plan.rates import Rates


_LINE, _LINES = 400, 10_000  # bytes of metrics.jsonl per epoch; the most epochs counted
_REST = 1 << 15  # run.json, plan.txt and the headers of checkpoints


def plan_on(
    context: Context,
    graph: Graph,
    parts: int | None,
    what: str,
    model: Model,
    training: Training,
    *,
    disk: int,
    folder: Path | None = None,
    backward: bool = True,
    features: int | None = None,
    outputs: int | None = None,
) -> tuple[Workers, ModelPlan]:
    """Return the ranks, and the plan of the model on them; ``--plan`` ends here.

    disk, folder       as for ``Context.plan``
    backward           whether there is a backward pass, as in training
    features, outputs  those of a run, if they differ from the graph's
    """
    # A plan makes no partition.
    workers = context.ranks(None if context.plans else graph, parts)
    count = workers.count
    where = f"on {count} ranks, a part of {graph.path} each" if count > 1 else "on one rank"
    plan = partial(context.plan, what, disk=disk, folder=folder)
    if count > 1 and workers.partition_path is None:
        if not partition_path(graph, count).exists():  # sizes of parts are still unknown
            cut = partition_graph.plan(graph, k=count)
            assert cut.disk is not None
            does = f"{graph.path} into {count} parts, which takes {cut.disk.text()}"
            until = (
                "until the graph is cut, and neither is the time of an epoch: penstock partition "
                f"{graph.path} -k {count} cuts it"
            )
            memory = Need(None, workers.capacity.memory, until=until)
            plan(steps=(("cut", does), ("run", where)), memory=memory, problem=cut.problem)
        workers.partition_path = workers.partition(graph, count)
    on_gpu = workers.capacity.on_gpu
    facts = facts_of(graph, workers.partition_path, training=training, on_gpu=on_gpu)
    if features is not None:
        nonzeros = round(facts.nonzeros * features / max(facts.features, 1))
        facts = replace(facts, features=features, nonzeros=nonzeros)
    if outputs is not None:
        facts = replace(facts, outputs=outputs)
    rates = _rates_of(workers)
    made = lower(model, facts=facts, training=training, rates=rates, backward=backward)
    memory = workers.capacity.need(made.memory_bytes, _remedy(workers, trains=backward))
    plan(steps=(("run", where),), memory=memory, detail=made)
    return workers, made


def disk_to_train(model: Model, inputs: int, epochs: int) -> int:
    """Return the size of a run's checkpoints and metrics; ``inputs``: features of a node."""
    weights = 0
    for layer in model.layers:
        width = layer.channels or 1
        wide = width * (1 if layer.concat else layer.heads)
        weights += inputs * wide * (2 if layer.kind == "sage" else 1) + 8 * wide
        weights += inputs * width if layer.residual else 0
        weights += (layer.hidden or width) * width if layer.kind == "gin" else 0
        inputs = width
    # The last checkpoint holds weights and two moments of the optimizer; while it is rewritten both
    # exist, and the best weights have a separate file.
    return 4 * weights * (2 * 3 + 1) + _LINE * min(epochs, _LINES) + _REST


def _remedy(workers: Workers, *, trains: bool) -> str:
    """Return how a model takes less memory."""
    remedies = ["use fewer --hidden channels"] if trains else []
    remedies.append(
        "cut the graph into more parts with -k" if workers.count == 1 else "more parts: a larger -k"
    )
    text = ", or ".join(remedies)
    return text[0].upper() + text[1:]


def _rates_of(workers: Workers) -> Rates:
    from penstock.workers.gnn.plan.rates import machine_rates

    calls = [("gpu" if workers.capacity.on_gpu else "cpu",)]
    found: list[Rates] = run_tasks(
        workers.client, "measure", machine_rates, calls, sizes=[1], unit="machines", quiet=True
    )
    return found[0]
