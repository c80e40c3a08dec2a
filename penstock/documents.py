"""JSON and YAML as people hand them in: whatever cannot be read is a ValueError that says why."""

from __future__ import annotations

import json
from typing import Any

_TOO_DEEP = "it is nested too deeply"


def parse_json(text: str | bytes) -> Any:
    """Return the value that ``text`` holds, or raise ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_yaml(text: str | bytes) -> Any:
    """Return the value that ``text`` holds, plain data only, or raise ValueError."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
