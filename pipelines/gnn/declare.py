"""The model that options declare, and checks that a graph has the data for its training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import UsageError, warn
from penstock.graph import Graph
from penstock.pipelines.gnn.options import GnnOptions
from penstock.workers.gnn.plan.facts import outputs_of
from penstock.workers.gnn.plan.spec import Layer, Model, Training, read_model


def declared_model(options: GnnOptions) -> Model:
    """Return the model that the options declare; its last layer is still incomplete."""
    if options.spec is not None:
        return options.spec if isinstance(options.spec, Model) else read_model(options.spec)
    gat = options.model == "gat"
    own: dict[str, Any] = {"kind": options.model}
    if options.model == "sage":
        own["aggregate"] = options.aggregate or "mean"
    if gat:
        own["attention_dropout"] = options.attention_dropout
    between: dict[str, Any] = {
        **own,
        "channels": options.hidden,
        "activation": options.activation or ("elu" if gat else "relu"),
        "dropout": options.dropout,
        "norm": options.norm or ("batch" if options.model == "gin" else "none"),
        "residual": options.residual,
    }
    if gat:
        between["heads"] = options.heads or 8
    layers = (*[Layer(**between)] * (options.layers - 1), Layer(**own))
    return Model(layers=layers, input_dropout=options.input_dropout)


def complete(graph: Graph, options: GnnOptions) -> tuple[Model, Training]:
    """Return the declaration, fitted to the graph; raise if they contradict each other."""
    training = options.training
    check_graph(graph, training, drawn=options.split is not None)
    return declared_model(options).complete(outputs_of(graph)), training


def check_graph(
    graph: Graph, training: Training, *, learns: bool = True, drawn: bool = False
) -> None:
    """Raise if the graph's manifest lacks data for a training run.

    drawn  whether the training run draws a split, so that the graph's does not matter
    """
    about = graph.manifest
    if about.features is None:
        raise UsageError(
            f"{graph.path} has no features to learn from",
            remedy="Give them to penstock etl with --features or --feature-columns, or make a "
            "graph that has some: penstock generate sbm",
        )
    if training.weighted and "weights" not in about.dtypes:
        raise UsageError(f"{graph.path} has no edge weights, which --weighted uses")
    if not learns:
        return
    if about.labels is None:
        raise UsageError(
            f"{graph.path} has no labels to learn",
            remedy="Name their column with penstock etl --label",
        )
    if about.labels == "class" and about.classes is not None and len(about.classes) < 2:
        raise UsageError(
            f"all labels of {graph.path} are of one class",
            expected="two classes or more",
            got=f"{about.classes[0]!r} alone" if about.classes else "none",
        )
    if not drawn and not about.splits.get("train"):
        found = ", ".join(f"{name} {count}" for name, count in about.splits.items())
        raise UsageError(
            f"no node of {graph.path} is in the split train",
            expected="nodes to train on",
            got=found or "no splits",
            remedy="Draw a split for this run with --split 0.6 0.2 0.2, or keep one in the "
            "graph with penstock etl --split-nodes",
        )


@dataclass(frozen=True)
class EdgeRules:
    """How the edges of a graph were made, by its manifest.

    self_loops, duplicates, both_directions
        as options of penstock etl; None: unknown, or irrelevant to the run
    """

    directed: bool
    relations: tuple[str, ...]
    self_loops: str | None = None
    duplicates: str | None = None
    both_directions: str | None = None

    @staticmethod
    def of(graph: Graph, *, weighted: bool = True) -> EdgeRules:
        """Return the rules that matter to a run with or without weights."""
        about = graph.manifest
        rules = EdgeRules(about.directed, about.relations or ())
        if about.made.get("by") != "penstock etl":
            return rules
        options = about.made.get("options", {})
        merged = options.get("duplicates", "sum")
        if merged != "keep" and not weighted:
            merged = "merge"
        seen = weighted or merged == "keep"
        return replace(
            rules,
            self_loops=options.get("self_loops"),
            duplicates=merged,
            both_directions=options.get("both_directions", "add") if seen else None,
        )

    def differences(self, run: EdgeRules) -> list[str]:
        """Return the differences from a run's training; some of its relations may be missing."""
        found = []
        for name in ("directed", "self_loops", "duplicates", "both_directions"):
            here, there = getattr(self, name), getattr(run, name)
            if here != there and None not in (here, there):
                found.append(f"{name}: {here}, in the run {there}")
        if max(len(self.relations), len(run.relations)) > 1:
            if not self.relations:
                found.append(f"no relations, in the run {len(run.relations)}")
            new = [name for name in self.relations if name not in {*run.relations}]
            found += [f"relation {new[0]!r}, which the run does not have"] if new else []
        return found


def ignored(graph: Graph) -> list[str]:
    """Return the attributes of edges that no model uses: relations, times."""
    about, found = graph.manifest, []
    if about.relations is not None and len(about.relations) > 1:
        found.append("relations")
    if "times" in about.dtypes:
        found.append("times")
    return found


def warn_ignored(graph: Graph) -> None:
    """Warn about ignored edge attributes and parallel edges."""
    what = ignored(graph)
    if EdgeRules.of(graph).duplicates == "keep":
        what.append("duplicates")
    if what:
        warn(
            f"{graph.path}: gnn ignores its {' and '.join(what)}. All edges count equally, "
            "parallel ones each"
        )
