"""One run of ``penstock walk``: its checks, the walks of its files, and its report."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from penstock.arrow import as_arrow, reading_parquet, written_bytes
from penstock.csr import id_dtype
from penstock.errors import warn
from penstock.files import FileRanges
from penstock.graph import Graph
from penstock.output import Output
from penstock.partition.part import partition_path
from penstock.pipelines.display import FromBase
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.job.declare import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.walk.base import open_base, rules_of
from penstock.pipelines.walk.choice import SamplerChoice, bytes_of, check_graph, choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.output import WalkWriter, files_of, save_manifest, step_of
from penstock.pipelines.walk.partitioned import need_of_part, walk_partitioned
from penstock.pipelines.walk.placement import Placement, choose_placement, ranks_wanted, what_fits
from penstock.pipelines.walk.replicated import WalkTask, walk_replicated
from penstock.pipelines.walk.report import WalkReport
from penstock.pipelines.walk.starts import checked_count, kept_starts, listed_starts, named
from penstock.pipelines.walk.weights import inspect_weights
from penstock.sizes import plural

_SOME_IDS = 1 << 18  # a sample in Parquet shows the bytes per id
_SOME_GROUPS = 8  # row groups of the sample, plus one
_REMEDY = (
    "give workers more memory with --memory-limit (a share of it keeps graphs), start fewer with "
    "-n, or use --placement partitioned on several ranks (--cluster mpi)"
)


def walk_graph(context: Context, graph: Graph, out: Output, options: WalkOptions) -> WalkReport:
    """Walk every missing file, over the whole graph or its parts."""
    check_graph(graph, options)
    listed = listed_starts(graph, options)
    starts = graph.num_nodes if listed is None else len(listed)
    files = files_of(checked_count(starts, options.walks, graph.num_nodes), options.length)
    ranks = ranks_wanted(graph, options, context.cluster)
    size = sum(entry.bytes for entry in graph.manifest.files.values())
    workers = context.workers(input_bytes=size, ranks=ranks)
    has = workers.capacity
    statistics = inspect_weights(workers, graph, options)
    choice = choose(graph, options, statistics, has.rows)
    placement = choose_placement(graph, options, choice.spec, has)
    where, memory = _where(graph, options, choice, placement, has, files)
    context.plan(
        f"{plural(files.rows, 'walk')} of at most {plural(options.length, 'node')}, "
        f"{plural(files.count, 'file')}",
        steps=(("walk", f"{options.app}, {where}"), ("sampler", choice.instead or choice.why)),
        memory=memory,
        disk=_disk_bytes(graph, options, files),
    )
    version = graph.digest
    named_by = graph.path if options.ids == "user" else None
    step = step_of(graph.num_nodes, files, options.length)
    writer = WalkWriter(out.pieces, named_by, version, options.npy, graph.num_nodes, step)
    todo = [n for n in range(files.count) if not writer.done(n)]
    kept = kept_starts(listed, graph.num_nodes, out.scratch, named(options))
    rows, base, anew = open_base(graph, options, choice.spec, step, out)
    if base is not None and placement == "partitioned":
        base, anew = None, "a graph in parts is walked anew"
    task = WalkTask(graph.path, version, choice.spec, kept, files, writer, base)
    began = time.monotonic()
    if placement == "replicated":
        walk_replicated(workers, task, todo)
    else:
        walk_partitioned(workers, graph, task, todo, ranks=options.parts)
    walking = time.monotonic() - began
    sampler = choice.spec.rules.sampler.name.lower()
    about = {
        "graph": str(graph.path),
        "graph_sha256": version,
        "options": out.options,
        "sampler": sampler,
        "length": options.length,
        "ids": options.ids,
        "rules": rules_of(choice.spec, step),
        "starts": {"count": starts, "named": kept.named, "fraction": options.fraction},
        "rows": rows.about,
    }
    counted = save_manifest(out, writer, files, rows.save(out.result), about)
    report = WalkReport(
        str(out.named),
        options.app,
        sampler=sampler,
        why=choice.why,
        instead=choice.instead,
        placement=placement,
        devices=has.text(),
        files=files.count,
        resumed_files=files.count - len(todo),
        zero_rows=statistics.zero,
        seconds_by_step={"walk": walking},
        walks=counted["walks"],
        nodes=counted["nodes"],
        bytes=counted["bytes"],
        linked_files=counted["linked"],
        anew=anew,
    )
    if options.base is not None:
        report.from_base = FromBase("walks", counted["kept"], report.walks - counted["kept"])
    if report.instead:
        warn(report.instead)
    return report


def _where(
    graph: Graph,
    options: WalkOptions,
    choice: SamplerChoice,
    placement: Placement,
    has: Capacity,
    files: FileRanges,
) -> tuple[str, Need]:
    """Return the placement of the graph, and its memory on the fullest worker."""
    if placement == "replicated":
        size = bytes_of(graph, choice.spec)
        remedy = f"{what_fits(graph, choice.spec, has)}{_REMEDY}"
        need = Need(size, has.rows, f"on every {has.worker}", remedy=remedy)
        return f"a copy of the graph on each of {has.text()}", need
    k = options.parts or has.workers
    path, where = partition_path(graph, k), f"a part of the graph on each of {k} ranks"
    if path.exists():
        return where, need_of_part(path, choice.spec, files, has)
    return f"{where}, once it is cut, which this does first", Need(None, has.memory)


def _disk_bytes(graph: Graph, options: WalkOptions, files: FileRanges) -> int:
    """Return the approximate size of the walks: as if no walk ended early."""
    nodes = files.rows * min(options.length, _longest(options))
    internal = id_dtype(graph.num_nodes).itemsize
    id_bytes: float = internal
    if graph.num_nodes:
        ids = _some_ids(graph) if options.ids == "user" else range(graph.num_nodes)
        random = np.random.Generator(np.random.Philox(0))
        some = as_arrow(random.integers(len(ids), size=_SOME_IDS))
        id_bytes = written_bytes(some if isinstance(ids, range) else ids.take(some))
    known = nodes / 8 + 16 * graph.num_nodes  # visits, and bits of rows
    return int(nodes * id_bytes + 12 * files.rows + options.npy * nodes * internal + known)


def _some_ids(graph: Graph) -> Any:
    import pyarrow.parquet as pq

    path = graph.ids_file
    with reading_parquet(path), pq.ParquetFile(path, memory_map=True) as file:
        last = file.num_row_groups - 1
        groups = sorted({last * part // _SOME_GROUPS for part in range(_SOME_GROUPS + 1)})
        return file.read_row_groups(groups, columns=["id"]).column(0)


def _longest(options: WalkOptions) -> float:
    """Return the longest possible average length of walks."""
    if options.stops:
        return 1 / options.stops
    if options.app == "metapath" and not options.cyclic:
        return len(options.relations) + 1
    return options.length
