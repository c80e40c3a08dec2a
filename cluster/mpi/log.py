"""What a log of mpiexec says: the lines of each rank, and who died first.

Known are the texts of MPICH's and Intel's Hydra, of Open MPI 4 and 5, and of SLURM's srun.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

_OPEN_MPI = re.compile(r"\[\d+,(\d+)\]<(stdout|stderr|stddiag)>:")
_HYDRA = re.compile(r"\[(\d+)\] ")
_SRUN = re.compile(r"\s*(\d+): ?")


def rank_lines(text: str) -> dict[int, list[str]]:
    """Return what each rank wrote, without the mark that the launcher put before its lines.

    Blank lines, and what the launcher itself wrote, are left out.
    """
    if _OPEN_MPI.search(text):
        return _tagged(text)
    lines = text.splitlines()
    mark = _HYDRA if any(_HYDRA.match(line) for line in lines) else _SRUN
    found: dict[int, list[str]] = {}
    for line in lines:
        if (start := mark.match(line)) and (said := line[start.end() :]).strip():
            found.setdefault(int(start[1]), []).append(said.rstrip())
    return dict(sorted(found.items()))


def _tagged(text: str) -> dict[int, list[str]]:
    """Return the lines of Open MPI's ranks, which may start in the middle of another's line."""
    pieces: list[tuple[int, str, str]] = []
    for line in text.splitlines():
        before, *parts = _OPEN_MPI.split(line)
        for mark, stream, said in zip(*[iter(parts)] * 3, strict=True):
            rank = int(mark)
            if before and pieces and pieces[-1][:2] == (rank, stream):
                said = pieces.pop()[2] + said  # one line that was written in two goes
            before = said
            pieces.append((rank, stream, said))
    pieces = [piece for piece in pieces if piece[2].strip()]
    # Open MPI 5 writes a space after its mark, Open MPI 4 does not.
    space = all(said.startswith(" ") for _, _, said in pieces)
    found: dict[int, list[str]] = {}
    for rank, _, said in pieces:
        found.setdefault(rank, []).append(said[space:].rstrip())
    return dict(sorted(found.items()))


def failure_in(text: str) -> str | None:
    """Return what the log of one world says about the first rank that died, or None.

    Hydra does not say who was first: where it killed others by the same signal, all are named.
    """
    text = _OPEN_MPI.sub("", text)
    for pattern, say in _FAILURES:
        if found := re.search(pattern, text, re.MULTILINE):
            return say(found)
    return _hydra_codes(text) or _hydra_banner(text)


def _died(who: str, host: str | None, status: int) -> str:
    """Say how a process ended, from its status as ``wait`` returns it."""
    where = f" on {host}" if host else ""
    number = status & 0x7F
    if not number:
        return f"{who}{where} exited with code {status >> 8}"
    name = signal.strsignal(number) if number < signal.NSIG else None
    return f"{who}{where} was killed by signal {number}" + (f" ({name})" if name else "")


_Say = Callable[[re.Match[str]], str]
_FAILURES: tuple[tuple[str, _Say], ...] = (
    (
        r"process rank (\d+) with PID \d+ on\s+node (\S+) exited\s+on\s+signal (\d+)",
        lambda m: _died(f"rank {m[1]}", m[2], int(m[3])),
    ),
    (
        r"Process name: +\[(?:\[\d+,\d+\]|\S+@\d+),(\d+)\]\s+Exit code: +(\d+)",
        lambda m: _died(f"rank {m[1]}", None, int(m[2]) << 8),
    ),
    (
        r"due to process rank (\d+) with PID \d+ on\s+node (\S+)\s+exiting\s+improperly",
        lambda m: f"rank {m[1]} on {m[2]} exited without MPI_Finalize",
    ),
    (
        r"^srun: error: (\S+): tasks? (\S+): (Exited with exit code (\d+)|.+)$",
        lambda m: (
            _died(f"rank {m[2]}", m[1], int(m[4]) << 8)
            if m[4]
            else f"rank {m[2]} on {m[1]} ended: {m[3]}"
        ),
    ),
)


def _hydra_codes(text: str) -> str | None:
    """Read the status of every rank, host by host, that -print-all-exitcodes makes Hydra write."""
    table = re.search(r"Exit codes: ((?:\[\S+\] [-\d,]+\s*)+)", text)
    if table is None:
        return None
    ranks: list[tuple[str, int]] = []
    for host, codes in re.findall(r"\[(\S+?)(?::\d+)?\] ([-\d,]+)", table[1]):
        ranks += [(host, int(code)) for code in codes.strip(",").split(",")]
    died = [(rank, host, status) for rank, (host, status) in enumerate(ranks) if status]
    if not died:
        return None
    status = min((status for _, _, status in died), key=_suspicion)
    names = [str(rank) for rank, _, of_rank in died if of_rank == status]
    hosts = sorted({host for _, host, of_rank in died if of_rank == status})
    who = "rank " if len(names) == 1 else "one of ranks " if status & 0x7F else "ranks "
    return _died(who + ", ".join(names), ", ".join(hosts), status)


def _suspicion(status: int) -> int:
    """Order statuses by how likely the process died first, and not by Hydra's cleaning up."""
    number = status & 0x7F
    if not number:
        return 0  # left by itself
    return 3 if number == signal.SIGKILL else 2 if number == signal.SIGTERM else 1


def _hydra_banner(text: str) -> str | None:
    """Read what Hydra writes between two bars when a process ended badly."""
    banner = re.search(
        r"BAD TERMINATION .*\s+=\s+(?:RANK (\d+) )?PID (\d+) RUNNING AT (\S+)\s+"
        r"=\s+(?:EXIT CODE|KILLED BY SIGNAL): (\d+)",
        text,
    )
    if banner is None:
        return None
    rank, pid, host, code = banner.groups()
    named = re.search(r"EXIT STRING: .*\(signal (\d+)\)", text)
    signalled = "KILLED BY SIGNAL" in banner[0] or int(code) in (signal.SIGKILL, signal.SIGTERM)
    status = int(named[1]) if named else int(code) if signalled else int(code) << 8
    return _died(f"rank {rank}" if rank else f"a rank (process {pid})", host, status)
