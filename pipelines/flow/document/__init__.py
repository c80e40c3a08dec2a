"""A flow as its YAML file declares it: stages that name their inputs, checked before anything runs.

name: nightly
folder: out                      # folder of the outputs of stages [default: the flow's name]
cluster: {cluster: local, workers: 4}
variables: {day: "{{date}}"}
stages:
  graph:
    job: etl
    input: follows.parquet       # a file, or the name of a stage
    directed: true               # options of penstock etl
    expect: {nodes: within 5 % of previous}
  walks:
    job: walk
    input: graph
    length: 40
    publish: /srv/walks
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from penstock.cluster.spec import ClusterSpec
from penstock.documents import read_yaml, with_texts
from penstock.errors import PenstockError, UsageError
from penstock.options import given_in, with_underscores
from penstock.paths import client_input, client_path
from penstock.pipelines.flow.document.commands import job_name, job_of
from penstock.pipelines.flow.document.destinations import check_destinations, destination_of
from penstock.pipelines.flow.document.file import FlowKeys, StageKeys, read_keys
from penstock.pipelines.flow.gates import Gate, parse_gate
from penstock.pipelines.flow.previous import BASE, is_previous, names_previous, with_previous
from penstock.pipelines.flow.previous import NAME as PREVIOUS
from penstock.pipelines.job.declare import Call, Job
from penstock.pipelines.schedule.cron import zone_of
from penstock.pipelines.schedule.options import ScheduleTimes
from penstock.secrets import hide

_VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
HIDDEN = ".flow"  # in the folder of the outputs: what the flow knows of them
NOT_YET = ".penstock-output-of-a-stage"
HOOKS = ("on_success", "on_failure", "on_retry")
STAGE_KEYS = tuple(StageKeys.model_fields)


@dataclass(frozen=True)
class Input:
    """One input of a stage: another stage's output, or something outside of the flow."""

    stage: str | None
    path: str  # within the stage's output, or absolute


@dataclass(frozen=True, eq=False)
class StageSpec:
    """One stage, checked.

    keys      the file's, with variables replaced
    job       what it runs; None: the function ``keys.python``, as module:function
    uses      stages whose outputs its options name, as {{stage.NAME}}
    incremental  whether it starts from its previous output, unless it is made whole
    base      the option that names that output, if it is not among its own
    """

    name: str
    keys: StageKeys
    job: Job[Any] | None
    inputs: tuple[Input, ...]
    options: dict[str, Any]
    uses: tuple[str, ...]
    gates: tuple[Gate, ...]
    incremental: bool
    base: dict[str, Any]

    @property
    def needs(self) -> tuple[str, ...]:
        """The stages that must be done before this one."""
        named = [one.stage for one in self.inputs if one.stage is not None]
        return tuple(dict.fromkeys([*named, *self.uses, *self.keys.after]))

    @property
    def title(self) -> str:
        """What it runs, in a word or two."""
        return f"python {self.keys.python}" if self.job is None else self.job.name

    @property
    def previous(self) -> bool:
        """Whether an option names the output that it had before, as {{previous}}."""
        return any(map(is_previous, self.with_base.values()))

    @property
    def with_base(self) -> dict[str, Any]:
        """Its options, with the base that ``incremental`` gives it."""
        return {**self.base, **self.options}

    @property
    def in_place(self) -> bool:
        """Whether its output lies in its input: the parts of a graph."""
        return self.job is not None and self.job.into is not None

    @property
    def own(self) -> bool:
        """Whether it has an output of its own: not in its input, and not only a report."""
        return self.job is None or (self.job.writes is not None and not self.in_place)

    @property
    def gang(self) -> bool:
        """Whether it runs on several ranks at once, which two stages cannot do side by side."""
        count = self.options.get("parts")
        return isinstance(count, int) and count > 1 and self.title != "partition"


