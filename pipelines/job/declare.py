"""A job is one declaration and one function; the command, the Python function and the rest follow.

    @job("walk", kind="walks", on_gpu=True)
    def walk(context: Context, graph: Graph, out: Output, options: WalkOptions) -> WalkReport:
        ...

    @walk.estimate
    def planned(context: Context, graph: Graph, out: Output, options: WalkOptions) -> Plan:
        ...

    penstock.walk("g", "w", length=10)      the function is called with what its annotations say
    penstock walk g w --length 10           its help is the docstring, and the string under a field
    {job: walk, input: g, length: 10}       a stage of a flow

The frame opens the input and the output: it locks, resumes, publishes, plans and reports. A module
that declares a job is imported for its help, so that what is heavy is imported in the function.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_type_hints

from cyclopts import Parameter

from penstock.cluster.spec import ClusterSpec, as_spec
from penstock.errors import InputError, PenstockError
from penstock.options import ClientPath, given_options, headings, no_option, options
from penstock.paths import client_path
from penstock.pipelines.display import Display, JobReport
from penstock.pipelines.job.plan import Need, Plan, PlanFlag

if TYPE_CHECKING:
    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers

R = TypeVar("R", bound=JobReport)


@options
@headings(verify="Run")
class RunOptions:
    """Options of every job that makes an output."""

    verify: Annotated[bool, Parameter(negative="")] = False
    """before anything else, compare every file of the input with its SHA-256"""
    resume: Annotated[bool, Parameter(negative="")] = False
    """go on where an interrupted run of the same command stopped"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the output, if it is one of this job's"""


class Context:
    """What a job is handed besides input, output and options.

    cluster  as it is configured
    """

    def __init__(self, cluster: str | ClusterSpec | None, *, on_gpu: bool, quiet: bool) -> None:
        self._given, self._on_gpu, self.quiet = as_spec(cluster), on_gpu, quiet

    @cached_property
    def cluster(self) -> ClusterSpec:
        """The cluster, with what its file or Dask's configuration says of it."""
        return self._given.configured()

    @contextmanager
    def workers(self, *, input_bytes: int = 0, ranks: int | None = None) -> Iterator[Workers]:
        """Connect to the cluster, which is started if it is not there.

        input_bytes  how much the job reads: a small one needs no processes of its own
        ranks        how many ranks its gangs need, if it has any
        """
        from penstock.cluster.connect import connect
        from penstock.pipelines.job.workers import Workers

        with connect(
            self.cluster,
            input_bytes=input_bytes,
            ranks=ranks,
            on_gpu=self._on_gpu,
            quiet=self.quiet,
        ) as client:
            yield Workers(client, self.cluster, quiet=self.quiet)


@dataclass(frozen=True)
class _Parts:
    """What a call names: the options of the job, and those of its run."""

    options: Any
    run: RunOptions


