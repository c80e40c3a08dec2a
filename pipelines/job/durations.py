"""How long runs took on this machine: what ``--plan`` expects of the next one.

The last runs of every kind of work are kept in the cache folder, as amounts and seconds. No result
depends on them.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.caches import cache_folder
from penstock.documents import parse_json
from penstock.errors import PenstockError
from penstock.files import save_json
from penstock.limits import cores

if TYPE_CHECKING:
    from penstock.pipelines.job.capacity import Capacity

_VERSION = 1
_RUNS = 8  # of a kind that are kept
# Amounts that differ by less than this share of the largest say nothing of how time grows.
_SPREAD = 0.2
# Of much larger amounts than any so far nothing is known: small runs are mostly start.
_REACH = 16

Runs = list[tuple[float, float]]


def devices_key(has: Capacity, count: int | None = None) -> str:
    """Return by what runs on some devices are told from others: their kind, and how many.

    count  of ranks; None: all workers work
    """
    if has.on_gpu:
        return f"gpu {count or has.gpus or has.workers}"
    return f"cpu {count or has.workers}"


def keep_duration(kind: str, amount: float, seconds: float) -> None:
    """Keep that a run of a kind of work took so long; without a cache folder nothing is kept."""
    path = _path()
    if path is None or amount <= 0 or seconds <= 0:
        return
    runs = _load(path)
    runs[kind] = [*runs.get(kind, []), (amount, seconds)][-_RUNS:]
    with suppress(OSError, PenstockError):
        save_json(path, {"version": _VERSION, "runs": runs})


def expected_seconds(kind: str, amount: float, *, rest: bool = False) -> tuple[float, int] | None:
    """Return how long a run will take, and of how many runs that is known; None: it is not.

    rest  whether the amount is what is left of a run: its share of a whole one's time counts
    """
    path = _path()
    runs = [] if path is None else _load(path).get(kind, [])
    if not runs or amount > _REACH * max(seen for seen, _ in runs):
        return None
    return _expected(runs, amount, least=0.0 if rest else 1.0), len(runs)


def _expected(runs: Runs, amount: float, *, least: float) -> float:
    """Return what a line through the runs says: a start, and a time that grows with the amount."""
    amounts, seconds = np.array(runs, np.float64).T
    if np.ptp(amounts) > _SPREAD * amounts.max():
        # Of large and small runs alike a share counts.
        slope, start = np.polyfit(amounts, seconds, 1, w=1 / seconds)
        if slope >= 0 and start >= 0:
            return float(start + slope * amount)
    # Where the start is not known: at least what was seen, and more in proportion; of a rest its
    # share.
    return float(np.median(seconds) * max(least, amount / float(np.median(amounts))))


def _load(path: Path) -> dict[str, Runs]:
    try:
        body = parse_json(path.read_bytes())
        if body["version"] != _VERSION:
            return {}
        return {
            str(kind): [(float(amount), float(seconds)) for amount, seconds in runs]
            for kind, runs in body["runs"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # none yet, or of another version


def _path() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"durations-{platform.node()}-{cores()}.json"
