"""Removal of the lines in metrics.jsonl that a resumed training will write again."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from penstock.files import save_text


def keep_epochs(path: Path, epoch: int) -> None:
    """Remove lines written after a checkpoint of this epoch: later epochs are trained again.

    Incomplete lines, as after a power cut, are also removed.
    """
    if not path.is_file():
        return
    kept = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            if float(json.loads(text)["epoch"]) <= epoch:
                kept.append(text + "\n")
    save_text(path, "".join(kept))