class Job(Generic[R]):
    """A declared job, which can be called: ``penstock.walk("g", "w", length=10)``.

    name     what stands after ``penstock``
    version  part of what identifies an output: raised when results or defaults change
    kind     what it makes: a directory that holds ``<kind>.json`` or ``_<kind>.json``
    files    options that name files which are read
    passing  options that do not decide what is made
    on_gpu   whether its tasks or ranks compute on GPUs if there are some
    """

    def __init__(
        self,
        function: Callable[..., R],
        name: str,
        *,
        kind: str,
        version: int,
        files: tuple[str, ...],
        passing: tuple[str, ...],
        on_gpu: bool,
    ) -> None:
        self.passing = passing
        self.function, self.name, self.kind, self.version = function, name, kind, version
        self.files, self.on_gpu = files, on_gpu
        self.__name__, self.__doc__, self.__module__ = name, function.__doc__, function.__module__
        self._estimate: Callable[..., Plan] | None = None

    def estimate(self, function: Callable[..., Plan]) -> Callable[..., Plan]:
        """Declare what a run would take: ``--plan`` shows it."""
        self._estimate = function
        return function

    @cached_property
    def options(self) -> type[Any]:
        """The options of the job."""
        return self._annotated("options")

    def _annotated(self, name: str) -> type[Any]:
        # What is imported for type checking only, as Graph, has no name here.
        found: type[Any] = eval(self.function.__annotations__[name], self.function.__globals__)
        return found

    def __call__(
        self,
        graph: str | Path | Graph,
        out: str | Path,
        *,
        cluster: str | ClusterSpec | None = None,
        quiet: bool = True,
        **given: Any,
    ) -> R:
        """Run the job from Python."""
        parts = self._parts(given)
        context = Context(cluster, on_gpu=self.on_gpu, quiet=quiet)
        return self._run(context, graph, client_path(out), parts)

    def plan(
        self,
        graph: str | Path | Graph,
        out: str | Path,
        *,
        cluster: str | ClusterSpec | None = None,
        quiet: bool = True,
        **given: Any,
    ) -> Plan:
        """Return what a run with these arguments would do, and write nothing."""
        context = Context(cluster, on_gpu=self.on_gpu, quiet=quiet)
        return self._plan(context, graph, client_path(out), self._parts(given))

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters of a call, each option by its name."""
        call = inspect.signature(type(self).__call__).parameters
        given = [call[name] for name in ("graph", "out", "cluster", "quiet")]
        named = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default)
            for kind in (self.options, RunOptions)
            for one in fields(kind)
        ]
        return inspect.Signature([*given, *named])

    def _parts(self, given: dict[str, Any]) -> _Parts:
        run = {one.name for one in fields(RunOptions)}
        known = [one.name for one in fields(self.options)] + sorted(run)
        for name in given:
            if name not in known:
                raise no_option(name, known, owner=f"penstock {self.name}")
        own = self.options(**{name: value for name, value in given.items() if name not in run})
        return _Parts(own, RunOptions(**{n: v for n, v in given.items() if n in run}))

    def _open(self, graph: str | Path | Graph, parts: _Parts, *, quiet: bool) -> Graph:
        from penstock.graph import Graph

        if isinstance(graph, Graph):
            opened = Graph.open(graph.path, verify=parts.run.verify, quiet=quiet)
            opened.verified |= graph.verified
            return opened
        return Graph.open(graph, verify=parts.run.verify, quiet=quiet)

    def _named(self, parts: _Parts) -> list[Path]:
        return [Path(one) for name in self.files if (one := getattr(parts.options, name))]

    def _identity(self, graph: Graph, parts: _Parts) -> dict[str, Any]:
        """Return what decides the output: options that are not defaults, and inputs as they are."""
        from penstock.output import file_stamp

        stamps = {str(one): file_stamp(one) for one in self._named(parts) if one.is_file()}
        return {
            "job": self.name,
            "version": self.version,
            "options": given_options(parts.options, passing=self.passing),
            "inputs": {str(graph.path): graph.digest, **stamps},
        }

    def _output(self, graph: Graph, out: Path, parts: _Parts) -> Output:
        from penstock.output import Output, refuse_own_input

        refuse_own_input(out, [graph.path, *self._named(parts)])
        return Output(
            out,
            kind=self.kind,
            identity=self._identity(graph, parts),
            command=f"penstock {self.name}",
            resume=parts.run.resume,
            overwrite=parts.run.overwrite,
        )

    def _run(self, context: Context, graph: str | Path | Graph, out: Path, parts: _Parts) -> R:
        begun = time.monotonic()
        opened = self._open(graph, parts, quiet=context.quiet)
        output = self._output(opened, out, parts)
        if parts.run.resume and (found := output.finished) is not None:
            output.tidy()
            report: R = self._annotated("return")(**found["report"])
            return report
        with output.open():
            report = self.function(context, opened, output, parts.options)
            self._refuse_changed(output, self._identity(opened, parts))
            report.seconds = time.monotonic() - begun
            output.finish(report=asdict(report))
        return report

    def _refuse_changed(self, output: Output, now: dict[str, Any]) -> None:
        """Raise InputError if an input is another than the one that the run began with."""
        before = (output.identity or {})["inputs"]
        changed = [path for path in before if before[path] != now["inputs"].get(path)]
        if changed:
            raise InputError(f"{changed[0]} changed while it was read", remedy="Run it again")

    def _plan(self, context: Context, graph: str | Path | Graph, out: Path, parts: _Parts) -> Plan:
        opened = self._open(graph, parts, quiet=context.quiet)
        output = self._output(opened, out, parts)
        if parts.run.resume and output.finished is not None:
            made = Plan("nothing: it is finished", (), Need(0))
        else:
            output.refuse_taken()
            assert self._estimate is not None, self.name
            made = self._estimate(context, opened, output, parts.options)
        problem: PenstockError | None = made.problem or output.unwritable()
        if problem is None and not parts.run.resume:  # a part of it may be there
            problem = made.too_large_for_disk()
        return replace(made, command=f"penstock {self.name}", out=str(out), problem=problem)

    @cached_property
    def command(self) -> Callable[..., None]:
        """What the command line calls."""

        def command(
            graph: ClientPath,
            out: ClientPath,
            /,
            *,
            options: Any = None,
            run: RunOptions = RunOptions(),  # noqa: B008 - frozen
            cluster: ClusterSpec = ClusterSpec(),
            plan: bool = False,
            output: Display = Display(),
        ) -> None:
            parts = _Parts(options or self.options(), run)
            context = Context(cluster, on_gpu=self.on_gpu, quiet=output.quiet)
            if plan:
                shown = self._plan(context, graph, out, parts)
                output.show(shown)
                if shown.problem is not None:
                    print(f"penstock: {shown.problem}", file=sys.stderr)
                return
            report = self._run(context, graph, out, parts)
            output.show(report, report.following())
            output.note(report.details())

        kinds = {**get_type_hints(command, include_extras=True), "options": self.options}
        kinds["plan"] = PlanFlag
        signature = inspect.signature(command)
        parameters = [
            one.replace(
                annotation=kinds[one.name],
                default=self.options() if one.name == "options" else one.default,
            )
            for one in signature.parameters.values()
        ]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__, command.__doc__ = kinds, self.function.__doc__
        return command


def job(
    name: str,
    *,
    kind: str,
    version: int = 1,
    files: tuple[str, ...] = (),
    passing: tuple[str, ...] = (),
    on_gpu: bool = False,
) -> Callable[[Callable[..., R]], Job[R]]:
    """Declare a job: see ``Job``."""

    def declare(function: Callable[..., R]) -> Job[R]:
        return Job(
            function, name, kind=kind, version=version, files=files, passing=passing, on_gpu=on_gpu
        )

    return declare
