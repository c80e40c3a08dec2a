"""``penstock gnn plan``: what a training would compute and what that costs; and whether it fits.

The client lowers a model to a plan once; the ranks follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.cluster.connect import connect, kind_for
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, UsageError
from penstock.graph import Graph
from penstock.partition.part import partition_path, partitions
from penstock.pipelines.gnn.declare import complete, scaled
from penstock.pipelines.gnn.options import ModelOptions
from penstock.pipelines.gnn.ranks import Ranks, rates_of
from penstock.pipelines.job.capacity import capacity_of
from penstock.sizes import format_bytes, need_disk
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import Memory, Plan, lower
from penstock.workers.gnn.plan.spec import Model, Training

Lower = Callable[[Model], Plan]

_LINE, _LINES = 400, 10_000  # bytes of metrics.jsonl an epoch; more epochs than anybody waits for
_REST = 1 << 15  # run.json, plan.txt and the headers of checkpoints


def plan_model(
    path: Path, options: ModelOptions, cluster: ClusterSpec, declared: Model | None = None
) -> tuple[Plan, CapacityError | None]:
    """Return the plan, and the error of one that does not fit."""
    graph = Graph.open(path)
    model, training = complete(graph, options, declared)
    spec = cluster.configured()
    ranks_there = spec.workers if kind_for(spec, 0, None, on_gpu=True) == "mpi" else None
    count = options.parts or ranks_there or 1
    partition = _partition(graph, count) if count > 1 else None
    # One worker is enough to see what workers are like.
    with connect(spec, on_gpu=True) as client:
        ranks = Ranks(client, count, partition, capacity_of(client))
        lowered = lowering(ranks, graph, training)
        plan = lowered(model)
        try:
            need_memory_to_train(ranks, model, lowered)
        except CapacityError as error:
            return plan, error
    return plan, None


def lowering(
    ranks: Ranks,
    graph: Graph,
    training: Training,
    *,
    features: int | None = None,
    outputs: int | None = None,
) -> Lower:
    """Return what lowers a model for a graph and these ranks: ``lowered(model)`` is its plan.

    features, outputs  those of a run, where they are not the graph's
    """
    facts = facts_of(graph, ranks.partition, training=training, on_gpu=ranks.capacity.on_gpu)
    if features is not None:
        nonzeros = round(facts.nonzeros * features / max(facts.features, 1))
        facts = replace(facts, features=features, nonzeros=nonzeros)
    if outputs is not None:
        facts = replace(facts, outputs=outputs)
    return partial(lower, facts=facts, training=training, rates=rates_of(ranks))


def need_memory_to_train(ranks: Ranks, model: Model, lowered: Lower) -> None:
    """Raise CapacityError where a plan needs more than a worker has."""
    plan, there = lowered(model), ranks.capacity.memory
    if plan.memory_bytes <= there:
        return
    best = _largest_that_fits(model, lowered, there)
    remedies = [f"{best} would fit"] if best else []
    if Memory.TRANSPOSE in plan.memory:
        remedies.append("--transpose implicit takes less")
    raise _too_large("training", ranks, plan.memory_bytes, remedies)


def need_memory_to_predict(ranks: Ranks, plan: Plan) -> None:
    """Raise CapacityError where predicting takes more than a worker has."""
    # There are no gradients, but one of their matrices is what a layer works in.
    needed = plan.memory_bytes - plan.memory.get(Memory.GRADIENTS, 0) // 2
    if needed > ranks.capacity.memory:
        raise _too_large("predicting", ranks, needed, [])


def need_disk_to_train(folder: Path, model: Model, inputs: int, epochs: int) -> None:
    """Raise CapacityError where the disk of ``folder`` has no room for a run's checkpoints.

    inputs  features of a node
    """
    weights = 0
    for layer in model.layers:
        width = layer.width or 1
        wide = width * (layer.heads if layer.join == "mean" else 1)
        weights += inputs * wide * (2 if layer.kind == "sage" else 1) + 8 * wide
        weights += inputs * width if layer.residual else 0
        weights += (layer.hidden or width) * width if layer.kind == "gin" else 0
        inputs = width
    # The last checkpoint holds weights, two moments of the optimizer and the best weights; while
    # it is rewritten both are there, and the best weights have a file of their own.
    size = 4 * weights * (2 * 4 + 1) + _LINE * min(epochs, _LINES) + _REST
    need_disk(folder, size, f"the checkpoints of {folder}")


def _too_large(what: str, ranks: Ranks, needed: int, remedies: list[str]) -> CapacityError:
    more = (
        "cut the graph into more parts with -k" if ranks.count == 1 else "more parts: a larger -k"
    )
    share = f"a part of {ranks.count}" if ranks.count > 1 else "the whole graph"
    given = [] if ranks.capacity.on_gpu else ["give workers more with --memory-limit"]
    text = ", or ".join([*remedies, more, *given])
    return CapacityError(
        f"{what} on {share} does not fit on a {ranks.capacity.worker}",
        expected=f"about {format_bytes(needed)}",
        got=format_bytes(ranks.capacity.memory),
        remedy=text[0].upper() + text[1:],
    )


def _largest_that_fits(model: Model, lowered: Lower, there: int) -> str | None:
    """Return the largest widths that fit, as an option or as a list; None: none does."""
    widths = [layer.width for layer in model.layers[:-1] if layer.width is not None]
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
    fitting = [str(layer.width) for layer in scaled(model, low, widest).layers[:-1]]
    if len(set(fitting)) == 1:
        return f"--hidden {fitting[0]}"
    return f"layers of width {', '.join(fitting)}"


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
