"""The options of ``penstock walk``."""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BeforeValidator, Field

from penstock.errors import UsageError
from penstock.kernels.expression import Expression
from penstock.kernels.walk_rules import MAX_LENGTH, MAX_WALKS
from penstock.moments import Moment
from penstock.options import ClientPath, Rules, flag, headings, options, refuse_ignored


def _id(given: Any) -> Any:
    """Return an id as text: from Python it may be a number."""
    return str(given) if isinstance(given, Integral) and not isinstance(given, bool) else given


App = Literal["deepwalk", "ppr", "node2vec", "metapath", "custom"]
Sampling = Literal["auto", "reservoir", "its", "alias", "rejection"]

# Options that would be ignored: names, condition in words, condition as a function.
_IGNORED: Rules = (
    (("p", "q"), "without --app node2vec", lambda o: o.app != "node2vec"),
    (("stop",), "without --app ppr", lambda o: o.app != "ppr"),
    (("schema", "cyclic"), "without --app metapath", lambda o: o.app != "metapath"),
    (("weight",), "without --app custom", lambda o: o.app != "custom"),
    (("starts", "fraction"), "with --start", lambda o: bool(o.start)),
    (("fraction",), "with --starts", lambda o: o.starts is not None),
    (("restart",), "with --app metapath", lambda o: o.app == "metapath"),
    (("weighted",), "with a --weight that names weight", lambda o: "weight" in o.names),
    (
        ("sampler",),
        "with --app custom, which samples by reservoir",
        lambda o: o.app == "custom" and o.sampler != "reservoir",
    ),
    (("sampler",), "on walks in time, if it is alias", lambda o: o.timed and o.sampler == "alias"),
)


@options
class WalkingOptions:
    """Options of walks, starts and steps, for every job that walks."""

    app: App = "deepwalk"
    """deepwalk: by weight; ppr: the same, ending at any step; node2vec: depends on the previous
    node; metapath: along relations in order; custom: by --weight"""
    length: Annotated[int, Field(ge=1, lt=MAX_LENGTH)] = 80
    """walk length: the most nodes of a walk"""
    walks: Annotated[int, Field(ge=1, le=MAX_WALKS)] = 1
    """number of walks per start node"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed: the same seed gives the same walks"""

    start: tuple[Annotated[str, BeforeValidator(_id)], ...] = ()
    """ids of the nodes to start from; may be repeated [default: every node]"""
    starts: ClientPath | None = None
    """a file of ids to start from, one per line, or the first column of Parquet or Arrow IPC"""
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """start from this fraction of the nodes, drawn by the seed"""

    p: Annotated[float, Field(ge=1e-30, le=1e30)] | None = None
    """node2vec: return parameter; weights of edges back are divided by it [default: 1]"""
    q: Annotated[float, Field(ge=1e-30, le=1e30)] | None = None
    """node2vec: in-out parameter; weights of edges to nodes that are not neighbours of the previous
    node are divided by it [default: 1]"""
    stop: Annotated[float, Field(gt=0, le=1)] | None = None
    """ppr: probability to stop before each step (1 - damping factor) [default: 0.15]"""
    schema: str | None = None
    """metapath: relations of the steps in order, by name or number, with commas: 0,1,2"""
    cyclic: Annotated[bool, Parameter(negative="")] = False
    """metapath: repeat the schema when it ends, up to --length"""
    weight: str | None = None
    """custom: the weight of an edge, an expression over weight, relation, degree, step, is_return,
    is_neighbor and label"""
    restart: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """restart probability: return to the start node, before each step"""
    weighted: bool = True
    """use the graph's edge weights, if it has any"""
    temporal: Annotated[bool, Parameter(negative="")] = False
    """temporal walks: no step is earlier than the one before; needs a graph with times"""
    since: Moment | None = None
    """only edges of this time or later: a number, or for timestamps a date such as 2026-11-20;
    walks go forward in time"""
    until: Moment | None = None
    """only edges before this time; walks go forward in time"""
    zero_rows: Literal["error", "end"] = "error"
    """if all edges of a node have weight 0: stop with an error, or end walks there"""

    sampler: Sampling = "auto"
    """sampling method; -v shows the choice of auto and its reason"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED)
        for name, app in (("schema", "metapath"), ("weight", "custom")):
            if self.app == app and getattr(self, name) is None:
                raise UsageError(f"--app {app} needs option {flag(name)}")

    @property
    def in_parts(self) -> bool:
        """Whether the graph must be partitioned, even if it fits on a worker."""
        return False

    @property
    def timed(self) -> bool:
        """Whether times of edges matter."""
        return self.temporal or self.since is not None or self.until is not None

    @property
    def names(self) -> frozenset[str]:
        """The names that --weight uses."""
        return frozenset() if self.weight is None else Expression.parse(self.weight).names

    @property
    def factors(self) -> tuple[float, float, float]:
        """Factors of the weights of edges back, to neighbours of the previous node, and to others,
        for node2vec."""
        return 1 / (self.p or 1.0), 1.0, 1 / (self.q or 1.0)

    @property
    def stops(self) -> float:
        """The probability to stop before each step."""
        if self.app != "ppr":
            return 0.0
        return 0.15 if self.stop is None else self.stop

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations of the schema, as given."""
        return tuple(part.strip() for part in (self.schema or "").split(",")) if self.schema else ()


_IGNORED_PARTS: Rules = (
    (("parts",), "with --placement replicated", lambda o: o.placement == "replicated"),
    (("base",), "on a graph in parts, which is walked anew", lambda o: o.in_parts),
)


@options
@headings(
    app="Walks",
    start="Start nodes",
    p="Applications",
    restart="Steps",
    sampler="Computation",
    base="Yesterday's walks",
    ids="Output",
)
class WalkOptions(WalkingOptions):
    """Options of ``penstock walk``."""

    placement: Literal["auto", "replicated", "partitioned"] = "auto"
    """a copy of the graph on every worker, or one part on each rank; auto: a copy if it fits, but
    parts with --parts"""
    parts: Annotated[Annotated[int, Field(ge=1)] | None, Parameter(alias="-k")] = None
    """place the graph partitioned, into this many parts [default: the ranks of the cluster]"""

    base: ClientPath | None = None
    """yesterday's walks, of which those that a new run would repeat are kept; the result is that of
    a new run"""

    ids: Literal["user", "internal"] = "user"
    """node ids in the paths: your own, or the graph's internal ones"""
    npy: Annotated[bool, Parameter(negative="")] = False
    """also write blocks of internal ids as .npy, -1 beyond the end, for word2vec"""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_ignored(self, _IGNORED_PARTS)

    @property
    def in_parts(self) -> bool:
        """Whether the graph must be partitioned, even if it fits on a worker."""
        return self.placement == "partitioned" or self.parts is not None
