"""Workers that send no heartbeat: named on the screen, and then treated as lost.

A worker sends the scheduler a heartbeat about twice a second. One that is stopped, that waits in a
call which lets no other thread run, or whose host lost its network sends none; Dask would wait for
it for five to ten minutes, and for an answer of it for ever. Here a worker with a nanny is ended
and started again; a rank is taken from its world, which is then started again. Tasks run again.

Dask's setting ``worker-ttl`` would end them, but says nothing to the user, and takes a worker that
computes with the GIL held for one that hangs.

Long computations that hold the GIL send no heartbeat either. Of a worker on this host the time that
it computes therefore counts as well.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cluster.addresses import is_here
from penstock.cluster.query import by_value

if TYPE_CHECKING:
    from distributed import Client, Scheduler

_ANSWER = 10.0  # seconds for the scheduler to say what it knows; it may be busy
_COMPUTES = 0.01  # share of the time
_BEATS = 10  # heartbeats that may be missing; with many workers they come less often


@dataclass
class Heartbeat:
    """A worker's last heartbeat, as the scheduler dates it.

    cpu     seconds that it has computed, None where that is not to be seen
    silent  seconds since then, as far as this process was awake to see them
    named   whether the user was warned of it
    """

    seen: float
    cpu: float | None = None
    silent: float = 0.0
    named: bool = False


@dataclass(frozen=True)
class WorkerName:
    """A worker as people know it."""

    name: str
    pid: int
    host: str

    def __str__(self) -> str:
        return f"worker {self.name} (process {self.pid} on {self.host})"

    def state(self) -> str:
        """Return what is to be seen of it, where it runs on this host."""
        import psutil

        with suppress(psutil.Error):
            if is_here(self.host) and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED:
                return ", it is stopped (SIGSTOP)"
        return ""

    def cpu_seconds(self) -> float | None:
        """Return how long it has computed, where it runs on this host."""
        import psutil

        with suppress(psutil.Error):
            if is_here(self.host):
                times = psutil.Process(self.pid).cpu_times()
                return float(times.user + times.system)
        return None


@contextmanager
def watching(client: Client, timeout: float, *, quiet: bool) -> Iterator[None]:
    """Watch the workers of ``client``'s cluster while the block runs.

    timeout  seconds without a heartbeat after which a worker is lost; after half of them it is
             named, unless ``quiet``
    """
    done = threading.Event()

    def notify(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    watch = Watch(client, timeout, notify)
    every = min(max(timeout / 20, 0.1), 2.0)
    thread = threading.Thread(
        target=watch.run, args=(done, every), name="penstock-watch", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(1.0)  # it may wait for a scheduler that has gone


class Watch:
    """What is known of the heartbeats of each worker."""

    def __init__(self, client: Client, timeout: float, notify: Callable[[str], None]) -> None:
        self._client, self._timeout, self._notify = client, timeout, notify
        self._signs: dict[str, Heartbeat] = {}

    def run(self, done: threading.Event, every: float) -> None:
        """Inspect heartbeats every so many seconds until ``done``."""
        last = time.monotonic()
        while not done.wait(every):
            with suppress(Exception):  # the scheduler is busy, or has gone: others tell of that
                found, interval = self._ask(_signs)
                # A time in which this process itself stood still is nobody's silence.
                passed = min(time.monotonic() - last, 2 * every)
                self.inspect(found, passed, max(self._timeout, _BEATS * interval))
            last = time.monotonic()

    def inspect(
        self, found: dict[str, tuple[float, str, int, str]], passed: float, timeout: float
    ) -> None:
        """Take what the scheduler says, ``passed`` seconds after the last time."""
        self._signs = {address: s for address, s in self._signs.items() if address in found}
        for address, (seen, name, pid, host) in found.items():
            who, sign = WorkerName(name, pid, host), self._signs.get(address)
            if sign is None or seen != sign.seen:
                if sign is not None and sign.named:
                    self._notify(f"{who} sends heartbeats again")
                self._signs[address] = Heartbeat(seen, who.cpu_seconds())
                continue
            cpu = who.cpu_seconds()
            computed = 0.0 if cpu is None or sign.cpu is None else cpu - sign.cpu
            sign.cpu = cpu
            sign.silent = 0.0 if computed > _COMPUTES * passed else sign.silent + passed
            if sign.silent > timeout:
                del self._signs[address]
                self._notify(
                    f"{who} has sent no heartbeat for {timeout:.3g} s and counts as lost: "
                    "its tasks run again"
                )
                self._ask(_restart, address, wait=False)
            elif sign.silent > timeout / 2 and not sign.named:
                sign.named = True
                self._notify(
                    f"{who} has sent no heartbeat for {sign.silent:.3g} s{who.state()}; after "
                    f"{timeout:.3g} s it counts as lost (--worker-timeout)"
                )

    def _ask(self, function: Callable[..., Any], *args: Any, wait: bool = True) -> Any:
        return self._client.sync(
            self._client._run_on_scheduler, function, *args, wait=wait, callback_timeout=_ANSWER
        )


# Run on the scheduler: they travel by value, to a process that may not have penstock.


@by_value
def _signs(dask_scheduler: Scheduler) -> tuple[dict[str, tuple[float, str, int, str]], float]:
    from distributed.scheduler import heartbeat_interval

    found = {
        address: (state.last_seen, str(state.name), state.pid, state.host)
        for address, state in dask_scheduler.workers.items()
    }
    return found, heartbeat_interval(len(found))


@by_value
async def _restart(address: str, dask_scheduler: Scheduler) -> None:
    # Ends a worker by its nanny, which starts another; without a nanny it is only removed.
    await dask_scheduler.restart_workers(
        [address],
        timeout=15,
        wait_for_workers=False,
        on_error="return",
        stimulus_id="penstock-silent",
    )
