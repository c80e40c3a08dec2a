"""What a training run or prediction would compute, its cost, and whether it fits.

The client lowers a model to a plan once; the ranks follow it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.graph import Graph
from penstock.partition.part import partition_path
from penstock.pipelines.job.plan import Need, Plan
from penstock.pipelines.job.tasks import run_tasks
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.partition import partition_graph
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.spec import Model, Training

if TYPE_CHECKING:
    from penstock.workers.gnn.plan.rates import Rates


_LINE, _LINES = 400, 10_000  # bytes of metrics.jsonl per epoch; the most epochs counted
_REST = 1 << 15  # run.json, plan.txt and the headers of checkpoints


def plan_on(
    workers: Workers,
    graph: Graph,
    what: str,
    model: Model,
    training: Training,
    *,
    backward: bool = True,
    features: int | None = None,
    outputs: int | None = None,
) -> Plan:
    """Return the plan of ranks that each have a part of a graph, which may not yet be cut.

    backward           whether there is a backward pass, as in training
    features, outputs  those of a run, if they differ from the graph's
    """
    count = workers.count
    where = f"on {count} ranks, a part of {graph.path} each" if count > 1 else "on one rank"
    if count > 1 and workers.partition_path is None:
        if not partition_path(graph, count).exists():
            return _plan_to_cut(graph, workers, what, ("run", where))
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
    return Plan(
        what=what,
        steps=(("run", where),),
        memory=workers.capacity.need(made.memory_bytes, _remedy(workers, trains=backward)),
        detail=made,
    )


def _plan_to_cut(graph: Graph, workers: Workers, what: str, run: tuple[str, str]) -> Plan:
    """Return the plan of a job that first cuts the graph: sizes of parts are still unknown."""
    k = workers.count
    cut = partition_graph.plan(graph, k=k)
    assert cut.disk is not None
    does = f"{graph.path} into {k} parts, which takes {cut.disk.text()}"
    first = (
        "until the graph is cut, and neither is the time of an epoch: penstock partition "
        f"{graph.path} -k {k} cuts it"
    )
    return Plan(
        what=what,
        steps=(("cut", does), run),
        memory=Need(None, workers.capacity.memory, until=first),
        problem=cut.problem,
    )


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
