"""What is kept of every run of a flow: ``runs/<flow>-<time>/`` next to the flow's file.

flow.yaml      the flow as it was run; the run has its lock until it ends
run.json       state, stages with times, metrics, gates, errors, what was published; versions
metrics.jsonl  one line per metric
logs/          what each stage wrote
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.documents import named_number, with_named_numbers
from penstock.errors import InputError, PenstockError
from penstock.files import save_text
from penstock.formats import Format
from penstock.locks import FileLock, is_locked, try_lock
from penstock.output_lock import own_directory
from penstock.secrets import masked

FOLDER = "runs"
FORMAT = Format(
    name="penstock-run",
    version=1,
    file="run.json",
    thing="run of a flow",
    make="Name a folder with run.json, as penstock runs list shows",
    restore="Restore the file, or run the flow again",
    absent=InputError,
    foreign=InputError,
)
_PACKAGES = ("dask", "distributed", "numpy", "numba", "pyarrow", "mpi4py", "cupy", "cudf")
_NAME = re.compile(r"(.+)-(\d{8}-\d{6}(?:-\d+)?)")
_TEXTS = ("variables", "error", "notification", "why", "report", "gates")


class State(StrEnum):
    """The state of a run, or of a stage, in run.json."""

    RUNNING = "running"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    # Of a run alone
    PASSED = "passed"
    # Of a stage alone
    DONE = "done"
    SKIPPED = "skipped"  # its output exists, and its inputs are unchanged
    GATE_FAILED = "gate failed"
    NOT_RUN = "not run"  # a stage that it reads failed
    NOT_CHOSEN = "not chosen"  # --only, --from


ENDED_WELL = (State.DONE, State.SKIPPED)


def shown_state(state: str) -> str:
    """Return the state of a stage as people read it."""
    return "unchanged" if state == State.SKIPPED else state


@dataclass(frozen=True)
class RunRecord:
    """One run's folder, and the content of run.json.

    held  the lock that shows others that the run has not ended
    """

    folder: Path
    body: dict[str, Any]
    held: FileLock | None = None

    @property
    def name(self) -> str:
        """The run's name: its flow, and when it began."""
        return self.folder.name

    @property
    def date(self) -> str:
        """The day that the run is of."""
        return str(self.body.get("date") or self.body.get("began"))[:10]

    @property
    def series(self) -> tuple[str, str | None]:
        """What runs have in common that are compared: their flow, and its folder but for dates.

        The folder is None if the flow could not be read.
        """
        found = self.body.get("series")
        return str(self.body.get("flow")), found if isinstance(found, str) else None

    @property
    def whole(self) -> bool:
        """Whether every stage that had to run was chosen: the run counts as that of its day."""
        return all(one.get("state") != State.NOT_CHOSEN for one in self.stages.values())

    @property
    def state(self) -> str:
        """A ``State``, unless the record is damaged."""
        found = self.body.get("state")
        return str(found) if isinstance(found, str) else ""

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """What is recorded of the stages; of a record that is damaged, what can be used."""
        found = self.body.get("stages")
        pairs = found.items() if isinstance(found, dict) else ()
        return {str(name): one for name, one in pairs if isinstance(one, dict)}

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the flow used."""
        found = self.body.get("variables")
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

    @property
    def seconds(self) -> float | None:
        """How long the run took, if that is known."""
        found = self.body.get("seconds")
        return float(found) if isinstance(found, int | float) else None

    def stages_text(self) -> str:
        """Return how many stages ended how: ``2 done, 1 unchanged``."""
        states = [str(one.get("state"))[:40] for one in self.stages.values()]
        counts = Counter(map(shown_state, states))
        return ", ".join(f"{count} {state}" for state, count in list(counts.items())[:10])

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
        """Write run.json again; its texts without values from the environment."""
        self.body.update(_masked(self.body))
        FORMAT.save(self.folder, with_named_numbers(self.body))
        if self.held is not None and self.state != State.RUNNING:
            self.held.release()


def _masked(body: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its texts masked; what others find things by stays."""
    found = {}
    for name, one in body.items():
        if name in _TEXTS:
            one = masked(one)
        elif name == "published":
            one = [{**each, "to": masked(each["to"])} for each in one]
        elif name == "stages":
            one = {stage: _masked(each) for stage, each in one.items()}
        found[name] = one
    return found


