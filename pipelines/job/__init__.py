"""The frame of every job: a job declares what it does, and the rest is done here, once.

A job is one declaration and one function: ``declare``; tests/pipelines/example_job.py is a complete
one. ``gnn train`` and ``embed train``, whose output is there while it is made, are subclasses of
``Job`` here; ``run`` checks, locks the output, works and reports.

module       owns
declare      ``@job``: a job as one declaration and one function
context      ``Context``, which a job is handed: workers, ranks, its plan
run_folder   an output that is there while it is made: of training, with checkpoints
capacity     the memory of workers, on the host or a GPU; what does not fit
parts        the partition that ranks read, made where it is missing
following    what a graph can be given to next
tasks        ``run_tasks``: independent tasks
ranks        ``run_ranks``: ranks of a gang, started again where one was lost; on how many
workers      ``Workers``, which gives a job all of these, and ``open_ranks``, which connects to them
training_bar progress of ranks that train
compiling    the line that says that workers compile kernels
plan         ``Plan``, which ``--plan`` shows

Manifests are written by ``penstock.formats.Format``, with files listed by
``penstock.files.file_table``; ``Graph.digest`` is by what a graph is known, and
``penstock.options.given_options`` is what a manifest holds of options.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from penstock.cluster.spec import ClusterSpec, as_spec
from penstock.errors import CapacityError, PenstockError
from penstock.options import given_options
from penstock.output import Output
from penstock.paths import client_path
from penstock.pipelines.display import Command, Display, Report
from penstock.pipelines.job.plan import Plan
from penstock.pipelines.job.workers import Workers as Workers
from penstock.pipelines.job.workers import open_ranks

if TYPE_CHECKING:
    from penstock.formats import Format
    from penstock.graph import Graph
    from penstock.pipelines.job.run_folder import TrainingRun

R = TypeVar("R", bound=Report)


class Job(ABC, Generic[R]):
    """One run of a training.

    command    what users call it: ``penstock gnn train``
    visible    the manifest of its output: see ``run_folder``
    resumes    whether this run goes on from there
    out        absolute; cluster: resolved
    connected  its workers, once it has connected to them
    run        what the manifest holds, once ``check`` has set it
    """

    command: ClassVar[str]
    visible: ClassVar[Format]
    resumes: bool = False
    connected: Workers
    run: TrainingRun

    def __init__(
        self,
        out: str | Path,
        options: Any,
        cluster: str | ClusterSpec | None = None,
        *,
        quiet: bool,
    ) -> None:
        self.out, self.options, self.quiet = client_path(out), options, quiet
        self.given_cluster = as_spec(cluster)
        self.brought_back = False  # whether the output to replace is there again: see run_folder

    @cached_property
    def cluster(self) -> ClusterSpec:
        """The cluster, with what its file or Dask's configuration says of it."""
        return self.given_cluster.configured()

    @abstractmethod
    def check(self) -> None:
        """Raise if options and input do not go together, or the disk is too small."""

    @abstractmethod
    def plan(self) -> Plan:
        """Return what ``work`` would do; read what is needed for that, and write nothing."""

    @abstractmethod
    def work(self) -> None:
        """Train in the folder ``out``, and write the manifest with the results last."""

    @abstractmethod
    def report(self, seconds: float) -> R:
        """Return what is reported of the run."""

    @abstractmethod
    def following(self) -> list[Command]:
        """Return one or two commands that a user would type next, with the paths of this run."""

    def first_manifest(self) -> dict[str, Any]:
        """Return what the manifest says at first: its state is training."""
        return self.run.to_dict()

    def differences(self, before: dict[str, Any]) -> list[str]:
        """Return what keeps this run from going on with the one whose manifest is given."""
        return self.run.differences(self.run.of(before, self.out))

    def goes_on(self) -> bool:
        """Whether an output that is done may be resumed with more epochs."""
        return True

    @property
    def given(self) -> dict[str, Any]:
        """The options that decide what is made, if they are not the defaults."""
        return given_options(self.options, passing={"verify"})

    def unwritable(self) -> PenstockError | None:
        """Return the error if the output cannot be written."""
        files = [self.out.resolve() / self.visible.file] if self.resumes else []
        return Output(self.out, kind="run").unwritable(*files)

    @contextmanager
    def open_ranks(
        self, graph: Graph | None, parts: int | None, *, quiet: bool | None = None
    ) -> Iterator[Workers]:
        """Connect to as many workers as there are to be ranks: see ``workers.open_ranks``."""
        quiet = self.quiet if quiet is None else quiet
        with open_ranks(graph, parts, self.cluster, quiet=quiet) as self.connected:
            yield self.connected


def run(job: Job[R]) -> R:
    """Run a job from its checks to its report."""
    from penstock.pipelines.job.run_folder import run_folder

    begun = time.monotonic()
    job.check()
    with run_folder(job, job.visible):
        job.work()
    return job.report(time.monotonic() - begun)


def plan(job: Job[R]) -> Plan:
    """Return what ``run`` would do; what would keep it from that is the plan's ``problem``."""
    from penstock.pipelines.job.run_folder import refuse_taken

    problem: PenstockError | None = None
    try:
        job.check()
    except CapacityError as error:
        problem = error
    refuse_taken(job, job.visible)
    problem = problem or job.unwritable()
    made = job.plan()
    problem = problem or made.problem
    if not getattr(job.options, "resume", False):  # a part of which may be there
        problem = problem or made.too_large_for_disk()
    return replace(made, command=job.command, out=str(job.out), problem=problem)


def run_command(job: Job[R], output: Display, *, planned: bool) -> R | None:
    """Run a job as the command line does and return its report, or show its plan."""
    if planned:
        shown = plan(job)
        output.show(shown)
        if shown.problem is not None:
            print(f"penstock: {shown.problem}", file=sys.stderr)
        return None
    report = run(job)
    output.show(report, job.following())
    return report
