"""Graphs and partitions, copied once per host from shared or slow storage to its scratch disk.

COPIES/                      shared by the workers of the host: Scratch.copies
  NAME-DIGEST.lock           exclusive while it is copied or removed, shared while it is used
  .NAME-DIGEST.partial/      a copy in progress, or of a killed process
  NAME-DIGEST/               a complete copy; the digest is that of its manifest, so of its content
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import ClusterError
from penstock.files import whole
from penstock.locks import FileLock, lock, try_lock
from penstock.sizes import need_disk
from penstock.workers.resources.storage import Speed, storage_speed
from penstock.workers.source import Source, copy_files

_PATIENCE = 300.0  # seconds without progress until a process gives up waiting for another's copy


class LocalCopies:
    """The copies of one host, as one worker uses them.

    with copies.hold("/shared/follows") as path:      in use until the end of the block
        graph = Graph.open(path)
    copies("/shared/follows/partition/k4", "parts/00002")     in use until the worker closes

    A source on storage as fast as the scratch disk is used in place. Otherwise it is copied once
    for all workers of the host, with sizes and checksums compared, and appears only when it is
    complete. A changed source is copied again. Unused copies make room for new ones, the longest
    unused first.

    ``root`` gives the scratch disk's folder, and ``folder`` that of the copies; both are called
    when needed.
    """

    def __init__(
        self,
        root: Callable[[], Path],
        folder: Callable[[], Path],
        *,
        speed: Callable[[Path], Speed] = storage_speed,
    ) -> None:
        self._root, self._folder = root, folder
        self._speed = speed
        self._kept: dict[Path, FileLock] = {}
        self._changing = threading.Lock()
        self.made = 0  # copies made here

    def __call__(self, path: str | Path, *only: str) -> Path:
        """Return a local copy of a graph or partition, in use until the worker closes.

        ``only`` names the files or folders to copy, such as ``parts/00002``; the copy's manifest
        lists nothing else.
        """
        local, use = self._use(Path(path), only)
        if use is not None:
            with self._changing:
                if self._kept.setdefault(local, use) is not use:
                    use.release()
        return local

    @contextmanager
    def hold(self, path: str | Path, *only: str) -> Iterator[Path]:
        """Give a local copy of a graph or partition, in use until the end of the block."""
        local, use = self._use(Path(path), only)
        try:
            yield local
        finally:
            if use is not None:
                use.touch()
                use.release()

    def close(self) -> None:
        """Release the held copies; complete copies stay for other workers."""
        with self._changing:
            for use in self._kept.values():
                use.release()
            self._kept.clear()

    def _use(self, path: Path, only: tuple[str, ...]) -> tuple[Path, FileLock | None]:
        path = path.resolve()
        there, scratch = self._speed(path), self._speed(self._root())
        if there == Speed.MEMORY or there >= scratch:
            return path, None
        return self._copied(Source.read(path, only), self._folder())

    def _copied(self, source: Source, folder: Path) -> tuple[Path, FileLock]:
        copy, lock_path = folder / source.name, folder / f"{source.name}.lock"

        def waiting(seconds: float) -> None:
            if seconds > _PATIENCE:
                raise ClusterError(
                    f"another process copies {source.path}, without progress for {seconds:.0f} s",
                    got=f"its lock {lock_path}",
                    remedy="If it hangs, end it",
                )

        while True:
            if not copy.is_dir() and (alone := try_lock(lock_path)) is not None:
                try:
                    if not copy.is_dir():
                        self._copy(source, copy, alone)
                    if alone.share():
                        return copy, alone
                except BaseException:
                    alone.release()
                    raise
                alone.release()
            use = lock(lock_path, waiting, shared=True)
            if copy.is_dir():
                use.touch()
                return copy, use
            use.release()  # the copy failed or was removed: waiting processes try in turn

    def _copy(self, source: Source, copy: Path, alone: FileLock) -> None:
        make_room(copy.parent, source.bytes, f"the copy of {source.path}")
        with whole(copy) as partial:
            partial.mkdir()
            copy_files(source, partial, alone.touch)
        with self._changing:
            self.made += 1


def make_room(folder: Path, size: int, purpose: str) -> None:
    """Remove unused copies, longest unused first, until ``size`` bytes are free."""
    for partial in folder.glob(".*.partial"):  # its process was killed
        _remove(folder / partial.name.removeprefix(".").removesuffix(".partial"))
    oldest = sorted(folder.glob("*.lock"), key=_last_used)
    while oldest and shutil.disk_usage(folder).free < size:
        _remove(oldest.pop(0).with_suffix(""))
    need_disk(folder, size, purpose)


def _remove(copy: Path) -> None:
    """Remove a copy, complete or not, unless it is in use."""
    lock_path = copy.with_name(f"{copy.name}.lock")
    alone = try_lock(lock_path)
    if alone is None:
        return
    partial = copy.with_name(f".{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if copy.is_dir():
        copy.rename(partial)  # at once: half a copy must not have this name
        shutil.rmtree(partial, ignore_errors=True)
    alone.release(remove=True)


def _last_used(lock_path: Path) -> float:
    try:
        return lock_path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
