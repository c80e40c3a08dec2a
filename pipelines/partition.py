"""``penstock partition``: a graph cut into k parts, each with all that one rank needs."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field, field_validator

from penstock.errors import OutputExists
from penstock.graph import Graph
from penstock.limits import available_memory, cores
from penstock.options import ClientPath, options
from penstock.output import Output, refuse_existing
from penstock.partition.assignment import Method, check_parts, memory_for
from penstock.pipelines.display import Command, Display
from penstock.pipelines.job import Job, run, run_command
from penstock.pipelines.job.following import learnable, sibling
from penstock.pipelines.job.plan import Need, Plan, PlanFlag, disk_need
from penstock.sizes import checked_size, format_bytes, need_disk, need_memory, parse_bytes

if TYPE_CHECKING:
    from penstock.partition.assignment import Assignment
    from penstock.partition.manifest import PartitionManifest
    from penstock.partition.report import PartitionReport

_DEFAULT_WIDTH = 128
_DOES: dict[Method, str] = {
    "auto": "components where they pack evenly, METIS where it fits, else greedy or streaming",
    "metis": "fewest edges cut",
    "components": "no edge cut",
    "greedy": "heaviest node first",
    "random": "equal counts of nodes, by seed",
    "hash": "by the user's id",
    "streaming": "passes of Fennel over the graph, refined where memory allows",
}


@options
class PartitionOptions:
    """Options of ``penstock partition``."""

    k: Annotated[int, Field(ge=1), Parameter(alias="-k")]
    """number of parts"""
    method: Method = "auto"
    """auto: what fits, in the order of the paper; metis: fewest edges cut; components: no edge
    cut; greedy: even load, whatever the cut; streaming: for what METIS cannot hold in memory or
    takes too long for, then refined if memory allows; random: even counts; hash: by the user's id,
    the same every day"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed: the same seed gives the same parts"""
    memory_limit: str | None = None
    """memory that METIS and the refinement of streamed parts may use, such as 8GB [default: nine
    tenths of what is available]"""
    passes: Annotated[int, Field(ge=1, le=1000)] = 10
    """number of passes over the graph, of the streaming method"""
    time_limit: Annotated[float, Field(ge=0)] = 300.0
    """auto: seconds that METIS may take, by estimate; what takes longer is streamed and refined"""
    worker_timeout: Annotated[float, Field(ge=1, le=86400)] = 30.0
    """seconds without computing after which METIS' process is killed: METIS has failed then"""
    width: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    """columns for which halo bytes are predicted [default: the features', or 128]"""
    verify: Annotated[bool, Parameter(negative="")] = False
    """before anything else, compare every file of the graph with its SHA-256"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace an existing partition into as many parts"""

    @field_validator("memory_limit")
    @classmethod
    def _is_a_size(cls, value: str | None) -> str | None:
        return None if value is None else checked_size(value)


