"""Values from the environment: names replace them in all texts that are shown or kept.

Code that reads a value calls ``hide``; code that shows or keeps texts passes them through
``masked``. Errors are masked automatically. Another process gets the result of ``hidden``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_SHORTEST = 4  # shorter values would be masked in half of all texts
_names: dict[str, str] = {}  # by value


def hide(names: Mapping[str, str]) -> None:
    """Mask the values of the variables of these ``names`` from now on."""
    _names.update({value: name for value, name in names.items() if len(value) >= _SHORTEST})


def hidden() -> dict[str, str]:
    """Return the masked values of this process, with the names of their variables."""
    return dict(_names)


def masked(value: Any) -> Any:
    """Return plain data with ``{{env.NAME}}`` for hidden values in its texts; keys stay."""
    if isinstance(value, str):
        for one in sorted(_names, key=len, reverse=True):  # one may contain another
            for form in (one, repr(one)[1:-1]):
                value = value.replace(form, "{{env." + _names[one] + "}}")
        return value
    if isinstance(value, dict):
        return {key: masked(one) for key, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list | tuple) else value


def unmasked(text: str) -> str:
    """Return a text of a record with the hidden values that the environment has now."""
    return re.sub(r"\{\{env\.(.+?)\}\}", lambda one: os.environ.get(one[1], one[0]), text)
