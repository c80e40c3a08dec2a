"""Options of ``penstock centrality``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import ClientPath, flag, headings, options

# Of nodes, a column each; of edges; of graphs.
NODE_METRICS = (
    "closeness", "harmonic", "betweenness", "eccentricity", "pagerank", "component",
    "strong-component", "triangles", "clustering",
)  # fmt: skip
METRICS = (*NODE_METRICS, "edge-betweenness", "diameter")
# What shortest paths are searched for, their lengths or which nodes and edges they go through; and
# of it what sampled sources can estimate.
OF_DISTANCES = frozenset({"closeness", "harmonic", "eccentricity", "diameter"})
OF_PATHS_THROUGH = frozenset({"betweenness", "edge-betweenness"})
OF_PATHS = OF_DISTANCES | OF_PATHS_THROUGH
SAMPLED = frozenset({"closeness", "harmonic", "betweenness"})
# What an option other than its default needs one of.
_OPTION_OF = {
    "wf_improved": frozenset({"closeness"}),
    "normalized": OF_PATHS_THROUGH,
    "endpoints": frozenset({"betweenness"}),
    "alpha": frozenset({"pagerank"}),
    "tol": frozenset({"pagerank"}),
    "max_iter": frozenset({"pagerank"}),
}


@options
@headings(
    metrics="Metrics",
    samples="Samples",
    format="Input",
    dtype="Computation",
    distances="Output",
    verify="Computation",
    scratch="Output",
)
class CentralityOptions:
    """Options of ``penstock centrality``. Meaning and defaults are NetworkX's."""

    metrics: str = "closeness,betweenness"
    """what to compute, with commas: closeness, harmonic, betweenness, edge-betweenness,
    eccentricity, diameter (and radius), pagerank, component, strong-component, triangles,
    clustering"""
    weighted: bool = False
    """take the edges' weights as their lengths, and in pagerank as weights"""
    wf_improved: bool = True
    """closeness: scale by the share of the nodes that reach a node (Wasserman and Faust)"""
    normalized: bool = True
    """betweenness: divide by the number of pairs of nodes"""
    endpoints: Annotated[bool, Parameter(negative="")] = False
    """betweenness: count the ends of paths, too"""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.85
    """pagerank: damping factor"""
    tol: Annotated[float, Field(gt=0)] = 1e-6
    """pagerank: stop where a step changes the ranks by less than this, a node"""
    max_iter: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """pagerank: most iterations; graphs that need more are listed among the failures"""
    distances: Annotated[bool, Parameter(negative="")] = False
    """also write the distances of all pairs as .npy"""

    samples: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """one large graph: estimate from shortest paths of so many source nodes, drawn by the seed
    [default: all]"""
    epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None
    """one large graph: as many samples as bound the error of normalized betweenness by this, for
    all nodes at once with a probability of 90 %"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed of the samples"""
    dtype: Literal["float32", "float64"] = "float64"
    """count paths in float64, or in float32 where that is faster (on GPUs)"""

    format: Literal["auto", "graph", "parquet", "tu", "edgelists", "json"] = "auto"
    """what the input is: a graph or zoo of ours, Parquet of edges, a TU folder, a folder with a
    list of edges a graph, JSON lines with a graph a line; auto goes by the names of files"""
    directed: Annotated[bool | None, Parameter(negative="--undirected")] = None
    """whether edges have a direction; a graph or zoo of ours knows that itself [default:
    undirected, or as the first line of JSON says]"""
    header: Literal["auto", "yes", "no"] = "auto"
    """lists of edges: whether they begin with a line of column names; auto takes a first line
    without a number as such, where it has a usual name or some column has only numbers below"""
    graph_id: str | None = None
    """Parquet: column of the graph of an edge [default: graph_id or graph]"""
    source: str | None = None
    """Parquet: column of the source nodes [default: source, src, from, ...]"""
    target: str | None = None
    """Parquet: column of the target nodes [default: target, dst, to, ...]"""
    weight: str | None = None
    """Parquet: column of the weights; JSON, graphs of NetworkX: attribute of edges [default: weight
    or w]"""

    verify: Annotated[bool, Parameter(negative="")] = False
    """before anything else, compare every file of the graph with its SHA-256"""
    scratch: ClientPath | None = None
    """folder for intermediate files [default: next to the output]"""
    resume: Annotated[bool, Parameter(negative="")] = False
    """go on where an interrupted run of the same command stopped"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the output if it holds centralities already"""

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in METRICS:
                raise UsageError(
                    "option --metrics has a bad value",
                    expected=f"some of {', '.join(METRICS)}",
                    got=repr(name),
                )
        if not self.names:
            raise UsageError("option --metrics names nothing", expected="closeness, for example")
        if self.samples is not None and self.epsilon is not None:
            raise UsageError("--samples and --epsilon cannot go together")
        exact = sorted(self.wanted & OF_PATHS - SAMPLED)
        if self.sampled and exact:
            raise UsageError(f"{exact[0]} cannot be estimated from samples")
        if self.sampled and self.distances:
            raise UsageError("--distances are those of all nodes, not of samples")
        if self.sampled and not self.wanted & SAMPLED:
            raise UsageError(
                "--samples and --epsilon need closeness, harmonic or betweenness", got=self.metrics
            )
        if self.weight is not None and not self.weighted:
            raise UsageError("option --weight needs --weighted", got=f"--weight {self.weight}")
        for name, metrics in _OPTION_OF.items():
            if getattr(self, name) != _default(name) and not self.wanted & metrics:
                raise UsageError(
                    f"option {flag(name)} needs the metric {' or '.join(sorted(metrics))}",
                    got=f"--metrics {self.metrics}",
                )
        if self.seed and not self.sampled:
            raise UsageError(
                "option --seed needs --samples or --epsilon", got=f"--seed {self.seed}"
            )

    def of(self, *metrics: str) -> CentralityOptions:
        """Return the same options for these metrics alone, of all nodes."""
        others = {
            name: _default(name)
            for name, needed in _OPTION_OF.items()
            if not needed.intersection(metrics)
        }
        return replace(
            self, metrics=",".join(metrics), samples=None, epsilon=None, seed=0, **others
        )

    def rest(self) -> CentralityOptions:
        """Return the options of those metrics that need no paths, if any, or of components."""
        return self.of(*(sorted(self.wanted - OF_PATHS) or ["component"]))

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics in the order in which they were given, each once."""
        given = (name.strip().lower() for name in self.metrics.split(","))
        return tuple(dict.fromkeys(name for name in given if name))

    @property
    def wanted(self) -> frozenset[str]:
        """The metrics."""
        return frozenset(self.names)

    @property
    def sampled(self) -> bool:
        """Whether shortest paths start at some nodes only."""
        return self.samples is not None or self.epsilon is not None


def _default(name: str) -> Any:
    return getattr(CentralityOptions, name)
