"""The frame of every job: a job declares what it does, and the rest is done here, once.

A job is a subclass of ``Job``. It declares its options, what it checks, what it plans, its work,
independent tasks or ranks that talk to each other, and what it reports. ``run`` does the rest in
this order: check, lock the output, open its hidden partial directory (resumed or new), work,
publish, report. tests/pipelines/example_job.py is a complete one.

module       owns
declare      ``@job``: a job as one declaration and one function; others follow, from ``Job`` here
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
from penstock.sizes import need_disk

if TYPE_CHECKING:
    from penstock.formats import Format
    from penstock.graph import Graph
    from penstock.pipelines.job.run_folder import TrainingRun

R = TypeVar("R", bound=Report)


class Job(ABC, Generic[R]):
    """One run of a job.

    command    what users call it: ``penstock walk``
    kind       what it makes: a directory that holds ``<kind>.json`` or ``_<kind>.json``
    on_gpu     whether its tasks or ranks compute on GPUs where there are some
    resumes    whether this run goes on from there
    visible    the manifest of an output that is there while it is made: see ``run_folder``
    passing    options that do not decide what is made
    out        absolute; options: may be completed by ``check``; cluster: resolved
    connected  its workers, once it has connected to them
    run        what the manifest of a visible output holds, once ``check`` has set it
    """

    command: ClassVar[str]
    kind: ClassVar[str]
    on_gpu: ClassVar[bool] = False
    resumes: bool = False
    visible: ClassVar[Format | None] = None
    passing: ClassVar[frozenset[str]] = frozenset({"resume", "overwrite", "scratch", "verify"})
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
        self.wait = False  # for another process that makes the same output
        self.brought_back = False  # whether the output to replace is there again: see run_folder

    @cached_property
    def cluster(self) -> ClusterSpec:
        """The cluster, with what its file or Dask's configuration says of it."""
        return self.given_cluster.configured()

    def check(self) -> None:
        """Raise where options and input do not go together, or the disk is too small."""

    def identity(self) -> dict[str, Any]:
        """Return what decides the output besides the options: inputs by digest or stamp."""
        return {}

    @abstractmethod
    def plan(self) -> Plan:
        """Return what ``work`` would do; read what is needed for that, and write nothing."""

    @abstractmethod
    def work(self, partial: Output) -> None:
        """Make ``partial.result``, its manifest last."""

    @abstractmethod
    def report(self, seconds: float) -> R:
        """Return what is reported of the run, which is published by now."""

    def following(self) -> list[Command]:
        """Return one or two commands that a user would type next, with the paths of this run."""
        return []

    def first_manifest(self) -> dict[str, Any]:
        """Return what the manifest of a visible output says at first: its state is training."""
        return self.run.to_dict()

    def differences(self, before: dict[str, Any]) -> list[str]:
        """Return what keeps this run from going on with a visible one, whose manifest is given."""
        return self.run.differences(self.run.of(before, self.out))

    def goes_on(self) -> bool:
        """Whether a visible output that is done may be resumed with more epochs."""
        return True

    def instead_of_resuming(self) -> str:
        """Return what to do where a visible output cannot be resumed because of differences."""
        return "Repeat its command with --resume, or replace it with --overwrite"

    def _made_of(self) -> dict[str, Any]:
        return {**self.identity(), "options": self.given}

    @property
    def given(self) -> dict[str, Any]:
        """The options that decide what is made, where they are not the defaults."""
        return given_options(self.options, passing=self.passing)

    def need_disk(self, size: int, what: str, *, scratch: int = 0) -> None:
        """Raise CapacityError where a disk is too small for what is not there yet of a run.

        size     bytes of the output; scratch: of intermediate files
        """
        folder = getattr(self.options, "scratch", None)
        out = self.destination
        held = out.kept_bytes if out.resume else 0
        if folder is not None:
            need_disk(folder, max(scratch - held, 0), what)
            scratch = 0
        need_disk(self.out.parent, max(size + scratch - held, 0), what)

    @property
    def destination(self) -> Output:
        """The output of a job that makes one."""
        resumable = self.visible is None
        return Output(
            self.out,
            kind=self.kind,
            identity=self._made_of() if resumable else None,
            command=self.command,
            scratch=getattr(self.options, "scratch", None),
            resume=resumable and getattr(self.options, "resume", False),
            overwrite=getattr(self.options, "overwrite", False),
            wait=self.wait,
        )

    @contextmanager
    def output(self) -> Iterator[Output]:
        """Give the hidden directory in which the output is made, and publish it in the end."""
        if self.visible is not None:
            from penstock.pipelines.job.run_folder import run_folder

            with run_folder(self, self.visible) as out:
                yield out
        else:
            with self.destination.open() as out:
                yield out

    def refuse_taken(self) -> None:
        """Raise where ``out`` is there and neither replaced nor resumed, or of another run."""
        if self.visible is not None:
            from penstock.pipelines.job.run_folder import refuse_taken

            refuse_taken(self, self.visible)
        else:
            self.destination.refuse_taken()

    def unwritable(self) -> PenstockError | None:
        """Return the error if output or intermediate files cannot be written."""
        if self.visible is not None and self.resumes:
            return self.destination.unwritable(self.out.resolve() / self.visible.file)
        return self.destination.unwritable()

    @contextmanager
    def workers(self, *, input_bytes: int = 0, ranks: int | None = None) -> Iterator[Workers]:
        """Connect to the cluster, which is started where it is not there.

        input_bytes  how much the job reads: a small one needs no processes of its own
        ranks        how many ranks its gangs need, if it has any
        """
        from penstock.cluster.connect import connect

        with connect(
            self.cluster,
            input_bytes=input_bytes,
            ranks=ranks,
            on_gpu=self.on_gpu,
            quiet=self.quiet,
        ) as client:
            self.connected = Workers(client, self.cluster, quiet=self.quiet)
            yield self.connected

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
    begun = time.monotonic()
    job.check()
    with job.output() as partial:
        job.work(partial)
    return job.report(time.monotonic() - begun)


def plan(job: Job[R]) -> Plan:
    """Return what ``run`` would do; what would keep it from that is the plan's ``problem``."""
    problem: PenstockError | None = None
    try:
        job.check()
    except CapacityError as error:
        problem = error
    job.refuse_taken()
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
