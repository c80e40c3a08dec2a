"""One way to make an output: a lock, a hidden directory, pieces that are whole, one rename.

``NAME`` is made in ``.NAME.partial/``, whose ``identity.json`` identifies the output. A piece
that is whole has a record. The manifest comes last; then one rename publishes the directory, or one
exchange if an output is replaced: readers see the old or the new output at every moment. What only
``resume`` needs is removed after that.

    with Output(path, kind="walks", identity={...}, resume=True).open() as out:
        ...  # write into out.result, intermediate files into out.scratch, the manifest last
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import CorruptFile, InputError, OutputExists, PenstockError, UsageError
from penstock.files import FileEntry, remove, save_json
from penstock.formats import Format
from penstock.locks import lock_of
from penstock.options import flag
from penstock.output_lock import output_lock, own_directory, refusal
from penstock.system_errors import from_system, full_disk_explained

IDENTITY = "identity"  # the key of a manifest
TABLES = ".tables"  # ends the name of the folder of tables that Python gives
_RECORD = "identity.json"
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{8}\.tmp")  # the names that penstock.files.atomic gives
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # fcntl.h and stdio.h of Linux


@dataclass(frozen=True)
class Pieces:
    """Which pieces of a result are whole, and what they count: a small file per piece.

    A task writes the files of its piece into ``result``, then the record. A run that is resumed
    does not make again what has a record.
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
        """Return whether a piece is whole: it has a record, and its files have their sizes.

        counted  what its record must count; one that does not counts as none
        """
        try:
            counts, files = self.load(piece)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, CorruptFile):
            return False
        sizes = {self.result / file.name: file.bytes for file in files}
        return counts.keys() >= set(counted) and _are_there(sizes)


