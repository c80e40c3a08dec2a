"""One run of ``penstock centrality``: it checks the input and computes its graphs."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pyarrow.parquet as pq

from penstock.csr import id_dtype
from penstock.errors import CapacityError, UsageError
from penstock.output import Output, digest
from penstock.pipelines.centrality.base import Base
from penstock.pipelines.centrality.inputs import CentralityInput
from penstock.pipelines.centrality.inputs.directory import DirectoryInput
from penstock.pipelines.centrality.node_values import keep_values
from penstock.pipelines.centrality.options import (
    COMMUNITIES,
    IN_ROWS,
    NODE_METRICS,
    OF_PATHS,
    CentralityOptions,
)
from penstock.pipelines.centrality.output import is_done, save_manifest
from penstock.pipelines.centrality.pieces import PieceSpec, matrix_bytes
from penstock.pipelines.centrality.report import CentralityReport
from penstock.pipelines.centrality.sources import (
    Shares,
    error_bound,
    open_large,
    rows_name,
    share_bytes,
    share_name,
    sum_share,
)
from penstock.pipelines.centrality.tasks import (
    REMEDY,
    CentralityTask,
    compute_on_ranks,
    compute_pieces,
    finish_graph,
)
from penstock.pipelines.display import FromBase
from penstock.pipelines.job.declare import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.job.workers import Workers
from penstock.sizes import does_not_fit, format_bytes, plural

# A task has several pieces, and reads and writes some while it computes another: on a GPU, which
# computes a piece in milliseconds, up to this many; on a core a few.
_PIECES_OF_GPU_TASK, _PIECES_OF_TASK = 64, 8
_OTHER_DEVICE = "Take --device cpu, or a larger GPU"
_TASKS_OF_WORKER = 8  # tasks per thread, at least, so that the last ones are short


def compute_graphs(
    context: Context, source: CentralityInput, out: Output, options: CentralityOptions
) -> CentralityReport:
    """Compute the pieces that are missing."""
    _check(source, options)
    shares = None  # of the sources of one graph
    if source.one and source.edges is not None:
        workers = _workers(context, source, options)
        on_gpu = bool(options.wanted & OF_PATHS) and workers.capacity.on_gpu
        shares = Shares.of(source.nodes, int(source.edges[0]), options, on_gpu=on_gpu)
    _plan(context, source, options, shares)
    began = time.monotonic()
    workers = _workers(context, source, options)
    specs = source.prepare(workers, out)
    if isinstance(source, DirectoryInput):
        keep_values(source.graph, options.node_values(), out.pieces)
    _refuse_too_large(workers, specs, options)
    base = None if options.base is None else Base.open(options.base, source, options)
    task = CentralityTask(options, out.pieces, workers.task_capacity.worker_memory, base)
    read = time.monotonic()
    todo = [n for n in range(len(specs)) if not is_done(out.pieces, n)]
    missing = most_costly_first({n: specs[n] for n in todo})
    large = {n: spec for n, spec in missing.items() if spec.large}
    resumed = len(specs) - len(todo)
    if large:
        resumed += _compute_large(workers, task, large, source, shares, digest(out.identity or {}))
    _compute_pieces(workers, task, {n: missing[n] for n in missing if n not in large})
    computed = time.monotonic()
    about = {
        **source.about(),
        "directed": source.directed,
        "metrics": list(options.names),
        "options": out.options,
    }
    counted = save_manifest(out, specs, about)
    kept = counted.pop("taken_over")
    from_base = None  # PageRank of one graph begins with the base's, and keeps nothing
    if base is not None and not source.one:
        from_base = FromBase("graphs", kept, counted["graphs"] - kept)
    report = CentralityReport(
        str(out.named),
        list(options.names),
        pieces=len(specs),
        resumed_pieces=resumed,
        bad_rows=source.bad_rows,
        devices=workers.capacity.text(),
        seconds_by_step={"read": read - began, "compute": computed - read},
        from_base=from_base,
        **counted,
    )
    if source.one and options.wanted.intersection(COMMUNITIES):
        row = pq.read_table(out.pieces.result / "graphs").to_pylist()[0]
        report.communities, report.modularity = row["communities"], row["modularity"]
    if options.sampled and shares is not None:
        report.samples = len(shares.listed)
        report.error_bound = error_bound(source.nodes, report.samples)
    return report


def _check(source: CentralityInput, options: CentralityOptions) -> None:
    """Refuse options that the graphs do not fit."""
    if options.weighted and not source.has_weights:
        raise UsageError(
            f"{source.path} has no weights",
            remedy="Leave --weighted out, or give them to etl or in a column",
        )
    if source.directed and "triangles" in options.wanted:
        raise UsageError(
            "triangles are those of undirected graphs",
            got=f"{source.path}, which is directed",
            remedy="Take clustering, or read the graphs as undirected ones",
        )


def _workers(context: Context, source: CentralityInput, options: CentralityOptions) -> Workers:
    """Return the workers, which are ranks if these share one graph."""
    ranks = None if options.parts == 1 else options.parts
    return context.workers(input_bytes=source.bytes, ranks=ranks)


def _plan(
    context: Context, source: CentralityInput, options: CentralityOptions, shares: Shares | None
) -> None:
    """Return the plan: how the graphs are cut into tasks, and their memory and disk."""
    specs, problem, joined = source.specs, None, False
    if specs is None:
        how = f"{plural(len(source.files), 'file')}, sorted by graph first"
        memory = Need(None, where="rows are sorted by graph first")
    else:
        how = f"{plural(source.graphs, 'graph')} in {plural(len(specs), 'task')}"
        if shares is not None and options.wanted & OF_PATHS:
            how = f"{plural(len(shares.listed), 'source')} in {plural(shares.count, 'task')}"
        workers = _workers(context, source, options)
        joined = shares is not None and _joins_shards(source, shares, options, workers)
        most = max((spec.bytes(options) for spec in specs), default=0)
        memory = Need(most, workers.task_capacity.worker_memory, "on every worker")
        try:
            _refuse_too_large(workers, specs, options)
        except CapacityError as error:
            problem = error
    size, scratch = _disk_bytes(source, options, shares, joined=joined)
    steps = [("compute", how)]
    if specs is not None and source.one and workers.capacity.on_gpu:
        needs = specs[0].bytes(options, on_gpu=True)
        memory = workers.capacity.need(needs, _OTHER_DEVICE)
        where = "the GPU" if options.parts is None else f"GPUs of {plural(options.parts, 'rank')}"
        steps[0] = "compute", f"{how}; the graph on {where}"
    elif specs is not None and source.one and options.wanted & IN_ROWS:
        memory, more, how = _in_rows(specs[0], options, memory)
        steps.append((", ".join(name for name in options.names if name in IN_ROWS), how))
        scratch += more
    context.plan(
        f"{', '.join(options.names)} of {source.path}",
        steps=tuple(steps),
        memory=memory,
        disk=size,
        scratch=scratch,
        problem=problem,
    )


def _in_rows(spec: PieceSpec, options: CentralityOptions, memory: Need) -> tuple[Need, int, str]:
    """Return the memory, the scratch disk, and the way of the metrics that read rows in order."""
    where = "one worker" if options.parts is None else plural(options.parts, "rank")
    how = f"rows mapped and read in order by all cores of {where}"
    needs = spec.in_edges(options)
    if not needs:
        return memory, 0, how
    assert memory.bytes is not None
    if spec.in_edges_on_disk(options, memory.there or 0):
        return memory, needs, f"{how}; in-edges on the scratch disk, {format_bytes(needs)}"
    return replace(memory, bytes=memory.bytes + needs), 0, f"{how}; in-edges in memory"


def _disk_bytes(
    source: CentralityInput, options: CentralityOptions, shares: Shares | None, *, joined: bool
) -> tuple[int, int]:
    """Return the approximate bytes of the output, and of texts, sums and joined shards."""
    size = source.nodes * (
        source.id_bytes + 8 * len(options.wanted.intersection((*NODE_METRICS, *COMMUNITIES)))
    )
    if source.sizes is None or source.edges is None:
        return size, source.scratch_bytes
    edges = int(source.edges.sum())
    if "edge-betweenness" in options.wanted:
        rows = edges if source.directed else edges // 2
        size += rows * (2 * source.id_bytes + 8)
    if options.distances:
        size += matrix_bytes(source.sizes, options)
    if shares is None:
        return size, 0
    scratch = 8 * len(shares.listed) + shares.count * share_bytes(source.nodes, edges, options)
    if joined:
        scratch += 8 * source.nodes + edges * (
            id_dtype(source.nodes).itemsize + 16 * options.weighted
        )
    return size, scratch


def _refuse_too_large(workers: Workers, specs: list[PieceSpec], options: CentralityOptions) -> None:
    """Raise CapacityError if a piece does not fit into a worker's memory."""
    if not specs:
        return
    most = max(specs, key=lambda spec: spec.bytes(options))
    what = f"a task of {most.graphs:,} graphs" if most.graphs > 1 else "one graph"
    if most.graphs == 1 and most.ids is not None:
        what = f"graph {most.ids[0].as_py()}"
    remedy = REMEDY
    if options.distances:
        what, remedy = f"{what} with its distances", f"{REMEDY}; or leave --distances out"
    needs, has = most.bytes(options), workers.task_capacity.worker_memory
    if needs > has:
        raise does_not_fit(what, "on a worker", needs, has, remedy=remedy)
    capacity = workers.capacity
    if capacity.on_gpu:
        needs = most.bytes(options, on_gpu=True)
        if needs > capacity.memory:
            there = f"on a {capacity.worker}"
            raise does_not_fit(what, there, needs, capacity.memory, remedy=_OTHER_DEVICE)


