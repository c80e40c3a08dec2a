"""The frame of benchmarks: a benchmark declares cases; this checks, times and judges them.

    def cases(given):
        yield Case("closeness", ours, check, {"igraph": Side(theirs, 2.8)})

    if __name__ == "__main__":
        sys.exit(main(__doc__, cases, Option("--files", 12, 1, "of graphs"), needs=(data,)))

Every side of a case runs once, which warms it up; the values that these runs return are checked,
and nothing is timed if the check raises. Then the sides run in turns, three rounds at least, and
more if they take little time. A ratio is the time of a side over ours in the same round, and its
median counts: above 1, ours is faster than a peer; of a floor, it is the share that ours reaches. A
gate fails below 80 % of the measured ratio that a side declares, with --quick below half. A case is
"checked" if no gate of a peer could be judged, because each is absent or ran out of memory. The
exit code is 0, 1 if a check or a gate failed, or 77 if all cases were skipped or only checked.
``--break slow`` makes ours three times slower than its gates allow, ``--break wrong`` changes the
value that is checked: a benchmark with a gate must fail with the one, and any with the other.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import datetime as dt
import json
import os
import platform
import re
import resource
import select
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from penstock.limits import cores
from penstock.versions import versions

FULL, QUICK = 0.8, 0.5  # of the declared ratio
SLOWER = 3  # than the gates allow, with --break slow
ROUNDS, LEAST, ENOUGH = 7, 3, 5.0  # at most; after ENOUGH seconds of a case LEAST suffice
SKIPPED = 77

Need = Callable[[], str | None]


@dataclass(frozen=True)
class Timed:
    """What a side returns that measures its seconds itself: on a device, or in another process.

    Infinite seconds: the memory did not suffice, and nothing is compared.
    """

    seconds: float
    value: Any = None


@dataclass(frozen=True)
class Side:
    """What ours is compared with.

    run    works once, and returns its value, or Timed
    full   the measured ratio, which makes the gate; None: shown only
    quick  the same with the sizes of --quick; None: as in full
    floor  a bound, not a program that does the same
    once   timed once, in the first run: it takes long
    """

    run: Callable[[], Any]
    full: float | None = None
    quick: float | None = None
    needs: Sequence[Need] = ()
    floor: bool = False
    once: bool = False


@dataclass(frozen=True)
class Case:
    """A comparison.

    check   raises if the value of "ours" is wrong, given those of all sides; may return figures
    work    how much is done, and of what: (50e6, "edges")
    rounds  at most; 1: the sides take long, and their first runs are timed
    """

    name: str
    ours: Callable[[], Any]
    check: Callable[[dict[str, Any]], Mapping[str, Any] | None]
    sides: Mapping[str, Side] = field(default_factory=dict)
    work: tuple[float, str] | None = None
    rounds: int | None = None
    needs: Sequence[Need] = ()


def absent(name: str, why: str) -> Case:
    """Return a case that cannot be had here."""
    return Case(name, lambda: None, lambda values: None, needs=[lambda: why])


@dataclass(frozen=True)
class Option:
    """An option of a benchmark, with its value in full and in quick runs."""

    name: str
    full: Any
    quick: Any
    help: str = ""


@dataclass
class _State:
    broken: str | None = None
    cpu: bool = False
    ran: dict[Callable[[], Any], Timed] = field(default_factory=dict)  # sides that run once


_state = _State()


def clock() -> float:
    """Return seconds; with --cpu, those of all threads and finished children."""
    if not _state.cpu:
        return time.perf_counter()
    return time.process_time() + _children()


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(work: Callable[[], Any]) -> Timed:
    """Run this once."""
    start = clock()
    value = work()
    return value if isinstance(value, Timed) else Timed(clock() - start, value)


def on_gpu(work: Callable[[], Any], repeats: int = 10, warm: int = 1) -> Timed:
    """Return the seconds of one run on the device, by CUDA events over several."""
    import cupy as cp

    value = None
    for _ in range(warm):
        value = work()
    start, end = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    for _ in range(repeats):
        value = work()
    end.record()
    end.synchronize()
    return Timed(1e-3 * float(cp.cuda.get_elapsed_time(start, end)) / repeats, value)


def together(work: Callable[[int], Any], devices: int) -> tuple[float, list[Any]]:
    """Call ``work`` in a thread for each GPU; return the seconds of all, and the results."""
    import cupy as cp

    ready, begun = threading.Barrier(devices), [0.0] * devices

    def one(device: int) -> Any:
        with cp.cuda.Device(device):
            cp.cuda.Device().synchronize()
            ready.wait()
            begun[device] = time.perf_counter()
            found = work(device)
            cp.cuda.Device().synchronize()
            return found

    with ThreadPoolExecutor(devices) as pool:
        found = list(pool.map(one, range(devices)))
        return time.perf_counter() - min(begun), found


@dataclass
class Process:
    """What a command printed, and the peaks of resident memory of its processes, by id."""

    out: str = ""
    together: int = 0
    peaks: dict[int, int] = field(default_factory=dict)


def command(words: Iterable[object], **env: str) -> Timed:
    """Run a command to its end, from its start; if it fails, raise its message."""
    found, start, used = Process(), clock(), _children()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [*map(str, words)], stdout=out, stderr=err, env={**os.environ, **env}
        )
        ended = os.pidfd_open(process.pid)
        while not select.select([ended], [], [], 0.05)[0]:
            _watch(process.pid, found)
        seconds = clock() - start
        os.close(ended)
        process.wait()
        seconds = _children() - used if _state.cpu else seconds
        for file in (out, err):
            file.seek(0)
        if process.returncode:
            raise RuntimeError(f"{shlex.join(map(str, words))[:300]}: {err.read()[-2000:]}")
        found.out = out.read()
    return Timed(seconds, found)


def _watch(pid: int, found: Process) -> None:
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        sizes = {member.pid: member.memory_info().rss for member in family}
    except psutil.Error:  # one has ended meanwhile
        return
    found.together = max(found.together, sum(sizes.values()))
    for member, size in sizes.items():
        found.peaks[member] = max(found.peaks.get(member, 0), size)


def penstock(*words: object) -> list[object]:
    """Return the command line of a command of Penstock's."""
    return [sys.executable, "-P", "-m", "penstock", *words]


