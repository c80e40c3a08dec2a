"""The output that a stage had before, as ``{{previous}}`` in its options: yesterday's vectors.

    vectors: {job: embed, input: graph, init: "{{previous}}"}

A job replaces its output while it runs, so the one before is kept as a copy, until the stage has
succeeded. Files are linked, which takes no space: a job makes all of its output
again, and writes to none of its old files. An option is left out if there is no output yet.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from penstock.documents import with_texts
from penstock.files import link, remove, whole

NAME = "previous"
BASE = {"base": "{{previous}}"}  # what ``incremental`` adds to the options of a stage
_NAMED = re.compile(r"\{\{\s*previous\s*\}\}")


def names_previous(value: Any) -> bool:
    """Return whether ``{{previous}}`` appears anywhere in plain data."""
    found: list[Any] = []
    with_texts(value, lambda text: found.extend(_NAMED.findall(text)))
    return bool(found)


def is_previous(value: Any) -> bool:
    """Return whether an option is the output before, or a path within it."""
    found = _NAMED.match(value) if isinstance(value, str) else None
    if found is None:
        return False
    rest = value[found.end() :]
    return (not rest or rest.startswith("/")) and ".." not in rest.split("/")


def with_previous(options: dict[str, Any], previous: Path | None) -> dict[str, Any]:
    """Return options with ``{{previous}}`` replaced by a path; None: without those that name it."""
    made = {}
    for name, value in options.items():
        if not is_previous(value):
            made[name] = value
        elif previous is not None:
            made[name] = _NAMED.sub(lambda _: str(previous), value, count=1)
    return made


def copy_output(output: Path, to: Path) -> None:
    """Make ``to`` a copy of an output, whole or not there, in place of an earlier one."""
    remove(to)
    to.parent.mkdir(parents=True, exist_ok=True)
    with whole(to) as begun:
        if output.is_dir():
            hidden = shutil.ignore_patterns(".*")
            shutil.copytree(output, begun, symlinks=True, ignore=hidden, copy_function=link)
        else:
            link(output, begun)
