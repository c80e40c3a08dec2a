"""Manifests: the JSON document that describes a Penstock directory, and marks it complete.

Each starts with its format's name and version. ``Format`` writes and reads them, and has the one
set of errors for a directory without one, with a damaged one, or with one of a later penstock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from penstock.errors import CorruptFile, GraphError, NewerVersion, PenstockError
from penstock.files import FileEntry, file_table, save_json

T = TypeVar("T")


@dataclass(frozen=True)
class Format:
    """One kind of manifest.

    name, version   its first entries
    file            its name in the directory
    thing           the kind of directory: a graph
    make, restore   the remedies if it is missing or damaged
    absent, foreign the errors if it is missing or of another format
    """

    name: str
    version: int
    file: str
    thing: str
    make: str = "Make one with the job that writes it"
    restore: str = "Restore the file, or make it again with --overwrite"
    absent: type[PenstockError] = GraphError
    foreign: type[PenstockError] = CorruptFile

    def save(self, root: Path, body: dict[str, Any]) -> None:
        """Write the manifest of ``root``; do this last: the files that it lists are complete."""
        save_json(root / self.file, {"format": self.name, "version": self.version, **body})

    def load(self, root: Path) -> dict[str, Any]:
        """Read the manifest of ``root``, or raise the reason why it is not Penstock's."""
        path = root / self.file
        if not path.is_file():
            got = "no such directory" if not root.exists() else "no such file in it"
            raise self.absent(
                f"{root} is not a {self.thing}",
                expected=f"a directory with {self.file}",
                got=got if root.is_dir() or not root.exists() else "a file, not a directory",
                remedy=self.make,
            )
        try:
            body = json.loads(path.read_bytes())
        except ValueError as error:
            raise self.damaged(root, expected="JSON", got=str(error)) from error
        self.check(path, body)
        found: dict[str, Any] = body
        return found

    def check(self, path: Path, body: Any, *, what: str = "the manifest of a") -> None:
        """Raise unless ``body``, of the file ``path``, is of this format and a known version."""
        if not isinstance(body, dict) or body.get("format") != self.name:
            raise self.foreign(
                f"{path} is not {what} {self.thing}",
                expected=f'"format": "{self.name}"',
                remedy=self.make if self.foreign is self.absent else self.restore,
            )
        version = body.get("version")
        if not isinstance(version, int) or version > self.version:
            raise NewerVersion(
                f"{path} was written by a later penstock",
                expected=f"{self.thing} format version {self.version} or older",
                got=f"version {version}",
                remedy="Upgrade penstock-graph",
            )

    def files(
        self, root: Path, body: dict[str, Any], *, sums: bool = False
    ) -> dict[str, FileEntry]:
        """Return the files that a manifest lists; raise unless they have their sizes.

        sums  whether to compare their checksums, too
        """
        with self.reading(root):
            found = read_file_table(body["files"])
        for entry in found.values():
            entry.check_size(root, listed_in=self.file, remedy=self.restore)
            if sums:
                entry.check_sum(root, remedy=self.restore)
        return found

    @contextmanager
    def reading(self, root: Path) -> Iterator[None]:
        """Turn missing keys and wrong types in the block into CorruptFile."""
        try:
            yield
        except PenstockError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            got = f"no {error}" if isinstance(error, KeyError) else str(error)
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                got = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            elif isinstance(error, AttributeError | TypeError):
                got = "a value of another type"  # Python's own words do not help
            expected = "the keys that penstock writes, with their values"
            raise self.damaged(root, expected=expected, got=got) from error

    def damaged(self, root: Path, *, expected: str, got: str) -> CorruptFile:
        """Return the error of a manifest that differs from what was written."""
        what = f"{root / self.file} is damaged"
        return CorruptFile(what, expected=expected, got=got, remedy=self.restore)


def filled(kind: type[T], body: Any) -> T:
    """Return a dataclass with the values of JSON for its fields; ValueError if that fails.

    Keys without a field are ignored.
    """
    found: T = _adapter(kind).validate_python(body)  # type: ignore[arg-type]
    return found


def with_names(files: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a manifest's files, each with its name among its values."""
    return {name: {**entry, "name": name} for name, entry in files.items()}


# The type of the files of a manifest, for ``filled``.
Files = Annotated[dict[str, FileEntry], BeforeValidator(with_names)]


def read_file_table(table: dict[str, dict[str, Any]]) -> dict[str, FileEntry]:
    """Return the files of a manifest by name."""
    found: dict[str, FileEntry] = _adapter(Files).validate_python(table)
    return found


class Content:
    """A dataclass that is the content of a manifest."""

    format: ClassVar[Format]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the manifest."""
        found: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        if "files" in found:
            found["files"] = file_table(entry for _, entry in sorted(self.files.items()))  # type: ignore[attr-defined]
        return found

    @classmethod
    def of(cls, body: dict[str, Any], root: Path) -> Self:
        """Return the content of the manifest of ``root``."""
        with cls.format.reading(root):
            found = filled(cls, body)
            found.check()
        return found

    @classmethod
    def load(cls, root: Path) -> Self:
        """Read the manifest of ``root``, or raise the reason why it is not Penstock's."""
        return cls.of(cls.format.load(root), root)

    def check(self) -> None:
        """Raise ValueError or KeyError if values contradict each other."""

    def check_files(self, root: Path) -> None:
        """Raise unless every listed file exists with its size (contents are not read)."""
        for entry in self.files.values():  # type: ignore[attr-defined]
            entry.check_size(root, listed_in=self.format.file, remedy=self.format.restore)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
