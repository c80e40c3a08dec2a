"""``penstock walk``: random walks over a graph, written as Parquet or handed back as an array."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.cluster.connect import connect
from penstock.cluster.count import check_ranks
from penstock.cluster.spec import ClusterSpec
from penstock.csr import CSR, Array, id_dtype
from penstock.errors import CapacityError, UsageError
from penstock.files import sha256_of
from penstock.graph import Graph
from penstock.kernels.walk_rules import MAX_WALKS
from penstock.manifest import FILE_NAME as GRAPH_FILE
from penstock.paths import client_path
from penstock.pipelines.job.capacity import capacity_of
from penstock.pipelines.job.partial import file_stamp, partial_output
from penstock.pipelines.walk.choice import Choice, check_graph, choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.output import KIND, Parts, WalkWriter, save_manifest
from penstock.pipelines.walk.partitioned import walk_partitioned
from penstock.pipelines.walk.placement import place, ranks_wanted
from penstock.pipelines.walk.replicated import WalkJob, walk_replicated
from penstock.pipelines.walk.report import WalkReport
from penstock.pipelines.walk.starts import Starts, find_starts
from penstock.pipelines.walk.survey import Survey, survey, weighted
from penstock.pipelines.walk.window import what_window_left
from penstock.sizes import need_disk

__all__ = ["WalkOptions", "WalkReport", "walk", "walk_array"]

_PASSING = {"resume", "overwrite"}


def walk(
    graph: str | Path | Graph,
    out: str | Path,
    *,
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> WalkReport:
    """Walk over ``graph`` and write the paths at ``out``; options are WalkOptions' fields.

    walk("follows", "walks", app="node2vec", p=2, q=0.5, walks=10)
    walk("kg", "walks", app="metapath", schema="born_in,part_of")
    """
    path = graph.path if isinstance(graph, Graph) else client_path(graph)
    given = WalkOptions(**options)
    return make_walks(path, client_path(out), given, cluster or ClusterSpec(), quiet)


def walk_array(graph: str | Path | Graph | CSR, *, device: str = "auto", **options: Any) -> Array:
    """Return walks as an array of internal ids: (walks, length), -1 beyond a walk's end.

    The walks are those that ``walk`` writes with the same options and sampler. ``device`` is auto,
    cpu or gpu. A CSR, as notebooks make them, will do for what needs neither names nor labels.

    paths = walk_array("follows", app="ppr", start=("alice",), walks=1000)
    """
    from penstock.pipelines.walk.array import array_of_walks

    return array_of_walks(graph, WalkOptions(**options), device)


def make_walks(
    path: Path, out: Path, options: WalkOptions, cluster: ClusterSpec, quiet: bool
) -> WalkReport:
    """Run the whole job; ``walk`` with its options checked."""
    begun = time.monotonic()
    graph = Graph.open(path)
    check_graph(graph, options)
    task: dict[str, Any] = {
        "graph": str(graph.path),
        "version": _version(graph),
        "options": lasting(options),
    }
    if options.starts is not None and options.starts.is_file():
        task["inputs"] = {str(options.starts): file_stamp(options.starts)}
    report = WalkReport(str(out), options.app)
    with partial_output(
        out,
        task,
        command="penstock walk",
        kind=KIND,
        resume=options.resume,
        overwrite=options.overwrite,
    ) as place:
        starts = find_starts(graph, options, place.scratch)
        parts = Parts.of(_walk_count(starts, options), options.length)
        writer = WalkWriter(
            place.result,
            place.scratch,
            graph.path if options.ids == "user" else None,
            _version(graph),
            options.npy,
        )
        todo = [n for n in range(parts.count) if not (options.resume and writer.done(n))]
        _need_disk(out, graph, parts, options, len(todo) / max(parts.count, 1))
        choice = _run(graph, options, cluster, starts, parts, todo, writer, report, quiet)
        _finish(graph, options, parts, writer, choice, report)
    report.seconds = time.monotonic() - begun
    return report


def _run(
    graph: Graph,
    options: WalkOptions,
    cluster: ClusterSpec,
    starts: Starts,
    parts: Parts,
    todo: list[int],
    writer: WalkWriter,
    report: WalkReport,
    quiet: bool,
) -> Choice:
    """Walk every part that is not there yet, and say what was chosen."""
    ranks = ranks_wanted(graph, options, cluster)
    if options.placement == "partitioned":
        check_ranks(cluster.configured().cluster)  # before a partition is made
    size = sum(entry.bytes for entry in graph.manifest.files.values())
    with connect(cluster, input_bytes=size, ranks=ranks, on_gpu=True, quiet=quiet) as client:
        look = Survey()
        if weighted(graph, options):
            look = survey(client, graph, options, quiet=quiet)
        room = capacity_of(client, cluster)
        choice = choose(graph, options, look, room.rows)
        placement = place(graph, options, choice.recipe, room)
        job = WalkJob(graph.path, writer.version, choice.recipe, starts, parts, writer)
        began = time.monotonic()
        if placement == "replicated":
            walk_replicated(client, job, todo, on_gpu=room.on_gpu, quiet=quiet)
        else:
            walk_partitioned(client, job, todo, room, ranks=options.parts, quiet=quiet)
        report.stage_seconds["walk"] = time.monotonic() - began
    report.sampler = choice.recipe.rules.sampler.name.lower()
    report.why, report.placement, report.devices = choice.why, placement, room.text()
    report.instead = choice.instead
    report.zero_rows, report.resumed_parts = look.zero, parts.count - len(todo)
    return choice


def _finish(
    graph: Graph,
    options: WalkOptions,
    parts: Parts,
    writer: WalkWriter,
    choice: Choice,
    report: WalkReport,
) -> None:
    about = {
        "graph": str(graph.path),
        "graph_sha256": writer.version,
        "options": lasting(options),
        "sampler": report.sampler,
        "length": options.length,
        "ids": options.ids,
    }
    counted = save_manifest(writer, parts, about)
    report.walks, report.nodes, report.bytes = (counted[n] for n in ("walks", "nodes", "bytes"))
    report.parts = parts.count
    report.window = what_window_left(graph, options, report.steps)


def lasting(options: WalkOptions) -> dict[str, Any]:
    """Return the options that decide what the walks are, where they differ from the default."""
    default = asdict(WalkOptions())
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(options).items()
        if name not in _PASSING and value != default[name]
    }


def _version(graph: Graph) -> str:
    return sha256_of(graph.path / GRAPH_FILE)


def _walk_count(starts: Starts, options: WalkOptions) -> int:
    count = starts.count * options.walks
    if count > MAX_WALKS:
        raise UsageError(f"these are {count:,} walks", expected=f"{MAX_WALKS:,} at most in one run")
    return count


def _need_disk(out: Path, graph: Graph, parts: Parts, options: WalkOptions, left: float) -> None:
    """Raise CapacityError where the share of the walks that is ``left`` has no room."""
    folder, size = out.parent, int(_disk_bytes(graph, parts, options) * left)
    try:
        need_disk(folder, size, f"room for {parts.walks:,} walks")
    except CapacityError as error:
        free = shutil.disk_usage(folder).free
        fit = parts.walks * free // max(size, 1)
        error.remedy = f"{error.remedy}; about {fit:,} walks of this length would fit"
        raise


def _disk_bytes(graph: Graph, parts: Parts, options: WalkOptions) -> int:
    """Return about what the walks take on disk: as if no walk ended early, nor was compressed."""
    nodes = parts.walks * min(options.length, _longest(options))
    internal = id_dtype(graph.num_nodes).itemsize
    named = internal
    if options.ids == "user" and graph.num_nodes:
        sample = graph.user_ids(range(min(graph.num_nodes, 1000)))
        named = -(-sample.nbytes // len(sample))
    return int(nodes * named + 12 * parts.walks + options.npy * nodes * internal)


def _longest(options: WalkOptions) -> float:
    """Return how long walks are on average at most."""
    if options.app == "ppr":
        return 1 / (0.15 if options.stop is None else options.stop)
    if options.app == "metapath" and not options.cyclic:
        return len(options.relations) + 1
    return options.length
