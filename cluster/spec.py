"""Where a job runs, as data: the options that every job shares."""

from __future__ import annotations

import os
from typing import Annotated

import psutil
from cyclopts import Parameter
from pydantic import Field

from penstock.options import options
from penstock.sizes import parse_bytes


@options
class ClusterSpec:
    """Options that say where a job's tasks run."""

    cluster: str = "auto"
    """local: processes on this machine; threads: in this process; tcp://host:port: a Dask
    scheduler that runs already; auto: threads for small inputs, else local"""
    workers: Annotated[int | None, Field(gt=0), Parameter(alias="-n")] = None
    """how many worker processes [default: one a core]"""
    memory_limit: str | None = None
    """memory of one worker, such as 1.5GB [default: its share of three quarters of the machine]"""

    def worker_count(self) -> int:
        """Return how many workers to start on this machine."""
        return self.workers or max(1, len(os.sched_getaffinity(0)))

    def worker_memory(self) -> int:
        """Return how many bytes one worker may use."""
        if self.memory_limit is not None:
            return parse_bytes(self.memory_limit)
        return int(psutil.virtual_memory().total * 3 // 4 // self.worker_count())
