"""A job is one declaration and one function; the command and the Python function follow.

    @job("walk", reads=GRAPH, writes="walks", on_gpu=True)
    def walk(context: Context, graph: Graph, out: Output, options: WalkOptions) -> WalkReport:
        ...
        context.plan("walks ...", steps=(("walk", "where"),), disk=size)
        ...

    penstock.walk("g", "w", length=10)      arguments are converted to the annotated types
    penstock walk g w --length 10           its help is the docstring, and the string under a field
    {job: walk, input: g, length: 10}       a stage of a flow

The frame opens the input and the output: it locks, resumes, publishes, plans and reports. Help
imports the module that declares a job, so heavy modules are imported in the function.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

from cyclopts import Group, Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError, UsageError
from penstock.formats import filled
from penstock.options import ClientInput, ClientPath, given_options, no_option, options
from penstock.paths import client_path
from penstock.pipelines.display import CountsReport, Display, JobReport, OutputReport
from penstock.pipelines.job.context import Context as Context
from penstock.pipelines.job.context import Planned, Watched
from penstock.pipelines.job.plan import Need, Plan, PlanFlag

if TYPE_CHECKING:
    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.vectors import Vectors

R = TypeVar("R", bound=CountsReport)


class Input(Protocol):
    """The open input of a job."""

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of its files and folders, by path; a new stamp is a changed input."""


@dataclass(frozen=True)
class Source:
    """How the input of a job is given and opened.

    open      (given value, options, verify, quiet) -> Input
    kind      its name on the command line
    verified  whether its files can be compared with checksums: ``--verify``
    searched  of an open input, folders that are read whole: no output may be in one
    tables    whether it and options may be tables with ``__arrow_c_stream__`` in Python
    optional  whether it may be left out: ``penstock etl OUT --base GRAPH --add FILE``
    """

    open: Callable[[Any, Any, bool, bool], Any]
    kind: Any = ClientPath
    verified: bool = False
    searched: Callable[[Any], list[str]] = lambda _: []
    tables: bool = False
    optional: bool = False

    @property
    def several(self) -> bool:
        """Whether it is a list of paths."""
        return getattr(self.kind, "__origin__", None) is list


def open_graph(graph: str | Path | Graph, options: Any, verify: bool, quiet: bool) -> Graph:
    """Open a graph, given by its path or as a Graph."""
    from penstock.graph import Graph

    if not isinstance(graph, Graph):
        return Graph.open(client_path(graph), verify=verify, quiet=quiet)
    opened = Graph.open(graph.path, verify=verify, quiet=quiet)
    opened.verified |= graph.verified
    return opened


def open_vectors(vectors: str | Path | Vectors, options: Any, verify: bool, quiet: bool) -> Vectors:
    """Open vectors, given by their path or as Vectors."""
    from penstock.pipelines.vectors import Vectors

    return Vectors.open(vectors, ids=options.id_file)


GRAPH = Source(open_graph, verified=True)
VECTORS = Source(open_vectors, kind=ClientInput)


@dataclass(frozen=True)
class RunFolder:
    """The folder of a training run, which may continue while it is read.

    checkpoints  stamps of those that existed when it was opened
    """

    path: Path
    checkpoints: dict[str, list[int]]

    def stamps(self) -> dict[str, Any]:
        """Return stamps that change if another run replaces it, and its first checkpoints'."""
        inode = self.path.stat().st_ino if self.path.is_dir() else None
        return {str(self.path): inode, **self.checkpoints}

    def graph_path(self, given: Path | None, trained_on: str, remedy: str) -> Path:
        """Return the path of the graph that the options name, else that of the run."""
        if given is None and not Path(trained_on).is_dir():
            what = f"the graph of {self.path} is not at {trained_on} any more"
            raise InputError(what, remedy=remedy)
        return given or Path(trained_on)


def open_run(run: str | Path, options: Any, verify: bool, quiet: bool) -> RunFolder:
    """Open a run, given by its path."""
    from penstock.output import file_stamp

    path = client_path(run)
    found = sorted(path.glob("checkpoints/best.*")) + sorted(path.glob("checkpoints/last.*"))
    return RunFolder(path, {str(file): file_stamp(file) for file in found})


RUN = Source(open_run)


_RUN = Group("Run", sort_key=6)
_Flag = Annotated[bool, Parameter(negative="", group=_RUN)]


@options
class Overwrite:
    """The option of all jobs that write."""

    overwrite: _Flag = False
    """replace an existing output; a directory must be one of this job"""


@options
class Run(Overwrite):
    """Options of all jobs that make a directory."""

    resume: _Flag = False
    """resume an interrupted run of the same command"""


