"""The next commands for a graph, after a job has made or cut it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.display import Command

if TYPE_CHECKING:
    from penstock.manifest import Manifest


def after_graph(path: Path, about: Manifest) -> list[Command]:
    """Return the commands for a graph that has the data for them."""
    if about.graphs is not None and about.edges:
        return [("centrality", path, sibling(path, "centrality"))]
    walks: Command = ("walk", path, sibling(path, "walks"))
    if learnable(about):
        return [("gnn", "train", path, sibling(path, "run")), walks]
    if (about.relations or about.heldout) and about.edges:
        return [("embed", "train", path, sibling(path, "run")), walks]
    return [walks, ("partition", path, "-k", "2")] if about.edges else [("info", path)]


def learnable(about: Manifest) -> bool:
    """Return whether a graph neural network can be trained without further options."""
    several = about.labels != "class" or about.classes is None or len(about.classes) > 1
    train = bool(about.splits.get("train"))
    return about.features is not None and about.labels is not None and several and train


def sibling(path: Path, what: str) -> Path:
    """Return a path next to ``path``, for an output made from it."""
    return path.parent / f"{path.name}-{what}"
