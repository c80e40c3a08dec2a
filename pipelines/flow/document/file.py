"""What a flow's YAML file may hold: keys and their types, from which its JSON schema follows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
)

from penstock.errors import UsageError
from penstock.options import given_in, with_underscores
from penstock.pipelines.schedule.options import ScheduleTimes

Model = TypeVar("Model", bound="_Keys")
_UNITS = {"": 1, "s": 1, "min": 60, "h": 3600}


def seconds(value: float | str) -> float:
    """Return the seconds of 90, "90 s", "30 min" or "2 h"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|)", str(value).strip())
    if found is None or float(found[1]) <= 0:
        raise ValueError('"90 s", "30 min" or "2 h"')
    return float(found[1]) * _UNITS[found[2]]


Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
Seconds = Annotated[float, BeforeValidator(seconds), WithJsonSchema({"type": ["number", "string"]})]
Texts = Annotated[
    tuple[StrictStr, ...],
    BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
Expected = StrictInt | StrictFloat | StrictStr
Value = StrictBool | StrictInt | StrictFloat | StrictStr


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StageKeys(_Keys):
    """One stage; all other keys are options of its job, or arguments of its function."""

    model_config = ConfigDict(extra="allow")

    job: StrictStr | None = None
    """a command of penstock"""
    python: Annotated[str, Field(pattern=r"^[\w.]+:[A-Za-z_]\w*$")] | None = None
    """module:function, called with the paths of its inputs, its output, and the options"""
    input: Texts = ()
    """a stage, a path within its output (graph/nodes.parquet), a file, a folder, a glob or a URL;
    or several"""
    after: Texts = ()
    """stages that must have run before"""
    expect: dict[str, Expected | list[Expected]] = {}
    """what metrics must be, so that anything is published: ">= 0.9", within 5 % of previous, not
    worse than previous by 0.02"""
    publish: Texts = ()
    """places that receive the output once all gates are met: folders, or URLs of fsspec"""
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    """how often a stage that failed is run again"""
    gpus: Annotated[int, Field(ge=0, le=100_000)] = 0
    """GPUs that it uses alone"""
    timeout: Seconds | None = None
    """seconds, or 30 min, or 2 h"""
    incremental: StrictBool | None = None
    """give the job its previous output as base [default: that of the flow]"""


def _named(value: Any) -> Any:
    return {"cluster": value} if isinstance(value, str) else value


def _times(value: Any) -> Any:
    given = {"cron": value} if isinstance(value, str) else value
    with given_in("schedule"):
        return ScheduleTimes(**with_underscores(given, "it")) if isinstance(given, dict) else given


class FlowKeys(_Keys):
    """A flow."""

    name: Name | None = None
    """of its runs [default: the file's]"""
    folder: StrictStr | None = None
    """folder of the outputs of stages [default: the name]"""
    cluster: Annotated[dict[str, Any], BeforeValidator(_named)] = {}
    """started once, and used by every stage"""
    variables: dict[str, Value] = {}
    """values of {{name}}"""
    stages: Annotated[dict[Name, dict[str, Any]], Field(min_length=1)]
    """each by its name"""
    incremental: StrictBool = False
    """give every job that has a base option its previous output as base"""
    rebuild_every: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """with incremental: every N runs a stage is made whole, without base [default: never]"""
    timezone: str | None = None
    """time zone of dates and of the schedule, as Europe/Zurich [default: this machine's]"""
    parallel: Annotated[int, Field(ge=1, le=1000)] | None = None
    """stages that run side by side at most [default: 4]"""
    keep: Annotated[int, Field(ge=2, le=1000)] = 2
    """publications of each place that are kept, the latest included"""
    timeout: Seconds | None = None
    """of a whole run: seconds, or 30 min, or 2 h"""
    on_success: StrictStr | None = None
    """a command, or a webhook's address"""
    on_failure: StrictStr | None = None
    """a command, or a webhook's address: once, after the last retry, or if a run is late"""
    on_retry: StrictStr | None = None
    """a command, or a webhook's address: after a run that will be tried again"""
    hook_timeout: Seconds | None = None
    """of a command that is called at the end [default: none]"""
    schedule: Annotated[ScheduleTimes, BeforeValidator(_times)] = ScheduleTimes()
    """when penstock schedule runs it: a cron expression, or this"""


def read_keys(kind: type[Model], body: Any, where: str | Path) -> Model:
    """Return the keys of a mapping; pydantic describes the error, ``where`` names its place."""
    try:
        with given_in(where):
            return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ": ".join(map(str, first["loc"]))
        raise UsageError(f"{where}{place and ': '}{place}", expected=first["msg"]) from None
