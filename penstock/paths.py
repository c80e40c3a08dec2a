"""Paths as the client means them: relative to its current folder, on any worker.

Every path from a user passes here once, when options and arguments are read. Workers that were
started elsewhere have another current folder, where a relative path would name another file.
Symbolic links are kept: a file opened through a link must be found through it. ``..`` is resolved,
so that a path has one form in messages, comparisons and records.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from pathlib import Path

from penstock.errors import UsageError

A_PATH = "text, or a Path"
_URL = re.compile(r"[A-Za-z][\w+.-]+:/+\w")  # pathlib takes one of two slashes away
_LOCAL = ("file", "local")  # protocols of fsspec for files of this machine


def client_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` absolute, relative to the current folder, and without ``..``.

    ``~`` is the user's home.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError("a path is not valid", expected=A_PATH, got=repr(path))
    if _URL.match(str(path)):
        raise UsageError(f"{path} is a URL", expected="a file or folder of this machine")
    return _without_dots(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111  (~nobody)


def client_input(path: str | Path) -> str:
    """Return an input absolute: a file, a folder, a glob, or a URL of fsspec.

    In a URL only names of files of this machine change: ``file://a.csv``, and the archive in
    ``zip://a.csv::archive.zip``.
    """
    *outer, last = str(path).split("::") if "://" in str(path) else [str(path)]
    protocol, mark, inside = last.partition("://")
    if not mark:
        # In a chain, fsspec reads a word of only letters as a protocol.
        return "::".join([*outer, last if outer and last.isalpha() else _absolute(last)])
    return "::".join([*outer, f"{protocol}://{_absolute(inside)}" if protocol in _LOCAL else last])


def path_or_url(given: str) -> str | Path:
    """Return the path that a text is; a URL stays text."""
    return given if "://" in given else Path(given)


def worker_path(path: str | Path) -> Path:
    """Return a folder of the workers: ~ at its beginning, and $VARIABLES, are theirs."""
    text = str(path)
    return Path(path) if text.startswith("~") or "$" in text else client_path(path)


def shown(path: str | Path) -> str:
    """Return ``path`` for people: relative if it is in or below the current folder."""
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _absolute(path: str) -> str:
    absolute = str(client_path(path))
    if not glob.has_magic(path) or os.path.lexists(absolute):
        return absolute
    local = Path(os.path.expanduser(path))  # noqa: PTH111
    plain = list(itertools.takewhile(lambda part: not glob.has_magic(part), local.parts))
    # The current folder's name is not a pattern.
    folder = glob.escape(str(client_path(Path(*plain))))
    return str(Path(folder, *local.parts[len(plain) :]))


def _without_dots(path: Path) -> Path:
    """Return an absolute path without ``..``, which after a link starts from the link's target."""
    if ".." not in path.parts:
        return path
    found = Path(path.anchor)
    for part in path.parts[1:]:
        if part != "..":
            found /= part
        else:  # os.path does not raise for an unreadable path
            found = Path(os.path.realpath(found) if os.path.islink(found) else found).parent  # noqa: PTH114
    return found