@dataclass(frozen=True, eq=False)
class Flow:
    """A whole flow. ``stages`` are in an order in which they can run.

    keys  the file's, with variables replaced in hooks
    """

    path: Path
    text: str
    keys: FlowKeys
    name: str
    date: dt.date
    folder: Path
    spec: ClusterSpec  # the cluster of all stages
    stages: dict[str, StageSpec]
    variables: dict[str, str]
    series: str  # its folder but for dates: runs with the same one are compared

    @property
    def home(self) -> Path:
        """The folder that relative paths of the file mean."""
        return self.path.parent

    @property
    def state(self) -> Path:
        """The folder of what the flow knows of its outputs."""
        return self.folder / HIDDEN

    @property
    def incremental(self) -> bool:
        """Whether stages start from their previous outputs."""
        return any(stage.incremental for stage in self.stages.values())

    def destination(self, target: str) -> str:
        """Return the path or URL that a stage's ``publish`` means."""
        return destination_of(target, self.home)

    def output(self, stage: str) -> Path:
        """Return the path of a stage's output."""
        found = self.stages[stage]
        if found.own or not found.inputs:
            return self.folder / stage
        return Path(self.path_of(found.inputs[0]))

    def written(self, stage: str) -> Path | None:
        """Return what a stage replaces: its output, parts within its input, or nothing."""
        found = self.stages[stage]
        if found.in_place:
            from penstock.partition.part import partition_path

            return partition_path(self.output(stage), found.options["k"])
        return self.output(stage) if found.own else None

    def path_of(self, given: Input) -> str:
        """Return the path of an input, or its URL."""
        return given.path if given.stage is None else str(self.output(given.stage) / given.path)

    def before(self, names: Iterable[str]) -> set[str]:
        """Return stages and all that they depend on."""
        found = set(names)
        for name, stage in reversed(self.stages.items()):
            if name in found:
                found |= set(stage.needs)
        return found

    def after(self, names: tuple[str, ...]) -> set[str]:
        """Return stages and all that depend on them."""
        found = set(names)
        for name, stage in self.stages.items():
            if found & set(stage.needs):
                found.add(name)
        return found


def read_flow(
    path: Path, settings: Mapping[str, str] | None = None, *, date: dt.date | None = None
) -> Flow:
    """Read a flow.

    settings  variables from outside, which win over those in the file
    date      the day that it computes [default: today, in its time zone]
    """
    keys = read_keys(FlowKeys, read_yaml(path, "flow"), path)
    name = keys.name or path.stem
    date = date or _today(keys)
    names = _Variables(path, keys.variables, settings or {}, date)
    with contextlib.chdir(path.parent):
        folder = names.filled(keys.folder or name, "folder")
        stages = _stages(keys, names, path)
        cluster = with_underscores(names.all_filled(keys.cluster, "cluster"), f"{path}: cluster")
        with given_in(f"{path}: cluster"):
            spec = ClusterSpec(**cluster)
        hooks = {
            key: names.filled(value, key)
            for key in HOOKS
            if (value := getattr(keys, key)) is not None
        }
        flow = Flow(
            path=path,
            text=path.read_text(encoding="utf-8", errors="replace"),
            keys=keys.model_copy(update={**hooks, "schedule": _schedule(keys)}),
            name=name,
            date=date,
            folder=client_path(folder),
            spec=spec,
            stages=_in_order(stages),
            variables=names.used,
            series=_series(path, keys, settings or {}),
        )
        check_destinations(flow)
        return flow


def read_hook(
    path: Path, key: str, home: Path, settings: Mapping[str, str], date: dt.date
) -> tuple[str | None, float | None]:
    """Return a hook and its time-out, of a file that may be wrong in all else; None: no hook.

    home  the folder of the flow; the file may be a copy
    """
    with contextlib.suppress(PenstockError):
        keys = _some_keys(path, key, "hook_timeout", "variables")
        if (value := getattr(keys, key)) is not None:
            known = {name: value for name, value in settings.items() if name in keys.variables}
            names = _Variables(home / path.name, keys.variables, known, date)
            return names.filled(value, key), keys.hook_timeout
    return None, None


def read_schedule(
    path: Path, settings: Mapping[str, str]
) -> tuple[ScheduleTimes, tuple[str, str | None]]:
    """Return the schedule in a flow's file, and the series of its runs; little else is checked."""
    keys = _some_keys(path, "name", "folder", "variables", "timezone", "schedule")
    series = None
    with contextlib.suppress(PenstockError):  # the run reports it
        series = _series(path, keys, settings)
    return _schedule(keys), (keys.name or path.stem, series)


