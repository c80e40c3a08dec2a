"""A flow as its YAML file says it: stages that name their inputs, checked before anything runs.

name: nightly
folder: out                      # where the outputs of stages are [default: the flow's name]
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.documents import parse_yaml
from penstock.errors import InputError, UsageError
from penstock.options import given_in, shown, with_underscores
from penstock.paths import client_input, client_path
from penstock.pipelines.flow.document.commands import StageCommand, command_of, job_name
from penstock.pipelines.flow.document.destinations import check_destinations
from penstock.pipelines.flow.gates import Gate, parse_gate
from penstock.pipelines.flow.previous import NAME as PREVIOUS
from penstock.pipelines.flow.previous import is_previous, names_previous, with_previous
from penstock.pipelines.schedule.options import ScheduleOptions
from penstock.secrets import hide

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_FLOW_KEYS = ("name", "folder", "cluster", "variables", "stages", "parallel", "on_success",
              "on_failure", "keep", "schedule")  # fmt: skip
NOT_YET = ".penstock-output-of-a-stage"
STAGE_KEYS = ("job", "python", "input", "after", "expect", "publish", "retries", "gpus", "timeout")


@dataclass(frozen=True)
class Input:
    """One input of a stage: another stage's output, or something outside of the flow."""

    stage: str | None
    path: str  # within the stage's output, or absolute


@dataclass(frozen=True, eq=False)
class StageSpec:
    """One stage, checked.

    command   what it runs; None: the function ``python``, as module:function
    options   as they stand in the file; arguments: the keyword arguments of the command's function
    after     stages that must have run before, whose outputs it does not read
    uses      stages whose outputs its options name, as {{stage.NAME}}
    """

    name: str
    command: StageCommand | None
    python: str | None
    inputs: tuple[Input, ...]
    options: dict[str, Any]
    after: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    publish: tuple[str, ...] = ()
    retries: int = 0
    gpus: int = 0
    timeout: float | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The stages that must be done before this one."""
        named = [one.stage for one in self.inputs if one.stage is not None]
        return tuple(dict.fromkeys([*named, *self.uses, *self.after]))

    @property
    def title(self) -> str:
        """What it runs, in a word or two."""
        return f"python {self.python}" if self.command is None else self.command.name

    @property
    def previous(self) -> bool:
        """Whether an option names the output that it had before, as {{previous}}."""
        return any(map(is_previous, self.options.values()))

    @property
    def in_place(self) -> bool:
        """Whether its output lies in its input."""
        return self.command is not None and self.command.in_place

    @property
    def gang(self) -> bool:
        """Whether it runs on several ranks at once, which two stages cannot do side by side."""
        count = self.options.get("parts")
        return isinstance(count, int) and count > 1 and self.title != "partition"


@dataclass(frozen=True, eq=False)
class Flow:
    """A whole flow. ``stages`` are in an order in which they can run."""

    path: Path
    text: str
    name: str
    folder: Path
    cluster: dict[str, Any]
    stages: dict[str, StageSpec]
    variables: dict[str, str]
    parallel: int | None = None
    on_success: str | None = None
    on_failure: str | None = None
    keep: int = 1
    schedule: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The folder that relative paths of the file mean."""
        return self.path.parent

    @property
    def spec(self) -> ClusterSpec:
        """The cluster of all stages."""
        with contextlib.chdir(self.home):
            return ClusterSpec(**self.cluster)

    def destination(self, target: str) -> str:
        """Return the path or URL that a stage's ``publish`` means."""
        target = target.removeprefix("file://").removeprefix("local://")
        return (
            target if "://" in target else str(client_path(self.home / Path(target).expanduser()))
        )

    def output(self, stage: str) -> Path:
        """Return where the output of a stage is."""
        found = self.stages[stage]
        if found.command is not None and (found.command.in_place or not found.command.writes):
            first = found.inputs[0] if found.inputs else None
            if first is not None:
                return self.path_of(first)
        return self.folder / stage

    def written(self, stage: str) -> Path | None:
        """Return what a stage replaces: its output, parts within its input, or nothing."""
        found = self.stages[stage]
        if found.in_place:
            from penstock.partition.part import partition_path

            return partition_path(self.output(stage), found.options["k"])
        return self.output(stage) if found.command is None or found.command.writes else None

    def path_of(self, given: Input) -> Path:
        """Return the path of an input."""
        if given.stage is None:
            return Path(given.path)
        return self.output(given.stage) / given.path if given.path else self.output(given.stage)

    def before(self, names: set[str]) -> set[str]:
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
    path: Path, settings: Mapping[str, str] | None = None, *, now: dt.datetime | None = None
) -> Flow:
    """Read a flow; ``settings`` are variables from outside, which win over those in the file."""
    text, body = _parsed(path)
    _check_keys(body, _FLOW_KEYS, f"{path}")
    name = body.get("name", path.stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"{path}: name", expected="letters, digits, - and _", got=repr(name))
    names = _Variables(path, body.get("variables") or {}, settings or {}, now)
    with contextlib.chdir(path.parent):
        folder = names.filled(str(body.get("folder") or name), "folder")
        stages = _stages(body.get("stages"), names, path)
        cluster = names.all_filled(body.get("cluster") or {}, "cluster")
        cluster = {"cluster": cluster} if isinstance(cluster, str) else cluster
        if not isinstance(cluster, dict):
            raise UsageError(f"{path}: cluster", expected="options of a cluster", got=repr(cluster))
        cluster = with_underscores(cluster, f"{path}: cluster")
        with given_in(f"{path}: cluster"):
            ClusterSpec(**cluster)  # so that what is wrong is said before anything runs
        flow = Flow(
            path=path,
            text=text,
            name=name,
            folder=client_path(folder),
            cluster=cluster,
            stages=_in_order(stages),
            variables=names.used,
            parallel=_number(body, "parallel", path, least=1, most=1000),
            on_success=_text(body, "on_success", names, path),
            on_failure=_text(body, "on_failure", names, path),
            keep=_number(body, "keep", path, most=1000) if "keep" in body else 1,  # type: ignore[arg-type]
            schedule=_schedule(body.get("schedule") or {}, path),
        )
        check_destinations(flow)
        return flow


