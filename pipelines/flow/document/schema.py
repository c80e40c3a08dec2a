"""The JSON schema of a flow, made of the options of all commands: nothing is said twice."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.pipelines.flow.document import STAGE_KEYS
from penstock.pipelines.flow.document.commands import _SHORT, StageCommand, command_of, job_names
from penstock.pipelines.schedule.options import ScheduleOptions

_TEXT = {"type": "string"}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_EXPECTED = {"type": ["string", "number"]}
_VARIABLE = {"type": "string", "pattern": r"\{\{.*\}\}"}
_STAGE = {
    "input": {**_TEXTS, "description": "a stage, a path within its output (graph/nodes.parquet), "
              "a file, a folder, a glob or a URL; or several"},
    "after": {**_TEXTS, "description": "stages that must have run before"},
    "expect": {"type": "object", "description": "what metrics must be, so that anything is "
               "published: \">= 0.9\", within 5 % of previous, not worse than previous by 0.02",
               "additionalProperties": {"anyOf": [_EXPECTED, {"type": "array", "minItems": 1,
                                                              "items": _EXPECTED}]}},
    "publish": {**_TEXTS, "description": "where the output goes once all gates are met: a path, or "
                "a URL of fsspec"},
    "retries": {"type": "integer", "minimum": 0, "maximum": 100,
                "description": "how often a stage that failed is run again"},
    "gpus": {"type": "integer", "minimum": 0, "description": "GPUs that it wants for itself"},
    "timeout": {"type": ["string", "number"], "description": "seconds, or 30 min, or 2 h"},
}  # fmt: skip


def flow_schema() -> dict[str, Any]:
    """Return the schema of a flow's file."""
    short = [name for name, whole in _SHORT.items() if whole in job_names()]
    names = [*job_names(), *short, "evaluate", "export", "predict"]
    rules = [
        {
            "if": {"properties": {"job": {"const": name}}, "required": ["job"]},
            # Every key of a stage again, so that an editor marks others; "-" may stand for "_".
            "then": {
                "properties": {key: {} for key in STAGE_KEYS} | _job_properties(name),
                "patternProperties": {"-": {}},
                "additionalProperties": False,
            },
        }
        for name in (*job_names(), *short)
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A flow of penstock run",
        "type": "object",
        "required": ["stages"],
        "additionalProperties": False,
        "properties": {
            "name": {**_TEXT, "description": "of its runs [default: the file's]"},
            "folder": {**_TEXT, "description": "where outputs of stages are [default: the name]"},
            "cluster": {
                "description": "started once, and handed to every stage",
                "anyOf": [_TEXT, {"type": "object", "properties": _properties(ClusterSpec)}],
            },
            "variables": {"type": "object", "description": "what {{name}} stands for"},
            "parallel": {"type": "integer", "minimum": 1, "maximum": 1000,
                         "description": "stages that run side by side at most [default: 4]"},
            "keep": {"type": "integer", "minimum": 0, "maximum": 1000,
                     "description": "earlier publications that are kept [default: 1]"},
            "on_success": {**_TEXT, "description": "a command, or a webhook's address"},
            "on_failure": {**_TEXT, "description": "a command, or a webhook's address"},
            "schedule": {
                "description": "when penstock schedule runs it: a cron expression, or this",
                "anyOf": [_TEXT, {"type": "object", "properties": {
                    key: value for key, value in _properties(ScheduleOptions).items()
                    if key in ("cron", "timezone", "retries", "backoff")}}],
            },
            "stages": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {
                    "type": "object",
                    "properties": {
                        "job": {"enum": names, "description": "a command of penstock"},
                        "python": {**_TEXT, "description": "module:function, called with the "
                                   "paths of its inputs, its output, and the options"},
                        **_STAGE,
                    },
                    "oneOf": [{"required": ["job"]}, {"required": ["python"]}],
                    "allOf": rules,
                },
            },
        },
    }  # fmt: skip


def _job_properties(name: str) -> dict[str, Any]:
    command: StageCommand = command_of(_SHORT.get(name, name))
    found: dict[str, Any] = {one: {} for one in command.single}
    for made in command.classes.values():
        found |= _properties(made)
    return {key: value for key, value in found.items() if key not in ("resume", "overwrite")}


def _properties(made: type) -> dict[str, Any]:
    """Return the options of a class with their types and help."""
    from pydantic import TypeAdapter

    helps = field_helps(made)
    schema = TypeAdapter(made).json_schema()
    known, definitions = schema.get("properties", {}), schema.get("$defs", {})
    found = {}
    for one in fields(made):
        kind = _inlined(known.get(one.name, {}), definitions)
        kind.pop("title", None)
        kind = _or_variable(kind)
        found[one.name] = kind | ({"description": helps[one.name]} if one.name in helps else {})
    return found


def _or_variable(kind: dict[str, Any]) -> dict[str, Any]:
    """Return what also takes a text with a variable in it, which may stand for a number."""
    if not kind or (kind.get("type") == "string" and not {"enum", "const", "pattern"} & set(kind)):
        return kind
    default = {key: kind.pop(key) for key in ("default",) if key in kind}
    return {"anyOf": [kind, _VARIABLE], **default}


def _inlined(kind: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(kind, dict):
        if "$ref" in kind:
            return _inlined(definitions[kind["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in kind.items()}
    return [_inlined(one, definitions) for one in kind] if isinstance(kind, list) else kind


def field_helps(made: type) -> dict[str, str]:
    """Return the string under each field of a class of options, those it inherits included."""
    import ast

    found: dict[str, str] = {}
    for one in reversed(made.__mro__):
        if one is object or not Path(inspect.getsourcefile(one) or "").is_file():
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        assert isinstance(body, ast.ClassDef)
        for before, after in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            ):  # fmt: skip
                found[before.target.id] = " ".join(str(after.value.value).split())
    return found