def _compute_pieces(workers: Workers, task: CentralityTask, specs: dict[int, PieceSpec]) -> None:
    """Compute pieces in their order."""
    at_once = workers.task_capacity.tasks
    several = in_tasks(specs, at_once, on_gpu=workers.capacity.on_gpu)
    calls = [(task, each) for each in several]
    sizes = [sum(spec.graphs for _, spec in each) for each in several]
    workers.tasks("centrality", compute_pieces, calls, sizes, "graphs")


def _compute_large(
    workers: Workers,
    task: CentralityTask,
    specs: dict[int, PieceSpec],
    source: CentralityInput,
    shares: Shares | None,
    version: str,
) -> int:
    """Compute shares of the sources of large graphs, then the results that follow from them.

    shares   those of one graph; None: of large graphs among others, which are opened first
    version  a text that is equal only for equal pieces

    Return the number of shares that existed already.
    """
    options, records = task.options, task.records
    cut: dict[int, tuple[Shares, str | None]] = {}
    if shares is not None:
        cut[0] = shares, None
        if _joins_shards(source, shares, options, workers):
            call = [(specs[0], 0, records)]
            joined = workers.tasks(
                "join shards",
                open_large,
                call,
                [specs[0].items],
                "edges",
                weighted=options.weighted,
            )
            specs[0] = joined[0][0]
    else:
        calls = [(spec, n, records) for n, spec in specs.items()]
        items = [spec.items for spec in specs.values()]
        opened = workers.tasks("open", open_large, calls, items, "edges", weighted=options.weighted)
        for n, (spec, nodes, edges, failed) in zip(list(specs), opened, strict=True):
            found = Shares.of(nodes, edges, options, on_gpu=workers.capacity.on_gpu)
            specs[n], cut[n] = spec, (found, failed)
        _refuse_too_large(workers, list(specs.values()), options)
    drawn, work, ends, resumed = [], [], [], 0
    for n, (each, failed) in cut.items():
        each.save(records, n)
        ends.append((task, n, specs[n], each.count))
        for share in range(each.count if failed is None else 0):
            if records.done(share_name(n, share, each.count)):
                resumed += 1
                continue
            drawn.append((specs[n], version, options, records, n, share, each.count))
            work.append(len(each.share(share)))
    workers.tasks("sources", sum_share, drawn, work, "sources")
    if options.parts is not None and not records.done(rows_name(0)):
        given = task, 0, specs[0], max(1, workers.capacity.cores)
        title = ", ".join(name for name in options.names if name in IN_ROWS)
        workers.ranks(compute_on_ranks, given, ranks=options.parts, title=title)
    workers.tasks("finish", finish_graph, ends, [1] * len(ends), "graphs")
    return resumed