def read_schedule(path: Path) -> dict[str, Any]:
    """Return what a flow's file says of when it runs; nothing else of it is checked."""
    _, body = _parsed(path)
    return _schedule((body.get("schedule") or {}) if isinstance(body, dict) else {}, path)


def _parsed(path: Path) -> tuple[str, Any]:
    """Return the text of a flow's file, and what YAML makes of it."""
    try:
        text = path.read_text(encoding="utf-8")
        body = parse_yaml(text)
    except FileNotFoundError as error:
        raise InputError(f"there is no flow {path}", expected="a YAML file with stages") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}", expected="YAML in UTF-8", got=str(error)) from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder", expected="a YAML file with stages") from error
    return text, body


class _Variables:
    """What stands for ``{{name}}``: given from outside, in the file, or built in."""

    def __init__(
        self, path: Path, own: Any, given: Mapping[str, str], now: dt.datetime | None
    ) -> None:
        if not isinstance(own, dict):
            raise UsageError(f"{path}: variables", expected="names and values", got=repr(own))
        self.path, self.own, self.given = path, {str(k): v for k, v in own.items()}, dict(given)
        for name, value in self.own.items():
            if value is None or isinstance(value, list | dict):
                raise UsageError(
                    f"{path}: variables: {name}", expected="a text, a number, true or false",
                    got="nothing" if value is None else repr(value),
                )  # fmt: skip
        moment = now or dt.datetime.now().astimezone()
        self.built_in = {
            "date": moment.date().isoformat(),
            "yesterday": (moment.date() - dt.timedelta(days=1)).isoformat(),
            "time": moment.strftime("%H%M%S"),
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

        A text that is one variable alone becomes what YAML makes of the variable's value.
        """
        if isinstance(value, str):
            made = self.filled(value, where, kept=kept)
            alone = _VARIABLE.fullmatch(value.strip())
            if alone and made != value and not alone[1].startswith("env."):
                own = None if alone[1] in self.given else self.own.get(alone[1])
                return own if isinstance(own, bool | int | float) else _plain(made)
            return made
        if isinstance(value, list):
            return [self.all_filled(one, where, kept=kept) for one in value]
        if isinstance(value, dict):
            return {key: self.all_filled(one, where, kept=kept) for key, one in value.items()}
        return value


def _plain(text: str) -> Any:
    """Return the number, true or false that a text is, or the text.

    YAML 1.1 would make 750 of 12:30, 8 of 010, and a text of 1e-5.
    """
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", text):
        return float(text)
    if ":" in text or re.match(r"[-+]?0\d", text):
        return text
    try:
        parsed = parse_yaml(text)
    except ValueError:
        return text
    return parsed if isinstance(parsed, bool | int | float) else text


def _stages(given: Any, names: _Variables, path: Path) -> dict[str, StageSpec]:
    if not isinstance(given, dict) or not given:
        raise UsageError(f"{path} has no stages", expected="stages: with a name for each")
    for name in given:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"{path}: the name of a stage",
                expected="letters, digits, - and _, not a digit first", got=repr(name),
            )  # fmt: skip
    made: dict[str, StageSpec] = {}
    for name in given:
        _stage(name, given, made, names, path, ())
    return {name: made[name] for name in given}


def _stage(
    name: str,
    given: dict[str, Any],
    made: dict[str, StageSpec],
    names: _Variables,
    path: Path,
    above: tuple[str, ...],
) -> StageSpec:
    """Make a stage, and those that it reads from first: its job may follow from theirs."""
    if name in made:
        return made[name]
    if name in above:
        circle = " -> ".join([*above[above.index(name) :], name])
        raise UsageError(f"{path}: stages wait for each other: {circle}")
    where = f"{path}: stage {name}"
    body = given[name]
    if not isinstance(body, dict):
        raise UsageError(where, expected="job: and its options", got=repr(body))
    body = {
        key: names.all_filled(one, where, kept=(PREVIOUS,))
        for key, one in with_underscores(body, where).items()
    }
    if ("job" in body) == ("python" in body):
        raise UsageError(where, expected="either job: or python:", got=", ".join(body) or "nothing")
    _check_previous(body, where)
    for key in STAGE_KEYS:
        if key != "input" and (named := _named_stages(body.get(key))):
            raise UsageError(
                f"{where}: {key} names the output of stage {named[0]!r}",
                expected="{{stage.NAME}} in an option of a job, or in input",
            )
    inputs = tuple(_input(one, given, name, where) for one in _listed(body.get("input"), where))
    after = tuple(str(one) for one in _listed(body.get("after"), where))
    options = {key: one for key, one in body.items() if key not in STAGE_KEYS}
    uses = tuple(sorted(set(_named_stages(options))))
    for one in (*after, *uses):
        if one not in given:
            raise UsageError(f"{where} names the stage {one!r}, which there is not",
                             expected=f"one of {', '.join(given)}")  # fmt: skip
    needed = [one.stage for one in inputs if one.stage is not None] + [*after, *uses]
    for one in needed:
        _stage(one, given, made, names, path, (*above, name))
    command = None
    if "job" in body:
        first = next((one.stage for one in inputs if one.stage is not None), None)
        before = made[first].title if first is not None else None
        command = _checked_command(str(body["job"]), before, inputs, options, where)
    gates = body.get("expect") or {}
    if not isinstance(gates, dict):
        raise UsageError(f"{where}: expect", expected="a metric and what it is to be, a line each")
    spec = StageSpec(
        name=name,
        command=command,
        python=None if command is not None else _module(str(body["python"]), where),
        inputs=inputs,
        options=options,
        after=after,
        uses=uses,
        gates=tuple(
            _gate(str(metric), one, where)
            for metric, expected in gates.items()
            for one in (expected if isinstance(expected, list) and expected else [expected])
        ),
        publish=tuple(map(str, _listed(body.get("publish"), where))),
        retries=_number(body, "retries", where, most=100) or 0,
        gpus=_number(body, "gpus", where, most=100_000) or 0,
        timeout=_seconds(body.get("timeout"), where),
    )
    if spec.previous and (command is None or command.in_place or not command.writes):
        raise UsageError(
            f"{where} has no output of its own that its job replaces: no {{{{previous}}}}",
            remedy="A function finds its earlier output where it writes" if command is None
            else "Name the output of a stage, or a path",
        )  # fmt: skip
    if spec.publish and command is not None and not command.writes:
        raise UsageError(f"{where} writes no output that could be published",
                         remedy="Publish the stage that it reads")  # fmt: skip
    made[name] = spec
    return spec


def _check_previous(body: dict[str, Any], where: str) -> None:
    """Refuse {{previous}} where it is not the whole, or the beginning, of an option's path."""
    for key, value in body.items():
        if names_previous(value) and (key in STAGE_KEYS or not is_previous(value)):
            raise UsageError(
                f"{where}: {key} names {{{{previous}}}}, the output that the stage had before",
                expected="an option of a job that is this path, or one within it: "
                'init: "{{previous}}"',
                got=repr(value),
            )


def _checked_command(
    job: str, before: str | None, inputs: tuple[Input, ...], options: dict[str, Any], where: str
) -> StageCommand:
    with given_in(where):
        command = command_of(job_name(job, before))
        for taken in ("resume", "overwrite"):
            if taken in options:
                raise UsageError(f"option {taken} is the flow's", remedy="Leave it out")
        command.arguments(without_stages(options))
        least, most = command.inputs
        if len(inputs) < least or (most is not None and len(inputs) > most):
            count = f"{least}" if least == most else f"{least} to {most if most else 'many'}"
            raise UsageError(f"penstock {command.name} takes {count} input(s)",
                             got=str(len(inputs)))  # fmt: skip
    return command


def _gate(metric: str, text: Any, where: str) -> Gate:
    with given_in(where):
        return parse_gate(metric, text)


def _input(value: Any, stages: Mapping[str, Any], name: str, where: str) -> Input:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: input", expected="a stage, or a path", got=repr(value))
    if named := re.match(r"\{\{\s*stage\.([^{}]*?)\s*\}\}", value):
        value = named[1] + value[named.end() :]
        if value.partition("/")[0] not in stages:
            raise UsageError(f"{where}: input names the stage {named[1]!r}, which there is not",
                             expected=f"one of {', '.join(stages)}")  # fmt: skip
    first, _, rest = value.partition("/")
    if first in stages:
        if first == name:
            raise UsageError(f"{where} reads its own output", remedy="Name another input")
        if ".." in rest.split("/"):  # what lies there would not be checked for changes
            raise UsageError(
                f"{where}: input leads out of the output of stage {first!r}",
                expected="a path within it, without ..", got=value,
                remedy="Name a file outside by its own path, as ./people.parquet",
            )  # fmt: skip
        return Input(first, rest)
    return Input(None, client_input(value))


def _named_stages(value: Any) -> list[str]:
    if isinstance(value, str):
        named = (one[1] for one in _VARIABLE.finditer(value))
        return [one[6:].partition("/")[0] for one in named if one.startswith("stage.")]
    if isinstance(value, list):
        return [name for one in value for name in _named_stages(one)]
    return [name for one in value.values() for name in _named_stages(one)] if isinstance(
        value, dict) else []  # fmt: skip


def without_stages(options: dict[str, Any]) -> dict[str, Any]:
    """Return options in which outputs that may not be there yet have a name that never is."""
    options = with_previous(options, Path("/", NOT_YET))
    made: dict[str, Any] = with_stages(options, lambda name: f"/{NOT_YET}/{name}")
    return made


def with_stages(value: Any, path_of: Callable[[str], object]) -> Any:
    """Return options with {{stage.NAME}} replaced by ``path_of(NAME)``."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda one: str(path_of(one[1][6:])), value)
    if isinstance(value, list):
        return [with_stages(one, path_of) for one in value]
    if isinstance(value, dict):
        return {key: with_stages(one, path_of) for key, one in value.items()}
    return value


def _in_order(stages: dict[str, StageSpec]) -> dict[str, StageSpec]:
    needs = {name: stage.needs for name, stage in stages.items()}
    return {name: stages[name] for name in TopologicalSorter(needs).static_order()}


def _module(text: str, where: str) -> str:
    if not re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", text):
        raise UsageError(f"{where}: python", expected="module:function", got=text)
    return text


def _listed(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _schedule(given: Any, path: Path) -> dict[str, Any]:
    known = ("cron", "timezone", "retries", "backoff")
    given = {"cron": given} if isinstance(given, str) else given
    if not isinstance(given, dict) or set(given) - set(known):
        raise UsageError(f"{path}: schedule", expected=", ".join(known), got=repr(given))
    with given_in(f"{path}: schedule"):
        ScheduleOptions(**given)
    return given


def _number(body: dict[str, Any], key: str, where: Any, *, least: int = 0, most: int) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(
            f"{where}: {key}", expected=f"a whole number from {least} to {most}", got=shown(value)
        )
    return value


def _seconds(value: Any, where: str) -> float | None:
    """Return seconds of 90, "90 s", "30 min" or "2 h"."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|)", str(value).strip())
    if isinstance(value, bool) or found is None or float(found[1]) <= 0:
        raise UsageError(f"{where}: timeout", expected='"90 s", "30 min" or "2 h"', got=repr(value))
    return float(found[1]) * {"": 1, "s": 1, "min": 60, "h": 3600}[found[2]]


def _text(body: dict[str, Any], key: str, names: _Variables, path: Path) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{path}: {key}", expected="a command, or an http(s) address",
                         got=repr(value))  # fmt: skip
    return None if value is None else names.filled(value, key)


def _check_keys(body: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(body, dict):
        raise UsageError(f"{where} is no flow", expected="a mapping with stages:",
                         got=type(body).__name__)  # fmt: skip
    unknown = [str(key) for key in body if key not in known]
    if unknown:
        raise UsageError(f"{where} has the unknown key {unknown[0]!r}",
                         expected=f"one of {', '.join(known)}")  # fmt: skip
