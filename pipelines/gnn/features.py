"""Whether a graph has the features that a run was trained on, and in which columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.pipelines.gnn.run import Run
from penstock.sizes import listed


@dataclass(frozen=True)
class Matched:
    """Where a graph has the features of a run.

    by       graph: it is the graph of the training run; name; or order, if either has no names
    columns  of the graph's features, in the run's order; None: all, in order
    ignored  names of features that the run does not know
    """

    by: str
    columns: tuple[int, ...] | None = None
    ignored: tuple[str, ...] = ()

    def note(self, run_at: Path, graph: Graph) -> str | None:
        """Return a note to print before a prediction."""
        if self.by == "order":
            whose, its = graph.path, "its features"
            if graph.manifest.feature_names:
                whose, its = run_at, f"those of {graph.path}"
            return f"{whose} has no feature names: {its} are assumed to be in the order of the run"
        if self.ignored:
            count = len(self.ignored)
            features = "feature" if count == 1 else "features"
            return (
                f"{count} {features} of {graph.path} ignored, which {run_at} was not trained on: "
                f"{listed(self.ignored)}"
            )
        return None


def match_features(run: Run, run_at: Path, graph: Graph, *, same: bool) -> Matched:
    """Find the run's features in a graph, by name if both have names; raise if some are missing.

    same  whether the graph is that of the training run
    """
    entry, names = graph.manifest.features, graph.manifest.feature_names
    assert entry is not None
    if same:
        return Matched("graph")
    _check_scales(run, run_at, graph)
    if names is None or run.feature_names is None:
        if entry.width != run.features:
            raise UsageError(
                f"{graph.path} has other features than the graph of {run_at}",
                expected=f"{run.features} of them",
                got=str(entry.width),
                remedy="Make the graph with the features of the run's training, in their order: "
                "penstock etl --features or --feature-columns",
            )
        return Matched("order")
    position = {name: number for number, name in enumerate(names)}
    missing = tuple(name for name in run.feature_names if name not in position)
    if missing:
        raise UsageError(
            f"{graph.path} lacks {len(missing)} of the {run.features} features that {run_at} "
            "was trained on",
            expected=listed(missing),
            got=listed(names),
            remedy="Make the graph with these columns as well: penstock etl --feature-columns",
        )
    columns = tuple(position[name] for name in run.feature_names)
    known = {*run.feature_names}
    ignored = tuple(name for name in names if name not in known)
    return Matched("name", None if columns == tuple(range(len(names))) else columns, ignored)


def _check_scales(run: Run, run_at: Path, graph: Graph) -> None:
    """Raise if a column was standardised by other numbers than in the run's graph."""
    here, there = graph.manifest.feature_scales(), run.feature_scales
    if here is None or there is None:
        return
    columns = [column.name for column in graph.manifest.feature_columns or ()]
    other = tuple(name for name in columns if here.get(name) != there.get(name))
    if other:
        raise UsageError(
            f"{graph.path} has columns that are standardised differently from those of "
            f"{run_at}: {listed(other)}",
            expected="the same means and deviations",
            remedy="Make the graph with penstock etl --features-as, which copies them from a graph",
        )