@options
class VerifiedRun(Run):
    """Options of all jobs that make a directory from one with checksums."""

    verify: _Flag = False
    """first compare every file of the input with its SHA-256"""


@dataclass(frozen=True)
class Call:
    """One call of a job: its options, and those of its run."""

    options: Any
    run: Any
    wait: bool = False

    def asks(self, name: str) -> bool:
        """Return whether a flag of the run is given."""
        return bool(getattr(self.run, name, False))


class Job(Generic[R]):
    """A declared job, which can be called: ``penstock.walk("g", "w", length=10)``.

    name       the words after ``penstock``
    reads      how its input is given; None: no input
    writes     its output: a directory with ``<kind>.json`` or ``_<kind>.json``; None: nothing;
               ``file``: a file; ``run``: a training run, readable meanwhile
    version    part of the identity of an output: raised when results or defaults change
    into       path of the output, from input and options, if it is not given
    files      options that name input files
    passing    options that do not affect the result
    varying    options that do, but may change when an interrupted run resumes, or a function that
               returns their names from all options
    clustered  whether it runs on a cluster
    on_gpu     whether its tasks or ranks compute on GPUs if available
    resumable  whether the work of an interrupted run is kept for ``--resume``
    plans      whether a job without an output has ``--plan``, like those with one
    """

    def __init__(
        self,
        function: Callable[..., R],
        name: str,
        *,
        reads: Source | None = GRAPH,
        writes: str | None = None,
        version: int = 1,
        into: Callable[[Any, Any], Path] | None = None,
        files: tuple[str, ...] = (),
        passing: tuple[str, ...] = (),
        varying: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = (),
        clustered: bool = True,
        on_gpu: bool = False,
        resumable: bool = True,
        plans: bool = False,
    ) -> None:
        self.resumable, self.plans = resumable, plans or writes is not None
        self.function, self.name, self.version = function, name, version
        self.reads, self.writes, self.into = reads, writes, into
        self.files, self.passing, self.varying = files, (*passing, "scratch"), varying
        self.clustered, self.on_gpu = clustered, on_gpu
        self.__name__, self.__doc__, self.__module__ = name, function.__doc__, function.__module__
        # The names of positional arguments, as in the function.
        count = (reads is not None) + (writes is not None and into is None)
        self._given = [*self._parameters][1 : 1 + count]
        self.run_options: type[Any] | None = None
        if writes is not None:
            verified = reads is not None and reads.verified
            self.run_options = VerifiedRun if verified else Run
            if writes == "file":
                self.run_options = Overwrite

    @property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.function).parameters)

    @cached_property
    def options(self) -> type[Any] | None:
        """The options of the job, if it has any."""
        return self._annotated("options") if "options" in self._parameters else None

    def _annotated(self, name: str) -> type[Any]:
        # Types imported for type checking only, as Graph, have no name here.
        found: type[Any] = eval(self.function.__annotations__[name], self.function.__globals__)
        return found

    def __call__(
        self,
        *given: Any,
        cluster: str | ClusterSpec | None = None,
        quiet: bool = True,
        **options: Any,
    ) -> R:
        """Run the job from Python."""
        with self._called_from_python(given, options, cluster, quiet=quiet) as call:
            return self._run(*call)

    def plan(
        self,
        *given: Any,
        cluster: str | ClusterSpec | None = None,
        quiet: bool = True,
        **options: Any,
    ) -> Plan:
        """Return what a run with these arguments would do, and write nothing."""
        how = {"quiet": quiet, "plans": True}
        with self._called_from_python(given, options, cluster, **how) as call:
            return self._plan(*call)

    def wait_for(self, *given: Any, quiet: bool = True, **options: Any) -> R:
        """Run the job; if another process makes the same output, wait for it."""
        with self._called_from_python(given, options, None, quiet=quiet) as (context, places, call):
            return self._run(context, places, replace(call, wait=True))

    @contextmanager
    def _called_from_python(
        self, given: tuple[Any, ...], options: dict[str, Any], cluster: Any, **how: bool
    ) -> Iterator[tuple[Context, list[Any], Call]]:
        with (
            self._bound(given, options) as (places, call),
            Context(cluster, on_gpu=self.on_gpu, **how) as context,
        ):
            yield context, places, call

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters of a call, with every option by name."""
        kind = inspect.Parameter
        found = [kind(name, kind.POSITIONAL_OR_KEYWORD) for name in self._given]
        more = {"cluster": None} if self.clustered else {}
        for name, default in {**more, "quiet": True, **self.option_defaults()}.items():
            found.append(kind(name, kind.KEYWORD_ONLY, default=default))
        return inspect.Signature(found)

    def option_defaults(self) -> dict[str, Any]:
        """Return the names of all options, and their defaults."""
        known = [one for one in (self.options, self.run_options) if one is not None]
        empty = inspect.Parameter.empty
        return {
            one.name: empty if one.default is MISSING else one.default
            for kind in known
            for one in fields(kind)
        }

    @contextmanager
    def _bound(
        self, given: tuple[Any, ...], named: dict[str, Any]
    ) -> Iterator[tuple[list[Any], Call]]:
        """Return positional arguments and options; tables of this process become files."""
        missing = [name for name in self._given[len(given) :] if name not in named]
        if missing or len(given) > len(self._given):
            raise TypeError(f"{self.name}() takes {', '.join(self._given)}, and options by name")
        places = [*given, *(named.pop(name) for name in self._given[len(given) :])]
        with ExitStack() as stack:
            if self.reads is not None and self.reads.tables:
                from penstock.pipelines.tables.streams import stream_files

                scratch = named.get("scratch") and client_path(named["scratch"])
                files = stack.enter_context(stream_files(client_path(places[-1]), scratch))
                places = [files.path_of(one) for one in places]
                named = {name: files.path_of(value) for name, value in named.items()}
            yield places, self.checked(named)

    def checked(self, named: dict[str, Any]) -> Call:
        """Return the options of a call, of which those of its run are a part."""
        for name in named:
            if name not in (known := self.option_defaults()):
                raise no_option(name, known, owner=f"penstock {self.name}")

        def made(kind: type[Any] | None) -> Any:
            own = {one.name for one in fields(kind)} & named.keys() if kind else ()
            return kind and kind(**{name: named[name] for name in own})

        return Call(made(self.options), made(self.run_options))

    def _identity(self, source: Any, call: Call) -> dict[str, Any]:
        """Return what determines the output: options that are not defaults, and inputs' stamps."""
        from penstock.output import file_stamp

        stamps = {str(one): file_stamp(one) for one in self._named(call) if one.is_file()}
        options = given_options(call.options, passing=self.passing) if call.options else {}
        names = self.varying(call.options) if callable(self.varying) else self.varying
        varying = {name: options.pop(name) for name in names if name in options}
        inputs = {**({} if source is None else source.stamps()), **stamps}
        found = {"job": self.name, "version": self.version, "options": options, "inputs": inputs}
        more = {"varying": varying, "base": self._earlier(call, "base")}
        return {**found, **{name: value for name, value in more.items() if value}}

    def _named(self, call: Call) -> list[Path]:
        named = (getattr(call.options, name) for name in self.files)
        return [Path(one) for one in named if one and isinstance(one, str | Path)]

    def _earlier(self, call: Call, option: str) -> dict[str, Any]:
        """Return the stamps of an output of yesterday, which ``--overwrite`` may replace: of its
        manifest, or of all files of a folder without one.
        """
        from penstock.output import file_stamp

        if (path := getattr(call.options, option, None)) is None:
            return {}
        files = [path] if path.is_file() else sorted(path.glob("[!.]*.json")) or path.glob("*")
        return {str(one): file_stamp(one) for one in files}

    def _open(
        self, context: Context, given: list[Any], call: Call
    ) -> tuple[list[Any], Output | None]:
        """Open the input, and return it with the output, which does not exist yet."""
        opened = []
        context.init = Watched(partial(self._earlier, call, "init"))
        if self.reads is not None:
            opened = [self.reads.open(given[0], call.options, call.asks("verify"), context.quiet)]
        if self.writes is None:
            return opened, None
        from penstock.output import FileOutput, Output, refuse_own_input
        from penstock.run_output import RunOutput

        source = opened[0] if opened else None
        out = client_path(given[-1]) if self.into is None else self.into(source, call.options)
        identity = self._identity(source, call)
        if self.into is None:
            own = () if source is None else source.stamps()
            searched = [] if self.reads is None else self.reads.searched(source)
            refuse_own_input(out, [*own, *self._named(call)], searched=searched)
        made = {"file": FileOutput, "run": RunOutput}.get(self.writes, Output)(
            out,
            kind=self.writes,
            identity=identity,
            command=f"penstock {self.name}",
            scratch=getattr(call.options, "scratch", None),
            resume=call.asks("resume"),
            overwrite=call.asks("overwrite"),
            wait=call.wait,
            keeps=self.resumable,
        )
        context.out = made
        return opened, made

    def _inputs(self, opened: list[Any], call: Call) -> dict[str, Any]:
        found = self._identity(opened[0] if opened else None, call)
        return {**found["inputs"], **found.get("base", {})}

    def _called(self, context: Context, opened: list[Any], out: Output | None, call: Call) -> R:
        given = [*opened, *filter(None, (out, call.options))]
        try:
            report: R = self.function(context, *given)
        finally:  # no task writes to a published or removed output
            context.close()
        return report

    def _run(self, context: Context, given: list[Any], call: Call) -> R:
        from penstock.workers.ahead import compile_ahead

        begun = time.monotonic()
        compile_ahead(self.name)
        opened, out = self._open(context, given, call)
        if out is not None and call.asks("resume") and (found := out.finished) is not None:
            out.tidy()
            kept: R = filled(self._annotated("return"), found["report"])
            return kept
        inputs = Watched(partial(self._inputs, opened, call))
        with nullcontext() if out is None else out.open():
            try:
                report = self._called(context, opened, out, call)
            except Exception as error:  # an input that changed may be the cause
                inputs.check(error)
                raise
            inputs.check()
            if isinstance(report, JobReport):
                report.seconds = time.monotonic() - begun
            if out is not None:
                out.finish(report=report.to_record())
        return report

    def _plan(self, context: Context, given: list[Any], call: Call) -> Plan:
        opened, out = self._open(context, given, call)
        if out is not None and call.asks("resume") and out.finished is not None:
            made = Plan("nothing: it is finished", (), Need(0))
        else:
            if out is not None:
                out.refuse_taken()
            try:
                self._called(context, opened, out, call)
                raise AssertionError(f"penstock {self.name} plans nothing")
            except Planned as planned:
                made = planned.plan
        made = replace(made, command=f"penstock {self.name}")
        if out is None:
            return made
        return replace(made, out=str(out.named))

    @cached_property
    def command(self) -> Callable[..., None]:
        """The function for the command line."""

        def command(*given: Any, **named: Any) -> None:
            display = named.get("output") or Display()
            if len(given) < len(self._given):  # cyclopts names those after one that is left out
                given = (*(given or [()]), named.get(self._given[-1]))
            if None in given:
                raise UsageError(f"penstock {self.name} needs {self._given[-1].upper()}")
            made = None if self.run_options is None else self.run_options()
            call = Call(
                named.get("options") or (self.options and self.options()), named.get("how") or made
            )
            planned = bool(named.get("plan"))
            cluster = named.get("cluster")
            with Context(cluster, on_gpu=self.on_gpu, quiet=display.quiet, plans=planned) as one:
                self.show(one, [*given], call, display)

        kind, empty = inspect.Parameter, inspect.Parameter.empty
        found: dict[str, tuple[Any, Any]] = {}
        if self.options is not None:
            required = any(
                one.default is MISSING and one.default_factory is MISSING
                for one in fields(self.options)
            )
            found["options"] = self.options, empty if required else self.options()
        if self.run_options is not None:
            found["how"] = self.run_options, self.run_options()
        if self.clustered:
            found["cluster"] = ClusterSpec, ClusterSpec()
        if self.plans:
            found["plan"] = PlanFlag, False
        found["output"] = Display, Display()
        types = [*([] if self.reads is None else [self.reads.kind]), ClientPath]
        defaults: list[Any] = [empty, empty]
        if self.reads is not None and self.reads.optional:  # then OUT must have a default, too
            types, defaults = [types[0], ClientPath | None], [(), None]
        parameters = [
            kind(name, kind.POSITIONAL_ONLY, annotation=annotation, default=default)
            for name, annotation, default in zip(self._given, types, defaults, strict=False)
        ]
        parameters += [
            kind(name, kind.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in found.items()
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__doc__ = self.function.__doc__
        command.job = self  # type: ignore[attr-defined]
        return command

    def show(self, context: Context, given: list[Any], call: Call, display: Display) -> None:
        """Run the job for the command line, and show its report or its plan."""
        if context.plans:
            plan = self._plan(context, given, call)
            display.show(plan)
            if plan.problem is not None:
                print(f"penstock: {plan.problem}", file=sys.stderr)
            return
        report = self._run(context, given, call)
        if not isinstance(report, OutputReport):
            display.show(report)
            return
        display.show(report, report.following())
        display.note(report.verbose())
        if (failed := report.failure()) is not None:
            failed.reported = True
            raise failed


def job(name: str, **declared: Any) -> Callable[[Callable[..., R]], Job[R]]:
    """Declare a job: see ``Job``."""
    return lambda function: Job(function, name, **declared)
