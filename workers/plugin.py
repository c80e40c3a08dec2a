"""What a worker holds: its device, memory pool, scratch directory and caches."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker
from tornado.ioloop import PeriodicCallback

from penstock.errors import PenstockError, UsageError
from penstock.limits import total_memory, usable_here, usable_memory
from penstock.paths import worker_path
from penstock.workers.local_copies import LocalCopies
from penstock.workers.resources import device as devices
from penstock.workers.resources.cache import DeviceCache
from penstock.workers.resources.pool import gpu_memory, pool_bytes, take_pool
from penstock.workers.resources.scratch import Scratch, find_scratch

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Worker

NAME = "penstock"
# Of the device's memory, or of a worker's: the rest is for the jobs' computations.
_CACHE_SHARE_OF_DEVICE = 0.5
_CACHE_SHARE_OF_MEMORY = 0.25
_FORGET_SECONDS = 3.0
_MOST_OF_MEMORY = 0.95  # Dask's own default, of memory that counts mapped pages of files too
_PAUSED_SECONDS = 5.0
_WATCH_SECONDS = 0.1


class Resources:
    """What one worker holds; each item is found on first use.

    device     the CUDA device it computes on, or None for the CPU
    scratch    its own folder on a fast local disk, removed when it closes
    copies     graphs and partitions on that disk, one copy per host
    cache      arrays that it keeps between tasks, on its device or in memory
    """

    def __init__(self, scratch: str | None = None, memory_limit: int | None = None) -> None:
        self._named, self._memory_limit = scratch, memory_limit
        self._finding = threading.RLock()
        self._root: Path | None = None
        self._scratch: Scratch | None = None
        self._cache: DeviceCache | None = None
        self.copies = LocalCopies(self.scratch_root, lambda: self._taken().copies)

    @property
    def device(self) -> int | None:
        """The CUDA device, the first that this process sees, or None for the CPU."""
        return 0 if devices.gpu() else None

    @property
    def scratch(self) -> Path:
        """This worker's own folder on the scratch disk."""
        return self._taken().folder

    @property
    def cache(self) -> DeviceCache:
        """The cache of this worker's arrays between tasks."""
        with self._finding:
            if self._cache is None:
                self._cache = DeviceCache(self._cache_bytes())
            return self._cache

    def scratch_root(self) -> Path:
        """Return the folder on the scratch disk that holds the workers' folders."""
        with self._finding:
            if self._root is None:
                self._root = find_scratch(self._named)
            return self._root

    def memory_bytes(self) -> int:
        """Return how much memory all tasks together may use, on the device or the host."""
        if self.device is None:
            if not self._memory_limit:
                return usable_here()
            return usable_memory(min(self._memory_limit, total_memory()))
        return gpu_memory()

    def largest_limit(self) -> int:
        """Return the largest possible --memory-limit of this worker; 0: it has none."""
        return total_memory() if self._memory_limit and self.device is None else 0

    def close(self) -> None:
        """Release everything."""
        with self._finding:
            self.clear_cache()
            self.copies.close()
            if self._scratch is not None:
                self._scratch.close()
            self._scratch = None

    def clear_cache(self) -> None:
        """Forget what is kept between tasks, if there is anything."""
        with self._finding:
            if self._cache is not None:
                self._cache.clear()

    def _taken(self) -> Scratch:
        with self._finding:
            if self._scratch is None:
                self._scratch = Scratch(self.scratch_root())
            return self._scratch

    def _cache_bytes(self) -> int:
        share = _CACHE_SHARE_OF_MEMORY if self.device is None else _CACHE_SHARE_OF_DEVICE
        return int(share * self.memory_bytes())


def _own_memory(process: Any) -> int:
    """Return the bytes by which Dask pauses a worker: those in memory, without pages of files."""
    found = process.memory_info()
    return int(found.rss - getattr(found, "shared", 0))


def _watch_memory(worker: Worker) -> PeriodicCallback | None:
    """End a worker that has more memory of its own than its limit; its nanny starts another.

    One that is paused, and runs no task that could release memory, would keep its tasks for ever.
    """
    limit = getattr(getattr(worker, "memory_manager", None), "memory_limit", None)
    if not (limit and worker.nanny):
        return None
    stuck = 0

    def look() -> None:
        nonlocal stuck
        waits = worker.status.name == "paused" and not worker.state.all_running_tasks
        stuck = stuck + 1 if waits else 0
        used = worker.monitor.get_process_memory() / limit
        if used > _MOST_OF_MEMORY or stuck * _WATCH_SECONDS > _PAUSED_SECONDS:
            os.kill(os.getpid(), signal.SIGKILL)

    watch = PeriodicCallback(look, _WATCH_SECONDS * 1000)
    watch.start()
    return watch


