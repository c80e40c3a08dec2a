"""The hosts of an MPI world, as the user names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UsageError
from penstock.sizes import plural

_HOST = re.compile(
    r"([A-Za-z0-9][\w.-]*)(?::([1-9]\d*)|\s+slots=([1-9]\d*))?(?:\s+max[-_]slots=\d+)?", re.A
)


@dataclass(frozen=True)
class Host:
    """A host, and its number of ranks."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of ``h1:4,h2``, or of a hostfile in the syntax of MPICH or Open MPI.

    A host without a number has one slot; a repeated host has the sum.
    """
    path = Path(text.strip())
    entries = text.split(",")
    if path.is_file():
        entries = [line.partition("#")[0] for line in path.read_text().splitlines()]
    elif "/" in text:
        raise UsageError(f"the hostfile {text} does not exist")
    slots: dict[str, int] = {}
    for entry in filter(None, map(str.strip, entries)):
        found = _HOST.fullmatch(entry)
        if found is None:
            raise UsageError(
                f"--hosts has a bad entry {entry!r}",
                expected="h1, h1:4 or, in a hostfile, h1 slots=4",
            )
        slots[found[1]] = slots.get(found[1], 0) + int(found[2] or found[3] or 1)
    if not slots:
        raise UsageError(f"--hosts {text!r} names no host")
    return tuple(Host(name, count) for name, count in slots.items())


def check_hosts(hosts: Sequence[Host], ranks: int) -> None:
    """Raise UsageError if there are fewer slots than ranks."""
    slots = sum(host.slots for host in hosts)
    if slots < ranks:
        raise UsageError(
            f"{ranks} workers do not fit on {plural(len(hosts), 'host')}",
            expected=f"at least {ranks} slots",
            got=f"{slots}: {','.join(f'{host.name}:{host.slots}' for host in hosts)}",
        )


def host_of_ranks(hosts: Iterable[Host], ranks: int) -> tuple[str, ...]:
    """Return the host of each rank: the slots of the first host, then those of the next."""
    return tuple(host.name for host in hosts for _ in range(host.slots))[:ranks]
