"""An output while it is made: what identifies its run, its lock, hidden directory and resume."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import CorruptFile, InputError, UsageError
from penstock.files import FileEntry, claimed, publish, save_json
from penstock.options import flag
from penstock.output_lock import output_lock, own_directory


@dataclass(frozen=True)
class PartialOutput:
    """Where the result grows and where intermediate files go."""

    result: Path
    scratch: Path

    @property
    def records(self) -> Records:
        """What is noted of the pieces of the result that are whole."""
        return Records(self.result, self.scratch)


@dataclass(frozen=True)
class Records:
    """Which pieces of a result are whole, and what they count: a small file a piece.

    A task writes the files of its piece into ``result``, then the record: what has a record is
    not made again by a run that is resumed.
    """

    result: Path
    folder: Path

    def save(self, piece: str, counts: dict[str, Any], files: list[FileEntry]) -> None:
        """Note that a piece is whole; do this last."""
        record = {**counts, "files": [asdict(file) for file in files]}
        save_json(self.folder / f"{piece}.json", record)

    def load(self, piece: str) -> tuple[dict[str, Any], list[FileEntry]]:
        """Return what a piece counts, and its files."""
        body = parse_json((self.folder / f"{piece}.json").read_bytes())
        return body, [FileEntry(**file) for file in body.pop("files")]

    def done(self, piece: str, *counted: str) -> bool:
        """Return whether a piece is whole: noted, and its files there with their sizes.

        counted  what its record must count; one that does not is as good as none
        """
        try:
            counts, files = self.load(piece)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, CorruptFile):
            return False
        if not counts.keys() >= set(counted):
            return False
        paths = [(self.result / file.name, file.bytes) for file in files]
        return all(path.is_file() and path.stat().st_size == size for path, size in paths)


@contextmanager
def partial_output(
    out: Path,
    identity: dict[str, Any],
    *,
    command: str,
    kind: str,
    scratch: Path | None = None,
    resume: bool,
    overwrite: bool,
) -> Iterator[PartialOutput]:
    """Give a hidden directory; when the block succeeds its result becomes ``out``, the rest goes.

    identity       what the run does, as JSON: ``resume`` goes on only where it is the same; under
                   ``inputs`` the stamps of the files that it reads, by path
    command, kind  what runs, and what it makes: a directory that holds ``<kind>.json``
    Bad input or options leave nothing new; an interrupted run leaves what it has done for
    ``resume``.
    """
    _remove_left(out, kind, scratch, command)
    with claimed(out, overwrite=overwrite, kind=kind, command=command) as out:
        home = _home(out)
        partial = PartialOutput(home / kind, _scratch(home, scratch, out))
        home.mkdir(parents=True, exist_ok=True)
        _prepare(home, partial, identity, resume=resume)
        found = _has_work(partial)  # of the run that this one resumes
        try:
            yield partial
        except BaseException as error:
            bad = isinstance(error, InputError | UsageError) and not found
            if bad or not _has_work(partial):
                _remove(home, partial)
                raise
            print(
                f"What is done so far is kept in {home}: run the same command with --resume to "
                "go on, or delete it.",
                file=sys.stderr,
            )
            raise
        # From here on nothing can be resumed: where the new output takes the old one's place, the
        # old one's files stand for a moment where records say that the new one's are.
        (home / "run.json").unlink()
        publish(partial.result, out, kind=kind)
        try:
            _remove(home, partial)
        except KeyboardInterrupt:
            _remove(home, partial)  # which nobody would look for once the output is there
            raise


def _remove_left(out: Path, kind: str, scratch: Path | None, command: str) -> None:
    """Remove the hidden directory of a command that was killed just after it had published.

    Of all hidden directories it alone does not say what run it is of.
    """
    out = out.resolve()
    home = _home(out)

    def left() -> bool:
        return out.exists() and home.is_dir() and not (home / "run.json").exists()

    if left():
        with suppress(UsageError), output_lock(out, command=command):
            if left():
                _remove(home, PartialOutput(home / kind, _scratch(home, scratch, out)))


def _home(out: Path) -> Path:
    return out.with_name(f".{out.name}.partial")


def _scratch(home: Path, scratch: Path | None, out: Path) -> Path:
    if scratch is None:
        return home / "scratch"
    name = hashlib.sha256(str(out).encode()).hexdigest()[:12]
    return scratch / f"penstock-{name}"


def _prepare(home: Path, partial: PartialOutput, identity: dict[str, Any], *, resume: bool) -> None:
    if resume and (home / "run.json").exists():
        _refuse_another(home, identity)
    else:
        shutil.rmtree(partial.result, ignore_errors=True)
        shutil.rmtree(partial.scratch, ignore_errors=True)
        save_json(home / "run.json", _as_saved(identity))
    partial.result.mkdir(parents=True, exist_ok=True)
    own_directory(partial.scratch)


def refuse_another(out: Path, identity: dict[str, Any]) -> None:
    """Raise where ``out`` has an interrupted run that was another one than this."""
    home = _home(out.resolve())
    if (home / "run.json").exists():
        _refuse_another(home, identity)


def _as_saved(identity: dict[str, Any]) -> Any:
    return json.loads(json.dumps(identity, default=str))


def _refuse_another(home: Path, identity: dict[str, Any]) -> None:
    before, identity = _read(home / "run.json"), _as_saved(identity)
    if before != identity:
        _refuse_changed_inputs(home, before, identity)
        raise UsageError(
            f"the run interrupted in {home} was another one",
            expected="the same inputs and options",
            got=_differing(before, identity),
            remedy="Repeat its command, or run without --resume to start over",
        )


def _differing(before: dict[str, Any], identity: dict[str, Any]) -> str:
    """Return the names of what is not the same in two runs."""
    names = []
    for name in sorted({*before, *identity}):
        old, new = before.get(name), identity.get(name)
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


def _has_work(partial: PartialOutput) -> bool:
    """Return whether anything is done: what is whole has a record, or lies in the result."""
    records = partial.scratch.rglob("*.json")
    return next(records, None) is not None or any(
        not path.is_dir() and not path.name.startswith(".") for path in partial.result.rglob("*")
    )


def kept_scratch(out: Path, scratch: Path | None = None) -> Path:
    """Return where an interrupted run of ``out`` keeps its intermediate files."""
    out = out.resolve()
    return _scratch(_home(out), scratch, out)


def kept_bytes(out: Path, scratch: Path | None = None) -> int:
    """Return how much of the disk an interrupted run of ``out`` holds already."""
    folders = _home(out.resolve()), kept_scratch(out, scratch)
    files = {path for folder in folders for path in folder.rglob("*")}
    return sum(path.lstat().st_size for path in files if not path.is_dir())


def file_stamp(path: str | Path) -> list[int]:
    """Return by what a file is known: its size, the time of its last change, its inode.

    A file that is replaced by one of equal size has another inode, one that is written to another
    time.
    """
    found = Path(path).stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _refuse_changed_inputs(home: Path, before: dict[str, Any], identity: dict[str, Any]) -> None:
    """Raise UsageError with the first input that is another, where the options are the same."""
    old, new = before.get("inputs", {}), identity.get("inputs", {})
    changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
    if changed and before.get("options") == identity.get("options"):
        path = changed[0]
        what = "changed" if path in old and path in new else "went" if path in old else "was added"
        raise UsageError(
            f"{path} {what} since the run in {home} was interrupted",
            expected="the same inputs: equal sizes, times of change and inodes",
            remedy="Run without --resume to start over: what is done was read from other files",
        )


def _remove(home: Path, partial: PartialOutput) -> None:
    shutil.rmtree(partial.scratch, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
