"""What is kept of every run of a flow: ``runs/<flow>-<time>/`` beside the flow's file.

flow.yaml      the flow as it was run
run.json       state, stages with times, metrics, gates, errors, what was published; versions
metrics.jsonl  a line a metric
logs/          what each stage wrote
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.documents import named_number, parse_json, with_named_numbers
from penstock.errors import UsageError
from penstock.files import save_json, save_text
from penstock.output_lock import own_directory

FOLDER = "runs"
FORMAT = "penstock-run"
_PACKAGES = ("dask", "distributed", "numpy", "numba", "pyarrow", "mpi4py", "cupy", "cudf")
_NAME = re.compile(r"(.+)-(\d{8}-\d{6}(?:-\d+)?)")


@dataclass(frozen=True)
class RunRecord:
    """One run's folder, and what run.json says."""

    folder: Path
    body: dict[str, Any]

    @property
    def name(self) -> str:
        """The run's name: its flow, and when it began."""
        return self.folder.name

    @property
    def state(self) -> str:
        """passed, failed, interrupted or running."""
        return str(self.body.get("state"))

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """What is recorded of the stages; of a record that is damaged, what can be used."""
        found = self.body.get("stages")
        pairs = found.items() if isinstance(found, dict) else ()
        return {str(name): one for name, one in pairs if isinstance(one, dict)}

    @property
    def seconds(self) -> float | None:
        """How long the run took, where that is known."""
        found = self.body.get("seconds")
        return float(found) if isinstance(found, int | float) else None

    def metrics(self, stage: str) -> dict[str, float]:
        """Return the metrics of one stage."""
        given = self.stages.get(stage, {}).get("metrics")
        found = {}
        for name, value in given.items() if isinstance(given, dict) else ():
            number = value if isinstance(value, int | float) else named_number(value)
            if number is not None:
                found[name] = float(number)
        return found

    def save(self) -> None:
        """Write run.json anew."""
        save_json(self.folder / "run.json", with_named_numbers(self.body))


def begin_run(home: Path, flow: str, path: Path, text: str) -> RunRecord:
    """Make the folder of a run that begins now."""
    now = dt.datetime.now().astimezone()
    base = home / FOLDER
    own_directory(base)
    name = f"{flow}-{now:%Y%m%d-%H%M%S}"
    for number in range(1, 1000):
        folder = base / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            break
        except FileExistsError:
            continue
    (folder / "logs").mkdir()
    save_text(folder / "flow.yaml", text)
    body = {
        "format": FORMAT, "version": 1, "flow": flow, "file": str(path),
        "began": now.isoformat(timespec="seconds"), "state": "running",
        "versions": versions(), "host": platform.node(), "stages": {}, "published": [],
    }  # fmt: skip
    record = RunRecord(folder, body)
    record.save()
    return record


def versions() -> dict[str, str]:
    """Return the versions of what a run depends on."""
    found = {"penstock": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load_run(folder: Path) -> RunRecord:
    """Return the record of a run's folder."""
    try:
        body = parse_json((folder / "run.json").read_bytes())
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise ValueError("it is no record of a run")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} is not the folder of a run",
            expected="a folder with run.json, as penstock runs list shows", got=str(error),
        ) from error  # fmt: skip
    return RunRecord(folder, body)


def all_runs(base: Path, flow: str | None = None) -> list[RunRecord]:
    """Return the runs in a folder, the oldest first; what cannot be read is left out."""
    found = []
    for folder in _folders(base):
        named = _NAME.fullmatch(folder.name)
        if named is None or (flow is not None and named[1] != flow):
            continue
        try:
            found.append(load_run(folder))
        except UsageError:
            continue
    return sorted(found, key=lambda run: (began(run), run.name))


def began(run: RunRecord) -> float:
    """Return when a run began, in seconds: clocks are put back in autumn, and text is not."""
    try:
        return dt.datetime.fromisoformat(str(run.body.get("began"))).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _folders(base: Path) -> Iterator[Path]:
    if base.is_dir():
        yield from (one for one in base.iterdir() if one.is_dir() and not one.is_symlink())


def previous_metrics(base: Path, flow: str, file: Path, stage: str) -> dict[str, float]:
    """Return the metrics of a stage in the last run of this flow that passed."""
    for run in reversed(all_runs(base, flow)):
        if run.state == "passed" and same_file(run.body.get("file"), str(file)):
            found = run.metrics(stage)
            if found:
                return found
    return {}


def same_file(one: Any, other: Any) -> bool:
    """Return whether two records name the same flow's file, which a link may lead to."""
    if not isinstance(one, str) or not isinstance(other, str) or "\0" in one + other:
        return bool(one == other)
    return os.path.realpath(one) == os.path.realpath(other)


def find_run(base: Path, name: str | None) -> RunRecord:
    """Return a run by its folder, its name, or ``latest`` (the default)."""
    if name is not None and name != "latest":
        for folder in (base / name, Path(name)):
            if folder.is_dir():
                return load_run(folder)
    runs = all_runs(base)
    if name is None or name == "latest":
        if runs:
            return runs[-1]
        raise UsageError(f"there are no runs in {base}", remedy="Make one with penstock run")
    near = [run.name for run in runs if run.name.startswith(name)]
    if len(near) == 1:
        return load_run(base / near[0])
    raise UsageError(
        f"there is no run {name!r} in {base}",
        expected=f"one of {', '.join(run.name for run in runs[-5:])}" if runs else "a run's folder",
    )


def clean(base: Path, keep: int) -> list[str]:
    """Remove all but the newest ``keep`` runs of each flow, and never one that is running."""
    gone = []
    flows = sorted({str(run.body.get("flow")) for run in all_runs(base)})
    for flow in flows:
        runs = [run for run in all_runs(base, flow) if not is_running(run)]
        last = [run for run in runs if run.state == "passed"][-1:]  # gates compare with it
        for run in runs[: max(len(runs) - keep, 0)]:
            if run in last:
                continue
            shutil.rmtree(run.folder)
            gone.append(run.name)
    return gone


def is_running(run: RunRecord) -> bool:
    """Return whether the process of a run is alive: one that was killed says running for ever."""
    import psutil

    if run.state != "running":
        return False
    try:
        process = psutil.Process(int(run.body.get("process", -1)))
        same = abs(process.create_time() - float(run.body.get("process_began", 0))) < 1
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, ValueError, TypeError):
        return False


def append_metrics(folder: Path, stage: str, metrics: dict[str, float]) -> None:
    """Add a line for every metric of a stage."""
    when = dt.datetime.now().astimezone().isoformat(timespec="seconds")
    lines = [
        json.dumps({"time": when, "stage": stage, "metric": name, "value": value})
        for name, value in with_named_numbers(metrics).items()
    ]
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
