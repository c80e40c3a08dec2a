"""The directory a run works in: hidden beside the output, kept when a run is interrupted."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import InputError, OutputExists, UsageError
from penstock.files import lock_file, publish, refuse_existing, refuse_link, save_json


@dataclass(frozen=True)
class Workplace:
    """Where the result grows and where intermediate files go."""

    result: Path
    scratch: Path


@contextmanager
def workplace(
    out: Path,
    task: dict[str, Any],
    *,
    command: str,
    kind: str,
    scratch: Path | None = None,
    resume: bool,
    overwrite: bool,
) -> Iterator[Workplace]:
    """Give a workplace; when the block succeeds its result becomes ``out`` and the rest goes.

    task           what the run does, as JSON: ``resume`` goes on only where it is the same
    command, kind  what runs, and what it makes: a directory that holds ``<kind>.json``
    Bad input or options leave nothing; an interrupted run leaves what it has done for ``resume``.
    """
    refuse_existing(out, overwrite=overwrite, kind=kind)
    home = out.with_name(f".{out.name}.partial")
    place = Workplace(home / kind, _scratch(home, scratch, out))
    home.mkdir(parents=True, exist_ok=True)
    for folder in (home, place.result, place.scratch):
        refuse_link(folder)
    with lock_file(home / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputExists(
                f"another {command} is writing {out}", remedy="Wait for it or stop it first"
            ) from None
        _prepare(home, place, task, resume=resume)
        try:
            yield place
        except (InputError, UsageError):
            _remove(home, place)
            raise
        except BaseException:
            print(
                f"What is done so far is kept in {home}: run the same command with --resume to "
                "go on, or delete it.",
                file=sys.stderr,
            )
            raise
        publish(place.result, out)
        _remove(home, place)


def _scratch(home: Path, scratch: Path | None, out: Path) -> Path:
    if scratch is None:
        return home / "scratch"
    name = hashlib.sha256(str(out.absolute()).encode()).hexdigest()[:12]
    return scratch / f"penstock-{name}"


def _prepare(home: Path, place: Workplace, task: dict[str, Any], *, resume: bool) -> None:
    record = home / "run.json"
    task = json.loads(json.dumps(task, default=str))
    if resume and record.exists():
        if json.loads(record.read_text()) != task:
            raise UsageError(
                f"the run interrupted in {home} was another one",
                expected="the same inputs and options",
                remedy="Repeat its command, or run without --resume to start anew",
            )
    else:
        shutil.rmtree(place.result, ignore_errors=True)
        shutil.rmtree(place.scratch, ignore_errors=True)
        save_json(record, task)
    place.result.mkdir(parents=True, exist_ok=True)
    place.scratch.mkdir(parents=True, exist_ok=True)


def _remove(home: Path, place: Workplace) -> None:
    shutil.rmtree(place.scratch, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
