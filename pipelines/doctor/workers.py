"""Every worker of a cluster asked what its machine has, and how the answers differ."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.query import answers_in_time, ask_workers
from penstock.pipelines.doctor.examine import TIMEOUTS, examine
from penstock.pipelines.doctor.finding import Answer, Finding
from penstock.pipelines.doctor.judge import judge, usable_gpus
from penstock.sizes import format_bytes
from penstock.temporary import host_name

if TYPE_CHECKING:
    from distributed import Client

# Figures that are the same on like machines up to this share.
_ALIKE_MEMORY = 0.05
_ALIKE_BANDWIDTH = 0.5
_NAMED = 4


@dataclass(frozen=True)
class WorkerAnswers:
    """What one worker found; ``failure``: why it did not answer."""

    address: str
    host: str
    answers: Mapping[str, Answer]
    failure: str | None = None


def ask_all(
    client: Client, folder: Path | None, *, timeout: float | None, bandwidth: bool
) -> list[WorkerAnswers]:
    """Return what every worker of a cluster finds; the disk is measured by one of each host."""
    hosts = {
        address: host if isinstance(host, str) else ""
        for address, host in ask_workers(client, host_name, on_error="return").items()
    }
    first = list({host: address for address, host in hosts.items()}.values())
    most = len(TIMEOUTS) * (timeout or max(TIMEOUTS.values()))
    found: dict[str, Any] = {}
    for addresses, measure in (
        ([one for one in hosts if one not in first], None),
        (first, bandwidth),
    ):
        if addresses:
            question = partial(_look, folder=folder, timeout=timeout, disk=measure)
            with answers_in_time(client, most):
                found |= client.run(question, workers=addresses, on_error="return")
    return [_read(address, hosts[address], found.get(address)) for address in hosts]


async def _look(folder: Path | None, timeout: float | None, disk: bool | None) -> dict[str, Answer]:
    # In a thread: the worker's event loop sends heartbeats meanwhile. Ranks inside ranks would be
    # another job than the one that is examined.
    return await asyncio.to_thread(
        examine, folder, timeout=timeout, ranks=False, disk=disk, quiet=True
    )


def _read(address: str, host: str, found: Any) -> WorkerAnswers:
    if isinstance(found, dict):
        return WorkerAnswers(address, host, found)
    failure = "it went away" if found is None else f"{type(found).__name__}: {found}"
    return WorkerAnswers(address, host, {}, failure)


def judge_workers(found: list[WorkerAnswers], *, device: str = "auto") -> list[Finding]:
    """Return what is broken on a worker, and in what workers differ."""
    findings = []
    broken: dict[tuple[str, str, str | None], list[str]] = {}
    for worker in found:
        if worker.failure is not None:
            broken.setdefault(("answer", worker.failure, "Look at its log"), []).append(
                worker.address
            )
        for one in judge(worker.answers, device=device):
            if one.state == "broken":
                broken.setdefault((one.subject, one.text, one.remedy), []).append(worker.address)
    for (subject, text, remedy), addresses in broken.items():
        who = f"{len(addresses)} of {len(found)} workers ({_some(addresses)})"
        findings.append(Finding(f"workers: {subject}", "broken", f"{who}: {text}", remedy))
    return findings + differences(found)


def differences(found: list[WorkerAnswers]) -> list[Finding]:
    """Return in what workers differ: versions, devices, cores, memory, bandwidth of their disks."""
    answered = [worker for worker in found if worker.failure is None]
    findings = []
    versions = {w.address: _facts(w, "machine").get("versions", {}) for w in answered}
    for name in sorted({name for one in versions.values() for name in one}):
        values = {address: one.get(name, "none") for address, one in versions.items() if one}
        remedy = f"Install the same {name} on every host, and start the cluster again"
        findings += _differ(name, values, remedy)
    devices = {w.address: _devices(w) for w in answered}
    findings += _differ("devices", devices, "See `penstock doctor` on the host that has fewer")
    cores = {w.address: str(_facts(w, "machine").get("cores", "unknown")) for w in answered}
    findings += _differ("cores", cores, "Give every worker's job or container the same cores")
    for subject, probe, name, alike, unit in (
        ("memory", "machine", "memory", _ALIKE_MEMORY, ""),
        ("disk writes", "disk", "write", _ALIKE_BANDWIDTH, "/s"),
        ("disk reads", "disk", "read", _ALIKE_BANDWIDTH, "/s"),
    ):
        sizes = {w.address: _facts(w, probe)[name] for w in answered if name in _facts(w, probe)}
        if sizes and min(sizes.values()) < (1 - alike) * max(sizes.values()):
            shown = {address: format_bytes(size) + unit for address, size in sizes.items()}
            remedy = "The slowest or smallest decides how long a job takes, or what fits: see there"
            findings += _differ(subject, shown, remedy)
    return findings


def _facts(worker: WorkerAnswers, probe: str) -> dict[str, Any]:
    answer = worker.answers.get(probe)
    return answer.facts if answer is not None and answer.failure is None else {}


def _devices(worker: WorkerAnswers) -> str:
    names = [gpu["name"] for gpu in usable_gpus(worker.answers)]
    return ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)) or "CPU"


def _differ(subject: str, values: Mapping[str, str], remedy: str) -> list[Finding]:
    groups: dict[str, list[str]] = {}
    for address, value in values.items():
        groups.setdefault(value, []).append(address)
    if len(groups) < 2:
        return []
    parts = [f"{value} on {_some(addresses)}" for value, addresses in sorted(groups.items())]
    return [Finding(f"workers: {subject}", "warning", "; ".join(parts), remedy)]


def _some(addresses: list[str]) -> str:
    more = f" and {len(addresses) - _NAMED} more" if len(addresses) > _NAMED else ""
    return ", ".join(addresses[:_NAMED]) + more
