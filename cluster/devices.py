"""What the workers of a cluster compute on, asked from the client.

A worker whose GPU cannot be used computes on its CPU, and the client warns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.query import ask_workers
from penstock.errors import warn
from penstock.workers.resources import device
from penstock.workers.resources.device import Gpu

if TYPE_CHECKING:
    from distributed import Client

_NAMED = 4  # hosts, each with its reason


def warn_of_unused_gpus(client: Client) -> None:
    """Warn where workers compute on the CPU of a host that has a GPU, and say why."""
    found = list(ask_workers(client, device.unused_gpu, on_error="return").values())
    unused = [gpu for gpu in found if isinstance(gpu, Gpu)]  # a worker that went is no GPU's fault
    if not unused:
        return
    hosts = list(dict.fromkeys(f"{gpu.host}: {gpu.reason}" for gpu in unused))
    who = f"{len(unused)} of {len(found)} workers compute" if len(found) > 1 else "the job computes"
    more = f"; and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    warn(
        f"{who} on the CPU, though there is a GPU on {'; '.join(hosts[:_NAMED])}{more}. "
        f"{unused[0].remedy}, or give --device cpu"
    )
