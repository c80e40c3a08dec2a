"""What ``penstock doctor`` tells: the findings, what they allow, what would mend the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.pipelines.doctor.finding import Answer, Finding

_MARKS = {"ok": "ok", "absent": "-", "warning": "!", "broken": "BROKEN"}
_WAYS = {
    "gds": "GPUDirect Storage",
    "host": "through host memory",
    None: "no GPU that can be used",
}


@dataclass(frozen=True)
class DoctorReport:
    """Everything that was found; ``text()`` for people, ``to_dict()`` for programs."""

    findings: list[Finding]
    allows: dict[str, Any]
    answers: Mapping[str, Answer]
    workers: dict[str, Mapping[str, Answer]]

    def broken(self) -> list[Finding]:
        """Return what was asked for or is installed, and does not work."""
        return [one for one in self.findings if one.state == "broken"]

    def failure(self) -> PenstockError | None:
        """Return the error that ends the command where something is broken."""
        broken = self.broken()
        if not broken:
            return None
        error = PenstockError(
            f"{len(broken)} of {len(self.findings)} findings say that something is broken: "
            + ", ".join(dict.fromkeys(one.subject for one in broken)),
            remedy=broken[0].remedy,
        )
        error.reported = True
        return error

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return {
            "healthy": not self.broken(),
            "findings": [asdict(one) for one in self.findings],
            "allows": self.allows,
            "probes": {name: asdict(answer) for name, answer in self.answers.items()},
            "workers": {
                address: {name: asdict(answer) for name, answer in answers.items()}
                for address, answers in self.workers.items()
            },
        }

    def text(self) -> str:
        """Return a line a finding, its remedy below, and what the machine allows."""
        width = max(len(one.subject) for one in self.findings)
        lines = []
        for one in self.findings:
            lines.append(f"{_MARKS[one.state]:>6}  {one.subject:{width}}  {one.text}")
            if one.state != "ok" and one.remedy:
                lines.append(f"{'':6}  {'':{width}}  -> {one.remedy}")
        lines.append("")
        jobs = self.allows["jobs"]
        for device in ("gpu", "cpu", None):
            names = [job for job, where in jobs.items() if where == device]
            if names:
                title = f"jobs on {device}" if device else "jobs that cannot run"
                lines.append(f"{title}: {', '.join(names)}")
        gangs = "yes" if self.allows["gangs"] else "no"
        lines.append(f"gangs of MPI ranks: {gangs}")
        lines.append(f"from disk to GPU: {_WAYS[self.allows['gpu_storage']]}")
        if self.workers:
            lines.append(f"workers asked: {len(self.workers)}")
        return "\n".join(lines)
