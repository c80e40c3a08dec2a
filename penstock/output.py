"""The one way to make an output: a lock, a hidden directory, complete pieces, one rename.

``NAME`` is made in ``.NAME.partial/``; its ``identity.json`` identifies the output. A complete
piece has a record. The manifest comes last; then one rename publishes the directory, or one
exchange if an output is replaced: readers see the old or the new output at every moment. Data for
``resume`` is removed afterwards.

    with Output(path, kind="walks", identity={...}, resume=True).open() as out:
        ...  # write into out.result, intermediate files into out.scratch, the manifest last
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.documents import read_record
from penstock.errors import CorruptFile, InputError, OutputExists, UsageError
from penstock.files import TEMPORARY, FileEntry, remove, save_json
from penstock.formats import Format
from penstock.options import flag
from penstock.output_lock import output_lock, own_directory
from penstock.system_errors import full_disk_explained

IDENTITY = "identity"  # the key of a manifest
TABLES = ".tables"  # suffix of the folder with tables from Python
_RECORD = "identity.json"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # fcntl.h and stdio.h of Linux


@dataclass(frozen=True)
class Pieces:
    """Records of the complete pieces of a result, with their counts: a small file per piece.

    A task writes the files of its piece into ``result``, then the record. A resumed run skips
    pieces with a record.
    """

    result: Path
    folder: Path

    def save(self, piece: str, counts: dict[str, Any], files: list[FileEntry]) -> None:
        """Record a complete piece; do this last."""
        record = {**counts, "files": [asdict(file) for file in files]}
        save_json(self.folder / f"{piece}.json", record)

    def load(self, piece: str) -> tuple[dict[str, Any], list[FileEntry]]:
        """Return a piece's counts and files."""
        body = json.loads((self.folder / f"{piece}.json").read_bytes())
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
    """A directory in progress.

    path      its final path
    kind      its kind: a directory that holds ``<kind>.json``, or ``_<kind>.json`` if it is a
              Parquet dataset, whose readers ignore such names
    identity  what determines it, as JSON: ``resume`` continues only with the same; ``inputs`` in it
              are stamps of files by path, and so is ``base``, which may be gone once it is
              finished; ``varying`` are options with which an interrupted run may resume although
              they affect it
    command   the command that writes it, for messages
    scratch   folder of intermediate files [default: next to the result]
    wait      whether to wait for another process that makes the same output
    keeps     whether the work of an interrupted run is kept for ``resume``
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
        """The options that affect it, if they differ from their defaults."""
        return dict((self.identity or {}).get("options", {}))

    @property
    def pieces(self) -> Pieces:
        """The records of complete pieces."""
        return Pieces(self.result, self.scratch)

    @property
    def finished(self) -> dict[str, Any] | None:
        """The manifest of an existing output, if it has this identity and all its files."""
        path = _manifest_in(self.path, self.kind)
        if path is None or self.identity is None:
            return None
        found = read_record(path)
        if not str(found.get(IDENTITY)).startswith(digest(self.identity)):
            return None
        sizes = {self.path / name: entry["bytes"] for name, entry in found["files"].items()}
        return found if _are_there(sizes) else None

    def describe(self, manifest: Format, body: dict[str, Any]) -> None:
        """Set the content of the manifest; ``finish`` writes it."""
        self._about = manifest, body

    def finish(self, **more: Any) -> None:
        """Write the manifest, with the identity and ``more``; all its files are complete."""
        manifest, body = self._about
        assert self.identity is not None
        manifest.save(self.result, {**body, **more, IDENTITY: digest(self.identity)})

    @property
    def resumes(self) -> bool:
        """Whether ``resume`` continues an interrupted run of this output."""
        return self.resume and self.keeps and self._record_file.exists()

    @property
    def kept_bytes(self) -> int:
        """The disk space that an interrupted run already uses."""
        files = {path for folder in (self.home, self.scratch) for path in folder.rglob("*")}
        return sum(path.lstat().st_size for path in files if not path.is_dir())

    def room_for(self, size: int, scratch: int = 0) -> dict[Path, int]:
        """Return the space needed on each folder's disk, without the files of an interrupted run.

        size  bytes of the result; scratch: bytes of intermediate files
        """
        folders = (self.path.parent, size), (self.scratch.parent, scratch)
        if self.scratch.is_relative_to(self.home):
            folders = ((self.path.parent, size + scratch),)  # type: ignore[assignment]
        kept = self.kept_bytes if self.resumes else 0
        return {folder: max(needed - kept, 0) for folder, needed in folders}

    def refuse_taken(self) -> None:
        """Raise if the output exists and is not replaced, or an interrupted run differs."""
        refuse_existing(self.named, overwrite=self.overwrite, kind=self.kind)
        if self.resumes:
            self._refuse_another()

    @contextmanager
    def open(self) -> Iterator[Output]:
        """Lock it; publish it if the block succeeds, else keep the finished work.

        Wrong input or options leave no files.
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
                        f"The work so far is kept in {self.home}: run the same command with "
                        "--resume to resume it, or delete it.",
                        file=sys.stderr,
                    )
                raise
            # From here on a run cannot be resumed: during a replacement, the old files are for a
            # moment at the paths that records give to the new ones.
            (self.home / _RECORD).unlink()
            publish(self.result, self.path, kind=self.kind)
            self._remove()

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        refuse_existing(self.named, overwrite=self.overwrite, kind=self.kind)
        with output_lock(self.path, command=self.command, wait=self.wait, quiet=not self.wait):
            recover(self.path, kind=self.kind)
            refuse_existing(self.path, overwrite=self.overwrite, kind=self.kind)
            yield

    def tidy(self) -> None:
        """Remove the data for resume of a finished output."""
        with suppress(UsageError, OutputExists), output_lock(self.path, command=self.command):
            self._remove()

    def _remove_left(self) -> None:
        """Remove the hidden directory of a command that was killed right after it had published.

        It is the only hidden directory without an identity.
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
        """Whether finished work exists: a record, a checkpoint, or a file in the result."""
        done = any(path.suffix in (".json", ".safetensors") for path in self.scratch.rglob("*"))
        return done or any(
            not path.is_dir() and not path.name.startswith(".") for path in self.result.rglob("*")
        )

    @property
    def _record_file(self) -> Path:
        return self.home / _RECORD

    def _record(self) -> dict[str, Any]:
        return read_record(self._record_file)

    def _is_another(self) -> bool:
        """Whether an interrupted run has other options, or inputs with other content."""
        both = self.identity or {}, self._record().get(IDENTITY) or {}
        now, before = (
            {**one, "varying": None, "base": None, "inputs": sorted(map(str, _files(one).values()))}
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
        old, new = _files(before), _files(now)
        changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
        if changed and before.get("options") == now.get("options"):
            raise UsageError(
                f"{changed[0]} changed since the run in {self.home} was interrupted",
                expected="the same inputs: equal sizes, modification times and inodes",
                remedy=f"The finished part used other files: {self._anew}",
            )
        raise UsageError(
            f"the interrupted run in {self.home} differs",
            expected="the same inputs and options",
            got=f"another {', '.join(_differing(before, now))}",
            remedy=f"Repeat its command, or {self._anew}",
        )


class FileOutput(Output):
    """One file, or several that belong together, in progress.

    A job writes them into ``result``; they are moved next to each other into the folder of
    ``path``, ``path`` itself last. An interrupted run keeps nothing.
    """

    _beside: tuple[Path, ...] = ()
    _left = False  # whether a killed run may have moved some files into place

    def goes_with(self, *beside: Path) -> None:
        """Declare further files next to ``path``."""
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
        """Write no manifest: a file has none."""

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
                if self._beside:  # a kill in between leaves none, not a mixture of runs
                    self.path.unlink(missing_ok=True)
                for file in (*self._beside, self.path):
                    (self.result / file.name).replace(file)
            finally:
                self._remove()


def _are_there(sizes: dict[Path, int]) -> bool:
    return all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def _files(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the stamps of all files that an identity names."""
    return {**identity.get("inputs", {}), **identity.get("base", {})}