def _joins_shards(
    source: CentralityInput, shares: Shares, options: CentralityOptions, workers: Workers
) -> bool:
    """Return whether the shards of one graph are joined on disk: searches need them as one."""
    in_shards = isinstance(source, DirectoryInput) and source.one and source.graph.num_shards > 1
    on_gpu = not options.weighted and workers.capacity.on_gpu  # which joins them itself
    return in_shards and shares.count > 0 and not on_gpu


def most_costly_first(specs: dict[int, PieceSpec]) -> dict[int, PieceSpec]:
    """Return pieces by falling cost; those of about equal cost in their order on the disk."""
    order = sorted(specs, key=lambda n: (-round(2 * math.log2(specs[n].cost + 1)), n))
    return {n: specs[n] for n in order}


def in_tasks(
    specs: dict[int, PieceSpec], at_once: int, *, on_gpu: bool
) -> list[list[tuple[int, PieceSpec]]]:
    """Pack pieces, in their order, into tasks; ``at_once`` tasks run at a time.

    On CPUs by cost: a task takes a share of the remaining cost, and the last tasks one piece each,
    so that no worker ends late.
    """
    listed = list(specs.items())
    share = _TASKS_OF_WORKER * at_once
    if on_gpu:
        size = min(max(len(listed) // share, 1), _PIECES_OF_GPU_TASK)
        return [listed[i : i + size] for i in range(0, len(listed), size)]
    found: list[list[tuple[int, PieceSpec]]] = []
    left = sum(spec.cost for spec in specs.values())
    remaining = 0.0
    for number, spec in listed:
        if not found or spec.cost > remaining or len(found[-1]) == _PIECES_OF_TASK:
            found.append([])
            remaining = left / share
        found[-1].append((number, spec))
        remaining, left = remaining - spec.cost, left - spec.cost
    return found
