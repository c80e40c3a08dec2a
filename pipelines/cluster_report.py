"""What ``penstock cluster`` reports: as text for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from penstock.cluster.daemon.registry import Registered, type_this
from penstock.cluster.daemon.status import Status
from penstock.pipelines.display import table_text
from penstock.sizes import format_bytes

_TEXTS = {
    "stopped": "stopped",
    "killed": "did not end in time, and was killed",
    "gone": "its daemon had died; its remains are removed",
}


@dataclass(frozen=True)
class StartReport:
    """A cluster that is ready, and how to use it."""

    cluster: Registered
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the register, and how long the start took."""
        return {**asdict(self.cluster), "seconds": round(self.seconds, 3)}

    def text(self) -> str:
        """Return its addresses, how to use it and how to stop it."""
        cluster = self.cluster
        count = f"{cluster.workers} worker" + "s" * (cluster.workers != 1)
        return "\n".join(
            [
                f"cluster {cluster.name}: {count} ({cluster.kind}), ready in {self.seconds:.1f} s",
                *_found_at(cluster),
                f"  use it     penstock etl ... --cluster {cluster.name}",
                f'             Python: penstock.connect("{cluster.name}")',
                f"  stop it    {type_this('stop', cluster.name)}",
            ]
        )


@dataclass(frozen=True)
class StatusReport:
    """Who is present in which cluster."""

    found: Sequence[Status]
    details: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return every cluster with its state and its workers."""
        return {
            "clusters": [
                {
                    **asdict(each.cluster),
                    "state": each.state,
                    "trouble": each.trouble or None,
                    "present": list(each.present),
                }
                for each in self.found
            ]
        }

    def text(self) -> str:
        """Return a line for every cluster, or all about each."""
        if not self.found:
            return "no cluster is started"
        if self.details:
            return "\n\n".join(map(_details, self.found))
        head = ("cluster", "state", "workers", "kind", "host", "since", "address", "dashboard")
        return table_text([head, *map(_row, self.found)])


@dataclass(frozen=True)
class StopReport:
    """How clusters ended."""

    ended: Sequence[tuple[Registered, str, float]]
    elsewhere: Sequence[Registered] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return names, how each ended and how long that took, and who was left alone."""
        return {
            "stopped": [
                {"name": cluster.name, "how": how, "seconds": round(seconds, 3)}
                for cluster, how, seconds in self.ended
            ],
            "elsewhere": [{"name": each.name, "host": each.host} for each in self.elsewhere],
        }

    def text(self) -> str:
        """Return a line for every cluster."""
        lines = [f"cluster {cluster.name}: {_TEXTS[how]}" for cluster, how, _ in self.ended]
        lines += [f"cluster {each.name}: left alone, on {each.host}" for each in self.elsewhere]
        return "\n".join(lines) or "no cluster is started"


def _found_at(cluster: Registered) -> list[str]:
    """Return the addresses of a cluster, one per line."""
    found = {
        "address": cluster.address,
        "dashboard": cluster.dashboard,
        "file": cluster.scheduler_file,
        "log": cluster.log,
    }
    return [f"  {what:<9}  {where}" for what, where in found.items() if where]


def _since(cluster: Registered) -> str:
    return datetime.fromisoformat(cluster.started_at).astimezone().strftime("%Y-%m-%d %H:%M")


def _row(status: Status) -> tuple[str, ...]:
    cluster = status.cluster
    present = str(len(status.present)) if status.state == "running" else "-"
    return (
        cluster.name,
        status.state,
        f"{present}/{cluster.workers or '?'}",
        cluster.kind,
        cluster.host,
        _since(cluster),
        cluster.address or "-",
        cluster.dashboard or "-",
    )


def _details(status: Status) -> str:
    cluster = status.cluster
    lines = [
        f"cluster {cluster.name}: {status.state}, kind {cluster.kind}, on {cluster.host} since "
        f"{_since(cluster)}",
        *_found_at(cluster),
        f"  daemon     process {cluster.pid}, Penstock {cluster.penstock}, Python {cluster.python}",
    ]
    if status.trouble:
        lines.append(f"  trouble    {status.trouble}")
    if status.state == "running":
        lines.append(f"  workers    {len(status.present)} present, {cluster.workers} at the start")
        head = ("worker", "host", "pid", "threads", "memory", "limit", "tasks")
        lines.append(table_text([head, *map(_worker, status.present)], indent="  "))
    return "\n".join(lines)


def _worker(worker: dict[str, Any]) -> tuple[str, ...]:
    limit = worker["memory_limit"]
    shown = {
        **worker,
        "memory": format_bytes(worker["memory"]),
        "memory_limit": format_bytes(limit) if limit else "none",
    }
    return tuple(map(str, shown.values()))