def begin_run(path: Path, name: str, date: dt.date, text: str, origin: dict[str, Any]) -> RunRecord:
    """Make the folder of a run of the flow at ``path``, which begins now.

    origin  who started it, for its record
    """
    now = dt.datetime.now().astimezone()
    base, flow = path.parent / FOLDER, name
    own_directory(base)
    name = f"{flow}-{now:%Y%m%d-%H%M%S}"
    for number in range(1, 1000):
        folder = base / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            break
        except FileExistsError:
            continue
    body = {
        "flow": flow, "file": str(path), "date": date.isoformat(), **origin,
        "began": now.isoformat(timespec="microseconds"), "state": State.RUNNING,
        "versions": versions(), "host": platform.node(), "stages": {}, "published": [],
    }  # fmt: skip
    try:
        (folder / "logs").mkdir()
        save_text(folder / "flow.yaml", text)
        record = RunRecord(folder, body, try_lock(folder / "flow.yaml"))
        record.save()
    except BaseException:  # no command would list or remove it
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return record


def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    found = {"penstock": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load_run(folder: Path) -> RunRecord:
    """Return the record of a run's folder; if its state is running but the run is not, killed."""
    run = RunRecord(folder, FORMAT.load(folder))
    if run.state != State.RUNNING or is_locked(folder / "flow.yaml"):
        return run
    run = RunRecord(folder, FORMAT.load(folder))  # it may have ended between the two
    if run.state != State.RUNNING:
        return run
    stages = {
        name: {**one, "state": State.KILLED} if one.get("state") == State.RUNNING else one
        for name, one in run.stages.items()
    }
    return RunRecord(folder, {**run.body, "state": State.KILLED, "stages": stages})


def all_runs(base: Path, flow: str | None = None) -> list[RunRecord]:
    """Return the runs in a folder, the oldest first; what cannot be read is left out."""
    found = []
    for folder in _folders(base):
        named = _NAME.fullmatch(folder.name)
        if named is None or (flow is not None and named[1] != flow):
            continue
        with suppress(PenstockError, OSError):
            found.append(load_run(folder))
    return sorted(found, key=lambda run: (began(run), run.name))


def by_date(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return runs by the day that they are of, those of one day as they began."""
    return sorted(runs, key=lambda run: (run.date, began(run), run.name))


def began(run: RunRecord) -> float:
    """Return when a run began, in seconds: clocks go back in autumn, and text does not show it."""
    try:
        return dt.datetime.fromisoformat(str(run.body.get("began"))).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _folders(base: Path) -> Iterator[Path]:
    if base.is_dir():
        yield from (one for one in base.iterdir() if one.is_dir())


def previous_metrics(run: RunRecord, stage: str) -> dict[str, float]:
    """Return the metrics of a stage in the last run of this series that passed, of an earlier day.

    They are empty if there is none.
    """
    runs = by_date(all_runs(run.folder.parent, run.series[0]))
    found = (
        one.metrics(stage) for one in reversed(runs)
        if one.date < run.date and one.state == State.PASSED and one.series == run.series
    )  # fmt: skip
    return next(filter(None, found), {})


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
        raise InputError(f"{base} has no runs", remedy="Make one with penstock run")
    near = [run.name for run in runs if run.name.startswith(name)]
    if len(near) == 1:
        return load_run(base / near[0])
    known = ", ".join(run.name for run in runs[-5:])
    raise InputError(
        f"{base} has no run {name!r}",
        expected="a run's folder" + (f", or the name of a run, such as {known}" if runs else ""),
    )


def clean(base: Path, keep: int) -> list[str]:
    """Remove all but the newest ``keep`` runs by date of each series, and return their names.

    What is running stays, and what others look up: the last run that passed, with which gates
    compare; the last of each schedule; and the last that published an output to a place.
    """
    series = defaultdict(list)
    for run in by_date(all_runs(base)):
        if run.state != State.RUNNING:
            series[run.series].append(run)
    gone = []
    for runs in series.values():
        last: dict[Any, RunRecord] = {}
        for run in runs:
            if run.state == State.PASSED and run.whole:
                last["passed"] = run
            if run.body.get("scheduled"):
                last["scheduled", run.body["scheduled"]] = run
        for run in sorted(runs, key=began):
            for one in run.body.get("published") or ():
                if "version" in one:
                    last["published", one["stage"], one.get("place")] = run
        kept = {run.name for run in (*last.values(), *runs[max(len(runs) - keep, 0) :])}
        for run in runs:
            if run.name not in kept:
                shutil.rmtree(run.folder)
                gone.append(run.name)
    return gone


def append_metrics(folder: Path, stage: str, metrics: dict[str, float]) -> None:
    """Add a line for every metric of a stage."""
    when = dt.datetime.now().astimezone().isoformat(timespec="seconds")
    lines = [
        json.dumps({"time": when, "stage": stage, "metric": name, "value": value})
        for name, value in with_named_numbers(metrics).items()
    ]
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