def _some_keys(path: Path, *names: str) -> FlowKeys:
    body = read_yaml(path, "flow")
    if isinstance(body, dict):
        body = {"stages": {"any": {}}, **{name: body[name] for name in names if body.get(name)}}
    return read_keys(FlowKeys, body, path)


def _series(path: Path, keys: FlowKeys, settings: Mapping[str, str]) -> str:
    """Return the folder of the outputs, relative to the file, as if all runs were of one day."""
    names = _Variables(path, keys.variables, settings, dt.date(2000, 1, 1))
    names.built_in |= {"flow": ".", "time": ""}
    return os.path.normpath(names.filled(keys.folder or keys.name or path.stem, "folder"))


class _Variables:
    """The values of ``{{name}}``: given from outside, in the file, or built in."""

    def __init__(
        self,
        path: Path,
        own: dict[str, Any],
        given: Mapping[str, str],
        date: dt.date,
    ) -> None:
        self.path, self.own, self.given = path, own, dict(given)
        self.dates = {"date": date, "yesterday": date - dt.timedelta(days=1)}
        self.built_in = {
            **{name: day.isoformat() for name, day in self.dates.items()},
            "time": dt.datetime.now().strftime("%H%M%S"),
            "flow": str(path.parent.absolute()),
        }
        self.used: dict[str, str] = {}
        unknown = [name for name in self.given if name not in self.own]
        if unknown:
            raise UsageError(
                f"--set {unknown[0]}: {path} has no such variable",
                expected=f"one of {', '.join(self.own)}"
                if self.own
                else "none: it has no variables",
                remedy=f"Add it with its default:\nvariables:\n  {unknown[0]}: ...",
            )

    def filled(self, text: str, where: str, depth: int = 0, *, kept: tuple[str, ...] = ()) -> str:
        """Return text with every {{name}} replaced, but for {{stage.NAME}} and names ``kept``."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            own = name in self.own or name in self.given
            if name.startswith("stage.") or (name in kept and not own):
                return found[0]
            return self._value(name, where, depth)

        return _VARIABLE.sub(value, text)

    def _value(self, name: str, where: str, depth: int) -> str:
        if not where.startswith(f"{self.path}: "):  # of a variable within another one
            where = f"{self.path}: {where}"
        if depth > 10:
            raise UsageError(where, got=f"variables that name each other: {name}")
        if name.startswith("env."):
            given = os.environ.get(name[4:])
            if given is None:
                raise UsageError(
                    f"{where} needs the environment variable {name[4:]}, which is not set"
                )
            hide({given: name[4:]})
            return given
        if name in self.given:
            found = str(self.given[name])
        elif name in self.own:
            found = self.filled(str(self.own[name]), f"variables: {name}", depth + 1)
        elif name in self.built_in:
            found = self.built_in[name]
        elif (day := self.dates.get(name.partition(":")[0])) is not None:
            found = day.strftime(name.partition(":")[2])
        else:
            known = ", ".join(["env.NAME", "stage.NAME", PREVIOUS, *self.built_in, *self.own])
            raise UsageError(
                f"{where} has the unknown variable {name!r}",
                expected=f"one of {known}",
            )
        self.used[name] = found
        return found

    def all_filled(self, value: Any, where: str, *, kept: tuple[str, ...] = ()) -> Any:
        """Return plain data with variables replaced in all its texts.

        A text that is one variable alone becomes its value: a number, if the file gives one.
        """

        def filled(text: str) -> Any:
            made = self.filled(text, where, kept=kept)
            alone = _VARIABLE.fullmatch(text.strip())
            own = None if alone is None else self.own.get(alone[1])
            if alone is None or not isinstance(own, bool | int | float):
                return made
            return _like(own, made, alone[1]) if alone[1] in self.given else own

        return with_texts(value, filled)


def _like(default: bool | float, text: str, name: str) -> Any:
    """Return the value that a text from outside means, if the variable's default is a number."""
    kind: Any = bool if isinstance(default, bool) else int | float
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise UsageError(f"--set {name}", expected=what) from None


