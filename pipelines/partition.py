"""``penstock partition``: a graph cut into k parts, each with all that one rank needs."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field, field_validator

from penstock.errors import OutputExists
from penstock.files import fresh_directory, refuse_existing, sha256_of
from penstock.graph import Graph
from penstock.manifest import FILE_NAME as GRAPH_FILE
from penstock.options import ClientPath, options
from penstock.pipelines.output import Output
from penstock.sizes import checked_size, need_disk, need_memory, parse_bytes

if TYPE_CHECKING:
    from penstock.partition.assignment import Assignment
    from penstock.partition.manifest import PartitionManifest
    from penstock.partition.report import PartitionReport

Method = Literal["auto", "metis", "components", "greedy", "random", "hash", "streaming"]

_DEFAULT_WIDTH = 128


@options
class PartitionOptions:
    """How a graph is cut."""

    k: Annotated[int, Field(ge=1), Parameter(alias="-k")]
    """how many parts"""
    method: Method = "auto"
    """auto: what fits, in the order of the paper; metis: fewest edges cut; components: no edge
    cut; greedy: even load, whatever the cut; streaming: for what METIS cannot hold in memory or
    takes too long for, then refined if memory allows; random: even counts; hash: by the user's id,
    the same every day"""
    seed: Annotated[int, Field(ge=0)] = 0
    """the same seed gives the same parts"""
    memory_limit: str | None = None
    """memory that METIS and the refinement of streamed parts may use, such as 8GB [default: nine
    tenths of what is available]"""
    passes: Annotated[int, Field(ge=1)] = 10
    """how often the streaming method reads the graph"""
    time_limit: Annotated[float, Field(ge=0)] = 300.0
    """auto: seconds that METIS may take, by estimate; what takes longer is streamed and refined"""
    width: Annotated[int | None, Field(ge=1)] = None
    """columns for which halo bytes are predicted [default: the features', or 128]"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the partition into as many parts that is there"""

    @field_validator("memory_limit")
    @classmethod
    def _is_a_size(cls, value: str | None) -> str | None:
        return None if value is None else checked_size(value)


def partition_graph(
    graph: str | Path | Graph, *, quiet: bool = False, **options: Any
) -> PartitionReport:
    """Cut ``graph`` and write GRAPH/partition/kK; the options are those of PartitionOptions.

    partition_graph("follows", k=4, method="metis")
    """
    graph = graph if isinstance(graph, Graph) else Graph.open(graph)
    return _partition(graph, PartitionOptions(**options), quiet=quiet)


def make_partition(graph: Graph, k: int, *, quiet: bool) -> None:
    """Cut ``graph`` as a job does that needs it cut; wait where another is doing so already."""
    try:
        _partition(graph, PartitionOptions(k=k), quiet=quiet, wait=True)
    except OutputExists:
        from penstock.partition.part import partition_path

        if not (partition_path(graph, k) / "partition.json").is_file():
            raise


def command(
    graph: Annotated[ClientPath, Parameter(help="a graph's directory")],
    /,
    *,
    options: PartitionOptions,
    output: Output = Output(),
) -> None:
    """Cut a graph into k parts, balanced by work, each with ghosts, send and receive lists."""
    output.show(_partition(Graph.open(graph), options, quiet=output.quiet))


def _partition(
    graph: Graph, options: PartitionOptions, *, quiet: bool, wait: bool = False
) -> PartitionReport:
    from penstock.kernels.compiled import compiling
    from penstock.limits import cores
    from penstock.partition.assign import assign
    from penstock.partition.build import build_parts, disk_needed, memory_needed
    from penstock.partition.part import partition_path
    from penstock.partition.report import PartitionReport

    path = partition_path(graph, options.k)
    refuse_existing(path, overwrite=options.overwrite, kind="partition")
    need_disk(graph.path, disk_needed(graph), f"a partition of {graph.path}")
    need_memory(
        memory_needed(graph, min(cores(), options.k)),
        f"building the parts of {graph.path}",
        remedy="Run it on a machine with more memory",
    )
    limit = None if options.memory_limit is None else parse_bytes(options.memory_limit)
    started = time.monotonic()
    with (
        fresh_directory(
            path,
            overwrite=options.overwrite,
            kind="partition",
            command="penstock partition",
            wait=wait,
        ) as root,
        compiling() as compiled,
    ):
        assignment = assign(
            graph,
            options.k,
            method=options.method,
            seed=options.seed,
            memory_limit=limit,
            passes=options.passes,
            time_limit=options.time_limit,
            quiet=quiet,
        )
        assigned, took = time.monotonic(), assignment.metis_seconds
        parts, files = build_parts(graph, assignment.parts, options.k, root, quiet=quiet)
        manifest = replace(
            _manifest(graph, assignment),
            parts=tuple(parts),
            files={entry.name: entry for entry in files},
            seconds={
                "assign": round(assigned - started, 3),
                **({"METIS": round(took, 3)} if took else {}),
                "build": round(time.monotonic() - assigned, 3),
                # Once after an installation, and within the times before.
                **({"compiling kernels": round(sum(compiled), 3)} if compiled else {}),
            },
        )
        manifest.save(root)
    features = graph.manifest.features
    width = options.width or (_DEFAULT_WIDTH if features is None else features.width)
    return PartitionReport.of(str(path), manifest, assignment.balance.reachable, width)


def _manifest(graph: Graph, assignment: Assignment) -> PartitionManifest:
    from penstock.partition.manifest import PartitionManifest

    about, features = graph.manifest, graph.manifest.features
    return PartitionManifest(
        k=assignment.k,
        method=assignment.method,
        path=assignment.path,
        seed=assignment.seed,
        steps=tuple(asdict(step) for step in assignment.steps),
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        directed=about.directed,
        graph_sha256=sha256_of(graph.path / GRAPH_FILE),
        parts=(),
        columns=tuple(n for n in about.dtypes if n not in ("indptr", "indices")),
        features=None if features is None else features.kind,
        feature_width=0 if features is None else features.width,
        labels=about.labels,
        splits=bool(about.splits),
    )
