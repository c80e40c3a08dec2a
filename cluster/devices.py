"""What the workers of a cluster compute on, asked from the client.

A worker whose GPU cannot be used computes on its CPU, and the client warns. The ranks of a gang
compute on GPUs all, or none of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from penstock.errors import ClusterError, GangError, PenstockWarning
from penstock.workers import device
from penstock.workers.device import Gpu

_NAMED = 4  # hosts, each with its reason


def warn_of_unused_gpus(client: Any) -> None:
    """Warn where workers compute on the CPU of a host that has a GPU, and say why."""
    found = list(client.run(device.unused_gpu, on_error="return").values())
    unused = [gpu for gpu in found if isinstance(gpu, Gpu)]  # a worker that went is no GPU's fault
    if not unused:
        return
    hosts = list(dict.fromkeys(f"{gpu.host}: {gpu.reason}" for gpu in unused))
    who = f"{len(unused)} of {len(found)} workers compute" if len(found) > 1 else "the job computes"
    more = f"; and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    warnings.warn(
        f"{who} on the CPU, though there is a GPU on {'; '.join(hosts[:_NAMED])}{more}. "
        f"{unused[0].remedy}, or give --device cpu",
        PenstockWarning,
        stacklevel=4,  # where connect was entered
    )


_gpus: dict[tuple[str, str], Gpu] = {}  # by world and address


def uses_gpu(client: Any, world: str, addresses: Sequence[str]) -> bool:
    """Return whether the ranks of a gang compute on GPUs, asked once; raise where some do not."""
    unknown = [address for address in addresses if (world, address) not in _gpus]
    if unknown:
        for address, gpu in client.run(device.this_gpu, workers=unknown, on_error="return").items():
            if isinstance(gpu, Gpu):
                _gpus[world, address] = gpu
            elif not isinstance(gpu, OSError):  # a worker's own error
                raise gpu
    # Of a worker that went the scheduler has closed the connection; asking again takes 30 s.
    unknown = [address for address in unknown if (world, address) not in _gpus]
    if unknown:
        raise GangError(
            f"{len(unknown)} of {len(addresses)} ranks went before the gang began",
            got=", ".join(unknown),
            remedy="Run it again, or let gang.run(retries=...) do so from a checkpoint",
            may_retry=True,
        )
    found = [_gpus[world, address] for address in addresses]
    without = [rank for rank, gpu in enumerate(found) if not gpu.used]
    if without and len(without) < len(found):
        rank = without[0]
        other = next(n for n, gpu in enumerate(found) if gpu.used)
        raise ClusterError(
            "some ranks of this gang compute on a GPU, and others cannot",
            expected=f"all of them to do as rank {other} on host {found[other].host} does",
            got=f"rank {rank} on host {found[rank].host}: {found[rank].reason}"
            + (f" ({len(without)} such ranks)" if len(without) > 1 else ""),
            remedy=f"{found[rank].remedy}, or give --device cpu, and all compute on CPUs",
        )
    return not without
