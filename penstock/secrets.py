"""Values from the environment: what is shown or kept has their names instead.

Who takes a value from there calls ``hide``; what shows or keeps texts passes them through
``masked``. Errors do so by themselves. Another process is given what ``hidden`` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHORTEST = 4  # names in place of shorter values would appear in half of all texts
_names: dict[str, str] = {}  # by value


def hide(names: Mapping[str, str]) -> None:
    """Have values masked from now on, whose variables have these ``names``."""
    _names.update({value: name for value, name in names.items() if len(value) >= _SHORTEST})


def hidden() -> dict[str, str]:
    """Return what is masked in this process: names of variables, by their values."""
    return dict(_names)


def masked(value: Any) -> Any:
    """Return plain data with ``{{env.NAME}}`` in its texts for hidden values; keys stay."""
    if isinstance(value, str):
        for one in sorted(_names, key=len, reverse=True):  # one may hold another
            for form in (one, repr(one)[1:-1]):
                value = value.replace(form, "{{env." + _names[one] + "}}")
        return value
    if isinstance(value, dict):
        return {key: masked(one) for key, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list | tuple) else value
