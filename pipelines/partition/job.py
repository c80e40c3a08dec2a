"""One cut of a graph into parts: the choice of ``auto``, the assignment, and the parts."""

from __future__ import annotations

import time

from penstock.graph import Graph
from penstock.kernels.compiled import compiling
from penstock.limits import available_memory, cores
from penstock.output import Output
from penstock.partition import metis
from penstock.partition.assign import assign
from penstock.partition.assignment import Method, check_parts, memory_for
from penstock.partition.base import Base
from penstock.partition.build import build_parts, disk_needed, memory_needed
from penstock.partition.manifest import FORMAT, PartitionManifest
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.partition import PartitionOptions
from penstock.pipelines.partition.report import PartitionReport
from penstock.sizes import format_bytes, parse_bytes

_DEFAULT_WIDTH = 128
_DOES: dict[Method, str] = {
    "auto": "components if they pack evenly, METIS if it fits, else greedy or streaming",
    "metis": "fewest edges cut",
    "components": "no edge cut",
    "greedy": "heaviest node first",
    "random": "equal counts of nodes, by seed",
    "hash": "by the user's id",
    "streaming": "passes of Fennel over the graph, refined if memory allows",
}


def cut(context: Context, graph: Graph, out: Output, options: PartitionOptions) -> PartitionReport:
    """Assign nodes to parts, and build the parts."""
    check_parts(graph, options.k)
    limit = None if options.memory_limit is None else parse_bytes(options.memory_limit)
    building = memory_needed(graph, min(cores(), options.k))
    method, takes = _method(graph, options, limit)
    if options.base is not None:
        method = f"as {options.base}, new nodes by streaming; else {method}"
    context.plan(
        f"{options.k} parts of {graph.num_nodes:,} nodes and {graph.num_edges:,} directed edges",
        steps=(("assign", method), ("build", f"on {cores()} cores")),
        memory=Need(
            max(takes, building),
            available_memory(),
            "available",
            remedy="Run it on a machine with more memory, or use --method streaming",
        ),
        disk=disk_needed(graph),
    )
    base = None if options.base is None else Base.open(options.base, graph, options.k)
    started = time.monotonic()
    with compiling() as compiled:
        assignment = assign(
            graph,
            options.k,
            method=options.method,
            seed=options.seed,
            memory_limit=limit,
            passes=options.passes,
            time_limit=options.time_limit,
            timeout=options.worker_timeout,
            base=base,
            quiet=context.quiet,
        )
        assigned, took = time.monotonic(), assignment.metis_seconds
        parts, files = build_parts(
            graph, assignment.parts, options.k, out.result, base=base, quiet=context.quiet
        )
        seconds = {
            "assign": round(assigned - started, 3),
            **({"METIS": round(took, 3)} if took else {}),
            "build": round(time.monotonic() - assigned, 3),
            # Once after an installation, included in the times above.
            **({"compiling kernels": round(sum(compiled), 3)} if compiled else {}),
        }
    about, features = graph.manifest, graph.manifest.features
    whole_cut = sum(part.cut for part in parts) / max(graph.num_edges, 1)
    manifest = PartitionManifest(
        k=options.k,
        method=options.method,
        made_by=assignment.made_by,
        seed=options.seed,
        steps=tuple(assignment.steps),
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        directed=about.directed,
        graph_sha256=graph.digest,
        parts=tuple(parts),
        columns=tuple(n for n in about.dtypes if n not in ("indptr", "indices")),
        features=None if features is None else features.kind,
        feature_width=0 if features is None else features.width,
        labels=about.labels,
        splits=bool(about.splits),
        whole_cut=base.whole_cut if base and assignment.made_by == "base" else whole_cut,
        files={entry.name: entry for entry in files},
        seconds=seconds,
    )
    out.describe(FORMAT, manifest.to_dict())
    width = options.width or (_DEFAULT_WIDTH if features is None else features.width)
    return PartitionReport.of(str(out.path), manifest, assignment.balance.reachable, width)


def _method(graph: Graph, options: PartitionOptions, limit: int | None) -> tuple[str, int]:
    """Return the method, as far as it is known, and the memory that METIS needs."""
    method, does = options.method, _DOES[options.method]
    if options.k == 1:
        return f"{method}: one part owns everything", 0
    if method not in ("auto", "metis"):
        return f"{method}: {does}", 0
    memory, seconds = metis.memory_needed(graph), metis.seconds_needed(graph)
    if method == "auto" and (memory > memory_for(limit) or seconds > options.time_limit):
        would = f"METIS would take {format_bytes(memory)}, {seconds:.2g} s"
        return f"{method}: {_DOES['streaming']}: {would}", 0
    return f"{method}: {does}", memory