class PenstockWorker(WorkerPlugin):  # type: ignore[misc]
    """Give a worker its ``Resources``; pass it to ``register_plugin``."""

    name = NAME
    idempotent = True

    def __init__(
        self,
        device: str = "auto",
        device_pool: str | None = None,
        scratch: str | None = None,
        memory_limit: int | None = None,
    ) -> None:
        if device_pool is not None:
            pool_bytes(device_pool, 1 << 60)  # bad values are refused here, not by workers
        scratch = None if scratch is None else str(worker_path(scratch))
        self.options = {"device": device, "device_pool": device_pool, "scratch": scratch}
        self._memory_limit = memory_limit  # of workers that are threads, to which Dask gives none
        self._held: Resources | None = None
        self._watch: PeriodicCallback | None = None

    def setup(self, worker: Worker) -> None:
        """Run once in every worker, including later ones."""
        worker.monitor.get_process_memory = partial(_own_memory, worker.monitor.proc)
        self._watch = _watch_memory(worker)
        devices.ask(self.options["device"] or "auto")
        self._held = self._prepared(worker)
        _in_this_process.append(self._held)

    def teardown(self, worker: Worker) -> None:
        """Release what the worker holds; shared copies stay."""
        vars(worker.monitor).pop("get_process_memory", None)
        if self._watch is not None:
            self._watch.stop()
        devices.withdraw(self.options["device"] or "auto")
        if self._held is not None:
            _in_this_process.remove(self._held)
            self._held.close()
        self._held = None

    def held(self) -> Resources | None:
        """Return what the worker holds; None: setup failed."""
        return self._held

    def _prepared(self, worker: Worker) -> Resources:
        """Return resources; explicitly requested ones are tried now, the rest on first use."""
        limit = getattr(getattr(worker, "memory_manager", None), "memory_limit", None)
        limit = limit or self._memory_limit
        found = Resources(self.options["scratch"], limit)
        device, pool = self.options["device"], self.options["device_pool"]
        if device == "gpu" or (pool is not None and device != "cpu"):
            uses_gpu = devices.gpu()  # raises if a requested GPU is missing
            if pool is not None and uses_gpu:
                take_pool(pool)
        if self.options["scratch"] is not None:
            found.scratch_root()
        return found


_in_this_process: list[Resources] = []
_default: Resources | None = None
_default_lock = threading.Lock()
_default_pid: int | None = None


def resources(worker: Worker | None = None) -> Resources:
    """Return what the worker of the calling task holds.

    In a thread that a task started, it is the process' only worker; outside of workers, or without
    the plugin, a set for this process.

    Parameters
    ----------
    worker
        Another worker, as ``client.run`` passes it.

    Returns
    -------
    Resources
        ``device``, ``scratch``, ``copies`` and ``cache``, each found on first use.

    Examples
    --------
    >>> with resources().cache.hold(key, load) as arrays:  # kept on the GPU, or in memory
    ...     arrays.sum()
    """
    if worker is None:
        try:
            worker = get_worker()
        except ValueError:
            if len(_in_this_process) == 1:
                return _in_this_process[0]
    plugin = None if worker is None else worker.plugins.get(NAME)
    if isinstance(plugin, PenstockWorker) and (found := plugin.held()) is not None:
        return found
    return _of_this_process()


def clear_caches() -> None:
    """Forget what this process keeps between tasks; none may run."""
    for one in (*_in_this_process, _default):
        if one is not None:
            one.clear_cache()


def register_plugin(
    client: Client,
    *,
    device: str = "auto",
    device_pool: str | None = None,
    scratch: str | None = None,
    memory_limit: int | None = None,
    timeout: float | None = None,
) -> None:
    """Have every worker of ``client``'s cluster, now and later, find and hold its resources.

    A failure in a worker is raised here; TimeoutError after ``timeout`` seconds without an answer.
    A cluster whose workers are already set up stays as it is; differing options are refused.
    """
    wanted = PenstockWorker(device, device_pool, scratch, memory_limit)
    there = _registered(client, timeout)
    if there is not None:
        for name, value in wanted.options.items():
            if value not in (None, "auto", there[name]):
                option = "--worker-scratch" if name == "scratch" else f"--{name.replace('_', '-')}"
                so = f"without {option}" if there[name] is None else f"with {option} {there[name]}"
                raise UsageError(
                    f"the workers of this cluster were set up {so}, got {option} {value}",
                    remedy=f"Leave {option} out, or start the cluster with it",
                )
        return
    try:
        client.sync(
            client._register_worker_plugin,
            plugin=wanted,
            name=NAME,
            idempotent=False,
            callback_timeout=timeout,
        )
    except PenstockError:
        # Otherwise the next try, with better options, would find it and do nothing.
        client.unregister_worker_plugin(NAME)
        raise
    except OSError:
        # A worker ended: which workers have it is unknown, so the next try asks all.
        with suppress(OSError, TimeoutError):
            client.run_on_scheduler(_forget, callback_timeout=_FORGET_SECONDS)
        raise


def _forget(dask_scheduler: Scheduler) -> None:
    dask_scheduler.worker_plugins.pop("penstock", None)


_forget.__module__ = "__main__"  # by value, to a scheduler that may run without penstock


def _registered(client: Client, timeout: float | None) -> dict[str, str | None] | None:
    from distributed.protocol.pickle import loads

    def plugin_there(
        dask_scheduler: Scheduler,
    ) -> bytes | None:  # a scheduler may run without penstock
        plugin: bytes | None = dask_scheduler.worker_plugins.get("penstock")
        return plugin

    plugin = client.run_on_scheduler(plugin_there, callback_timeout=timeout)
    options: dict[str, str | None] | None = None if plugin is None else loads(plugin).options
    return options


def _of_this_process() -> Resources:
    global _default, _default_pid
    with _default_lock:
        if _default is None or _default_pid != os.getpid():  # a fork makes its own
            _default, _default_pid = Resources(), os.getpid()
        return _default