def by_peer(python: str, *words: object, **env: str) -> Any:
    """Run a program by the Python of --peers; return the JSON of its last line."""
    run = command([python, "-P", "-W", "ignore", *words], **env).value
    return json.loads(run.out.splitlines()[-1])


def alike(values: Mapping[str, Any], rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise unless all sides have the value of ours; a check."""
    for value in values.values():
        np.testing.assert_allclose(value, values["ours"], rtol, atol)


def epochs_of(run: Path) -> list[dict[str, Any]]:
    """Return what a training kept of each epoch."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def tampered(value: Any) -> Any:
    """Return the value, or a wrong one with --break wrong; for checks that make values."""
    if _state.broken != "wrong":
        return value
    return "" if isinstance(value, str) else _wrong(value)


def _wrong(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, Path):
        _damage(value)
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for name in (one.name for one in dataclasses.fields(value)):
            object.__setattr__(changed, name, _wrong(getattr(value, name)))
        return changed
    if isinstance(value, Mapping):
        return {name: _wrong(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        made = [_wrong(one) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, str):
        return value
    return ~value if getattr(value, "dtype", None) == np.bool_ else value * 2 + 1


def _damage(path: Path) -> None:
    """Invert half of each file that no reader takes for a manifest."""
    for each in [path] if path.is_file() else path.rglob("*"):
        if not each.is_file() or each.suffix == ".json":
            continue
        size = each.stat().st_size  # at its ends are formats' own bytes
        with each.open("r+b") as file:
            file.seek(size // 4)
            some = file.read(max(size // 2, 1))
            file.seek(-len(some), os.SEEK_CUR)
            file.write(some.translate(bytes(range(255, -1, -1))))


# What a benchmark may need.


def data() -> str | None:
    """Return the reason if real data is missing."""
    return None if os.environ.get("PENSTOCK_DATA") else "needs real data: set PENSTOCK_DATA"


def real(name: str) -> Path:
    """Return a file of real data."""
    return Path(os.environ["PENSTOCK_DATA"]) / name


def installed(*modules: str) -> Need:
    """Return a need of packages of the bench extra."""

    def missing() -> str | None:
        absent = [name for name in modules if find_spec(name) is None]
        return f"{', '.join(absent)} not installed" if absent else None

    return missing


def in_peers(given: argparse.Namespace, *modules: str) -> Need:
    """Return a need of packages of the Python of --peers."""

    @cache
    def missing() -> str | None:
        ask = (
            f"from importlib.util import find_spec as f; print(*(n for n in {modules} if not f(n)))"
        )
        done = subprocess.run([given.peers, "-P", "-c", ask], capture_output=True, text=True)
        return (
            f"{done.stdout.strip()} not installed in {given.peers}" if done.stdout.strip() else None
        )

    return missing


def gpus(count: int) -> Need:
    """Return a need of GPUs."""

    def missing() -> str | None:
        if find_spec("cupy") is None:
            return "needs a GPU: CuPy is not installed"
        from penstock.workers.resources.device import devices_here

        return None if devices_here() >= count else f"needs {count} GPU(s), has {devices_here()}"

    return missing


def slow(given: argparse.Namespace) -> Sequence[Need]:
    """Return a need of a full run."""
    return (lambda: "takes long: runs without --quick" if given.quick else None,)


def _why_not(needs: Sequence[Need]) -> str | None:
    return next((why for need in needs if (why := need())), None)


# A run.


def main(
    about: str,
    cases: Callable[[argparse.Namespace], Iterator[Case]],
    *options: Option,
    needs: Sequence[Need] = (),
    gpu: Callable[[argparse.Namespace], Iterator[Case]] | None = None,
) -> int:
    """Run the cases of a benchmark by its command line; return its exit code.

    gpu  the cases that need a GPU, which run alone with --gpu, else after the others; ``cases``
         again if these run on the device that there is
    """
    given = _arguments(about, options)
    _state.broken, _state.cpu = given.broken, given.cpu
    results, why, chosen = list[dict[str, Any]](), _why_not(needs), [cases]
    if given.gpu:
        why = why or ("its cases are of cores" if gpu is None else gpus(1)())
        chosen = [gpu] if gpu else []
    elif gpu is not None and gpu != cases:
        chosen.append(gpu if gpus(1)() is None else _no_gpu)
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        given.scratch, begun = Path(scratch), clock()
        for case in (one for some in chosen for one in some(given)) if why is None else ():
            if not wanted(case.name, given):
                continue
            if not results:
                print("\n".join(_HEAD))
            results.append(_judged(case, given) | {"took": round(clock() - begun, 1)})
            begun = clock()
            print("\n".join(_rows(results[-1])), flush=True)
            _keep("unfinished", why, results, given)
    states = {one["state"] for one in results}
    if why is None and states <= {"skipped", "checked"}:
        why = results[0]["why"] if results else "no such case"
    state = "failed" if "failed" in states else "passed" if "passed" in states else "skipped"
    if why is not None:
        print(f"skipped: {why}")
    for one in results:
        if one["state"] == "failed":
            print(f"FAILED {one['name']}: {one['why']}")
    _keep(state, why, results, given)
    if given.svg is not None:
        given.svg.write_text(drawn(results))
    return {"passed": 0, "failed": 1, "skipped": SKIPPED}[state]


def wanted(name: str, given: argparse.Namespace) -> bool:
    """Return whether --only chooses this case; commas of names: before a space, in a number."""
    return any(word in name for word in re.split(r",(?! |\d{3}\b)", given.only))


def _no_gpu(given: argparse.Namespace) -> Iterator[Case]:
    yield absent("on a GPU", gpus(1)() or "")


def _keep(state: str, why: str | None, cases: Sequence[Any], given: argparse.Namespace) -> None:
    if given.json is not None:
        body = {"state": state, "why": why, **_about(given), "cases": cases}
        given.json.write_text(json.dumps(body, indent=1) + "\n")


def _arguments(about: str, options: Sequence[Option]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small inputs, and gates of half the ratio")
    add(
        "--only",
        default="",
        help="cases whose names contain A or B, of A,B; names may have commas, too",
    )
    add("--rounds", type=int, help=f"at most [{ROUNDS}, with --quick {LEAST}]")
    add("--gpu", action="store_true", help="only cases that need a GPU")
    add("--cpu", action="store_true", help="CPU seconds: for machines that are not idle")
    add("--json", type=Path, metavar="FILE")
    add("--svg", type=Path, metavar="FILE")
    add("--folder", help="of temporary files")
    peers = os.environ.get("PENSTOCK_PEERS", sys.executable)
    add("--peers", default=peers, metavar="PYTHON", help="has those that need other versions")
    add("--break", dest="broken", choices=("slow", "wrong"), help="ours, to see the gates fail")
    for one in options:
        first = one.full[0] if isinstance(one.full, list) else one.full
        kind = {"nargs": "+"} if isinstance(one.full, list) else {}
        said = f"{one.help} [{one.full}, with --quick {one.quick}]"
        add(one.name, type=type(first), help=said.strip(), **kind)
    given = parser.parse_args()
    for one in options:
        name = one.name.lstrip("-").replace("-", "_")
        if getattr(given, name) is None:
            setattr(given, name, one.quick if given.quick else one.full)
    given.rounds = given.rounds or (LEAST if given.quick else ROUNDS)
    return given


def _judged(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """Check, time and judge a case."""
    result: dict[str, Any] = {"name": case.name, "sides": {}, "figures": {}}
    why = _why_not(case.needs)
    if why is not None:
        return result | {"state": "skipped", "why": why}
    try:
        missed = _measured(case, given, result)
    except Exception as error:
        if not isinstance(error, AssertionError):
            traceback.print_exc()
        said = " ".join(str(error).split()) or traceback.extract_tb(error.__traceback__)[-1].line
        return result | {"state": "failed", "why": f"{type(error).__name__}: {said[:300]}"}
    if missed:
        return result | {"state": "failed", "why": "; ".join(missed)}
    gated = [name for name, one in case.sides.items() if _gate(one, quick=given.quick) is not None]
    absent = [name for name in gated if "skipped" in result["sides"][name]]
    if absent and all(name in absent or case.sides[name].floor for name in gated):
        why = "; ".join(f"{name}: {result['sides'][name]['skipped']}" for name in absent)
        return result | {"state": "checked", "why": f"no gate of a peer was judged: {why}"}
    return result | {"state": "passed", "why": ""}


def _measured(case: Case, given: argparse.Namespace, result: dict[str, Any]) -> list[str]:
    """Fill in a result; return the gates that are missed."""
    sides = {name: side for name, side in case.sides.items() if not _why_not(side.needs)}
    for name in case.sides.keys() - sides.keys():
        result["sides"][name] = {"skipped": _why_not(case.sides[name].needs)}
    runs = {"ours": case.ours, **{name: side.run for name, side in sides.items()}}
    first = {name: _state.ran.get(run) or timed(run) for name, run in runs.items()}
    _state.ran.update({side.run: first[name] for name, side in sides.items() if side.once})
    values = {name: one.value for name, one in first.items()}
    values["ours"] = tampered(values["ours"])
    result["figures"] = dict(case.check(values) or {})
    kept = {runs[name]: one.seconds for name, one in first.items() if case.rounds == 1}
    kept |= {run: one.seconds for run, one in _state.ran.items()}
    for name in [name for name in sides if first[name].seconds == float("inf")]:
        result["sides"][name] = {"skipped": "its memory did not suffice"}
        del sides[name], runs[name]
    del values, first
    times: dict[str, list[float]] = {name: [] for name in runs}
    begun = time.monotonic()
    for number in range(min(case.rounds or given.rounds, given.rounds)):
        if number >= LEAST and time.monotonic() - begun > ENOUGH:
            break
        for name, run in runs.items():
            seconds = kept[run] if run in kept else timed(run).seconds
            if name == "ours" and given.broken == "slow":
                seconds *= SLOWER / (QUICK if given.quick else FULL)
            times[name].append(seconds)
    result["seconds"] = times["ours"]
    if case.work is not None:
        result["per_second"] = case.work[0] / statistics.median(times["ours"])
        result["unit"] = case.work[1]
    missed = []
    for name, side in sides.items():
        ratios = [theirs / ours for ours, theirs in zip(times["ours"], times[name], strict=True)]
        ratio, gate = statistics.median(ratios), _gate(side, quick=given.quick)
        one = {"seconds": times[name], "ratio": ratio, "floor": side.floor, "gate": gate}
        result["sides"][name] = one | {"least": min(ratios), "most": max(ratios)}
        if gate is not None and not ratio >= gate:
            missed.append(f"{ratio:.3g} of {name}, {gate:.3g} needed")
    return missed


def _gate(side: Side, *, quick: bool) -> float | None:
    if not quick:
        return None if side.full is None else FULL * side.full
    measured = side.full if side.quick is None else side.quick
    return None if measured is None else QUICK * measured


def _about(given: argparse.Namespace) -> dict[str, Any]:
    words = shlex.join(sys.argv[1:])
    return {
        "command": f"python -P benchmarks/{Path(sys.argv[0]).name} {words}".strip(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "quick": given.quick,
        "cpu_seconds": given.cpu,
        "machine": machine(),
        "versions": versions(),
    }


def machine() -> dict[str, Any]:
    """Return the properties that figures depend on: processor, cores, memory, GPUs, load."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found: dict[str, Any] = {
        "processor": named[0] if named else platform.processor(),
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": round(os.getloadavg()[0], 2),
        "gpus": [],
    }
    if gpus(1)() is None:
        import cupy as cp

        properties = cp.cuda.runtime.getDeviceProperties
        count = cp.cuda.runtime.getDeviceCount()
        found["gpus"] = [properties(device)["name"].decode() for device in range(count)]
    return found


# What is shown.

_HEAD = (
    "| case | ours | against | its time | ratio | gate | in all |",
    "|---|---|---|---|---|---|---|",
)


def duration(seconds: float) -> str:
    """Return a time with its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _rows(one: Mapping[str, Any]) -> list[str]:
    said = f"skipped: {one['why']}"
    if one["state"] != "skipped":
        said = f"{one['state']}, {duration(one['took'])}"
    ours = duration(statistics.median(one["seconds"])) if "seconds" in one else ""
    if "per_second" in one:
        scale, letter = (1e6, " M") if one["per_second"] >= 1e5 else (1.0, "")
        ours += f", {one['per_second'] / scale:.4g}{letter} {one['unit']}/s"
    figures = ", ".join(f"{name} {_shown(value)}" for name, value in one["figures"].items())
    first = f"| {one['name']} | {ours}{' (' if figures else ''}{figures}{')' if figures else ''} |"
    rows = []
    for name, side in one["sides"].items():
        rows.append(f"{first} {name} |{_compared(side)} {said} |")
        first, said = "| | |", ""
    return rows or [f"{first} | | | | {said} |"]


def _compared(side: Mapping[str, Any]) -> str:
    if "ratio" not in side:
        return f" | {side.get('skipped', '')} | |"
    scale, unit = (100, " %") if side["floor"] else (1, "")
    ratio, least, most = (f"{scale * side[name]:.3g}" for name in ("ratio", "least", "most"))
    ratio, gate = ratio + unit, "" if side["gate"] is None else f"{scale * side['gate']:.3g}{unit}"
    took = duration(statistics.median(side["seconds"]))
    return f" {took} | {ratio} ({least} to {most}) | {gate} |"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def drawn(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the ratios as an SVG of bars, with a line at 1."""
    bars = [
        (f"{one['name']}: {name}", side["ratio"])
        for one in results
        for name, side in one["sides"].items()
        if "ratio" in side
    ]
    most, left, width, step = max([1.0, *(ratio for _, ratio in bars)]), 420, 360, 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 80}" '
        f'height="{step * len(bars) + 10}" font-family="sans-serif" font-size="12">'
    ]
    for number, (name, ratio) in enumerate(bars):
        y, long = step * number + 5, width * ratio / most
        parts += [
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{long:.1f}" height="{step - 6}" fill="#3b6ea5"/>',
            f'<text x="{left + long + 5:.1f}" y="{y + 13}">{ratio:.3g}</text>',
        ]
    at = left + width / most
    parts.append(f'<path d="M{at:.1f} 0V{step * len(bars) + 10}" stroke="#c33"/></svg>')
    return "\n".join(parts) + "\n"
