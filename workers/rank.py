"""The program that mpiexec starts: an MPI rank that is a Dask worker, through dask-mpi.

    mpiexec -n 4 python -P -m penstock.workers.rank tcp://10.0.0.1:8786 --no-scheduler ...

It reports its host before anything can fail, so that a rank that never connects has a host; it
chooses its GPU before CUDA is touched; and it ends even if MPI no longer can.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

from penstock.workers.processes import end_with_parent
from penstock.workers.profiling import without_profile

STARTS = "penstock rank {} starts on {}, pid {}"
_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_EXIT_SECONDS = 1.0  # to close the worker, and again to leave MPI


def main(arguments: list[str]) -> None:
    """Be a Dask worker until the scheduler ends."""
    end_with_parent()
    collect = gc.get_threshold()
    gc.set_threshold(50_000)  # imports are faster by a tenth
    # Whole lines, so that mpiexec does not mix those of several ranks.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    rank = next(filter(None, map(os.environ.get, _RANK)), "?")
    print(STARTS.format(rank, socket.gethostname(), os.getpid()), flush=True)
    _check_credentials()
    _choose_device()
    from penstock.workers.comm.mpi import load_mpi
    from penstock.workers.comm.segments import forget_segments, note_segments, sweep_segments

    sweep_segments()
    mpi = load_mpi()  # before distributed, which starts threads
    note_segments()
    import dask_mpi.cli

    from penstock.workers.gang import dead_communicators

    gc.set_threshold(*collect)
    without_profile()
    dask_mpi.cli.main(arguments, standalone_mode=False)
    sys.stdout.flush()
    if dead_communicators():
        os._exit(0)  # MPI would wait for messages of failed gangs
    _exit_soon()
    mpi.Finalize()  # removes its shared memory; until then the record must stay
    forget_segments()


def _check_credentials() -> None:
    path = os.environ.get("DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY")
    if path and not os.access(path, os.R_OK):
        sys.exit(
            f"host {socket.gethostname()} does not see the credentials in {path}: name a folder "
            "that all hosts share with PENSTOCK_STATE, or your own with --tls"
        )


def _choose_device() -> None:
    from penstock.workers.resources.device import devices_here, local_rank, visible_devices
    from penstock.workers.resources.spill import stay_near_gpu

    count, here = devices_here(), local_rank(os.environ)
    if count and here is not None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(here, count, visible)
        stay_near_gpu()


def _exit_soon() -> None:
    """End this process soon, even if threads or MPI still wait."""
    timer = threading.Timer(_EXIT_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()


def share_of_host() -> int:
    """Return this rank's share of three quarters of its host's memory: all ranks call it."""
    from penstock.limits import total_memory, workers_share
    from penstock.workers.comm.mpi import load_mpi

    mpi = load_mpi()
    here = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    ranks = int(here.size)
    here.Free()
    return workers_share(total_memory()) // ranks


def _own_address(scheduler: str) -> str:
    """Return the address of this host that the scheduler can reach."""
    where = urlsplit(scheduler)
    with socket.socket(
        socket.AF_INET6 if ":" in str(where.hostname) else socket.AF_INET, socket.SOCK_DGRAM
    ) as probe:
        probe.connect((where.hostname, where.port or 1))  # sends nothing
        return str(probe.getsockname()[0])


def __getattr__(name: str) -> Any:
    # dask-mpi loads the class by name, long after MPI.
    if name != "RankWorker":
        raise AttributeError(name)
    import dask
    from distributed import Worker

    from penstock.workers.resources.spill import spill_data

    class RankWorker(Worker):  # type: ignore[misc]
        """A worker that listens on the scheduler's network and does not wait for tasks to end."""

        def __init__(
            self,
            scheduler_ip: str | None = None,
            *,
            device: str = "auto",
            device_limit: str | None = None,
            **options: Any,
        ) -> None:
            scheduler_ip = scheduler_ip or dask.config.get("scheduler-address")
            if options.get("interface") is None:
                options["host"] = _own_address(scheduler_ip)
            options["dashboard_address"] = "localhost:0"  # not reachable from other hosts
            limit = str(options.get("memory_limit"))
            memory = int(limit) if limit.isdecimal() else share_of_host()
            options["memory_limit"] = memory
            if device != "cpu":
                options["data"] = spill_data(device_limit, memory)
            super().__init__(scheduler_ip, **options)
            self.startup_information["host_name"] = lambda _: socket.gethostname()

        async def close(self, *args: Any, **options: Any) -> Any:
            _exit_soon()
            return await super().close(*args, **{**options, "executor_wait": False})

    globals()[name] = RankWorker
    return RankWorker


if __name__ == "__main__":
    main(sys.argv[1:])
