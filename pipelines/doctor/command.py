"""``penstock doctor``: the command, and the same from Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.doctor.examine import examine
from penstock.pipelines.doctor.finding import Finding
from penstock.pipelines.doctor.judge import allows, judge
from penstock.pipelines.doctor.options import DoctorOptions
from penstock.pipelines.doctor.report import DoctorReport
from penstock.pipelines.doctor.workers import WorkerAnswers, ask_all, judge_workers
from penstock.sizes import plural


def command(
    folder: ClientPath | None = None,
    /,
    *,
    options: DoctorOptions = DoctorOptions(),
    spec: ClusterSpec = ClusterSpec(),
    output: Display = Display(),
) -> None:
    """Say what this machine has, what that allows, and what would mend each lack.

    Exit 1 where something that was asked for, or is installed, is broken.

    Parameters
    ----------
    folder
        where to measure the disk and try file locks [default: the workers' scratch folder]
    """
    report = doctor(folder, options, spec, quiet=output.quiet or output.json)
    output.show(report)
    if (failure := report.failure()) is not None:
        raise failure


def doctor(
    folder: Path | None, options: DoctorOptions, spec: ClusterSpec, *, quiet: bool = True
) -> DoctorReport:
    """Examine this machine and, where a cluster is asked for, at each of its workers."""
    folder = folder or spec.worker_scratch
    answers = examine(folder, timeout=options.timeout, disk=options.bandwidth, quiet=quiet)
    findings = judge(answers, device=spec.device)
    workers: list[WorkerAnswers] = []
    if asks_for_a_cluster(spec):
        try:
            workers = _ask(folder, options, spec, quiet=quiet)
        except PenstockError as error:
            message = said_by(error)
            findings.append(Finding("cluster", "broken", message, error.remedy))
        findings += judge_workers(workers, device=spec.device)
    return DoctorReport(
        findings, allows(answers), answers, {one.address: one.answers for one in workers}
    )


def asks_for_a_cluster(spec: ClusterSpec) -> bool:
    """Return whether workers are to be asked: a kind, a place, a count or hosts were given."""
    plain = ClusterSpec()
    return replace(spec, device=plain.device, worker_scratch=plain.worker_scratch) != plain


def said_by(error: PenstockError) -> str:
    """Return what an error says, less its remedy, which stands on a line of its own."""
    parts = [error.what]
    if error.expected is not None:
        parts.append(f"expected {error.expected}")
    if error.got is not None:
        parts.append(f"got {error.got}")
    return "; ".join(" ".join(part.split()) for part in parts)


def _ask(
    folder: Path | None, options: DoctorOptions, spec: ClusterSpec, *, quiet: bool
) -> list[WorkerAnswers]:
    from penstock.cluster.connect import connect

    ranks = spec.workers if spec.cluster == "mpi" else None
    with connect(spec, ranks=ranks, quiet=quiet) as client:
        if not quiet:
            count = len(client.scheduler_info(n_workers=-1)["workers"])
            print(f"asking {plural(count, 'worker')}, some seconds each", file=sys.stderr)
        return ask_all(client, folder, timeout=options.timeout, bandwidth=options.bandwidth)