def digest(identity: dict[str, Any]) -> str:
    """Return an identity in the form of manifests; that of a base stands at the end."""
    rest = {name: value for name, value in identity.items() if name != "base"}
    parts = [one for one in (rest, identity.get("base")) if one]
    texts = [json.dumps(one, sort_keys=True, default=str) for one in parts]
    return " ".join(hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts)


def file_stamp(path: str | Path) -> list[Any]:
    """Return the stamp of a file: its size, modification time and inode.

    A file replaced by one of equal size has another inode, a rewritten one another time. The name
    of a table from Python has the digest of its content.
    """
    found = Path(path).stat()
    if Path(path).parent.name.endswith(TABLES):
        return [found.st_size, Path(path).name]
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    names = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            names += [flag(key) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        elif old != new:
            names.append(name)
    return names


def refuse_existing(path: Path, *, overwrite: bool, kind: str = "graph") -> None:
    """Raise OutputExists if ``path`` is taken, or must not be replaced."""
    if not path.exists():
        return
    ours = path.is_dir() and (_manifest_in(path, kind) or not any(path.iterdir()))
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
    """Move a finished directory into place, without files that its manifest does not list.

    Readers find the old directory or the new one; the old one is removed after the exchange.
    """
    _drop_unlisted(partial, kind)
    if not path.exists():
        partial.rename(path)
        return
    old = partial
    if not exchange(partial, path):  # for a moment neither exists; ``recover`` restores the old one
        old = aside(path)
        remove(old)
        path.rename(old)
        try:
            partial.rename(path)
        except BaseException:
            if not path.exists():
                old.rename(path)
            raise
    remove(old)


def aside(path: Path) -> Path:
    """Return the path of the old ``path`` until its replacement is complete."""
    return path.with_name(f".{path.name}.old")


def recover(path: Path, *, kind: str = "graph") -> None:
    """Restore what a killed writer had moved aside, or remove it if ``path`` is new.

    Call it with the lock of ``path``. ``kind`` is as in ``Output``.
    """
    old = aside(path)
    if not old.is_dir():
        return
    if not path.exists():
        old.rename(path)
    elif _manifest_in(path, kind) and _manifest_in(old, kind):
        remove(old)


def _manifest_in(folder: Path, kind: str) -> Path | None:
    """Return the manifest of an output of this kind, if the folder is one."""
    paths = (folder / f"{kind}.json", folder / f"_{kind}.json")
    return next((path for path in paths if path.is_file()), None)


def _drop_unlisted(partial: Path, kind: str) -> None:
    """Remove remains of killed tasks: only files in the manifest are published."""
    manifest = _manifest_in(partial, kind)
    listed = None if manifest is None else read_record(manifest).get("files")
    for path in partial.rglob("*"):
        if path.is_dir() or path == manifest:
            continue
        named = TEMPORARY.fullmatch(path.name) is None
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
