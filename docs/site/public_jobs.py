"""Show a job on the documentation site as its callers see it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib import import_module
from typing import Any

import docstring_parser
import griffe

from penstock.pipelines.job.declare import VerifiedRun

_PARAMETERS = re.compile(r"Parameters\n-{10}\n.*?(?=\n\n\w+\n-{3}|\Z)", re.DOTALL)
_KINDS = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
}
_OF_ALL = {
    "cluster": "the workers, as for ``connect`` [default: this machine]",
    "quiet": "print no progress",
}


class PublicJobs(griffe.Extension):
    """A job's parameters are its options, and their help is that of the command."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace the parameters of a function that ``@job`` decorates."""
        if not any(one.callable_path.endswith(".job") for one in func.decorators):
            return
        job = getattr(import_module(func.module.canonical_path), func.name)
        found = inspect.signature(job).parameters.values()
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    one.name,
                    kind=_KINDS[one.kind],
                    default=None if one.default is one.empty else repr(one.default),
                )
                for one in found
            )
        )
        texts = _OF_ALL | _help_of(job)
        lines = [f"{one.name}\n    {texts[one.name]}" for one in found if one.name in texts]
        if lines and func.docstring is not None:
            func.docstring.value = _PARAMETERS.sub(
                lambda section: "\n".join([section[0], *lines]), func.docstring.value, count=1
            )


def _help_of(job: Any) -> dict[str, str]:
    """Return the help of each option: the string under its field."""
    kinds = [*(job.options or object).__mro__, *VerifiedRun.__mro__]
    return {
        one.args[1]: " ".join((one.description or "").split())
        for kind in kinds
        if dataclasses.is_dataclass(kind)
        for one in docstring_parser.parse_from_object(kind).params
        if one.args[0] == "attribute"
    }
