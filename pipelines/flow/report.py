"""The report of a run: one line per stage, the broken gates, the paths of the outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.documents import with_named_numbers
from penstock.errors import PenstockError, warn
from penstock.paths import shown
from penstock.pipelines.display import FromBase
from penstock.pipelines.flow.records import RunRecord, State, load_run, shown_state
from penstock.sizes import plural

# The record has their reason.
_NOT_WELL = (State.FAILED, State.GATE_FAILED, State.INTERRUPTED, State.NOT_RUN, State.NOT_CHOSEN)
_ENDED: dict[str, str] = {
    State.INTERRUPTED: "was interrupted",
    State.RUNNING: "has not ended",
    State.KILLED: "was killed",
}


@dataclass
class FlowReport:
    """The result of a run."""

    flow: str
    run: str
    state: str
    seconds: float | None  # unknown while it runs, and of one that was killed
    stages: dict[str, dict[str, Any]]
    published: list[dict[str, Any]]
    error: dict[str, Any] | None = None
    report: str | None = None  # the page about the run, if one was written

    @staticmethod
    def of(run: RunRecord, page: str | None = None) -> FlowReport:
        """Return the report in a run's record."""
        body = run.body
        return FlowReport(
            body["flow"],
            str(run.folder),
            run.state,
            run.seconds,
            run.stages,
            body.get("published", []),
            body.get("error"),
            page,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        found: dict[str, Any] = with_named_numbers(asdict(self))
        return found

    def text(self) -> str:
        """Return lines for a person."""
        width = max([len(name) for name in self.stages], default=0)
        whole = "" if self.seconds is None else f" in {self.seconds:.1f} s"
        lines = [f"{self.flow}: {self.state}{whole}"]
        lines += [""] if self.stages else []
        for name, one in self.stages.items():
            state = shown_state(one["state"])
            if state in (State.FAILED, State.GATE_FAILED):
                state = state.upper()
            seconds = f"{one['seconds']:8.1f} s" if one["state"] == State.DONE else " " * 10
            lines.append(f"  {name:<{width}}  {state:<11} {seconds}  {_about(one)}".rstrip())
        for one in self.published:
            what = f"{one['stage']}: {shown_target(one['to'])}"
            stays = f" stays at {one['stays']}" if "stays" in one else ""
            lines.append(f"  {'not ' if stays else ''}published {what}{stays}")
        lines += ["", f"  {shown(self.run)}"]
        if self.report is not None:
            lines.append(f"  {shown(self.report)}")
        return "\n".join(lines)

    def failure(self) -> PenstockError | None:
        """Return the error that ends the command, if the run did not pass."""
        if self.state == State.PASSED:
            return None

        def first(state: State) -> str | None:
            return next((name for name, one in self.stages.items() if one["state"] == state), None)

        if (name := first(State.FAILED)) is not None:
            what, told = f"stage {name} of {self.flow} failed", self.stages[name].get("error", {})
        elif (name := first(State.GATE_FAILED)) is not None:
            what = f"stage {name} of {self.flow} is not as expected, and nothing was published"
            remedy = "Read the report of the run; if this is meant, run it again with --accept "
            remedy += f"{name} --reason WHY, or change expect:"
            told = {"what": self.stages[name].get("why"), "remedy": remedy}
        else:
            what = f"the run of {self.flow} {_ENDED.get(self.state, self.state)}"
            told = self.error or {}
        return PenstockError(
            ": ".join(filter(None, [what, told.get("what")])),
            expected=told.get("expected"),
            got=told.get("got"),
            remedy=told.get("remedy"),
        )


def write_page(folder: Path) -> str | None:
    """Write the page about a run; a run is not worse for having none."""
    from penstock.pipelines.report.command import write_report

    try:
        return str(write_report(load_run(folder)))
    except Exception as error:
        warn(f"the report of the run was not written: {error}")
        return None


def shown_target(destination: str) -> str:
    """Return the path of a publication as people read it."""
    return destination if "://" in destination else shown(destination)


def reason_of(stage: dict[str, Any]) -> str:
    """Return why a stage that failed or was not run is in its state."""
    return str(stage.get("error", {}).get("what") or stage.get("why") or "")


def _how(one: dict[str, Any]) -> str:
    """Return what an incremental stage kept of its output, and what making it whole took."""
    if "based" not in one:
        return ""
    if not one["based"]:
        return "made whole" + (f" ({one['why_whole']})" if one["why_whole"] != one["why"] else "")
    kept = (one.get("report") or {}).get("from_base")
    what = "from its previous output" if kept is None else FromBase(**kept).text()
    rebuilt = one["rebuilt"]
    seconds = "" if rebuilt["seconds"] is None else f" took {rebuilt['seconds']:.1f} s"
    return f"{what}; whole{seconds} in {rebuilt['run']}"


def _about(one: dict[str, Any]) -> str:
    if one["state"] in _NOT_WELL:
        return reason_of(one)
    met = sum(gate["met"] for gate in one.get("gates", []))
    parts = [
        one.get("why", "") if one["state"] == State.DONE else "",
        _how(one) if one["state"] == State.DONE else "",
        f"{plural(met, 'gate')} met" if met else "",
        f"accepted: {one['accepted']}" if "accepted" in one else "",
    ]
    return "; ".join(part for part in parts if part)
