"""What is told of a run: a line a stage, the gates that broke, where the outputs are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.paths import shown
from penstock.pipelines.flow.records import RunRecord

_MARK = {"done": "done", "skipped": "unchanged", "failed": "FAILED", "gate failed": "GATE FAILED"}


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
    report: str | None = None  # the page about the run, where one was written

    @staticmethod
    def of(run: RunRecord) -> FlowReport:
        """Return what a run's record tells."""
        body = run.body
        return FlowReport(
            str(body["flow"]), str(run.folder), run.state, float(body.get("seconds", 0.0)),
            dict(body["stages"]), list(body["published"]), body.get("error"),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return asdict(self)

    def text(self) -> str:
        """Return lines for a person."""
        width = max([len(name) for name in self.stages], default=0)
        lines = [f"{self.flow}: {self.state} in {self.seconds:.1f} s", ""]
        for name, one in self.stages.items():
            state = _MARK.get(one["state"], one["state"])
            seconds = f"{one['seconds']:8.1f} s" if one["state"] == "done" else " " * 10
            lines.append(f"  {name:<{width}}  {state:<11} {seconds}  {_about(one)}".rstrip())
        for one in self.published:
            lines.append(f"  published {one['stage']}: {shown(one['to'])}")
        lines += ["", f"  {shown(self.run)}"]
        if self.report is not None:
            lines.append(f"  {shown(self.report)}")
        return "\n".join(lines)

    def failure(self) -> PenstockError | None:
        """Return the error that ends the command, where the run did not pass."""
        if self.state == "passed":
            return None
        for name, one in self.stages.items():
            if one["state"] == "failed":
                error = one.get("error") or {}
                return PenstockError(
                    f"stage {name} failed: {error.get('what')}", expected=error.get("expected"),
                    got=error.get("got"), remedy=error.get("remedy"),
                )  # fmt: skip
        for name, one in self.stages.items():
            if one["state"] == "gate failed":
                return PenstockError(
                    f"stage {name} is not as expected, and nothing was published: {one['why']}",
                    remedy="Look at the report of the run; change expect: if this is meant",
                )
        return PenstockError(f"the run of {self.flow} {self.state}")


def _about(one: dict[str, Any]) -> str:
    if one["state"] in ("failed", "gate failed", "not run"):
        return str(one.get("why") or (one.get("error") or {}).get("what") or "")
    gates = one.get("gates") or []
    met = f"{len(gates)} gate{'s' * (len(gates) != 1)} met" if gates else ""
    return "; ".join(
        part for part in (one.get("why") if one["state"] == "done" else "", met) if part
    )
