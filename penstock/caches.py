"""The folder of a user's compiled kernels and measurements: a writable one, or none.

The first that will do of: the folder that ``PENSTOCK_CACHE`` names; ``penstock`` in
``XDG_CACHE_HOME``, or in ``~/.cache``; ``penstock-cache-UID`` in ``TMPDIR``, ``/tmp`` or
``/var/tmp``. Its files are executed, so no other user may be able to write there: it belongs to
this user alone, and in a folder that all share it is no symbolic link.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from penstock.errors import warn

_SHARED = ("/tmp", "/var/tmp")
_TRIAL = b"0" * 4096  # a full disk or quota shows when something is written


def cache_folder() -> Path | None:
    """Return the folder, made if it was missing; None if none can be written."""
    named = os.environ.get("PENSTOCK_CACHE")
    if named:
        if private_folder(Path(named).expanduser().absolute()):
            return Path(named).expanduser().absolute()
        warn(
            f"PENSTOCK_CACHE={named} is not a folder that this user alone can write; "
            "compiled kernels are kept elsewhere"
        )
    home = in_home("XDG_CACHE_HOME", ".cache")
    if home is not None and private_folder(home / "penstock"):
        return home / "penstock"
    return shared_folder("cache")


def in_home(variable: str, default: str) -> Path | None:
    """Return the folder that an XDG variable names, or its default in the home directory.

    None if this user has no home: the user ids of containers often have none.
    """
    named = os.environ.get(variable)
    if named and Path(named).is_absolute():
        return Path(named)
    try:
        return Path.home() / default
    except RuntimeError:
        return None


def have_home() -> None:
    """See to it that libraries find a home directory: Bokeh cannot be imported without one."""
    if in_home("", "") is None:
        os.environ["HOME"] = "/"  # as containers do for a user who has none


def shared_folder(purpose: str) -> Path | None:
    """Return this user's own folder for ``purpose`` in a temporary folder that all share."""
    for where in (os.environ.get("TMPDIR"), *_SHARED):
        if where:
            folder = Path(where).absolute() / f"penstock-{purpose}-{os.geteuid()}"
            if private_folder(folder, shared=True):
                return folder
    return None


def private_folder(folder: Path, *, shared: bool = False) -> bool:
    """Return whether a folder is this user's, and only this user can write to it; make it so.

    shared  other users could have made it: a symbolic link is refused, and what others
            may read too
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat() if shared else folder.stat()
    except OSError:
        return False
    others = 0o077 if shared else 0o022
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & others:
        return False
    return can_write(folder)


def can_write(folder: Path) -> bool:
    """Return whether files can be written in a folder, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(_TRIAL)
            file.flush()
    except OSError:
        return False
    return True


def could_write(folder: Path) -> bool:
    """Return whether files could be written in a folder, were it made; nothing is made."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def keep_cupy_kernels() -> None:
    """Have CuPy keep compiled kernels if it can; to be called before it compiles the first."""
    named = os.environ.get("CUPY_CACHE_DIR")
    # Penstock may have set one in the environment of a process on another host.
    if named and Path(named).parent.name != f"penstock-cache-{os.geteuid()}":
        return
    home = in_home("", ".cupy/kernel_cache")
    if not named and home is not None and (can_write if home.is_dir() else could_write)(home):
        return  # as it does by itself
    folder = cache_folder()
    if folder is not None and private_folder(folder / "cupy", shared=True):
        os.environ["CUPY_CACHE_DIR"] = str(folder / "cupy")
    else:
        os.environ.pop("CUPY_CACHE_DIR", None)
        os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
