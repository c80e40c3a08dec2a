"""One run of ``penstock walk``: what it checks, how its files are walked, and its report."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import numpy as np

from penstock.arrow import as_arrow, written_bytes
from penstock.cluster.count import check_ranks
from penstock.csr import id_dtype
from penstock.errors import CapacityError, warn
from penstock.graph import Graph
from penstock.output import Output
from penstock.partition.manifest import PartitionManifest
from penstock.partition.part import partition_path
from penstock.pipelines.job.declare import Context
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.walk.choice import SamplerChoice, check_graph, choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.output import OutputFiles, WalkWriter, save_manifest
from penstock.pipelines.walk.partitioned import memory_of_part, walk_partitioned
from penstock.pipelines.walk.placement import Placement, choose_placement, ranks_wanted
from penstock.pipelines.walk.replicated import WalkTask, walk_replicated
from penstock.pipelines.walk.report import WalkReport
from penstock.pipelines.walk.starts import checked_count, find_starts, listed_starts
from penstock.pipelines.walk.weights import WeightStatistics, inspect_weights
from penstock.pipelines.walk.window import what_window_left
from penstock.sizes import need_disk, plural

_SOME_IDS = 1 << 18  # as a file has them: it is tried what an id takes in Parquet


def walk_files(context: Context, graph: Graph, out: Output, options: WalkOptions) -> WalkReport:
    """Walk every file that is not there yet, over the whole graph or its parts."""
    check_graph(graph, options)
    starts = find_starts(graph, options, out.scratch)
    files = _files(starts.count, options)
    version = graph.digest
    named = graph.path if options.ids == "user" else None
    writer = WalkWriter(out.pieces, named, version, options.npy)
    if not out.resumes:  # before anything is done a file, of which there may be too many
        _need_disk(graph, out, options, files, 1.0)
    todo = [n for n in range(files.count) if not writer.done(n)]
    _need_disk(graph, out, options, files, len(todo) / max(files.count, 1))
    with _workers(context, graph, options) as workers:
        statistics, choice = _chosen(workers, graph, options)
        placement: Placement = choose_placement(graph, options, choice.spec, workers.capacity)
        task = WalkTask(graph.path, version, choice.spec, starts, files, writer)
        began = time.monotonic()
        if placement == "replicated":
            walk_replicated(workers, task, todo)
        else:
            walk_partitioned(workers, graph, task, todo, ranks=options.parts)
        walking, devices = time.monotonic() - began, workers.capacity.text()
    sampler = choice.spec.rules.sampler.name.lower()
    about = {
        "graph": str(graph.path),
        "graph_sha256": version,
        "options": out.options,
        "sampler": sampler,
        "length": options.length,
        "ids": options.ids,
    }
    counted = save_manifest(out, writer, files, about)
    report = WalkReport(
        str(out.named),
        options.app,
        sampler=sampler,
        why=choice.why,
        instead=choice.instead,
        placement=placement,
        devices=devices,
        files=files.count,
        resumed_files=files.count - len(todo),
        zero_rows=statistics.zero,
        seconds_by_step={"walk": walking},
        walks=counted["walks"],
        nodes=counted["nodes"],
        bytes=counted["bytes"],
    )
    report.window = what_window_left(graph, options, report.steps)
    for text in filter(None, (report.instead, report.window)):
        warn(text)
    return report


def plan_walks(context: Context, graph: Graph, out: Output, options: WalkOptions) -> Plan:
    """Inspect the graph and the workers as a run does; return what would be walked where."""
    check_graph(graph, options)
    listed = listed_starts(graph, options)
    files = _files(graph.num_nodes if listed is None else len(listed), options)
    problem: CapacityError | None = None
    try:
        _need_disk(graph, out, options, files, 1.0)
    except CapacityError as error:
        problem = error
    with _workers(context, graph, options) as workers:
        has = workers.capacity
        _, choice = _chosen(workers, graph, options)
        placement: Placement = "replicated"
        try:
            placement = choose_placement(graph, options, choice.spec, has)
        except CapacityError as error:
            problem = error
    where, there = f"a copy of the graph on each of {has.text()}", has.rows
    size: int | None = choice.spec.bytes(
        graph.num_nodes, graph.num_edges, id_dtype(graph.num_nodes).itemsize
    )
    if placement == "partitioned":
        k, there = options.parts or has.workers, has.memory
        path, where = partition_path(graph, k), f"a part of the graph on each of {k} ranks"
        if path.exists():
            size = memory_of_part(PartitionManifest.load(path), choice.spec, files)
        else:
            size, where = None, f"{where}, once it is cut, which this does first"
    return Plan(
        what=f"{plural(files.walks, 'walk')} of at most {plural(options.length, 'node')}, "
        f"{plural(files.count, 'file')}",
        steps=(("walk", f"{options.app}, {where}"), ("sampler", choice.instead or choice.why)),
        memory=Need(size, there, f"on every {has.worker}"),
        disk=disk_need(out.path.parent, _disk_bytes(graph, options, files)),
        problem=problem,
    )


def _workers(
    context: Context, graph: Graph, options: WalkOptions
) -> AbstractContextManager[Workers]:
    """Connect to workers, or to the ranks of a world if the graph will lie in parts."""
    ranks = ranks_wanted(graph, options, context.cluster)
    if options.in_parts:  # before a partition is made
        check_ranks(context.cluster.cluster, context.cluster.workers, options.parts)
    size = sum(entry.bytes for entry in graph.manifest.files.values())
    return context.workers(input_bytes=size, ranks=ranks)


def _chosen(
    workers: Workers, graph: Graph, options: WalkOptions
) -> tuple[WeightStatistics, SamplerChoice]:
    """Inspect the weights and choose the sampler."""
    statistics = inspect_weights(workers, graph, options)
    return statistics, choose(graph, options, statistics, workers.capacity.rows)


def _files(starts: int, options: WalkOptions) -> OutputFiles:
    return OutputFiles.of(checked_count(starts * options.walks), options.length)


def _need_disk(
    graph: Graph, out: Output, options: WalkOptions, files: OutputFiles, left: float
) -> None:
    """Raise CapacityError if the share of the walks that is ``left`` does not fit."""
    size = int(_disk_bytes(graph, options, files) * left)
    need_disk(
        out.path.parent,
        size,
        f"room for {files.walks:,} walks",
        fits=lambda free: f"about {files.walks * free // max(size, 1):,} walks of this length",
    )


def _disk_bytes(graph: Graph, options: WalkOptions, files: OutputFiles) -> int:
    """Return about what the walks take: as if no walk ended early, and all went anywhere."""
    nodes = files.walks * min(options.length, _longest(options))
    internal = id_dtype(graph.num_nodes).itemsize
    named: float = internal
    if graph.num_nodes:
        random = np.random.Generator(np.random.Philox(0))
        some = random.integers(graph.num_nodes, size=_SOME_IDS)
        named = written_bytes(graph.user_ids(some) if options.ids == "user" else as_arrow(some))
    return int(nodes * named + 12 * files.walks + options.npy * nodes * internal)


def _longest(options: WalkOptions) -> float:
    """Return how long walks are on average at most."""
    if options.app == "ppr":
        return 1 / (0.15 if options.stop is None else options.stop)
    if options.app == "metapath" and not options.cyclic:
        return len(options.relations) + 1
    return options.length
