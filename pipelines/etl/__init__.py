"""``penstock etl``: edges in, graph out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.files import save_json
from penstock.graph import Graph
from penstock.manifest import Manifest
from penstock.paths import client_input, client_path
from penstock.pipelines.etl.job import Job, with_files
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Layout, Piece
from penstock.pipelines.etl.reading.layout import (
    columns_by_position,
    default_direction,
    find_layout,
    guess_format,
)
from penstock.pipelines.etl.reading.pieces import find_pieces
from penstock.pipelines.etl.reading.stamps import Inputs
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.stages import build_graph
from penstock.pipelines.job.capacity import task_capacity
from penstock.pipelines.job.partial import PartialOutput, kept_bytes, partial_output
from penstock.sizes import need_disk

__all__ = ["EtlOptions", "EtlReport", "etl"]


def etl(
    edges: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> EtlReport:
    """Make a graph at ``out`` of one or more inputs of ``edges``; options are EtlOptions' fields.

    etl("follows.parquet", "follows", source="follower", target="followed", directed=True)
    etl(["train.txt"], "fb15k", format="triples", valid="valid.txt", test="test.txt")

    ``directed=None`` decides by the edges: those with relations are directed, others are not.
    """
    sources = [edges] if isinstance(edges, str | Path) else list(edges)
    checked = EtlOptions(**options)
    return make_graph(
        [client_input(source) for source in sources],
        client_path(out),
        checked,
        cluster or ClusterSpec(),
        quiet,
    )


def make_graph(
    edges: list[str], out: Path, options: EtlOptions, cluster: ClusterSpec, quiet: bool
) -> EtlReport:
    """Run all of ETL; ``etl`` with its options checked."""
    start = time.monotonic()
    report = EtlReport(str(out))
    kind = guess_format(edges, options)
    if kind == "tu":
        _make_tu(edges, out, options, report)
    else:
        _make_from_tables(edges, kind, out, options, cluster, report, quiet)
    graph = Graph.open(out)
    report.nodes, report.edges = graph.num_nodes, graph.num_edges
    report.graphs = graph.manifest.graphs
    report.bytes = sum(entry.bytes for entry in graph.manifest.files.values())
    report.seconds = time.monotonic() - start
    return report


def _make_from_tables(
    edges: list[str],
    kind: str,
    out: Path,
    options: EtlOptions,
    cluster: ClusterSpec,
    report: EtlReport,
    quiet: bool,
) -> None:
    inputs = Inputs.of(edges, kind, options)
    layout = find_layout(edges, options, kind)
    options = _with_direction(options, kind, layout, report)
    report.columns, report.columns_unread = columns_by_position(layout)
    pieces = {"train": find_pieces(edges, kind, layout, options)}
    for name in ("valid", "test"):
        path = getattr(options, name)
        if path is not None:
            pieces[name] = find_pieces([path], kind, layout, options)
    task = {
        "edges": edges,
        "inputs": inputs.to_dict(),
        "pieces": pieces,
        "options": _lasting(options),
        "cluster": asdict(cluster),
    }
    size = sum(piece.bytes for part in pieces.values() for piece in part)
    # Text shrinks and compressed files grow: four times the input has held for both.
    held = kept_bytes(out, options.scratch) if options.resume else 0
    folder = options.scratch or out.parent
    need_disk(folder, max(0, 4 * size - held), "the making of this graph")
    with (
        _workplace(out, task, options) as place,
        connect(cluster, input_bytes=size, quiet=quiet) as client,
    ):
        can = task_capacity(client, cluster)
        job = Job(
            client, edges, options, layout, place, can.task_memory, can.tasks, quiet, report, inputs
        )
        with inputs.reading_nodes():
            manifest = (
                _make_zoo(job, pieces["train"]) if kind == "zoo" else build_graph(job, pieces)
            )
        _finish(place, manifest, edges, options, report)


def _make_zoo(job: Job, pieces: list[Piece]) -> Manifest:
    from penstock.pipelines.etl.zoos.build import build_zoo

    return build_zoo(job, pieces)


def _make_tu(edges: list[str], out: Path, options: EtlOptions, report: EtlReport) -> None:
    from penstock.pipelines.etl.zoos.tu import build_tu

    if len(edges) != 1:
        raise UsageError("a TU data set is one folder", got=f"{len(edges)} inputs")
    options = _with_direction(options, "tu", None, report)
    inputs = Inputs.of(edges, "tu", options)
    task = {"edges": edges, "inputs": inputs.to_dict(), "options": _lasting(options)}
    with _workplace(out, task, options) as place:
        with inputs.reading_edges():
            manifest = build_tu(edges[0], options, place.result, report)
        _finish(place, manifest, edges, options, report)


def _with_direction(
    options: EtlOptions, kind: str, layout: Layout | None, report: EtlReport
) -> EtlOptions:
    """Return the options with ``directed`` decided, and tell the report."""
    directed = options.directed
    if directed is None:
        directed, report.directed_because = default_direction(kind, layout)
    report.directed = directed
    return replace(options, directed=directed)


def _workplace(
    out: Path, task: dict[str, Any], options: EtlOptions
) -> AbstractContextManager[PartialOutput]:
    return partial_output(
        out,
        task,
        command="penstock etl",
        kind="graph",
        scratch=options.scratch,
        resume=options.resume,
        overwrite=options.overwrite,
    )


def _finish(
    place: PartialOutput,
    manifest: Manifest,
    edges: list[str],
    options: EtlOptions,
    report: EtlReport,
) -> None:
    from penstock.files import file_entry

    if report.bad_rows:
        bad = {"skipped": report.bad_rows, "first": report.first_bad_rows}
        save_json(place.result / "bad_rows.json", bad)
        manifest = with_files(manifest, [file_entry(place.result, "bad_rows.json")])
    made = {"by": "penstock etl", "edges": edges, "options": _lasting(options)}
    replace(manifest, made=made).save(place.result)


def _lasting(options: EtlOptions) -> dict[str, Any]:
    """Return the options that decide what the graph is, where they differ from the default."""
    default = asdict(EtlOptions())
    passing = {"resume", "overwrite", "scratch"}
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(options).items()
        if name not in passing and value != default[name]
    }
