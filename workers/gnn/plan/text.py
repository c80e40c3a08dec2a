"""A plan as a person reads it."""

from __future__ import annotations

from penstock.sizes import format_bytes, format_count
from penstock.workers.gnn.plan.lowering import LayerPlan, Plan


def plan_text(plan: Plan) -> str:
    """Return the plan as lines: layers and their steps, then time and memory."""
    facts = plan.facts
    where = "GPU" if facts.on_gpu else "CPU"
    counts = f"{format_count(facts.rows)} nodes, {format_count(facts.edges)} edges"
    share = f", the largest of {facts.ranks} parts" if facts.ranks > 1 else ""
    path = "sparse" if plan.sparse else "dense"
    lines = [
        f"{counts}{share}, on the {where}",
        f"features: {facts.features:,} wide, {facts.sparsity:.1%} zeros: {path} path "
        f"(this machine's tau is {plan.tau:.2f})",
        "",
        f"{'':48}{'GFLOP':>9}{'GB':>9}{'ms':>9}",
    ]
    for layer in plan.layers:
        lines.append(_title(layer))
        for step in layer.steps:
            lines.append(_row(step.name, step.flops, step.bytes, step.seconds))
    for step in plan.rest:
        lines.append(_row(step.name, step.flops, step.bytes, step.seconds))
    lines.append(f"{'an epoch, predicted':<66}{plan.seconds * 1e3:9.3g}")
    lines += ["", "memory of a rank"]
    for name, size in plan.memory.items():
        lines.append(f"  {name:<48}{format_bytes(size):>12}")
    lines.append(f"  {'together':<48}{format_bytes(plan.memory_bytes):>12}")
    return "\n".join(lines)


def _row(name: str, flops: float, size: float, seconds: float) -> str:
    shown = name if len(name) < 46 else f"{name[:45]}…"
    return f"  {shown:<46}{flops / 1e9:9.3g}{size / 1e9:9.3g}{seconds * 1e3:9.3g}"


def _title(plan: LayerPlan) -> str:
    layer = plan.layer
    kind = f"{layer.kind} {layer.aggregate}" if layer.kind == "sage" else layer.kind
    if layer.kind == "gat":
        kind = f"gat, {layer.heads} heads"
    order = "product first" if plan.order == "transform" else "sum first"
    folded = ", the sum computed once" if plan.folded else ""
    why = f" ({plan.why})" if plan.why else ""
    return f"layer {plan.number + 1}: {kind}, {plan.inputs} to {layer.width}: {order}{folded}{why}"