class PartitionJob(Job["PartitionReport"]):
    """Cuts a graph in this process; no cluster is needed."""

    command = "penstock partition"
    kind = "partition"
    resumable = False

    def __init__(self, graph: Graph, options: PartitionOptions, *, quiet: bool) -> None:
        from penstock.partition.part import partition_path

        super().__init__(partition_path(graph, options.k), options, quiet=quiet)
        self.graph = graph
        limit = options.memory_limit
        self.memory_limit = None if limit is None else parse_bytes(limit)
        self.made_by: str = options.method  # as far as it is known

    def check(self) -> None:
        """Refuse what is there, and what fits neither on the disk nor in memory."""
        from penstock.partition.build import disk_needed

        check_parts(self.graph, self.options.k)
        # Next to the shards, in a folder where others may write.
        refuse_existing(self.out, overwrite=self.options.overwrite, kind=self.kind)
        path = self.graph.path
        need_disk(path, disk_needed(self.graph), f"a partition of {path}")
        need_memory(
            self._memory_to_build(),
            f"building the parts of {path}",
            remedy="Run it on a machine with more memory",
        )

    def plan(self) -> Plan:
        """Say what ``auto`` tries, and what METIS would take."""
        from penstock.partition import metis
        from penstock.partition.build import disk_needed

        building, memory, seconds = self._memory_to_build(), 0, None
        method, does = self.options.method, _DOES[self.options.method]
        if self.options.k == 1:
            does = "one part owns everything"
        elif method in ("auto", "metis"):
            memory, seconds = metis.memory_needed(self.graph), metis.seconds_needed(self.graph)
        limit = memory_for(self.memory_limit)
        most = self.options.time_limit
        if method == "auto" and seconds is not None and (memory > limit or seconds > most):
            would = f"{format_bytes(memory)}, {seconds:.2g} s"
            does = f"{_DOES['streaming']}: METIS would take {would}"
            memory, seconds, self.made_by = 0, None, "streaming"
        elif self.options.k == 1:
            self.made_by = "one"
        return Plan(
            what=f"{self.options.k} parts of {self.graph.num_nodes:,} nodes and "
            f"{self.graph.num_edges:,} directed edges",
            steps=(("assign", f"{method}: {does}"), ("build", f"on {cores()} cores")),
            memory=Need(max(memory, building), available_memory(), "available"),
            disk=disk_need(self.graph.path, disk_needed(self.graph)),
        )

    def work(self, partial: Output) -> None:
        """Assign nodes to parts, build the parts, and write partition.json."""
        from penstock.kernels.compiled import compiling
        from penstock.partition.assign import assign
        from penstock.partition.build import build_parts

        graph, options, started = self.graph, self.options, time.monotonic()
        with compiling() as compiled:
            self.assignment = assign(
                graph,
                options.k,
                method=options.method,
                seed=options.seed,
                memory_limit=self.memory_limit,
                passes=options.passes,
                time_limit=options.time_limit,
                timeout=options.worker_timeout,
                quiet=self.quiet,
            )
            self.made_by = self.assignment.made_by
            assigned, took = time.monotonic(), self.assignment.metis_seconds
            parts, files = build_parts(
                graph, self.assignment.parts, options.k, partial.result, quiet=self.quiet
            )
            seconds = {
                "assign": round(assigned - started, 3),
                **({"METIS": round(took, 3)} if took else {}),
                "build": round(time.monotonic() - assigned, 3),
                # Once after an installation, and within the times before.
                **({"compiling kernels": round(sum(compiled), 3)} if compiled else {}),
            }
        self.manifest = replace(
            _manifest(graph, self.assignment),
            parts=tuple(parts),
            files={entry.name: entry for entry in files},
            seconds=seconds,
        )
        self.manifest.save(partial.result)

    def report(self, seconds: float) -> PartitionReport:
        """Return what the parts cost, and how even they are."""
        from penstock.partition.report import PartitionReport

        features = self.graph.manifest.features
        width = self.options.width or (_DEFAULT_WIDTH if features is None else features.width)
        reachable = self.assignment.balance.reachable
        return PartitionReport.of(str(self.out), self.manifest, reachable, width)

    def following(self) -> list[Command]:
        """Return a job that runs on as many ranks."""
        graph, k = self.graph.path, str(self.options.k)
        if learnable(self.graph.manifest):
            return [("gnn", "train", graph, sibling(graph, "run"), "-k", k)]
        return [("walk", graph, sibling(graph, "walks"), "--parts", k)]

    def _memory_to_build(self) -> int:
        from penstock.partition.build import memory_needed

        return memory_needed(self.graph, min(cores(), self.options.k))


def partition_graph(
    graph: str | Path | Graph, *, quiet: bool = True, **options: Any
) -> PartitionReport:
    """Cut a graph into parts, each with ghosts, send and receive lists, next to its shards.

    Parameters
    ----------
    graph
        A graph, or its directory; ``partition/kK`` is written there.
    quiet
        Print no progress.
    **options
        Fields of ``PartitionOptions``, as ``k`` or ``method``: the options of
        ``penstock partition``.

    Returns
    -------
    PartitionReport
        Edge cut, balance, ghosts and times; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    CapacityError
        It does not fit on the disk or in memory.
    OutputExists
        It is cut into ``k`` parts already, and ``overwrite`` is not set.

    Examples
    --------
    >>> partition_graph("follows", k=4, method="metis")
    """
    given = PartitionOptions(**options)
    if not isinstance(graph, Graph) or given.verify:
        path = graph.path if isinstance(graph, Graph) else graph
        graph = Graph.open(path, verify=given.verify, quiet=quiet)
    return run(PartitionJob(graph, given, quiet=quiet))


def make_partition(graph: Graph, k: int, *, quiet: bool, **options: Any) -> None:
    """Cut ``graph`` as a job does that needs it cut; wait where another is doing so already."""
    job = PartitionJob(graph, PartitionOptions(k=k, **options), quiet=quiet)
    job.wait = True
    try:
        run(job)
    except OutputExists:
        if not (job.out / "partition.json").is_file():
            raise


def command(
    graph: Annotated[ClientPath, Parameter(help="a graph's directory")],
    /,
    *,
    options: PartitionOptions,
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Cut a graph into k parts, balanced by work, each with ghosts, send and receive lists."""
    opened = Graph.open(graph, verify=options.verify, quiet=output.quiet)
    run_command(PartitionJob(opened, options, quiet=output.quiet), output, planned=plan)


def _manifest(graph: Graph, assignment: Assignment) -> PartitionManifest:
    from penstock.partition.manifest import PartitionManifest

    about, features = graph.manifest, graph.manifest.features
    return PartitionManifest(
        k=assignment.k,
        method=assignment.method,
        made_by=assignment.made_by,
        seed=assignment.seed,
        steps=tuple(asdict(step) for step in assignment.steps),
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        directed=about.directed,
        graph_sha256=graph.digest,
        parts=(),
        columns=tuple(n for n in about.dtypes if n not in ("indptr", "indices")),
        features=None if features is None else features.kind,
        feature_width=0 if features is None else features.width,
        labels=about.labels,
        splits=bool(about.splits),
    )
