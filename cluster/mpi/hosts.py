"""The hosts that an MPI world runs on, as the user names them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.errors import UsageError
from penstock.sizes import plural

_SYNTAX = "h1, h1:4 or, in a hostfile, h1 slots=4"
_REMEDY = "Correct --hosts or the hostfile"


@dataclass(frozen=True)
class Host:
    """A host, how many ranks it takes, and where the user named it."""

    name: str
    slots: int
    origin: str = field(default="", compare=False, repr=False)


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of ``h1:4,h2``, or of a hostfile in the syntax of MPICH or Open MPI.

    A host without a number has one slot; named again, it has the sum.
    """
    path = Path(text.strip())
    if path.is_file():
        entries = _hostfile(path)
    elif "/" in text:
        raise UsageError(f"there is no hostfile {text}", remedy=_REMEDY)
    else:
        entries = (
            (f"--hosts {text}, entry {number}", [word.strip()])
            for number, word in enumerate(text.split(","), start=1)
            if word.strip()
        )
    hosts: dict[str, Host] = {}
    for origin, words in entries:
        host = _host(origin, words)
        before = hosts.get(host.name)
        hosts[host.name] = (
            replace(before, slots=before.slots + host.slots) if before is not None else host
        )
    if not hosts:
        raise UsageError(f"--hosts {text!r} names no host", expected=_SYNTAX, remedy=_REMEDY)
    return tuple(hosts.values())


def check_hosts(hosts: Sequence[Host], ranks: int) -> None:
    """Raise UsageError where a host is unknown, or there are fewer slots than ranks."""
    slots = sum(host.slots for host in hosts)
    if slots < ranks:
        raise UsageError(
            f"{ranks} workers do not fit on {plural(len(hosts), 'host')}",
            expected=f"at least {ranks} slots",
            got=f"{slots}: {','.join(f'{host.name}:{host.slots}' for host in hosts)}",
            remedy=f"Name more hosts or slots (--hosts {hosts[0].name}:"
            f"{hosts[0].slots + ranks - slots},...), or take fewer workers (--workers {slots})",
        )
    # A name server that does not answer costs seconds: ask for all at once.
    with ThreadPoolExecutor(min(32, len(hosts))) as pool:
        for host, problem in zip(hosts, pool.map(_unknown, hosts), strict=True):
            if problem is not None:
                raise UsageError(
                    f"the host {host.name!r} is unknown" + (host.origin and f" ({host.origin})"),
                    expected="a name or address that resolves here",
                    got=problem,
                    remedy=_REMEDY + ", or add the name to /etc/hosts",
                )


def host_of_ranks(hosts: Iterable[Host], ranks: int) -> tuple[str, ...]:
    """Return the host of each rank: the slots of the first host, then those of the next."""
    return tuple(host.name for host in hosts for _ in range(host.slots))[:ranks]


def _hostfile(path: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if words := line.partition("#")[0].split():
            yield f"{path}, line {number}", words


def _host(origin: str, words: list[str]) -> Host:
    """Return the host that ``words`` describe: ``h1``, ``h1:4``, or ``h1 slots=4 max_slots=8``."""
    name, colon, count = words[0].partition(":")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise _wrong(origin, f"{words[0]!r} is no host name", _SYNTAX)
    slots = {"slots": _slots(origin, count)} if colon else {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        key = key.replace("-", "_")
        if not equals or key not in ("slots", "max_slots"):
            raise _wrong(origin, f"{word!r} is not understood", _SYNTAX)
        if key in slots:
            raise _wrong(origin, "slots are given twice", _SYNTAX)
        slots[key] = _slots(origin, value)
    here = slots.get("slots", 1)
    if here > slots.get("max_slots", here):
        raise _wrong(origin, f"max_slots={slots['max_slots']} is less than slots={here}", _SYNTAX)
    return Host(name, here, origin)


def _slots(origin: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) == 0:
        raise _wrong(origin, f"{text!r} is not a number of slots", "a whole number from 1 on")
    return int(text)


def _wrong(origin: str, what: str, expected: str) -> UsageError:
    return UsageError(f"{origin}: {what}", expected=expected, remedy=_REMEDY)


def _unknown(host: Host) -> str | None:
    try:
        socket.getaddrinfo(host.name, None)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None
