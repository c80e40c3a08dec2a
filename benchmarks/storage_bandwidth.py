"""Rates of a folder's disk: the table's own requests, ``dd`` and ``fio`` with O_DIRECT."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from penstock.errors import PenstockError
from penstock.sizes import need_disk
from penstock.workers.embed.storage import PAGE, THREADS, Geometry, Slot
from penstock.workers.embed.storage.direct import PartitionFiles, new_slot
from penstock.workers.resources.device import to_device

_WIDTH = 1024
_PARTITIONS = 2


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second.

    read, write  alone
    exchange     read and written together, both counted; None if it was not measured
    direct       whether the page cache was bypassed
    """

    read: float
    write: float
    exchange: float | None
    direct: bool


def measure(
    folder: Path, size: int = 256 << 20, *, threads: int = THREADS, device: bool = False
) -> Bandwidth:
    """Return the rates of a table in ``folder``, with ``size`` bytes per partition.

    Parameters
    ----------
    folder
        On the disk to measure; it is unchanged afterwards.
    size
        Bytes of each of two partitions.
    threads
        Requests in flight.
    device
        Whether the partitions are in the GPU's memory, and go through pinned buffers.

    Raises
    ------
    CapacityError
        The disk has not enough space.
    """
    rows = max(size // (4 * _WIDTH), 1)
    geometry = Geometry.of(_PARTITIONS, rows, _WIDTH, 0)
    need_disk(folder, _PARTITIONS * geometry.bytes, "a measurement of the disk")
    with TemporaryDirectory(prefix=".bandwidth-", dir=folder) as place:
        table = PartitionFiles(Path(place), geometry, threads=threads, device=device)
        try:
            slot = _noise(geometry)
            if device:
                slot = to_device(slot[0]), to_device(slot[1])
            # New space is slower on many file systems: it is written once before the timing.
            for partition in range(_PARTITIONS):
                table.write(slot, partition).result()
            table.publish()
            moved = geometry.bytes

            def write_all() -> None:
                table.write(slot, 0).result()
                table.publish()

            write = _rate(moved, write_all)
            read = _rate(moved, lambda: table.read(1, slot).result())
            exchange = _rate(2 * moved, lambda: table.exchange(slot, store=0, load=1).result())
            with closing(table.open(1, to_write=False)) as file:
                return Bandwidth(read, write, exchange, file.is_direct)
        finally:
            table.close()


def measure_dd(folder: Path, size: int = 256 << 20, *, block: int = 4 << 20) -> Bandwidth:
    """Return the rates of ``dd`` with O_DIRECT in ``folder``; PenstockError without dd.

    dd overwrites the existing data and reports its own seconds.
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
        return Bandwidth(read, write, None, True)


def measure_fio(
    folder: Path, size: int = 256 << 20, *, block: int = 4 << 20, depth: int = THREADS
) -> Bandwidth:
    """Return the rates of ``fio`` with O_DIRECT in ``folder``; PenstockError without fio.

    ``depth`` requests of ``block`` bytes are in flight, like the table's.
    """
    need_disk(folder, size, "a measurement of the disk")
    with TemporaryDirectory(prefix=".bandwidth-", dir=folder) as place:
        path = Path(place) / "file"
        path.write_bytes(np.random.default_rng(0).bytes(block) * max(size // block, 1))
        shared = [
            *("--name=disk", f"--filename={path}", f"--size={path.stat().st_size}", "--direct=1"),
            *(f"--bs={block}", "--ioengine=libaio", f"--iodepth={depth}", "--end_fsync=1"),
            *("--refill_buffers", "--output-format=json"),
        ]
        _fio([*shared, "--rw=write"])  # new space is slower
        write = _fio([*shared, "--rw=write"])
        return Bandwidth(_fio([*shared, "--rw=read"]), write, _fio([*shared, "--rw=rw"]), True)


def _fio(words: list[str]) -> float:
    """Return the bytes per second that a run of fio reads and writes."""
    try:
        done = subprocess.run(["fio", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise PenstockError("fio is not installed", remedy="Install fio") from error
    try:
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        moved = sum(job[way]["io_bytes"] for way in ("read", "write"))
        seconds = job["job_runtime"] / 1e3
    except (ValueError, LookupError, TypeError) as error:
        said = done.stderr.strip() or done.stdout.strip()
        raise PenstockError("fio could not measure the disk", got=said) from error
    if done.returncode or not seconds:
        raise PenstockError("fio could not measure the disk", got=done.stderr.strip())
    return float(moved / seconds)


def _dd(words: list[str]) -> float:
    try:
        done = subprocess.run(
            ["dd", *words], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
        )
    except FileNotFoundError as error:
        raise PenstockError("dd is not installed", remedy="Install coreutils") from error
    found = re.search(r"(\d+) bytes .* copied, ([0-9.e+-]+) s", done.stderr)
    if done.returncode or found is None:
        raise PenstockError("dd could not measure the disk", got=done.stderr.strip())
    return int(found[1]) / float(found[2])


def _rate(size: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return size / (time.perf_counter() - start)


def _noise(geometry: Geometry) -> Slot:
    """Return a slot of bytes that no disk can compress."""
    slot = new_slot(geometry)
    found = slot[0].reshape(-1).view(np.uint8)
    block = np.frombuffer(np.random.default_rng(0).bytes(min(PAGE << 10, len(found))), np.uint8)
    for start in range(0, len(found), len(block)):
        found[start : start + len(block)] = block[: len(found) - start]
    return slot
