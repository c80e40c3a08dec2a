"""The report of a run: one line per stage, the broken gates, the paths of the outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.documents import with_named_numbers
from penstock.errors import PenstockError
from penstock.paths import shown
from penstock.pipelines.flow.records import RunRecord, State, shown_state
from penstock.sizes import plural

# The record has their reason.
_NOT_WELL = (
    State.FAILED, State.GATE_FAILED, State.INTERRUPTED, State.NOT_RUN, State.NOT_CHOSEN,
)  # fmt: skip
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
    seconds: float
    stages: dict[str, dict[str, Any]]
    published: list[dict[str, Any]]
    error: dict[str, Any] | None = None
    report: str | None = None  # the page about the run, if one was written

    @staticmethod
    def of(run: RunRecord) -> FlowReport:
        """Return the report in a run's record."""
        body = run.body
        error, published = body.get("error"), body.get("published")
        return FlowReport(
            str(body.get("flow")), str(run.folder), run.state, run.seconds or 0.0, run.stages,
            published if isinstance(published, list) else [],
            error if isinstance(error, dict) else None,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        found: dict[str, Any] = with_named_numbers(asdict(self))
        return found

    def text(self) -> str:
        """Return lines for a person."""
        width = max([len(name) for name in self.stages], default=0)
        lines = [f"{self.flow}: {self.state} in {self.seconds:.1f} s"]
        lines += [""] if self.stages else []
        for name, one in self.stages.items():
            state = shown_state(str(one.get("state")))
            if state in (State.FAILED, State.GATE_FAILED):
                state = state.upper()
            took = one.get("seconds")
            done = one.get("state") == State.DONE and isinstance(took, int | float)
            seconds = f"{took:8.1f} s" if done else " " * 10
            lines.append(f"  {name:<{width}}  {state:<11} {seconds}  {_about(one)}".rstrip())
        for one in self.published:
            if isinstance(one, dict):
                what = f"{one.get('stage')}: {shown_target(str(one.get('to')))}"
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
        for name, one in self.stages.items():
            if one.get("state") == State.FAILED:
                error = one.get("error") or {}
                return PenstockError(
                    f"stage {name} of {self.flow} failed: {error.get('what')}",
                    expected=error.get("expected"), got=error.get("got"),
                    remedy=error.get("remedy"),
                )  # fmt: skip
        for name, one in self.stages.items():
            if one.get("state") == State.GATE_FAILED:
                return PenstockError(
                    f"stage {name} of {self.flow} is not as expected, and nothing was published: "
                    f"{one.get('why')}",
                    remedy="Read the report of the run; change expect: if this is meant",
                )
        error = self.error or {}
        return PenstockError(
            f"the run of {self.flow} {_ENDED.get(self.state, self.state)}"
            + (f": {error['what']}" if error.get("what") else ""),
            expected=error.get("expected"), got=error.get("got"), remedy=error.get("remedy"),
        )  # fmt: skip


def shown_target(destination: str) -> str:
    """Return the path of a publication as people read it."""
    return destination if "://" in destination else shown(destination)


def _about(one: dict[str, Any]) -> str:
    if one.get("state") in _NOT_WELL:
        return str((one.get("error") or {}).get("what") or one.get("why") or "")
    gates = one.get("gates") or []
    met = f"{plural(len(gates), 'gate')} met" if gates else ""
    return "; ".join(
        part for part in (one.get("why") if one.get("state") == State.DONE else "", met) if part
    )