def _stages(keys: FlowKeys, names: _Variables, path: Path) -> dict[str, StageSpec]:
    made: dict[str, StageSpec] = {}
    for name in keys.stages:
        _stage(name, keys, made, names, path, ())
    if keys.rebuild_every is not None and not any(one.incremental for one in made.values()):
        raise UsageError(
            f"{path}: rebuild_every has no effect if no stage is incremental",
            remedy="Leave it out, or add incremental: true",
        )
    return {name: made[name] for name in keys.stages}


def _stage(
    name: str,
    flow: FlowKeys,
    made: dict[str, StageSpec],
    names: _Variables,
    path: Path,
    above: tuple[str, ...],
) -> StageSpec:
    """Make a stage, and those that it reads from first: its job may follow from theirs."""
    given = flow.stages
    if name in made:
        return made[name]
    if name in above:
        circle = " -> ".join([*above[above.index(name) :], name])
        raise UsageError(f"{path}: stages wait for each other: {circle}")
    where = f"{path}: stage {name}"
    body = {
        key: names.all_filled(one, where, kept=(PREVIOUS,))
        for key, one in with_underscores(given[name], where).items()
    }
    keys = read_keys(StageKeys, body, where)
    if (keys.job is None) == (keys.python is None):
        raise UsageError(where, expected="either job: or python:", got=", ".join(body) or "nothing")
    _check_previous(body, where)
    for key in STAGE_KEYS:
        if key != "input" and (named := _named_stages(body.get(key))):
            raise UsageError(
                f"{where}: {key} names the output of stage {named[0]!r}",
                expected="{{stage.NAME}} in an option of a job, or in input",
            )
    inputs = tuple(_input(one, given, name, where) for one in keys.input)
    options = dict(keys.model_extra or {})
    uses = tuple(sorted(set(_named_stages(options))))
    for one in (*keys.after, *uses):
        if one not in given:
            raise UsageError(
                f"{where} names the stage {one!r}, which does not exist",
                expected=f"one of {', '.join(given)}",
            )
    needed = [one.stage for one in inputs if one.stage is not None] + [*keys.after, *uses]
    for one in needed:
        _stage(one, flow, made, names, path, (*above, name))
    job = None
    if keys.job is not None:
        first = next((one.stage for one in inputs if one.stage is not None), None)
        before = made[first].title if first is not None else None
        job = _checked_job(keys.job, before, inputs, options, where)
    asked = flow.incremental if keys.incremental is None else keys.incremental
    base = _base(job, options, keys, where) if asked else {}
    spec = StageSpec(
        name=name,
        keys=keys,
        job=job,
        inputs=inputs,
        options=options,
        uses=uses,
        gates=tuple(
            _gate(metric, one, where)
            for metric, expected in keys.expect.items()
            for one in (expected if isinstance(expected, list) else [expected])
        ),
        incremental=bool(asked and any(map(is_previous, {**base, **options}.values()))),
        base=base,
    )
    if any(map(is_previous, options.values())) and (job is None or not spec.own):
        raise UsageError(
            f"{where} has no own output that its job replaces: no {{{{previous}}}}",
            remedy="A function finds its earlier output at its output path"
            if job is None
            else "Name the output of a stage, or a path",
        )
    if keys.publish and not spec.own:
        raise UsageError(
            f"{where} writes no output that could be published", remedy="Publish its input stage"
        )
    made[name] = spec
    return spec


def _base(
    job: Job[Any] | None, options: dict[str, Any], stage: StageKeys, where: str
) -> dict[str, Any]:
    """Return the option that names a stage's previous output, if its job takes it with the others.

    Raises UsageError if the stage itself asks to be incremental, and no option names that output.
    """
    if "base" in options:
        return {}
    try:
        with given_in(where):
            if job is None:
                raise UsageError("a function has no base", remedy="Leave incremental out")
            job.checked(without_stages({**BASE, **options}))
    except UsageError:  # no such option, or not with the others
        if stage.incremental and not any(map(is_previous, options.values())):
            raise
        return {}
    return BASE


