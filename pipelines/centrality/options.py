"""Options of ``penstock centrality``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import ClientPath, Rules, headings, options, refuse_ignored

# Metrics of nodes, one column each; of edges; of graphs.
NODE_METRICS = (
    "closeness",
    "harmonic",
    "betweenness",
    "eccentricity",
    "pagerank",
    "component",
    "strong-component",
    "triangles",
    "clustering",
)
METRICS = (*NODE_METRICS, "edge-betweenness", "diameter")
# Of these, one: they have the same columns.
COMMUNITIES = ("leiden", "louvain", "labels")
# Metrics that need the lengths of shortest paths, or the nodes and edges on them; and those that
# sampled sources can estimate.
OF_DISTANCES = frozenset({"closeness", "harmonic", "eccentricity", "diameter"})
OF_PATHS_THROUGH = frozenset({"betweenness", "edge-betweenness"})
OF_PATHS = OF_DISTANCES | OF_PATHS_THROUGH
SAMPLED = frozenset({"closeness", "harmonic", "betweenness"})
# Metrics of one graph for which its rows are read in order, mapped, by all cores, or by ranks; and
# options of PageRank that are files with a value for each node.
IN_ROWS = frozenset({"pagerank", "component"})
OF_TRIANGLES = frozenset({"triangles", "clustering"})
OF_DTYPE = OF_PATHS_THROUGH | {"pagerank"}
STRONG = "strong-component"  # of one graph, likewise in rows, but not by ranks
NODE_VALUES = ("personalization", "nstart", "dangling")

_IGNORED: Rules = (
    (("wf_improved",), "without closeness", lambda o: "closeness" not in o.wanted),
    (("normalized",), "without betweenness", lambda o: not o.wanted & OF_PATHS_THROUGH),
    (("endpoints",), "without betweenness", lambda o: "betweenness" not in o.wanted),
    (
        ("alpha", "tol", "max_iter", "personalization", "nstart", "dangling"),
        "without pagerank",
        lambda o: "pagerank" not in o.wanted,
    ),
    (("nstart",), "with --base, which has values to begin with", lambda o: o.base is not None),
    (("epsilon",), "with --samples", lambda o: o.samples is not None),
    (("epsilon",), "without betweenness", lambda o: "betweenness" not in o.wanted),
    (("dtype",), "without betweenness or pagerank", lambda o: not o.wanted & OF_DTYPE),
    (
        ("samples", "epsilon"),
        "on eccentricity, diameter and edge-betweenness, which cannot be estimated",
        lambda o: bool(o.wanted & OF_PATHS - SAMPLED),
    ),
    (
        ("samples", "epsilon"),
        "without closeness, harmonic or betweenness",
        lambda o: not o.wanted & SAMPLED,
    ),
    (("distances",), "with --samples or --epsilon: they are of all nodes", lambda o: o.sampled),
    (
        ("seed",),
        "without --samples, --epsilon or communities",
        lambda o: not (o.sampled or o.wanted.intersection(COMMUNITIES)),
    ),
    (
        ("resolution",),
        "without leiden or louvain",
        lambda o: not o.wanted & {"leiden", "louvain"},
    ),
    (("weight",), "without --weighted", lambda o: not o.weighted),
    (("parts",), "without pagerank or component", lambda o: not o.wanted & IN_ROWS),
    (
        ("base",),
        "with --distances or edge-betweenness, which are of no node or graph",
        lambda o: o.distances or "edge-betweenness" in o.wanted,
    ),
    (
        ("weighted",),
        "on components, triangles and clustering",
        lambda o: o.wanted <= {"component", STRONG, *OF_TRIANGLES},
    ),
)
# How tables and text are read, as by etl, besides --format.
READING = ("directed", "header", "graph_id", "source", "target", "id_type", "on_bad_rows")
# Options that depend on the kind of the input: graph (one), zoo (a directory), table, json,
# edgelists, tu, or networkx. etl refuses those that have no effect on tables and text.
_IGNORED_IN: Rules = (
    (
        ("samples", "epsilon", "personalization", "nstart", "dangling", "parts"),
        "except on one large graph: make it a directory with penstock etl",
        lambda o, kind: kind != "graph",
    ),
    (
        ("dtype",),
        "on pagerank except of one large graph: make it a directory with penstock etl",
        lambda o, kind: kind != "graph" and not o.wanted & OF_PATHS_THROUGH,
    ),
    (
        (*READING, "weight"),
        "on a graph or zoo, which records it",
        lambda o, kind: kind in ("graph", "zoo"),
    ),
    (
        (*READING, "base", "format", "scratch", "distances"),
        "on graphs of NetworkX",
        lambda o, kind: kind == "networkx",
    ),
)


@options
@headings(
    metrics="Metrics",
    samples="Samples",
    format="Input",
    dtype="Computation",
    base="Computation",
    distances="Output",
    scratch="Output",
)
class CentralityOptions:
    """Options of ``penstock centrality``. Meaning and defaults are NetworkX's."""

    metrics: str = "closeness,betweenness"
    """metrics to compute, separated by commas: closeness, harmonic, betweenness, edge-betweenness,
    eccentricity, diameter (and radius), pagerank, component, strong-component, triangles,
    clustering, and one of the communities of leiden, louvain or labels (label propagation)"""
    weighted: bool = False
    """use the edges' weights as their lengths, and in pagerank as weights"""
    wf_improved: bool = True
    """closeness: scale by the share of the nodes that reach a node (Wasserman and Faust)"""
    normalized: bool = True
    """betweenness: divide by the number of pairs of nodes"""
    endpoints: Annotated[bool, Parameter(negative="")] = False
    """betweenness: count the ends of paths, too"""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.85
    """pagerank: damping factor"""
    tol: Annotated[float, Field(gt=0)] = 1e-6
    """pagerank: stop if a step changes the ranks by less than this per node"""
    max_iter: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """pagerank: most iterations; graphs that need more are listed among the failures"""
    resolution: Annotated[float, Field(gt=0, lt=1e300)] = 1.0
    """leiden, louvain: resolution of modularity; above 1 communities are smaller"""
    personalization: ClientPath | None = None
    """pagerank of one large graph: a table with the columns node and value, where a walk begins
    again, in proportion to the values; nodes that it does not list have 0 [default: all equal]"""
    nstart: ClientPath | None = None
    """pagerank of one large graph: such a table of values to begin with [default: all equal]"""
    dangling: ClientPath | None = None
    """pagerank of one large graph: such a table of the nodes to which nodes without out-edges give
    [default: as personalization]"""
    base: ClientPath | None = None
    """an earlier output with the same metrics: of many graphs, those that have not changed since
    take their values from it; PageRank of one graph begins with its values"""
    distances: Annotated[bool, Parameter(negative="")] = False
    """also write the distances of all pairs as .npy"""

    samples: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """one large graph: estimate from shortest paths of this many source nodes, drawn by the seed
    [default: all]"""
    epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None
    """one large graph: enough samples to bound the error of normalized betweenness by this, for
    all nodes at once with a probability of 90 %"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed of the samples, and of the order in which communities are found"""
    dtype: Literal["float32", "float64"] = "float64"
    """count paths, and in PageRank of one large graph what nodes give each other, in float64, or in
    float32 if that is faster"""
    parts: Annotated[Annotated[int, Field(ge=1)] | None, Parameter(alias="-k")] = None
    """pagerank and component of one large graph: compute them on this many ranks, each with a share
    of the edges [default: on one worker]"""

    format: Literal["auto", "graph", "zoo", "json", "edgelists", "tu"] = "auto"
    """format of the input, if it is not a graph or zoo of Penstock: zoo (tables with a column
    graph_id), json (one graph per line), edgelists (one graph per text file), tu (a TU folder);
    auto decides by the names of files"""
    directed: Annotated[bool | None, Parameter(negative="--undirected")] = None
    """whether edges have a direction; a graph or zoo of Penstock records that [default:
    undirected, or by the first line of JSON]"""
    header: Literal["auto", "yes", "no"] = "auto"
    """whether text files begin with a line of column names"""
    graph_id: str | None = None
    """column of the graph of an edge [default: graph_id or graph]"""
    source: str | None = None
    """column of the source nodes [default: source, src, from, ...]"""
    target: str | None = None
    """column of the target nodes [default: target, dst, to, ...]"""
    weight: str | None = None
    """column of the weights; JSON, graphs of NetworkX: attribute of edges [default: weight or w]"""
    id_type: Literal["auto", "int64", "uint64", "string"] = "auto"
    """type of node ids; auto decides by the first rows"""
    on_bad_rows: Literal["error", "skip"] = "error"
    """stop at the first row that cannot be used, or skip and count it"""

    scratch: ClientPath | None = None
    """folder for intermediate files [default: next to the output]"""

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in (*METRICS, *COMMUNITIES):
                raise UsageError(
                    "option --metrics has a bad value",
                    expected=f"some of {', '.join((*METRICS, *COMMUNITIES))}",
                    got=repr(name),
                )
        if len(both := [name for name in self.names if name in COMMUNITIES]) > 1:
            raise UsageError(
                f"{both[0]} and {both[1]} are both the column community", expected="one of them"
            )
        if not self.names:
            raise UsageError("option --metrics names nothing", expected="closeness, for example")
        refuse_ignored(self, _IGNORED)

    def with_effect(self, names: Iterable[str]) -> list[str]:
        """Return the options that have an effect on these metrics."""
        idle = {name for given, _, without in _IGNORED if without(self) for name in given}
        return [name for name in names if name not in idle]

    def check_effect(self, kind: str) -> None:
        """Raise UsageError if an option has no effect on graphs of this kind."""
        refuse_ignored(self, _IGNORED_IN, kind)

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics in the user's order, each once."""
        given = (name.strip().lower() for name in self.metrics.split(","))
        return tuple(dict.fromkeys(name for name in given if name))

    @property
    def wanted(self) -> frozenset[str]:
        """The metrics."""
        return frozenset(self.names)

    def node_values(self) -> dict[str, Path]:
        """Return the files with a value for each node, by option."""
        given = {name: getattr(self, name) for name in NODE_VALUES}
        return {name: file for name, file in given.items() if file is not None}

    @property
    def sampled(self) -> bool:
        """Whether only some nodes are sources."""
        return self.samples is not None or self.epsilon is not None
