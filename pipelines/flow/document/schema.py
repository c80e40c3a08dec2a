"""The JSON schema of a flow, made from the options of all commands."""

from __future__ import annotations

from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.pipelines.flow.document import STAGE_KEYS
from penstock.pipelines.flow.document.commands import FOLLOWING, SHORT, job_names, job_of
from penstock.pipelines.flow.document.file import FlowKeys, StageKeys
from penstock.pipelines.schedule.options import ScheduleTimes

_VARIABLE = {"type": "string", "pattern": r"\{\{.*\}\}"}


def flow_schema() -> dict[str, Any]:
    """Return the schema of a flow's file."""
    short = [name for name, whole in SHORT.items() if whole in job_names()]
    rules = [
        {
            "if": {"properties": {"job": {"const": name}}, "required": ["job"]},
            # Every key of a stage again, so that an editor marks others; "-" may replace "_".
            "then": {
                "properties": {key: {} for key in STAGE_KEYS} | _job_properties(name),
                "patternProperties": {"-": {}},
                "additionalProperties": False,
            },
        }
        for name in (*job_names(), *short)
    ]
    flow, stage = _keys(FlowKeys), _keys(StageKeys)
    known = [*job_names(), *short, *FOLLOWING]
    stage["properties"]["job"] = {"enum": known, "description": "a command of penstock"}
    stage |= {"oneOf": [{"required": ["job"]}, {"required": ["python"]}], "allOf": rules}
    own = flow["properties"]
    (pattern,) = own["stages"]["patternProperties"]
    own["stages"]["patternProperties"][pattern] = stage
    own["cluster"] |= {"type": ["object", "string"], "properties": _properties(ClusterSpec)}
    times = _keys(ScheduleTimes) | {"description": own["schedule"]["description"]}
    own["schedule"] = {"anyOf": [{"type": "string"}, times]}
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **flow, "title": "A flow of penstock run"}


def _keys(kind: type) -> dict[str, Any]:
    """Return the schema of a class: its fields with their types, and the strings under them."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(kind).json_schema()
    helps, definitions = field_helps(kind), schema.pop("$defs", {})
    found: dict[str, Any] = _inlined(schema, definitions)
    for name, one in found["properties"].items():
        one.pop("title", None)
        if name in helps:
            one["description"] = helps[name]
    return found


def _job_properties(name: str) -> dict[str, Any]:
    job, found = job_of(SHORT.get(name, name)), dict[str, Any]()
    for made in filter(None, (job.options, job.run_options)):
        found |= _properties(made)
    return {key: value for key, value in found.items() if key not in ("resume", "overwrite")}


def _properties(made: type) -> dict[str, Any]:
    return {name: _or_variable(one) for name, one in _keys(made)["properties"].items()}


def _or_variable(kind: dict[str, Any]) -> dict[str, Any]:
    """Return what also takes a text with a variable in it, whose value may be a number."""
    if not kind or (kind.get("type") == "string" and not {"enum", "const", "pattern"} & set(kind)):
        return kind
    whole: dict[str, Any] = {
        key: kind.pop(key) for key in ("default", "description") if key in kind
    }
    return {"anyOf": [kind, _VARIABLE], **whole}


def _inlined(kind: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(kind, dict):
        if "$ref" in kind:
            named = _inlined(definitions[kind["$ref"].rpartition("/")[2]], definitions)
            return {**named, **{key: one for key, one in kind.items() if key != "$ref"}}
        return {key: _inlined(value, definitions) for key, value in kind.items()}
    return [_inlined(one, definitions) for one in kind] if isinstance(kind, list) else kind


def field_helps(made: type) -> dict[str, str]:
    """Return the string under each field of a class of options, those it inherits included."""
    from docstring_parser import parse_from_object

    return {
        one.arg_name: " ".join((one.description or "").split())
        for kind in reversed(made.__mro__)
        if kind is not object
        for one in parse_from_object(kind).params
    }
