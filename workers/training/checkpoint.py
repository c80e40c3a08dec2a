"""A checkpoint: a safetensors file from which a training run resumes.

Its metadata holds in JSON the position of the run, what it trains, and the files of tables that are
too large to be written each time. The name of an optimizer's vector contains the name of its
parameter: ``optimizer/0/layers.0.weight``. It has no state of a random generator, because draws are
counted by epoch.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import CorruptFile, InputError, MissingFile
from penstock.files import atomic
from penstock.formats import Format
from penstock.system_errors import DISK_FULL
from penstock.workers.resources.device import to_host

_CHANGED = "its content does not match its SHA-256"
LAST, BEST = "checkpoints/last.safetensors", "checkpoints/best.safetensors"  # of a run
FORMAT = Format(
    name="penstock-checkpoint",
    version=1,
    file="*.safetensors",
    thing="checkpoint",
    make="Train first",
    restore="Remove it and train again with --resume, which then starts over, or use another "
    "one, if there is one: --checkpoint best or last",
    foreign=InputError,
)


def save(path: Path, tensors: Mapping[str, AnyArray], about: dict[str, Any]) -> None:
    """Write a checkpoint; ``path`` holds the old or the new one, never half of one."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    held = {name: np.asarray(to_host(array), order="C") for name, array in tensors.items()}
    text, digest = json.dumps(about), _digest(held)
    metadata = {"format": FORMAT.name, "version": str(FORMAT.version), "about": text}
    metadata |= {"tensors": digest, "sha256": _digest_of_all(text, digest)}
    with atomic(path) as temporary:
        try:
            save_file(held, temporary, metadata)  # readable by its owner alone
            temporary.chmod(path.parent.stat().st_mode & 0o666)
            sync(temporary)
        except SafetensorError as error:
            # The library reports the system's error only in words.
            told = (n for n in (*DISK_FULL, errno.EFBIG) if f"(os error {n})" in str(error))
            raise OSError(next(told, errno.EIO), str(error), str(path)) from error
    sync(path.parent)  # the folder with its name


def load(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the tensors of a checkpoint by name, in host memory, and its metadata."""
    with _opened(path) as (file, about, digest):
        tensors: dict[str, Array] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _digest(tensors) != digest:
        raise _damaged(path, _CHANGED)
    return tensors, about


def about_of(path: Path) -> dict[str, Any]:
    """Return a checkpoint's metadata, without reading its tensors."""
    with _opened(path) as (_, about, _):
        return about


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """Open a checkpoint, with its metadata, which are verified, and the digest of its tensors."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise MissingFile(f"the checkpoint {path} does not exist")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata: dict[str, str] = file.metadata() or {}
            version = metadata.get("version", "")
            read = {**metadata, "version": int(version) if version.isdecimal() else version}
            FORMAT.check(path, read, what="a")
            about, digest = metadata.get("about", ""), metadata.get("tensors", "")
            if _digest_of_all(about, digest) != metadata.get("sha256"):
                raise _damaged(path, _CHANGED)
            yield file, json.loads(about), digest
    except (SafetensorError, OSError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, got: str) -> CorruptFile:
    return CorruptFile(
        f"{path} is damaged",
        expected="a checkpoint of this training run",
        got=got,
        remedy=FORMAT.restore,
    )


def sync(path: Path) -> None:
    """Return once a file, or the names in a folder, are on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks do not support it
            raise
    finally:
        os.close(number)


# Safetensors notices a file that was cut off, but no changed byte.
def _digest(tensors: dict[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _digest_of_all(about: str, tensors: str) -> str:
    return hashlib.sha256(f"{about} {tensors}".encode()).hexdigest()
