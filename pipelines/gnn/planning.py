"""What a training run or prediction would compute, what that costs, and whether it fits.

The client lowers a model to a plan once; the ranks follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError
from penstock.graph import Graph
from penstock.partition.part import partition_path
from penstock.pipelines.gnn.declare import scaled
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.plan import Need, Plan
from penstock.pipelines.job.ranks import resolve_ranks
from penstock.pipelines.job.tasks import run_tasks
from penstock.sizes import need_disk
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import Memory, ModelPlan, lower
from penstock.workers.gnn.plan.spec import Model, Training

if TYPE_CHECKING:
    from penstock.workers.gnn.plan.rates import Rates

Lower = Callable[[Model], ModelPlan]
# What a worker has, the model's plan, bytes that it needs, and why that would not do.
Lowered = tuple[Workers, ModelPlan, int, CapacityError | None]

_LINE, _LINES = 400, 10_000  # bytes of metrics.jsonl an epoch; more epochs than anybody waits for
_REST = 1 << 15  # run.json, plan.txt and the headers of checkpoints


def plan_job(
    job: Job[Any],
    graph: Graph,
    *,
    what: str,
    disk: Need,
    lowered_by: Callable[[int], Lowered],
    epochs: int = 0,
) -> Plan:
    """Return the plan of a job on ranks.

    lowered_by  what comes of lowering the model for so many ranks
    epochs      of a training run, whose time follows from its plan
    """
    count = ranks_asked(job.options.parts, job.cluster)
    where = f"on {count} ranks, a part of {graph.path} each" if count > 1 else "on one rank"
    if count > 1 and not partition_path(graph, count).exists():
        steps = (("run", f"{where}, once it is cut, which this does first"),)
        known = Need(None, where=f"after penstock partition {graph.path} -k {count} it is")
        return Plan(what, steps, known, disk)
    ranks, plan, needed, problem = lowered_by(count)
    return Plan(
        what=what,
        steps=(("run", where),),
        memory=Need(needed, ranks.capacity.memory, f"on every {ranks.capacity.worker}"),
        disk=disk,
        seconds=plan.seconds * epochs if epochs else None,
        timed=f"{epochs:,} epochs, by what was measured on this machine",
        problem=problem,
        detail=plan,
    )


def ranks_asked(parts: int | None, cluster: ClusterSpec) -> int:
    """Return on how many ranks a job will run, as far as options say."""
    return resolve_ranks(parts, cluster)[1] or 1


def inspect_worker(
    graph: Graph, training: Training, count: int, cluster: ClusterSpec, **sizes: int
) -> tuple[Workers, Lower]:
    """Inspect one worker, which stands for all; see ``lowering``."""
    partition = partition_path(graph, count) if count > 1 else None
    with connect(cluster, on_gpu=True) as client:
        ranks = Workers(client, cluster, quiet=True, count=count, partition_path=partition)
        return ranks, lowering(ranks, graph, training, **sizes)


def lowering(
    ranks: Workers,
    graph: Graph,
    training: Training,
    *,
    features: int | None = None,
    outputs: int | None = None,
) -> Lower:
    """Return what lowers a model for a graph and these ranks: ``lowered(model)`` is its plan.

    features, outputs  those of a run, where they are not the graph's
    """
    facts = facts_of(graph, ranks.partition_path, training=training, on_gpu=ranks.capacity.on_gpu)
    if features is not None:
        nonzeros = round(facts.nonzeros * features / max(facts.features, 1))
        facts = replace(facts, features=features, nonzeros=nonzeros)
    if outputs is not None:
        facts = replace(facts, outputs=outputs)
    return cache(partial(lower, facts=facts, training=training, rates=_rates_of(ranks)))


def too_large_to_train(ranks: Workers, model: Model, lowered: Lower) -> CapacityError | None:
    """Return the error of a plan that needs more than a worker has, None where it fits."""
    plan, there = lowered(model), ranks.capacity.memory
    if plan.memory_bytes <= there:
        return None
    best = _largest_that_fits(model, lowered, there)
    remedies = [f"{best} would fit"] if best else []
    if Memory.TRANSPOSE in plan.memory:
        remedies.append("--transpose implicit takes less")
    return _too_large("training", ranks, plan.memory_bytes, remedies)


def memory_to_predict(plan: ModelPlan) -> int:
    """Return what predicting takes: no gradients, but a layer works in one of their matrices."""
    return plan.memory_bytes - plan.memory.get(Memory.GRADIENTS, 0) // 2


def too_large_to_predict(ranks: Workers, plan: ModelPlan) -> CapacityError | None:
    """Return the error where predicting takes more than a worker has, None where it fits."""
    needed = memory_to_predict(plan)
    if needed <= ranks.capacity.memory:
        return None
    return _too_large("predicting", ranks, needed, [])


def need_disk_to_train(folder: Path, model: Model, inputs: int, epochs: int) -> None:
    """Raise CapacityError where the disk of ``folder`` has no room for a run's checkpoints."""
    need_disk(folder, disk_to_train(model, inputs, epochs), f"the checkpoints of {folder}")


def disk_to_train(model: Model, inputs: int, epochs: int) -> int:
    """Return what a run's checkpoints and metrics take; ``inputs``: features of a node."""
    weights = 0
    for layer in model.layers:
        width = layer.channels or 1
        wide = width * (1 if layer.concat else layer.heads)
        weights += inputs * wide * (2 if layer.kind == "sage" else 1) + 8 * wide
        weights += inputs * width if layer.residual else 0
        weights += (layer.hidden or width) * width if layer.kind == "gin" else 0
        inputs = width
    # The last checkpoint holds weights, two moments of the optimizer and the best weights; while
    # it is rewritten both are there, and the best weights have a file of their own.
    return 4 * weights * (2 * 4 + 1) + _LINE * min(epochs, _LINES) + _REST


def _too_large(what: str, ranks: Workers, needed: int, remedies: list[str]) -> CapacityError:
    more = (
        "cut the graph into more parts with -k" if ranks.count == 1 else "more parts: a larger -k"
    )
    share = f"a part of {ranks.count}" if ranks.count > 1 else "the whole graph"
    given = [] if ranks.capacity.on_gpu else ["give workers more with --memory-limit"]
    text = ", or ".join([*remedies, more, *given])
    remedy = text[0].upper() + text[1:]
    return ranks.capacity.too_small(f"{what} on {share}", needed, remedy=remedy)


def _largest_that_fits(model: Model, lowered: Lower, there: int) -> str | None:
    """Return the most channels that fit, as an option or as a list; None: none does."""
    widths = [layer.channels for layer in model.layers[:-1] if layer.channels is not None]
    if not widths:
        return None
    widest = max(widths)
    low, high = 0, widest  # low fits, or is 0; high does not
    while high - low > 1:
        middle = (low + high) // 2
        fits = lowered(scaled(model, middle, widest)).memory_bytes <= there
        low, high = (middle, high) if fits else (low, middle)
    if not low:
        return None
    fitting = [str(layer.channels) for layer in scaled(model, low, widest).layers[:-1]]
    if len(set(fitting)) == 1:
        return f"--hidden {fitting[0]}"
    return f"layers of {', '.join(fitting)} channels"


def _rates_of(ranks: Workers) -> Rates:
    """Return how fast the machine of a worker is."""
    from penstock.workers.gnn.plan.rates import machine_rates

    calls = [("gpu" if ranks.capacity.on_gpu else "cpu",)]
    found: list[Rates] = run_tasks(
        ranks.client, "measure", machine_rates, calls, sizes=[1], unit="machines", quiet=True
    )
    return found[0]
