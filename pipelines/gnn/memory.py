"""Whether a training or a prediction fits into the workers, before it starts, and what would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.errors import CapacityError
from penstock.pipelines.gnn.declare import scaled
from penstock.pipelines.gnn.ranks import Ranks
from penstock.sizes import format_bytes, need_disk
from penstock.workers.gnn.plan.spec import Model, Training

_LINE, _LINES = 400, 10_000  # bytes of metrics.jsonl an epoch; more epochs than anybody waits for
_REST = 1 << 15  # run.json, plan.txt and the heads of checkpoints


def need_room(ranks: Ranks, model: Model, facts: Any, training: Training, rates: Any) -> None:
    """Raise CapacityError where a plan's peak is more than a worker has."""
    from penstock.workers.gnn.plan.lowering import lower

    plan = lower(model, facts, training, rates)
    needed, there = plan.memory_bytes, ranks.room.memory
    if needed <= there:
        return
    best = _largest_that_fits(model, facts, training, rates, there)
    remedies = [f"{best} would fit"] if best else []
    if "graph, turned round" in plan.memory:
        remedies.append("--transpose implicit takes less")
    raise _too_large("training", ranks, needed, remedies)


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
    # The last checkpoint holds weights, two vectors of the optimizer and the best weights; while
    # it is written anew both are there, and the best weights have a file of their own.
    size = 4 * weights * (2 * 4 + 1) + _LINE * min(epochs, _LINES) + _REST
    need_disk(folder, size, f"the checkpoints of {folder}")


def need_room_to_predict(
    ranks: Ranks, model: Model, facts: Any, training: Training, rates: Any
) -> None:
    """Raise CapacityError where predicting takes more than a worker has."""
    from penstock.workers.gnn.plan.lowering import GRADIENTS, lower

    plan = lower(model, facts, training, rates)
    # One of the matrices that gradients would be written to in turn is what a layer works in.
    needed = plan.memory_bytes - plan.memory.get(GRADIENTS, 0) // 2
    if needed > ranks.room.memory:
        raise _too_large("predicting", ranks, needed, [])


def _too_large(what: str, ranks: Ranks, needed: int, remedies: list[str]) -> CapacityError:
    more = (
        "cut the graph into more parts with -k" if ranks.count == 1 else "more parts: a larger -k"
    )
    share = f"a part of {ranks.count}" if ranks.count > 1 else "the whole graph"
    given = [] if ranks.room.on_gpu else ["give workers more with --memory-limit"]
    text = ", or ".join([*remedies, more, *given])
    return CapacityError(
        f"{what} on {share} does not fit on a {ranks.room.worker}",
        expected=f"about {format_bytes(needed)}",
        got=format_bytes(ranks.room.memory),
        remedy=text[0].upper() + text[1:],
    )


def _largest_that_fits(
    model: Model, facts: Any, training: Training, rates: Any, there: int
) -> str | None:
    """Return the largest widths that fit, as an option or as a list; None: none does."""
    from penstock.workers.gnn.plan.lowering import lower

    widths = [layer.width for layer in model.layers[:-1] if layer.width is not None]
    if not widths:
        return None
    widest = max(widths)

    def fits(width: int) -> bool:
        plan = lower(scaled(model, width, widest), facts, training, rates)
        return bool(plan.memory_bytes <= there)

    low, high = 0, widest  # low fits, or is 0; high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if not low:
        return None
    fitting = [str(layer.width) for layer in scaled(model, low, widest).layers[:-1]]
    if len(set(fitting)) == 1:
        return f"--hidden {fitting[0]}"
    return f"layers of width {', '.join(fitting)}"
