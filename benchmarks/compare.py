"""Rows of ``all.py`` that are slower in one run than in another.

    python -P benchmarks/compare.py BEFORE.json AFTER.json [--tolerance 0.1]

Times (names that end in seconds, s, ms or us) and bytes are better if smaller; rates and ratios
(names with per_second, rate, speed or ratio) are better if larger; other figures are not compared.
The exit code is 1 if a figure is worse by more than the tolerance, or if a gate that passed fails
now. Results of different machines are compared after a note.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

SMALLER = re.compile(r"(seconds|_s|_ms|_us|bytes)$")
LARGER = re.compile(r"(per_second|rate|speed|ratio)")


def change(name: str, before: float, after: float) -> float | None:
    """Return the factor by which a figure is worse; None if it is not comparable."""
    if not (before > 0 and after > 0 and math.isfinite(before) and math.isfinite(after)):
        return None
    if LARGER.search(name):
        return before / after
    return after / before if SMALLER.search(name) else None


def compared(before: dict[str, Any], after: dict[str, Any], tolerance: float) -> list[str]:
    """Return one line per worse figure."""
    found = []
    for name, one in after["results"].items():
        old = before["results"].get(name)
        if old is None or "skipped" in (old["state"], one["state"]):
            continue
        if old["state"] == "passed" and one["state"] != "passed":
            found.append(f"{name}: its gate passed, and {one['state']} now: {one.get('says', '')}")
            continue
        pairs = {"seconds": (old["seconds"], one["seconds"])}
        pairs |= {
            key: (old["figures"][key], value)
            for key, value in one["figures"].items()
            if key in old["figures"]
        }
        for key, (was, now) in pairs.items():
            worse = change(key, was, now)
            if worse is not None and worse > 1 + tolerance:
                found.append(f"{name}, {key}: {was:.4g} before, {now:.4g} now, {worse:.2f} times")
    return found


def main() -> int:
    """Compare two files of results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.1, help="a share [0.1]")
    given = parser.parse_args()
    before, after = (json.loads(path.read_text()) for path in (given.before, given.after))
    for key in ("processor", "cores", "gpus"):
        if before["machine"].get(key) != after["machine"].get(key):
            print(
                f"another machine: {key} {before['machine'].get(key)} before, "
                f"{after['machine'].get(key)} now"
            )
    if before["quick"] != after["quick"]:
        sys.exit("one of these is of --quick, the other is not: they cannot be compared")
    worse = compared(before, after, given.tolerance)
    for line in worse:
        print(line)
    print(f"{len(worse)} worse by more than {given.tolerance:.0%}")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
