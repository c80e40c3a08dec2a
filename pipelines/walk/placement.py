"""Whether every worker holds the whole graph, or every rank of a gang a part of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from penstock.cluster.connect import kind_for
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.kernels.expression import Expression
from penstock.kernels.walk_rules import Sampler, WalkRules
from penstock.limits import cores
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.walk.choice import bytes_of
from penstock.pipelines.walk.options import WalkOptions
from penstock.sizes import format_bytes
from penstock.workers.walk.rows import WalkGraphSpec

Placement = Literal["replicated", "partitioned"]

_OWN = ("auto", "local", "threads")  # kinds whose workers share this machine's memory


def ranks_wanted(graph: Graph, options: WalkOptions, cluster: ClusterSpec) -> int | None:
    """Return the number of ranks to start for a gang, or None if plain workers suffice."""
    if options.placement == "replicated":
        return None
    if not options.in_parts and not _too_large_here(graph, cluster):
        return None
    return options.parts or cluster.workers or max(2, cores())


def choose_placement(
    graph: Graph, options: WalkOptions, spec: WalkGraphSpec, has: Capacity
) -> Placement:
    """Return the placement of the graph: parts if asked for, or if a copy does not fit."""
    reason = not_in_parts(spec.rules, on_gpu=has.on_gpu)
    if options.in_parts:
        if reason is not None:
            raise UsageError(
                f"walks with {reason} need a whole graph on every worker",
                expected="--placement replicated, without --parts",
                got=f"--parts {options.parts}" if options.parts else "--placement partitioned",
            )
        return "partitioned"
    may_cut = options.placement == "auto" and reason is None and has.workers > 1
    return "partitioned" if may_cut and bytes_of(graph, spec) > has.rows else "replicated"


def what_fits(graph: Graph, spec: WalkGraphSpec, has: Capacity) -> str:
    """Return the memory that walks without tables take, as the beginning of a remedy."""
    least = replace(spec, wanted=None, rules=replace(spec.rules, sampler=Sampler.RESERVOIR))
    needed = bytes_of(graph, least)
    if needed > has.rows:
        return "Even without tables it would not, so "
    return f"--sampler reservoir needs {format_bytes(needed)} and would fit; or "


def not_in_parts(rules: WalkRules, *, on_gpu: bool) -> str | None:
    """Return what these walks use that a graph in parts does not allow, or None.

    A reservoir needs the rows of node and previous node at once if it tests for neighbours.
    """
    if rules.sampler != Sampler.RESERVOIR:
        return None
    if on_gpu:
        return "--sampler reservoir on GPUs"
    if rules.second_order:
        return "--sampler reservoir and --app node2vec"
    if rules.expression is not None and "is_neighbor" in Expression.parse(rules.expression).names:
        return "is_neighbor in --weight"
    return None


def _too_large_here(graph: Graph, cluster: ClusterSpec) -> bool:
    """Return whether a copy for each worker started here is too large."""
    if kind_for(cluster, graph.num_edges * 4, None, on_gpu=True) not in _OWN:
        return False
    size = sum(e.bytes for n, e in graph.manifest.files.items() if n.startswith("shards/"))
    return size > cluster.worker_memory()
