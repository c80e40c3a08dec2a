"""From options and statistics of the weights to the rules of the walk: which sampler, and why, and
which times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from penstock.csr import id_dtype
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.kernels.walk_rules import Sampler, WalkRules
from penstock.moments import LEAST, MOST, TimeType, moment
from penstock.pipelines.walk.options import WalkingOptions
from penstock.pipelines.walk.weights import WeightStatistics, weighted
from penstock.sizes import format_bytes, listed
from penstock.workers.walk.rows import WalkGraphSpec, time_keys

# A proposal costs a read; a table costs a pass over all edges and memory for as long as the job.
_MOST_TRIALS = 4.0
# Beyond this, node2vec's factors reject most proposals, and reading the whole row is cheaper.
_MOST_FACTOR = 64.0
# Beyond this, the number of proposals per step would look like a hang.
_USABLE_FACTOR = 10_000.0


@dataclass(frozen=True)
class SamplerChoice:
    """The sampler, and the reason for it.

    instead  the message that another sampler was requested, and why it is not used
    """

    spec: WalkGraphSpec
    why: str
    instead: str = ""


def check_graph(graph: Graph, options: WalkingOptions) -> None:
    """Raise UsageError if the options need data that the graph does not have."""
    about = graph.manifest
    if options.app == "metapath":
        schema_numbers(graph, options)
    if options.timed:
        if "times" not in about.dtypes:
            raise UsageError(
                f"{graph.path} has no times of edges, which --temporal, --since and --until need",
                remedy="Make it again with penstock etl --time COLUMN",
            )
        time_window(graph, options)
    names = options.names
    for name in ("weight", "relation"):
        if name in names and f"{name}s" not in about.dtypes:
            raise UsageError(
                f"{graph.path} has no {name}s, which --weight names",
                remedy=f"Make it again with penstock etl --{name} COLUMN, or leave {name} out of "
                "the expression",
            )
    if "label" in names and about.labels != "class":
        raise UsageError(
            f"--weight names label, which needs a class for each node of {graph.path}",
            got=f"labels of kind {about.labels}" if about.labels else "no labels",
            remedy="Make it again with penstock etl --nodes TABLE --label COLUMN --label-kind "
            "class, or leave label out of the expression",
        )


def choose(
    graph: Graph, options: WalkingOptions, statistics: WeightStatistics, memory: int
) -> SamplerChoice:
    """Return the rules and their needs; ``memory``: bytes that a worker can use for rows."""
    reads_weights = weighted(graph, options) and not statistics.alike

    def spec(sampler: Sampler) -> WalkGraphSpec:
        return _spec_of(graph, options, sampler, weighted=reads_weights)

    if options.app == "custom":
        return SamplerChoice(spec(Sampler.RESERVOIR), "reservoir: weights are known at run time")
    if options.sampler == "reservoir":
        return SamplerChoice(spec(Sampler.RESERVOIR), "reservoir, as requested")
    largest, smallest = max(options.factors), min(options.factors)
    skewed = options.app == "node2vec" and largest > _MOST_FACTOR * smallest
    if options.sampler == "auto" and skewed and not options.in_parts:
        why = f"reservoir: with factors from {smallest:g} to {largest:g} most proposals would fail"
        return SamplerChoice(spec(Sampler.RESERVOIR), why)
    if options.app == "node2vec" and largest > _USABLE_FACTOR * smallest:
        raise UsageError(
            "nearly all proposals of a step would fail with --p and --q this far from 1",
            expected=f"factors that differ by at most {_USABLE_FACTOR:,.0f} times, or "
            "--sampler reservoir and --placement replicated",
            got=f"factors from {smallest:g} to {largest:g}",
        )
    if not reads_weights:
        why = "direct: all edges of a node are equally likely"
        return SamplerChoice(spec(Sampler.DIRECT), why, _instead(graph, options))
    if options.sampler != "auto":
        sampler = Sampler[options.sampler.upper()]
        return SamplerChoice(spec(sampler), f"{options.sampler}, as requested")
    spread = f"rejection would take {statistics.trials:.2f} proposals a step"
    if statistics.trials <= _MOST_TRIALS:
        why = f"rejection: {statistics.trials:.2f} proposals a step by the weights, and no tables"
        return SamplerChoice(spec(Sampler.REJECTION), why)
    for sampler in (Sampler.ITS,) if options.timed else (Sampler.ALIAS, Sampler.ITS):
        needed = bytes_of(graph, spec(sampler))
        if needed <= memory:
            needs = f"{format_bytes(needed)} with its tables"
            return SamplerChoice(spec(sampler), f"{sampler.name.lower()}: {spread}; {needs}")
    why = f"reservoir: {spread}, and tables do not fit into {format_bytes(memory)}"
    return SamplerChoice(spec(Sampler.RESERVOIR), why)


def bytes_of(graph: Graph, spec: WalkGraphSpec) -> int:
    """Return the approximate memory of the rows of a whole graph."""
    return spec.bytes(graph.num_nodes, graph.num_edges, id_dtype(graph.num_nodes).itemsize)


def _instead(graph: Graph, options: WalkingOptions) -> str:
    """Return why edges are equally likely, if a sampler by weight was requested."""
    if options.sampler == "auto":
        return ""
    why = "all weights are equal"
    if not options.weighted:
        why = "--no-weighted ignores the weights"
    elif "weights" not in graph.manifest.dtypes:
        why = f"{graph.path} has no weights"
    return f"--sampler {options.sampler} became direct: {why}, so all edges are equally likely"


def schema_numbers(graph: Graph, options: WalkingOptions) -> tuple[int, ...]:
    """Return the relations of the schema as numbers; the error lists known ones."""
    names = graph.manifest.relations
    if "relations" not in graph.manifest.dtypes or names is None:
        raise UsageError(
            f"{graph.path} has no relations, which --app metapath follows",
            remedy="Make it again with penstock etl --relation COLUMN, or use another --app",
        )
    if not options.relations or "" in options.relations:
        raise UsageError(
            "option --schema has a bad value",
            expected="relations separated by commas",
            got=repr(options.schema),
        )
    numbers = []
    for relation in options.relations:
        if relation in names:
            numbers.append(names.index(relation))
        elif relation.isdigit() and int(relation) < len(names):
            numbers.append(int(relation))
        else:
            raise UsageError(
                f"{graph.path} has no relation {relation!r}",
                expected=f"one of {listed(names, 20)}, or a number below {len(names)}",
            )
    return tuple(numbers)


def _spec_of(
    graph: Graph, options: WalkingOptions, sampler: Sampler, *, weighted: bool
) -> WalkGraphSpec:
    """Return the requested rules, for a sampler, and the columns that they need."""
    names = options.names
    wanted: tuple[int, ...] | None = None
    schema: tuple[int, ...] = ()
    if options.app == "metapath":
        schema = schema_numbers(graph, options)
        if sampler != Sampler.RESERVOIR:
            wanted = tuple(sorted(set(schema)))
            schema = tuple(map(wanted.index, schema))
    return_factor, _, far_factor = options.factors
    rules = WalkRules(
        length=options.length,
        seed=options.seed,
        sampler=sampler,
        stop=options.stops,
        restart=options.restart,
        second_order=options.app == "node2vec" and set(options.factors) != {1.0},
        return_factor=return_factor,
        far_factor=far_factor,
        symmetric=not graph.manifest.directed,
        schema=schema,
        cyclic=options.cyclic,
        expression=options.weight,
    )
    if options.timed:
        earliest, latest = time_window(graph, options)
        rules = replace(rules, timed=True, earliest=earliest, latest=latest)
    return WalkGraphSpec(
        rules,
        wanted=wanted,
        # An expression may treat equal weights differently.
        weighted="weight" in names if options.app == "custom" else weighted,
        relations="relation" in names or options.app == "metapath",
        times=options.timed,
        labels="label" in names,
        degrees="degree" in names,
    )


def time_window(graph: Graph, options: WalkingOptions) -> tuple[int, int]:
    """Return the keys of the first and the last permitted time."""
    since = _key(options.since, graph, "--since")
    until = _key(options.until, graph, "--until")
    earliest = LEAST if since is None else since
    latest = MOST if until is None else until - 1
    if earliest > latest:
        asked = {"--since": options.since, "--until": options.until}
        got = " ".join(f"{name} {text}" for name, text in asked.items() if text is not None)
        raise UsageError("no time is between --since and --until", got=got)
    return earliest, latest


def _key(text: str | None, graph: Graph, name: str) -> int | None:
    dtype, kind = graph.manifest.dtypes["times"], graph.manifest.times
    if kind != "timestamp":
        kind = None if kind is None and dtype == "int64" else dtype
    value = moment(text, cast(TimeType | None, kind), name)
    if value is None or isinstance(value, int):
        return value
    return int(time_keys(np.array([value]))[0])