class Output:
    """A directory while it is made.

    path      its final path
    kind      what it is: a directory that holds ``<kind>.json``, or, as a Parquet dataset, whose
              readers pass over such names, ``_<kind>.json``
    identity  what determines it, as JSON: ``resume`` continues only with the same; ``inputs`` in it
              are stamps of files by path,
              ``varying`` options with which an interrupted run may resume although they affect it
    command   what writes it, for messages
    scratch   folder of intermediate files [default: next to the result]
    wait      whether to wait for another process that makes the same output
    keeps     whether what an interrupted run has done is kept for ``resume``
    """

    _anew = "run without --resume to start over"

    def __init__(
        self,
        path: Path,
        *,
        kind: str,
        identity: dict[str, Any] | None = None,
        command: str = "penstock",
        scratch: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        wait: bool = False,
        keeps: bool = True,
    ) -> None:
        self.kind, self.command, self.wait = kind, command, wait
        self.keeps = keeps and identity is not None
        self.identity = None if identity is None else json.loads(json.dumps(identity, default=str))
        self.resume, self.overwrite = resume, overwrite
        # Through symbolic links, to the disk of the output; a link is not a file.
        self.path = path.parent.resolve() / path.name if kind == "file" else path.resolve()
        self.named = path
        self.home = self.path.with_name(f".{self.path.name}.partial")
        self.result = self.home / kind
        if self.resumes:  # the interrupted run's folder of intermediate files
            kept = self._record().get("scratch")
            scratch = None if kept is None else Path(kept)
        self._scratch_folder = scratch
        self.scratch = self._scratch_in(scratch)

    def _scratch_in(self, folder: Path | None) -> Path:
        if folder is None:
            return self.home / "scratch"
        return folder / f"penstock-{hashlib.sha256(str(self.path).encode()).hexdigest()[:12]}"

    @property
    def options(self) -> dict[str, Any]:
        """The options that decide it, if they are not at their defaults."""
        return dict((self.identity or {}).get("options", {}))

    @property
    def pieces(self) -> Pieces:
        """What is noted of the pieces of the result that are whole."""
        return Pieces(self.result, self.scratch)

    @property
    def finished(self) -> dict[str, Any] | None:
        """The manifest of an existing output, if it has this identity and all its files."""
        names = f"{self.kind}.json", f"_{self.kind}.json"
        path = next((one for name in names if (one := self.path / name).is_file()), None)
        if path is None or self.identity is None:
            return None
        try:
            found = parse_json(path.read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or found.get(IDENTITY) != digest(self.identity):
            return None
        sizes = {self.path / name: entry["bytes"] for name, entry in found["files"].items()}
        return found if _are_there(sizes) else None

    def describe(self, manifest: Format, body: dict[str, Any]) -> None:
        """Set the content of the manifest; ``finish`` writes it."""
        self._about = manifest, body

    def finish(self, **more: Any) -> None:
        """Write the manifest, with the identity and ``more``: all that it names is whole."""
        manifest, body = self._about
        assert self.identity is not None
        manifest.save(self.result, {**body, **more, IDENTITY: digest(self.identity)})

    def unwritable(self, *more: Path) -> PenstockError | None:
        """Return the error if the output, or ``more``, cannot be written here."""
        elsewhere = [] if self.scratch.is_relative_to(self.home) else [self.scratch]
        found = map(refusal, (lock_of(self.path), *elsewhere, *more))
        refused = next(filter(None, found), None)
        return None if refused is None else from_system(refused)

    @property
    def resumes(self) -> bool:
        """Whether there is an interrupted run of this output, which ``resume`` continues."""
        return self.resume and self.keeps and self._record_file.exists()

    @property
    def kept_bytes(self) -> int:
        """How much of the disk an interrupted run holds already."""
        files = {path for folder in (self.home, self.scratch) for path in folder.rglob("*")}
        return sum(path.lstat().st_size for path in files if not path.is_dir())

    def room_for(self, size: int, scratch: int = 0) -> dict[Path, int]:
        """Return what the disk of each folder has to hold besides what an interrupted run holds.

        size  bytes of the result; scratch: of intermediate files
        """
        folders = (self.path.parent, size), (self.scratch.parent, scratch)
        if self.scratch.is_relative_to(self.home):
            folders = ((self.path.parent, size + scratch),)  # type: ignore[assignment]
        kept = self.kept_bytes if self.resumes else 0
        return {folder: max(needed - kept, 0) for folder, needed in folders}

    def refuse_taken(self) -> None:
        """Raise if the output exists and is not replaced, or an interrupted run is another."""
        refuse_existing(self.named, overwrite=self.overwrite, kind=self.kind)
        if self.resumes:
            self._refuse_another()

    @contextmanager
    def open(self) -> Iterator[Output]:
        """Lock it; publish it if the block succeeds, keep what is done if it does not.

        Wrong input or options leave nothing.
        """
        self._remove_left()
        with self._claimed():
            resumes = self.resumes
            if resumes:
                self._refuse_another()
            begun = resumes and self._has_work()
            try:
                if not resumes:
                    self._remove()
                    folder = self._scratch_folder
                    record = {"identity": self.identity, "scratch": folder and str(folder)}
                    save_json(self.home / _RECORD, record)
                self.result.mkdir(parents=True, exist_ok=True)
                own_directory(self.scratch)
                with full_disk_explained(self.path):
                    yield self
            except BaseException as error:
                wrong = isinstance(error, InputError | UsageError) and not begun
                if wrong or not self.keeps or not self._has_work():
                    self._remove()
                else:
                    print(
                        f"What is done so far is kept in {self.home}: run the same command with "
                        "--resume to resume it, or delete it.",
                        file=sys.stderr,
                    )
                raise
            # From here on nothing can be resumed: if the new output takes the place of an old one,
            # for a moment the old files are at the paths that records give to the new ones.
            (self.home / _RECORD).unlink()
            publish(self.result, self.path, kind=self.kind)
            try:
                self._remove()
            except KeyboardInterrupt:
                self._remove()  # nothing else would remove it once the output exists
                raise

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        refuse_existing(self.named, overwrite=self.overwrite, kind=self.kind)
        with output_lock(self.path, command=self.command, wait=self.wait, quiet=not self.wait):
            recover(self.path, kind=self.kind)
            refuse_existing(self.path, overwrite=self.overwrite, kind=self.kind)
            yield

    def tidy(self) -> None:
        """Remove what was kept for resume, of an output that is finished."""
        with suppress(UsageError, OutputExists), output_lock(self.path, command=self.command):
            self._remove()

    def _remove_left(self) -> None:
        """Remove the hidden directory of a command that was killed just after it had published.

        It is the only hidden directory that does not identify its output.
        """

        def left() -> bool:
            there = self.path.exists() and self.home.is_dir()
            return there and not (self.home / _RECORD).exists()

        if left():
            with suppress(UsageError), output_lock(self.path, command=self.command):
                if left():
                    self._remove()

    def _remove(self) -> None:
        before = self._record().get("scratch")
        for folder in (self._scratch_in(Path(before)) if before else None, self.scratch, self.home):
            if folder is not None:
                with suppress(OSError):
                    remove(folder)

    def _has_work(self) -> bool:
        """Whether anything is done: what is whole has a record, or lies in the result."""
        records = next(self.scratch.rglob("*.json"), None)
        return records is not None or any(
            not path.is_dir() and not path.name.startswith(".") for path in self.result.rglob("*")
        )

    @property
    def _record_file(self) -> Path:
        """The record of an interrupted run's identity."""
        return self.home / _RECORD

    def _record(self) -> dict[str, Any]:
        try:
            found = parse_json(self._record_file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _is_another(self) -> bool:
        """Whether an interrupted run has other options, or inputs with another content."""
        both = self.identity or {}, self._record().get(IDENTITY) or {}
        now, before = (
            {**one, "varying": None, "inputs": sorted(map(str, one.get("inputs", {}).values()))}
            for one in both
        )
        return before != now

    def _refuse_another(self) -> None:
        if not self._is_another():
            return
        if not self._record():
            remedy = "Start over without --resume, or with --overwrite"
            raise CorruptFile(f"{self._record_file} is damaged", remedy=remedy)
        both = self.identity or {}, self._record().get(IDENTITY) or {}
        now, before = ({**one, "varying": None} for one in both)
        old, new = before.get("inputs", {}), now.get("inputs", {})
        changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
        if changed and before.get("options") == now.get("options"):
            raise UsageError(
                f"{changed[0]} changed since the run in {self.home} was interrupted",
                expected="the same inputs: equal sizes, modification times and inodes",
                remedy=f"The finished part was read from other files: {self._anew}",
            )
        raise UsageError(
            f"the interrupted run in {self.home} is another one",
            expected="the same inputs and options",
            got=f"another {', '.join(_differing(before, now))}",
            remedy=f"Repeat its command, or {self._anew}",
        )


class FileOutput(Output):
    """One file, or several that belong together, while they are made.

    A job writes them into ``result``; they appear next to one another in the folder of ``path``,
    that of ``path`` last. Nothing is kept of an interrupted run.
    """

    _beside: tuple[Path, ...] = ()
    _left = False  # whether a run was killed that may have moved some of the files into place

    def goes_with(self, *beside: Path) -> None:
        """Declare what else is written next to ``path``."""
        self._beside = beside
        self.refuse_taken()

    @property
    def finished(self) -> None:
        """A file has no record of its identity."""
        return

    def refuse_taken(self) -> None:
        """Raise if a file exists and is not replaced."""
        replaces = self.overwrite or (self._left and not self.path.exists())
        for file in (self.path, *self._beside):
            if file.is_dir():
                raise OutputExists(f"{file} is a directory", remedy="Name another output")
            if file.exists() and not replaces:
                remedy = "Name another output or give --overwrite"
                raise OutputExists(f"{file} exists", remedy=remedy)

    def finish(self, **more: Any) -> None:
        """Write nothing more: a file has no manifest."""

    @contextmanager
    def open(self) -> Iterator[Output]:
        """Lock it; move the files into place if the block succeeds."""
        with output_lock(self.path, command=self.command):
            self._left = self.home.exists()
            self._remove()
            self.refuse_taken()
            try:
                self.result.mkdir(parents=True)
                with full_disk_explained(self.path):
                    yield self
                self.refuse_taken()
                if self._beside:  # a kill in between leaves none rather than one of each run
                    self.path.unlink(missing_ok=True)
                for file in (*self._beside, self.path):
                    (self.result / file.name).replace(file)
            finally:
                self._remove()


def _are_there(sizes: dict[Path, int]) -> bool:
    """Return whether files exist with these sizes."""
    return all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def digest(identity: dict[str, Any]) -> str:
    """Return what manifests hold of an identity."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def file_stamp(path: str | Path) -> list[Any]:
    """Return the stamp of a file: its size, the time of its last change, its inode.

    A file that is replaced by one of equal size has another inode, one that is written to another
    time. The name of a table that Python gave has the digest of its content.
    """
    found = Path(path).stat()
    if Path(path).parent.name.endswith(TABLES):
        return [found.st_size, Path(path).name]
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the names of the differences between two identities."""
    names = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            names += [flag(key) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        elif old != new:
            names.append(name)
    return names


def refuse_existing(path: Path, *, overwrite: bool, kind: str = "graph") -> None:
    """Raise OutputExists if ``path`` is taken, or is something that must not be replaced."""
    if not path.exists():
        return
    named = any((path / name).exists() for name in (f"{kind}.json", f"_{kind}.json"))
    ours = path.is_dir() and (named or not any(path.iterdir()))
    if not ours:
        thing = f"directory of {kind}" if kind.endswith("s") else kind
        raise OutputExists(
            f"{path} exists and is not a {thing}",
            remedy=f"Name another output; only a {thing} is replaced, even with --overwrite",
        )
    if not overwrite and any(path.iterdir()):
        raise OutputExists(f"{path} exists", remedy="Name another output or give --overwrite")


def refuse_own_input(
    path: Path, inputs: Iterable[str | Path], *, searched: Iterable[str | Path] = ()
) -> None:
    """Raise UsageError if an input is ``path``, or in it: replacing would delete it.

    searched  folders whose files are inputs, at any depth: ``path`` must not be in one
    """
    out = path.resolve()
    for one in searched:
        if "://" not in str(one) and Path(one).is_dir() and Path(one).resolve() in out.parents:
            raise UsageError(
                f"{path} lies in {one}, whose files are the input",
                remedy="Name another output: the next run would read its files",
            )
    for one in inputs:
        if "://" not in str(one) and Path(one).resolve().is_relative_to(out):
            where = "is the output" if Path(one).resolve() == out else f"lies in the output {path}"
            raise UsageError(
                f"the input {one} {where}",
                expected="another output: replacing this one would delete the input",
                remedy="Name another output",
            )


def publish(partial: Path, path: Path, *, kind: str = "graph") -> None:
    """Move a finished directory into place: what its manifest names, and nothing else.

    Readers find the old directory or the new one; the old one is removed after the exchange.
    """
    _drop_unlisted(partial, kind)
    if (old := put_in_place(partial, path)) is not None:
        remove(old)


def put_in_place(new: Path, path: Path) -> Path | None:
    """Rename ``new`` to ``path``, and return the new path of what it replaced; None: nothing.

    After a kill in between, the old one lies aside (``aside``), and ``new`` is unchanged.
    """
    if not path.exists():
        new.rename(path)
        return None
    if exchange(new, path):
        return new
    old = put_aside(path)  # a file system that cannot exchange names: for a moment neither exists
    try:
        new.rename(path)
    except BaseException:
        if not path.exists():
            old.rename(path)
        raise
    return old


def put_aside(path: Path) -> Path:
    """Move what is at ``path`` aside, and return its new path."""
    old = aside(path)
    remove(old)
    return path.rename(old)


def aside(path: Path) -> Path:
    """Return the path where the old ``path`` waits until its replacement is complete."""
    return path.with_name(f".{path.name}.old")


def recover(path: Path, *, kind: str = "graph") -> None:
    """Restore what a killed writer had moved aside, or remove it if ``path`` is new.

    Call it with the lock of ``path``. ``kind`` is as of ``Output``.
    """
    old, names = aside(path), (f"{kind}.json", f"_{kind}.json")
    if not old.is_dir():
        return
    if not path.exists():
        old.rename(path)
    elif all(any((one / name).is_file() for name in names) for one in (path, old)):
        remove(old)


def _drop_unlisted(partial: Path, kind: str) -> None:
    """Remove what tasks that were killed have left: only what the manifest names is published."""
    manifests = [partial / name for name in (f"{kind}.json", f"_{kind}.json")]
    found = next((path for path in manifests if path.is_file()), None)
    listed = None
    if found is not None:
        listed = json.loads(found.read_text(encoding="utf-8")).get("files")
    for path in partial.rglob("*"):
        if path.is_dir() or path in manifests:
            continue
        named = _TEMPORARY.fullmatch(path.name) is None
        if not named or (listed is not None and str(path.relative_to(partial)) not in listed):
            path.unlink()


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two paths in one step; False if that is not possible."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    arguments = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return bool(renameat2(*arguments) == 0)
