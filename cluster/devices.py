"""The devices on which a cluster's workers compute.

A worker whose GPU is unusable computes on its CPU, and the client warns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.query import ask_workers
from penstock.errors import warn
from penstock.sizes import listed
from penstock.workers.resources import device
from penstock.workers.resources.device import Gpu

if TYPE_CHECKING:
    from distributed import Client

_NAMED = 4  # hosts, each with its reason


def warn_of_unused_gpus(client: Client) -> None:
    """Warn if workers compute on the CPU of a host that has a GPU, with the reason."""
    found = list(ask_workers(client, device.unused_gpu, on_error="return").values())
    unused = [gpu for gpu in found if isinstance(gpu, Gpu)]  # not workers that were lost
    if not unused:
        return
    hosts = list(dict.fromkeys(f"{gpu.host}: {gpu.reason}" for gpu in unused))
    who = f"{len(unused)} of {len(found)} workers compute" if len(found) > 1 else "the job computes"
    warn(
        f"{who} on the CPU, though there is a GPU on {listed(hosts, _NAMED, '; ')}. "
        f"{unused[0].remedy}, or give --device cpu"
    )
