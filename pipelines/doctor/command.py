"""``penstock doctor``: what this machine, or each worker of a cluster, has and what it lacks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.cluster.mpi.mpiexec import outside_mpi_job
from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.doctor.checks import CHECKS, DoctorOptions, Finding
from penstock.progress import Progress
from penstock.sizes import plural
from penstock.workers.resources.scratch import find_scratch

_AT_ONCE = 4
_MEASURES = 2.0  # seconds, the disk
_MARKS = {"ok": "ok", "absent": "-", "warning": "!", "broken": "BROKEN"}


@dataclass(frozen=True)
class DoctorReport:
    """Everything that was found."""

    findings: list[Finding]

    @property
    def broken(self) -> list[Finding]:
        """Findings that were requested or are installed, and do not work."""
        return [one for one in self.findings if one.state == "broken"]

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return {"healthy": not self.broken, "findings": [asdict(one) for one in self.findings]}

    def text(self) -> str:
        """Return a line per finding, and below it the remedy."""
        width = max(len(one.subject) for one in self.findings)
        lines = []
        for one in self.findings:
            lines.append(f"{_MARKS[one.state]:>6}  {one.subject:{width}}  {one.text}")
            if one.state != "ok" and one.remedy:
                lines.append(f"{'':6}  {'':{width}}  -> {one.remedy}")
        return "\n".join(lines)


def command(
    folder: ClientPath | None = None,
    /,
    *,
    options: DoctorOptions = DoctorOptions(),
    spec: ClusterSpec = ClusterSpec(),
    output: Display = Display(),
) -> None:
    """Report what this machine has, and how to fix what it lacks.

    Exit 1 if something that was requested, or is installed, is broken.

    Parameters
    ----------
    folder
        folder for the tests of disk and file locks [default: the workers' scratch folder]
    """
    quiet = output.quiet or output.json
    folder = folder or spec.worker_scratch
    findings = examine(folder, options, device=spec.device, quiet=quiet)
    plain = ClusterSpec()
    if replace(spec, device=plain.device, worker_scratch=plain.worker_scratch) != plain:
        try:
            findings += _of_workers(folder, options, spec, quiet=quiet)
        except PenstockError as error:
            findings.append(Finding("cluster", "broken", error.what, error.remedy))
    report = DoctorReport(findings)
    output.show(report)
    if report.broken:
        subjects = ", ".join(dict.fromkeys(one.subject for one in report.broken))
        failure = PenstockError(f"broken: {subjects}", remedy=report.broken[0].remedy)
        failure.reported = True
        raise failure


def examine(
    folder: Path | None, options: DoctorOptions, *, device: str = "auto", quiet: bool = True
) -> list[Finding]:
    """Return what every check finds on this machine."""
    try:
        at = str(find_scratch() if folder is None else folder)
    except (PenstockError, OSError) as error:
        remedy = "export PENSTOCK_SCRATCH=/a/folder/that/can/be/written"
        return [Finding("disk", "broken", str(error), remedy)]
    seconds = _MEASURES if options.bandwidth else 0.0
    with Progress("this machine", total=len(CHECKS), unit="checks", quiet=quiet) as progress:

        def call(name: str) -> list[Finding]:
            found = run_check(name, at, seconds, options.timeout)
            progress.advance(1)
            return found

        def call_all(names: list[str]) -> list[Finding]:
            return [one for several in threads.map(call, names) for one in several]

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            first = [name for name, one in CHECKS.items() if not one.needs and name != "disk"]
            found = call_all(first)
            if any((one.subject, one.state) == ("GPU", "ok") for one in found):
                found += call_all([name for name, one in CHECKS.items() if one.needs])
        found += call("disk")
    if device == "gpu":
        found = [
            replace(one, state="broken", remedy=one.remedy or "Use --device cpu")
            if one.subject == "GPU" and one.state != "ok"
            else one
            for one in found
        ]
    return found


def run_check(
    name: str, folder: str, seconds: float, timeout: float | None = None
) -> list[Finding]:
    """Return the finding of a check in its own process: a hang or crash is a finding."""
    check = CHECKS[name]
    remedy, limit = check.remedy, timeout or check.seconds
    command = [sys.executable, "-P", "-m", "penstock.pipelines.doctor.checks"]
    process = subprocess.Popen(
        [*command, name, folder, str(seconds)],
        env=outside_mpi_job(os.environ),  # of a rank: MPI would look for the others
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that what it started ends with it
    )
    try:
        out, said = process.communicate(timeout=limit)
        if process.returncode == 0:
            return [Finding(**one) for one in json.loads(out.splitlines()[-1])]
        lines = said.strip().splitlines()
        text = lines[-1] if lines else f"exit code {process.returncode}"
        if process.returncode < 0:
            text = f"it was ended by {signal.Signals(-process.returncode).name}"
    except subprocess.TimeoutExpired:
        text = f"no answer within {limit:g} s"
        remedy = f"Give it longer: --timeout {min(max(4 * limit, 60), 600):g}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return [Finding(check.subject, "broken", text, remedy)]


def _of_workers(
    folder: Path | None, options: DoctorOptions, spec: ClusterSpec, *, quiet: bool
) -> list[Finding]:
    """Return failures on workers, and differences between them."""
    from penstock.cluster.connect import connect
    from penstock.cluster.query import answers_in_time

    async def look() -> list[Finding]:
        # In a thread: the worker's event loop sends heartbeats meanwhile.
        return await asyncio.to_thread(partial(examine, folder, asked, device=spec.device))

    asked = replace(options, bandwidth=False)  # workers of one host would disturb each other
    ranks = spec.workers if spec.cluster == "mpi" else None
    with connect(spec, ranks=ranks, quiet=quiet) as client:
        if not quiet:
            count = len(client.scheduler_info(n_workers=-1)["workers"])
            print(f"asking {plural(count, 'worker')}, some seconds each", file=sys.stderr)
        most = len(CHECKS) * max(check.seconds for check in CHECKS.values())
        with answers_in_time(client, options.timeout or most):
            found = client.run(look, on_error="return")
    return judge_workers(found)


def judge_workers(found: dict[str, list[Finding] | Exception]) -> list[Finding]:
    """Return failures on a worker, and differences between workers."""
    broken: dict[Finding, list[str]] = {}
    values: dict[str, dict[str, list[str]]] = {}
    for worker, findings in found.items():
        if isinstance(findings, Exception):
            findings = [Finding("answer", "broken", str(findings), "Look at the worker's log")]
        for one in findings:
            if one.state == "broken":
                broken.setdefault(replace(one, compared=None), []).append(worker)
            for name, value in (one.compared or {}).items():
                values.setdefault(name, {}).setdefault(value, []).append(worker)
    lacks = [
        replace(one, subject=f"workers: {one.subject}", text=f"{', '.join(workers)}: {one.text}")
        for one, workers in broken.items()
    ]
    for name, workers in values.items():
        whose = {worker for some in workers.values() for worker in some}
        if rest := [worker for worker in found if worker not in whose]:
            workers = {**workers, "none": rest}
        if len(workers) > 1:
            text = "; ".join(f"{value} on {', '.join(some)}" for value, some in workers.items())
            remedy = f"Give every worker the same {name}: see `penstock doctor` on its host"
            lacks.append(Finding(f"workers: {name}", "warning", text, remedy))
    return lacks
