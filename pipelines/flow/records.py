"""What is kept of every run of a flow: ``runs/<flow>-<time>/`` next to the flow's file.

flow.yaml  the flow as it was run; the run has its lock until it ends
run.json   state, stages with times, metrics, gates, errors, what was published; versions
logs/      what each stage wrote
"""

from __future__ import annotations

import datetime as dt
import platform
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from penstock.documents import with_named_numbers
from penstock.errors import InputError, PenstockError
from penstock.files import save_text
from penstock.formats import Format, filled
from penstock.locks import FileLock, is_locked, try_lock
from penstock.output_lock import own_directory
from penstock.secrets import masked
from penstock.versions import versions

FOLDER = "runs"
ATTEMPT = r"^[1-9]\d*/[1-9]\d*$"  # which of how many
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
_NAME = re.compile(r"(.+)-(\d{8}-\d{6}(?:-\d+)?)")
_TEXTS = ("variables", "targets", "error", "notification", "why", "report", "gates")


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


@dataclass(kw_only=True)
class _Gate:
    metric: str
    expected: str
    value: float | None
    met: bool


@dataclass(kw_only=True)
class _Stage:
    job: str
    state: str
    began: float = 0.0
    seconds: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    gates: list[_Gate] = field(default_factory=list)
    error: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class _Run:
    """The types in run.json that a record is checked for when it is read."""

    flow: str
    file: str
    date: dt.date
    began: dt.datetime
    state: str
    seconds: float = 0.0
    series: str = ""
    attempt: Annotated[str, Field(pattern=ATTEMPT)] = "1/1"
    stages: dict[str, _Stage] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    targets: list[tuple[str, str]] = field(default_factory=list)
    published: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] = field(default_factory=dict)


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
        return str(self.body["date"])

    @property
    def series(self) -> tuple[str, str | None]:
        """What runs have in common that are compared: their flow, and its folder but for dates.

        The folder is None if the flow could not be read.
        """
        return self.body["flow"], self.body.get("series")

    @property
    def whole(self) -> bool:
        """Whether every stage that had to run was chosen: the run counts as that of its day."""
        return all(one["state"] != State.NOT_CHOSEN for one in self.stages.values())

    @property
    def state(self) -> str:
        """A ``State``."""
        return str(self.body["state"])

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """What is recorded of the stages."""
        found: dict[str, dict[str, Any]] = self.body.get("stages", {})
        return found

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the flow used."""
        return {name: str(one) for name, one in self.body.get("variables", {}).items()}

    @property
    def seconds(self) -> float | None:
        """How long the run took, if that is known."""
        return self.body.get("seconds")

    @property
    def attempt(self) -> tuple[int, int]:
        """Which of how many attempts the run is."""
        number, _, count = self.body.get("attempt", "1/1").partition("/")
        return int(number), int(count)

    def stages_text(self) -> str:
        """Return how many stages ended how: ``2 done, 1 unchanged``."""
        counts = Counter(shown_state(one["state"]) for one in self.stages.values())
        return ", ".join(f"{count} {state}" for state, count in counts.items())

    def metrics(self, stage: str) -> dict[str, float]:
        """Return the metrics of one stage."""
        given = self.stages.get(stage, {}).get("metrics", {})
        return {name: float(value) for name, value in given.items()}  # also "NaN"

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


def begin_run(path: Path, name: str, date: dt.date, text: str, about: dict[str, Any]) -> RunRecord:
    """Make the folder of a run of the flow at ``path``, which begins now.

    about  more for its record
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
        "flow": flow,
        "file": str(path),
        "date": date.isoformat(),
        **about,
        "began": now.isoformat(timespec="microseconds"),
        "state": State.RUNNING,
        "versions": versions(),
        "host": platform.node(),
        "stages": {},
        "published": [],
    }
    try:
        (folder / "logs").mkdir()
        save_text(folder / "flow.yaml", text)
        record = RunRecord(folder, body, try_lock(folder / "flow.yaml"))
        record.save()
    except BaseException:  # no command would list or remove it
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return record


def load_run(folder: Path) -> RunRecord:
    """Return the record of a run's folder; if its state is running but the run is not, killed."""
    body = _checked(folder)
    if body["state"] != State.RUNNING or is_locked(folder / "flow.yaml"):
        return RunRecord(folder, body)
    body = _checked(folder)  # it may have ended between the two
    for one in (body, *body.get("stages", {}).values()):
        if one["state"] == State.RUNNING:
            one["state"] = State.KILLED
    return RunRecord(folder, body)


def _checked(folder: Path) -> dict[str, Any]:
    body = FORMAT.load(folder)
    with FORMAT.reading(folder):
        filled(_Run, body)
    return body


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
    return sorted(runs, key=_order)


def _order(run: RunRecord) -> tuple[str, float, str]:
    return run.date, began(run), run.name


def began(run: RunRecord) -> float:
    """Return when a run began, in seconds: clocks go back in autumn, and text does not show it."""
    return dt.datetime.fromisoformat(run.body["began"]).timestamp()


def _folders(base: Path) -> Iterator[Path]:
    if base.is_dir():
        yield from (one for one in base.iterdir() if one.is_dir())


def older(run: RunRecord) -> list[RunRecord]:
    """Return the runs of this series before a run, by date."""
    runs = by_date(all_runs(run.folder.absolute().parent, run.series[0]))
    return [one for one in runs if one.series == run.series and _order(one) < _order(run)]


def previous_metrics(run: RunRecord, stage: str) -> dict[str, float]:
    """Return the metrics of a stage in the last run of this series that passed, of an earlier day.

    They are empty if there is none.
    """
    runs = [one for one in older(run) if one.date < run.date and one.state == State.PASSED]
    return next(filter(None, (one.metrics(stage) for one in reversed(runs))), {})


def gates_of(run: RunRecord) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the gates of a run by stage and metric."""
    found = defaultdict(list)
    for name, stage in run.stages.items():
        for gate in stage.get("gates", []):
            found[name, gate["metric"]].append(gate)
    return found


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
