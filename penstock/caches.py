"""The folder of a user's compiled kernels and measurements: a writable one, or none.

The first usable one of: the folder that ``PENSTOCK_CACHE`` names; ``penstock`` in
``XDG_CACHE_HOME``, or in ``~/.cache``; ``penstock-cache-UID`` in ``TMPDIR``, ``/tmp`` or
``/var/tmp``. Its files are executed, so no other user may write there: it belongs to this user
alone, and in a shared folder it is not a symbolic link.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from penstock.errors import warn

SHARED = ("/tmp", "/var/tmp")
_TRIAL = b"0" * 4096  # a full disk or quota shows only in a write


def cache_folder() -> Path | None:
    """Return the folder, created if needed; None if no folder is writable."""
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
    """Set a home directory for libraries: Bokeh cannot be imported without one."""
    if in_home("", "") is None:
        os.environ["HOME"] = "/"  # as containers do for a user without one


def shared_folder(purpose: str) -> Path | None:
    """Return this user's own folder for ``purpose`` in a shared temporary folder."""
    for where in (os.environ.get("TMPDIR"), *SHARED):
        if where:
            folder = Path(where).absolute() / f"penstock-{purpose}-{os.geteuid()}"
            if private_folder(folder, shared=True):
                return folder
    return None


def private_folder(folder: Path, *, shared: bool = False) -> bool:
    """Make a folder this user's, writable for this user only; return whether that succeeded.

    shared  other users could have made it: symbolic links and folders that others may read are
            refused too
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
    """Return whether files can be written to a folder, which is created if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(_TRIAL)
            file.flush()
    except OSError:
        return False
    return True


def could_write(folder: Path) -> bool:
    """Return whether files could be written to a folder if it existed; it is not created."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def keep_cupy_kernels() -> None:
    """Make CuPy keep compiled kernels if possible; call it before the first compilation."""
    named = os.environ.get("CUPY_CACHE_DIR")
    # Penstock may have set one in the environment of a process on another host.
    if named and Path(named).parent.name != f"penstock-cache-{os.geteuid()}":
        return
    home = in_home("", ".cupy/kernel_cache")
    if not named and home is not None and (can_write if home.is_dir() else could_write)(home):
        return  # CuPy's default
    folder = cache_folder()
    if folder is not None and private_folder(folder / "cupy", shared=True):
        os.environ["CUPY_CACHE_DIR"] = str(folder / "cupy")
    else:
        os.environ.pop("CUPY_CACHE_DIR", None)
        os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
