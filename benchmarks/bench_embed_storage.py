"""The rates of an embedding table's requests, compared with dd.

    python -P benchmarks/bench_embed_storage.py [--quick] [--folder FOLDER]

In turns in the same folder, with O_DIRECT: the table's requests and dd, and with a GPU the table's
requests from its memory.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, main

from penstock.workers.embed.storage import PAGE, Geometry, Slot
from penstock.workers.embed.storage.direct import PartitionFiles, new_slot
from penstock.workers.resources.device import to_device

WIDTH, BLOCK = 1024, 4 << 20  # of what is measured; bytes of a request of dd


def noise(geometry: Geometry) -> Slot:
    """Return a slot of bytes that no disk can compress."""
    slot = new_slot(geometry)
    found = slot[0].reshape(-1).view(np.uint8)
    block = np.frombuffer(np.random.default_rng(0).bytes(min(PAGE << 10, len(found))), np.uint8)
    for start in range(0, len(found), len(block)):
        found[start : start + len(block)] = block[: len(found) - start]
    return slot


def table(folder: Path, size: int, what: str, *, device: bool = False) -> Timed:
    """Return the seconds of a GB by requests of a table of two partitions."""
    geometry = Geometry.of(2, size // (4 * WIDTH), WIDTH, 0)
    place = folder / "requests"
    place.mkdir(exist_ok=True)
    with closing(PartitionFiles(place, geometry, device=device)) as files:
        slot = noise(geometry)
        if device:
            slot = to_device(slot[0]), to_device(slot[1])
        # New space is slower on many file systems: it is written once before the timing.
        for partition in (0, 1):
            files.write(slot, partition).result()
        files.publish()
        rows = slot[0]
        written = checksum(rows)
        if what == "read":
            rows[:] = 0
        begun = time.perf_counter()
        if what == "read":
            files.read(1, slot).result()
        else:
            files.write(slot, 0).result()
            files.publish()
        seconds = (time.perf_counter() - begun) / geometry.bytes * 1e9
        with closing(files.open(1, to_write=False)) as file:
            return Timed(seconds, {"direct": file.is_direct, "off": checksum(rows) - written})


def checksum(rows: Any) -> int:
    return int(rows.view("u4").sum(dtype="u8"))


def by_dd(folder: Path, size: int, what: str) -> Timed:
    """Return the seconds of a GB by dd, which overwrites data and reports its own seconds."""
    source, path = folder / "source", folder / "copy"
    source.write_bytes(np.random.default_rng(0).bytes(BLOCK) * (size // BLOCK))

    def dd(*words: str) -> float:
        words = ("dd", f"bs={BLOCK}", f"count={size // BLOCK}", *words)
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found = re.search(r"(\d+) bytes .* copied, ([0-9.e+-]+) s", done.stderr)
        assert found is not None
        return 1e9 * float(found[2]) / int(found[1])

    dd(f"if={source}", f"of={path}", "oflag=direct")
    if what == "read":
        return Timed(dd(f"if={path}", "of=/dev/null", "iflag=direct"))
    return Timed(dd(f"if={source}", f"of={path}", "oflag=direct", "conv=notrunc,fdatasync"))


def check_rate(values: dict[str, Any]) -> dict[str, Any]:
    found = values["ours"]
    assert found["off"] == 0, "other bytes were read"
    return {"O_DIRECT": "yes" if found["direct"] else "no"}


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, size = given.scratch, given.size << 20
    for what, faster in (("read", 0.9), ("write", 0.8)):
        dd, ours = partial(by_dd, folder, size, what), partial(table, folder, size, what)
        yield Case(f"to {what} a GB", ours, check_rate, {"dd": Side(dd, faster)})


def gpu_cases(given: argparse.Namespace) -> Iterator[Case]:
    for what in ("read", "write"):
        ours = partial(table, given.scratch, given.size << 20, what)
        host = {"from the host": Side(ours, 1.0)}
        yield Case(f"to {what} a GB, from a GPU", partial(ours, device=True), check_rate, host)


if __name__ == "__main__":
    sizes = Option("--size", 256, 32, "MB of a request")
    sys.exit(main(__doc__, cases, sizes, gpu=gpu_cases))
