"""The directory a run works in: hidden beside the output, kept when a run is interrupted."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import InputError, UsageError
from penstock.files import publish, recover, refuse_existing, save_json
from penstock.options import flag
from penstock.output_lock import output_lock, own_directory, refuse_link


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

    task           what the run does, as JSON: ``resume`` goes on only where it is the same; under
                   ``inputs`` the stamps of the files that it reads, by path
    command, kind  what runs, and what it makes: a directory that holds ``<kind>.json``
    Bad input or options leave nothing new; an interrupted run leaves what it has done for
    ``resume``.
    """
    # Through symbolic links, to the disk that the result will really stand on.
    out = out.resolve()
    refuse_existing(out, overwrite=overwrite, kind=kind)
    home = out.with_name(f".{out.name}.partial")
    place = Workplace(home / kind, _scratch(home, scratch, out))
    with output_lock(out, command=command):
        recover(out)
        refuse_existing(out, overwrite=overwrite, kind=kind)
        own_directory(home)
        refuse_link(place.result)
        _prepare(home, place, task, resume=resume)
        found = _has_work(place)  # of the run that this one resumes
        try:
            yield place
        except BaseException as error:
            bad = isinstance(error, InputError | UsageError) and not found
            if bad or not _has_work(place):
                _remove(home, place)
                raise
            print(
                f"What is done so far is kept in {home}: run the same command with --resume to "
                "go on, or delete it.",
                file=sys.stderr,
            )
            raise
        publish(place.result, out, kind=kind)
        _remove(home, place)


def _scratch(home: Path, scratch: Path | None, out: Path) -> Path:
    if scratch is None:
        return home / "scratch"
    name = hashlib.sha256(str(out).encode()).hexdigest()[:12]
    return scratch / f"penstock-{name}"


def _prepare(home: Path, place: Workplace, task: dict[str, Any], *, resume: bool) -> None:
    record = home / "run.json"
    task = json.loads(json.dumps(task, default=str))
    if resume and record.exists():
        before = _read(record)
        if before != task:
            _refuse_changed_inputs(home, before, task)
            raise UsageError(
                f"the run interrupted in {home} was another one",
                expected="the same inputs and options",
                got=_differing(before, task),
                remedy="Repeat its command, or run without --resume to start anew",
            )
    else:
        shutil.rmtree(place.result, ignore_errors=True)
        shutil.rmtree(place.scratch, ignore_errors=True)
        save_json(record, task)
    place.result.mkdir(parents=True, exist_ok=True)
    own_directory(place.scratch)


def _differing(before: dict[str, Any], task: dict[str, Any]) -> str:
    """Return the names of what is not the same in two runs."""
    names = []
    for name in sorted({*before, *task}):
        old, new = before.get(name), task.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            names += [flag(key) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        elif old != new:
            names.append(name)
    return f"another {', '.join(names)}"


def _read(record: Path) -> dict[str, Any]:
    try:
        found = parse_json(record.read_bytes())
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}  # no run of ours has such a record


def _has_work(place: Workplace) -> bool:
    """Return whether anything is done: what is whole has a record, or lies in the result."""
    records = place.scratch.rglob("*.json")
    return next(records, None) is not None or any(
        not path.is_dir() and not path.name.startswith(".") for path in place.result.rglob("*")
    )


def kept_bytes(out: Path, scratch: Path | None = None) -> int:
    """Return how much of the disk an interrupted run of ``out`` holds already."""
    out = out.resolve()
    home = out.with_name(f".{out.name}.partial")
    files = {path for folder in (home, _scratch(home, scratch, out)) for path in folder.rglob("*")}
    return sum(path.lstat().st_size for path in files if not path.is_dir())


def file_stamp(path: str | Path) -> list[int]:
    """Return by what a file is known: its size, the time of its last change, its inode.

    A file that is replaced by one of equal size has another inode, one that is written to another
    time.
    """
    found = Path(path).stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _refuse_changed_inputs(home: Path, before: dict[str, Any], task: dict[str, Any]) -> None:
    """Raise UsageError with the first input that is another, where the options are the same."""
    old, new = before.get("inputs", {}), task.get("inputs", {})
    changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
    if changed and before.get("options") == task.get("options"):
        path = changed[0]
        what = "changed" if path in old and path in new else "went" if path in old else "was added"
        raise UsageError(
            f"{path} {what} since the run in {home} was interrupted",
            expected="the same inputs: equal sizes, times of change and inodes",
            remedy="Run without --resume to start anew: what is done was read from other files",
        )


def _remove(home: Path, place: Workplace) -> None:
    shutil.rmtree(place.scratch, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
