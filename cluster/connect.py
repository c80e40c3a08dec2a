"""One context manager from options to a ``distributed.Client``, for every kind of cluster."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.ended import forgotten_at_the_end
from penstock.cluster.query import (
    SILENT_SECONDS,
    answers_in_time,
    ask,
    loss_explained,
    request,
    scheduler_gone,
)
from penstock.cluster.running import Running
from penstock.cluster.spec import KINDS, ClusterSpec, as_spec
from penstock.documents import read_record
from penstock.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from distributed import Client, Security

# Starting processes costs about two seconds; a smaller input does not justify it.
SMALL_INPUT = 256 << 20
_CLOSE_SECONDS = 10.0
# A worker that died is restarted within seconds; a paused one resumes as its memory shrinks.
NO_WORKERS_TIMEOUT = "60s"


@contextmanager
def connect(
    cluster: str | ClusterSpec = "auto",
    *,
    input_bytes: int = 0,
    ranks: int | None = None,
    on_gpu: bool = False,
    quiet: bool = True,
    **options: Any,
) -> Iterator[Client]:
    """Connect to a cluster. Start it if needed, and then close it at the end of the block.

    Parameters
    ----------
    cluster
        a kind (``"local"``, ``"mpi"``, ...), an address, the name of a registered cluster, a file,
        or a whole ``ClusterSpec``
    input_bytes
        size of the job's input: a small one needs no extra processes
    ranks
        how many ranks the job's gangs need, if it has any
    on_gpu
        whether the job can compute on a GPU: if so, one worker per GPU instead of one per core
    quiet
        no progress, no address of the dashboard
    **options
        the other fields of ``ClusterSpec``

    Yields
    ------
    distributed.Client
        once every worker has registered and has its device, caches and scratch

    Raises
    ------
    ClusterError
        the workers did not start, or the scheduler ended or does not answer
    UsageError
        options that are wrong or contradict each other

    Examples
    --------
    >>> with connect("mpi", workers=4) as client:
    ...     client.submit(sum, [1, 2]).result()
    3
    >>> with connect("tcp://10.0.0.1:8786") as client: ...
    >>> with connect(ClusterSpec(cluster="local", workers=2, memory_limit="4GB")) as client: ...
    """
    spec = as_spec(cluster, **options).configured()
    kind = kind_for(spec, input_bytes, ranks, on_gpu=on_gpu)
    spec = checked(spec, kind, ranks)
    if kind == "threads":
        from penstock.cluster.threads import open_threads
        from penstock.workers.resources.device import unused_gpu

        with forgotten_at_the_end(), open_threads(spec, on_gpu=on_gpu) as client:
            client.loop.asyncio_loop.set_exception_handler(_log_as_dask)
            _give_resources(client, spec)
            if unused_gpu() is not None:
                from penstock.cluster.startup import warn_of_unused_gpus

                warn_of_unused_gpus(client)
            yield client
        return
    with open_cluster(spec, kind, ranks, quiet=quiet) as (client, start):
        start()
        yield client


@contextmanager
def open_cluster(
    spec: ClusterSpec, kind: str, ranks: int | None, *, quiet: bool
) -> Iterator[tuple[Client, Callable[[], None]]]:
    """Give the client of a scheduler, and what starts its workers and waits for them."""
    from penstock.caches import have_home
    from penstock.cluster.startup import check_versions, prepare_workers, warn_of_unused_gpus

    def start() -> None:
        if running.attach is not None:
            running.attach(client)
        steps = [partial(check_versions, client)]
        if kind in KINDS:
            steps.append(partial(leave_interrupts_to_client, client))
        steps.append(partial(_give_resources, client, spec))
        prepare_workers(client, running, spec.start_timeout, steps, quiet=quiet)
        warn_of_unused_gpus(client)

    have_home()
    with (
        forgotten_at_the_end(),
        _settings(spec),
        _opened(replace(spec, cluster=kind), ranks, quiet) as running,
        _client(running, spec) as client,
        loss_explained(client),
    ):
        client.loop.asyncio_loop.set_exception_handler(_log_as_dask)
        if not quiet and running.dashboard:
            print(f"dashboard: {running.dashboard}", file=sys.stderr)
        yield client, start


@contextmanager
def _settings(spec: ClusterSpec) -> Iterator[None]:
    """Give Dask's schedulers and clusters that start in the block the settings that jobs need."""
    import dask
    import distributed  # noqa: F401  its configuration

    name = "distributed.scheduler.no-workers-timeout"
    settings = {
        name: dask.config.get(name, None) or NO_WORKERS_TIMEOUT,  # Dask would wait for ever
        "distributed.scheduler.worker-ttl": f"{spec.worker_timeout} s",
        # If a worker is away this long after it died, Dask closes its nanny.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        # Pieces ask for this resource, which drivers do not have: see drivers.py. If it were set
        # later, or pieces pinned to addresses, they would hang after a worker is killed.
        "distributed.worker.resources": {"piece": spec.threads or 1},
        # It counts mapped pages of files, which the system takes back. workers/plugin.py does not.
        "distributed.worker.memory.terminate": False,
    }
    with dask.config.set(settings):
        yield


def _log_as_dask(loop: Any, context: dict[str, Any]) -> None:
    """Log errors that no task awaits as Dask's: if its log is silent, tracebacks do not help.

    A message to a rank that was just killed is not an error: its loss is reported anyway.
    """
    said, error = context.get("message", "an error in the event loop"), context.get("exception")
    level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
    logging.getLogger("distributed").log(level, said, exc_info=error)