def _check_previous(body: dict[str, Any], where: str) -> None:
    """Refuse {{previous}} if it is not the whole, or the beginning, of an option's path."""
    for key, value in body.items():
        if names_previous(value) and (key in STAGE_KEYS or not is_previous(value)):
            raise UsageError(
                f"{where}: {key} names {{{{previous}}}}, the previous output of the stage",
                expected="an option of a job that is this path, or one within it: "
                'init: "{{previous}}"',
                got=repr(value),
            )


def _checked_job(
    named: str, before: str | None, inputs: tuple[Input, ...], options: dict[str, Any], where: str
) -> Job[Any]:
    with given_in(where):
        job = job_of(job_name(named, before))
        for taken in ("resume", "overwrite"):
            if taken in options:
                raise UsageError(f"option {taken} is the flow's", remedy="Leave it out")
        _typed(options, job.checked(without_stages(options)))
        least, most = (0, 0) if job.reads is None else (1, None if job.reads.several else 1)
        if job.reads is not None and job.reads.optional:
            least = 0
        if len(inputs) < least or (most is not None and len(inputs) > most):
            count = f"{least}" if least == most else f"{least} or more"
            raise UsageError(f"penstock {job.name} takes {count} input(s)", got=str(len(inputs)))
    return job


def _typed(options: dict[str, Any], call: Call) -> None:
    """Make numbers of options that variables give as texts."""
    for made in (call.options, call.run):
        for name, value in vars(made).items() if made else ():
            if isinstance(options.get(name), str) and isinstance(value, bool | int | float):
                options[name] = value


def _gate(metric: str, text: Any, where: str) -> Gate:
    with given_in(where):
        return parse_gate(metric, text)


def _input(value: str, stages: Mapping[str, Any], name: str, where: str) -> Input:
    if not value:
        raise UsageError(f"{where}: input", expected="a stage, or a path", got=repr(value))
    if named := re.match(r"\{\{\s*stage\.([^{}]*?)\s*\}\}", value):
        value = named[1] + value[named.end() :]
        if value.partition("/")[0] not in stages:
            raise UsageError(
                f"{where}: input names the stage {named[1]!r}, which does not exist",
                expected=f"one of {', '.join(stages)}",
            )
    first, _, rest = value.partition("/")
    if first in stages:
        if first == name:
            raise UsageError(f"{where} reads its own output", remedy="Name another input")
        if ".." in rest.split("/"):  # what lies there would not be checked for changes
            raise UsageError(
                f"{where}: input leaves the output of stage {first!r}",
                expected="a path within it, without ..",
                got=value,
                remedy="Name a file outside by its own path, such as ./people.parquet",
            )
        return Input(first, rest)
    return Input(None, client_input(value))


def _named_stages(value: Any) -> list[str]:
    named: list[str] = []
    with_texts(value, lambda text: named.extend(one[1] for one in _VARIABLE.finditer(text)))
    return [one[6:].partition("/")[0] for one in named if one.startswith("stage.")]


def without_stages(options: dict[str, Any]) -> dict[str, Any]:
    """Return options in which outputs that may not be there yet have a name that never is."""
    options = with_previous(options, Path("/", NOT_YET))
    made: dict[str, Any] = with_stages(options, lambda name: f"/{NOT_YET}/{name}")
    return made


def with_stages(value: Any, path_of: Callable[[str], object]) -> Any:
    """Return options with {{stage.NAME}} replaced by ``path_of(NAME)``."""
    return with_texts(value, lambda text: _VARIABLE.sub(lambda one: str(path_of(one[1][6:])), text))


def _in_order(stages: dict[str, StageSpec]) -> dict[str, StageSpec]:
    needs = {name: stage.needs for name, stage in stages.items()}
    return {name: stages[name] for name in TopologicalSorter(needs).static_order()}


def _today(keys: FlowKeys) -> dt.date:
    zone = keys.schedule.timezone or keys.timezone
    return dt.datetime.now(None if zone is None else zone_of(zone)).date()


def _schedule(keys: FlowKeys) -> ScheduleTimes:
    return replace(keys.schedule, timezone=keys.schedule.timezone or keys.timezone)
