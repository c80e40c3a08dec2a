"""Lines of epochs that training appends to a file, as metrics.jsonl, when it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.files import save_text


def keep_epochs(path: Path, epoch: int) -> None:
    """Leave out what was written after a checkpoint of this epoch: it is trained again."""
    keep_lines(path, lambda line: float(line["epoch"]) <= epoch)


def keep_lines(path: Path, wanted: Callable[[Any], bool]) -> None:
    """Leave out lines of JSON that are not wanted.

    And what is no line of ours, such as half of one from a machine that lost its power.
    """
    if not path.is_file():
        return
    kept = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            if wanted(parse_json(text)):
                kept.append(text + "\n")
    save_text(path, "".join(kept))