def begin_early(cluster: ClusterSpec, ranks: int | None) -> None:
    """Prepare the GPU early, if ``connect`` will find this process to compute on it.

    A command calls it before it imports what its job needs. ranks: as requested.
    """
    spec = cluster.configured()
    if kind_for(spec, 0, None if ranks == 1 else ranks, on_gpu=True) == "threads":
        from penstock.workers.resources.device import begin

        begin(spec.device)


def _give_resources(client: Client, spec: ClusterSpec) -> None:
    from penstock.workers.plugin import register_plugin

    # They load the libraries of their devices now, possibly from a shared disk.
    with answers_in_time(client, max(SILENT_SECONDS, spec.start_timeout)) as seconds:
        register_plugin(
            client,
            # The kind cuda requires GPUs.
            device="gpu" if spec.cluster == "cuda" else spec.device,
            device_pool=spec.device_pool,
            scratch=str(spec.worker_scratch) if spec.worker_scratch else None,
            memory_limit=spec.worker_memory() if spec.memory_limit else None,
            timeout=seconds,
        )


def leave_interrupts_to_client(client: Client) -> None:
    """Let all workers ignore Ctrl-C, those that join later too: the client ends them."""
    from penstock.workers.interrupts import LeaveInterruptsToClient

    ask(
        client,
        client._register_worker_plugin,
        plugin=LeaveInterruptsToClient(),
        name=LeaveInterruptsToClient.name,
        idempotent=False,
    )


@contextmanager
def _client(running: Running, spec: ClusterSpec) -> Iterator[Client]:
    """Give a client, which closes at the end, even if its scheduler hangs and does not answer."""
    from distributed import Client

    try:
        client = Client(running.target, security=running.security, timeout=spec.start_timeout)
    except (OSError, TimeoutError) as error:
        raise scheduler_gone("while this client connected", got=str(error) or None) from error
    with client.as_current():
        try:
            yield client
        finally:
            with suppress(Exception):  # what Dask raises if a connection broke before
                client.close(timeout=_CLOSE_SECONDS)


def kind_for(
    spec: ClusterSpec, input_bytes: int, ranks: int | None, *, on_gpu: bool = False
) -> str:
    """Return the kind of cluster that ``auto`` means for a job."""
    if spec.cluster != "auto":
        return spec.cluster
    if ranks is not None or spec.hosts is not None or spec.mpiexec is not None:
        return "mpi"
    asked = spec.workers is not None or spec.memory_limit is not None
    if on_gpu and not asked and spec.device != "cpu" and find_spec("cupy") is not None:
        from penstock.workers.resources.device import devices_here

        if (gpus := devices_here()) > 0:
            # Each process would load the job's data onto the same GPU.
            return "cuda" if gpus > 1 and find_spec("dask_cuda") is not None else "threads"
    return "local" if asked or input_bytes > SMALL_INPUT else "threads"


def checked(spec: ClusterSpec, kind: str, ranks: int | None) -> ClusterSpec:
    """Return ``spec`` without the options that have no effect on ``kind``.

    Raises UsageError if such an option was given with a kind, or if too many workers or ranks are
    requested.
    """
    spec = spec.for_kind(kind)
    if ranks is not None or kind in ("local", "mpi"):
        from penstock.cluster.count import check_count

        check_count(spec, kind, ranks)
    return spec


def _opened(spec: ClusterSpec, ranks: int | None, quiet: bool) -> AbstractContextManager[Running]:
    kind = spec.cluster
    if kind == "local":
        from penstock.cluster.local import open_local

        return open_local(spec)
    if kind == "mpi":
        from penstock.cluster.mpi import inside_mpi_job

        inside = inside_mpi_job(os.environ)
        if inside is not None:
            from penstock.cluster.mpi.inside import open_inside

            return open_inside(spec, inside[1])
        from penstock.cluster.mpi.cluster import open_mpi

        return open_mpi(spec, ranks=ranks)
    if kind == "cuda":
        from penstock.cluster.cuda import open_cuda

        return open_cuda(spec, quiet=quiet)
    return _open_existing(spec)


@contextmanager
def _open_existing(spec: ClusterSpec) -> Iterator[Running]:
    """Connect to a scheduler that already runs; it stays when its client leaves."""
    from distributed.utils import silence_logging_cmgr

    from penstock.cluster.daemon.registry import all_registered, find
    from penstock.cluster.security import security

    where = spec.cluster
    started = None
    if "://" in where:
        address = where
    elif where.endswith(".json"):
        address = read_record(Path(where)).get("address", "")
        if not address:
            raise ClusterError(
                f"{where} is not a scheduler file", expected="what dask scheduler writes"
            )
    elif (started := find(where)) is not None:
        address = started.reachable()
    else:
        raise UsageError(
            f"cluster {where!r} does not exist",
            expected=f"{', '.join(KINDS)}, a scheduler's address such as tcp://10.0.0.1:8786, "
            "its scheduler file (.json), options in a file (.yaml), or the name of a started "
            "cluster, which penstock cluster status lists",
        )
    if started is None:
        started = next((one for one in all_registered() if one.address == address), None)
    if started is not None and started.tls and spec.tls is None:
        spec = replace(spec, tls=Path(started.tls))
    used = security(spec)
    _check_answer(address, spec, used)
    # One error reports that the scheduler exited; Dask would add tracebacks.
    with silence_logging_cmgr(logging.CRITICAL):
        yield Running(address, security=used)


def _check_answer(address: str, spec: ClusterSpec, used: Security | None) -> None:
    try:
        request(address, used, {"op": "identity"}, timeout=spec.start_timeout)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}",
            expected=f"one within {spec.start_timeout:g} s",
            got=str(error) or "a connection but no answer",
            remedy="Start one with penstock cluster start, or check address, firewall and --tls",
        ) from error
