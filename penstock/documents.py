"""JSON and YAML from users: an unreadable document is a ValueError with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from penstock.errors import InputError, UsageError


def read_record(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one if there is none that can be read."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def with_texts(value: Any, make: Callable[[str], Any]) -> Any:
    """Return plain data with ``make`` of each text in its lists and its dicts' values.

    >>> with_texts({"a": ["b", 1]}, str.upper)
    {'a': ['B', 1]}
    """
    if isinstance(value, str):
        return make(value)
    if isinstance(value, list):
        return [with_texts(one, make) for one in value]
    if isinstance(value, dict):
        return {key: with_texts(one, make) for key, one in value.items()}
    return value


def with_named_numbers(value: Any) -> Any:
    """Return plain data with NaN and infinities as text, since JSON has no such numbers.

    >>> with_named_numbers({"loss": float("nan"), "nodes": 3})
    {'loss': 'NaN', 'nodes': 3}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: with_named_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_named_numbers(one) for one in value]
    return value


def named_number(value: Any) -> float | None:
    """Return the number that ``with_named_numbers`` turned into this text, or None."""
    named = isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity")
    return float(value) if named else None


def parse_yaml(text: str | bytes) -> Any:
    """Return the value of ``text``, plain data only, or raise ValueError.

    A key that appears twice in a mapping is refused: YAML forbids it, and PyYAML would silently
    drop the first one.
    """
    import yaml

    try:
        return yaml.load(text, _loader())
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def read_yaml(path: Path, thing: str) -> Any:
    """Return the content of a YAML file of the user; errors call it a ``thing``."""
    try:
        return parse_yaml(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"the {thing} {path} cannot be read", expected="a YAML file", got=error.strerror
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not YAML", got=str(error)) from error


@cache
def _loader() -> Any:
    """Return PyYAML's safe loader, which also refuses keys that appear twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data, each key once."""

        def compose_mapping_node(self, anchor: Any) -> Any:
            # Before merges (<<) are resolved, which may repeat an overridden key.
            node = super().compose_mapping_node(anchor)
            seen: dict[Any, Any] = {}
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                first = seen.setdefault((key.tag, key.value), key)
                if first is not key and key.tag != "tag:yaml.org,2002:merge":
                    raise yaml.composer.ComposerError(
                        f"the key {key.value!r} appears twice, first",
                        first.start_mark,
                        "and again",
                        key.start_mark,
                    )
            return node

    return Loader
