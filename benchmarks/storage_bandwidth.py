"""How fast a folder's disk is: the table's own requests, and ``dd`` with O_DIRECT."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from penstock.errors import PenstockError
from penstock.sizes import need_disk
from penstock.workers.embed.storage import PAGE, THREADS, Geometry, Version
from penstock.workers.embed.storage.direct import DirectFile, aligned_bytes

_WIDTH = 1024
_PARTITIONS = 2


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second.

    read, write  alone
    exchange     read and written together, both counted; None where it was not measured
    why_not_direct  why the page cache was not bypassed; None: it was
    """

    read: float
    write: float
    exchange: float | None
    why_not_direct: str | None


def measure(folder: Path, size: int = 256 << 20, *, threads: int = THREADS) -> Bandwidth:
    """Return what a table in ``folder`` reads and writes; ``size`` bytes a partition.

    Parameters
    ----------
    folder
        On the disk to measure; it is left as it was.
    size
        Bytes of each of two partitions.
    threads
        Requests in flight.

    Raises
    ------
    CapacityError
        The disk has not enough space.
    """
    rows = max(size // (4 * _WIDTH), 1)
    geometry = Geometry.of(_PARTITIONS, rows, _WIDTH, 0, 1)
    need_disk(folder, geometry.file_bytes, "a measurement of the disk")
    with TemporaryDirectory(prefix=".bandwidth-", dir=folder) as place:
        table = DirectFile(Path(place) / "table", geometry, threads=threads)
        try:
            slot = [_noise(geometry)]
            first, second = Version(0, 0, 1), Version(1, 0, 1)
            # Space that was never written is slower on many file systems: once before it counts.
            for version in (first, second):
                table.write(slot, version).result()
            table.flush()
            moved = geometry.partition_bytes

            def write_all() -> None:
                table.write(slot, first).result()
                table.flush()

            write = _rate(moved, write_all)
            read = _rate(moved, lambda: table.read(second, slot).result())
            exchange = _rate(
                2 * moved, lambda: table.exchange(slot, store=first, load=second).result()
            )
            return Bandwidth(read, write, exchange, table.why_not_direct)
        finally:
            table.close()


def measure_dd(folder: Path, size: int = 256 << 20, *, block: int = 4 << 20) -> Bandwidth:
    """Return what ``dd`` with O_DIRECT reads and writes in ``folder``; PenstockError without one.

    It writes over what is there already, and its own seconds count.
    """
    need_disk(folder, size, "a measurement of the disk")
    count = max(size // block, 1)
    with TemporaryDirectory(prefix=".bandwidth-", dir=folder) as place:
        source, path = Path(place) / "source", Path(place) / "file"
        source.write_bytes(np.random.default_rng(0).bytes(block) * count)
        size_options = [f"bs={block}", f"count={count}"]
        _dd([f"if={source}", f"of={path}", *size_options, "oflag=direct"])
        written = ["oflag=direct", "conv=notrunc,fdatasync"]
        write = _dd([f"if={source}", f"of={path}", *size_options, *written])
        read = _dd([f"if={path}", "of=/dev/null", *size_options, "iflag=direct"])
        return Bandwidth(read, write, None, None)


def _dd(words: list[str]) -> float:
    try:
        done = subprocess.run(
            ["dd", *words], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
        )
    except FileNotFoundError as error:
        raise PenstockError("there is no dd to compare with", remedy="Install coreutils") from error
    found = re.search(r"(\d+) bytes .* copied, ([0-9.e+-]+) s", done.stderr)
    if done.returncode or found is None:
        raise PenstockError("dd could not measure the disk", got=done.stderr.strip())
    return int(found[1]) / float(found[2])


def _rate(size: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return size / (time.perf_counter() - start)


def _noise(geometry: Geometry) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return a slot of bytes that no disk can make smaller."""
    found = aligned_bytes(geometry.array_bytes)
    block = np.frombuffer(np.random.default_rng(0).bytes(min(PAGE << 10, len(found))), np.uint8)
    for start in range(0, len(found), len(block)):
        found[start : start + len(block)] = block[: len(found) - start]
    return found.view(np.float32).reshape(geometry.rows, geometry.width)
