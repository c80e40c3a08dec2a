"""The stages of a run as tasks of one scheduler: started once there is something to run.

The scheduler is the one of the cluster that the flow starts, so that stages and their pieces are
seen together. On a cluster that runs already, stages have a scheduler of their own beside it, which
outlives it. Workers start when the first stage asks for them, drivers as stages begin.
"""

from __future__ import annotations

import queue
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.spec import EFFECTS, KINDS, ClusterSpec
from penstock.errors import CapacityError, PenstockError
from penstock.limits import cores
from penstock.options import given_options
from penstock.pipelines.flow.document import Flow, StageSpec
from penstock.pipelines.flow.state import matched
from penstock.temporary import TemporaryFolder

if TYPE_CHECKING:
    from distributed import Client, Future

PARALLEL = 4
_STARTED = ("local", "mpi", "cuda")
_ANSWER_SECONDS = 30.0
_POLL = 0.1


@dataclass
class Running:
    """A stage that runs; ``begun`` is the file that it makes when it has a driver."""

    stage: StageSpec
    future: Future
    begun: Path


class Engine:
    """What runs the stages of a flow, up to ``parallel`` side by side."""

    def __init__(self, flow: Flow, *, quiet: bool) -> None:
        self.flow, self._quiet = flow, quiet
        self._parallel = flow.keys.parallel or min(PARALLEL, max(cores(), 1))
        self._open = ExitStack()
        self._running: dict[str, Running] = {}
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._with_workers = False

    def close(self) -> None:
        """End what runs, and the cluster."""
        self._running.clear()
        self._open.close()

    # Where stages run

    @cached_property
    def _spec(self) -> ClusterSpec:
        return self.flow.spec.configured()

    @cached_property
    def _kind(self) -> str:
        """The kind of the cluster that this starts; that of ``auto`` by the stages of the flow."""
        from penstock.cluster.connect import SMALL_INPUT, kind_for

        if self._spec.cluster != "auto":
            return self._spec.cluster if self._spec.cluster in _STARTED else "local"
        ranks = 2 if any(stage.gang for stage in self.flow.stages.values()) else None
        found = kind_for(self._spec, SMALL_INPUT + 1, ranks, on_gpu=True)
        return found if found in _STARTED else "local"

    @cached_property
    def _cluster(self) -> dict[str, Any]:
        """The scheduler, its client and its drivers, started when they are first asked for."""
        from penstock.cluster.connect import checked, open_cluster
        from penstock.cluster.drivers import Drivers
        from penstock.cluster.security.credentials import make_credentials

        folder = self._open.enter_context(TemporaryFolder("penstock-flow"))
        spec = ClusterSpec() if self._spec.cluster not in ("auto", *_STARTED) else self._spec
        if spec.tls is None and not spec.no_tls:
            spec = replace(spec, tls=make_credentials(folder / "tls"))
        ranks = self._ranks() if self._kind == "mpi" else None
        spec = checked(spec, self._kind, ranks)
        opened = open_cluster(spec, self._kind, ranks, quiet=self._quiet)
        client, start = self._open.enter_context(opened)
        drivers = Drivers(client, folder, spec.start_timeout)
        self._open.callback(drivers.close)
        address = {"cluster": client.scheduler.address, "device": spec.device}
        if spec.tls is not None:
            address["tls"] = str(spec.tls)
        return {"client": client, "drivers": drivers, "start": start, "address": address}

    def _ranks(self) -> int:
        asked = [stage.options.get("parts") for stage in self.flow.stages.values() if stage.gang]
        return self._spec.workers or max([one for one in asked if isinstance(one, int)], default=2)

    def _where(self, stage: StageSpec) -> dict[str, Any]:
        """Return the cluster of a stage: the flow's, whose workers start now if they have not."""
        if stage.job is None or not stage.job.clustered:
            return {}
        if self._spec.cluster == "auto" and not self._asks_workers(stage):
            given = given_options(self.flow.spec).items()
            kept = {name: one for name, one in given if "threads" in EFFECTS.get(name, KINDS)}
            return {**kept, "cluster": "threads"}
        if self._spec.cluster not in ("auto", *_STARTED):
            return given_options(self.flow.spec)
        if not self._with_workers:
            self._cluster["start"]()
            self._with_workers = True
        found: dict[str, Any] = self._cluster["address"]
        return found

    def _asks_workers(self, stage: StageSpec) -> bool:
        """Return whether ``auto`` means workers for a stage, which depends on its input."""
        from penstock.cluster.connect import SMALL_INPUT, kind_for

        paths = [self.flow.path_of(one) for one in stage.inputs]
        remote = any("://" in path for path in paths)
        files = [] if remote else [file for path in paths for file in matched(path)]
        size = SMALL_INPUT + 1 if remote else sum(file.stat().st_size for file in files)
        return stage.gang or kind_for(self._spec, size, None, on_gpu=True) in _STARTED

    # Running stages

    def prepare(self, waiting: int) -> None:
        """Have drivers, or have them start, for what runs and for as many stages as wait."""
        self._cluster["drivers"].start(min(len(self._running) + waiting, self._parallel))

    def has_room(self, stage: StageSpec) -> bool:
        """Return whether a driver is free, and nothing runs that wants the same as the stage."""
        running = [one.stage for one in self._running.values()]
        gpus = sum(one.keys.gpus for one in running) + stage.keys.gpus
        return (
            len(running) < self._cluster["drivers"].connected()
            and not (stage.gang and any(one.gang for one in running))
            and (not stage.keys.gpus or gpus <= gpus_of(self.flow))
        )

    def start(self, stage: StageSpec, order: dict[str, Any]) -> None:
        """Have a driver carry out an order."""
        from penstock.cluster.drivers import ON_DRIVER
        from penstock.pipelines.flow.stage import run_stage

        begun = Path(order["begun"])
        future = self._cluster["client"].submit(
            run_stage,
            {**order, "cluster": self._where(stage)},
            key=f"{stage.name}-{begun.name}",
            resources=ON_DRIVER,
            pure=False,
            retries=0,
        )
        self._running[stage.name] = Running(stage, future, begun)
        future.add_done_callback(self._ended.put)

    def next_ended(self) -> tuple[str, dict[str, Any]] | None:
        """Return a stage that ended, and its answer; None: none has, for a moment."""
        try:
            future = self._ended.get(timeout=_POLL)
        except queue.Empty:
            return self._late()
        running = next((one for one in self._running.values() if one.future is future), None)
        if running is None:  # it was cancelled; its stage may run again
            return None
        name = running.stage.name
        del self._running[name]
        answer = self._answer(running)
        running.begun.unlink(missing_ok=True)
        if self._with_workers and running.stage.job is not None:
            self._free_workers()
        return name, answer

    def _answer(self, running: Running) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = running.future.result(timeout=_ANSWER_SECONDS)
        except Exception as error:
            return {"error": _lost(running.stage.name, str(error)).to_dict()}
        if answer.get("lost"):
            return {"error": _lost(running.stage.name, None).to_dict()}
        return answer

    def _late(self) -> tuple[str, dict[str, Any]] | None:
        for name, running in self._running.items():
            limit = running.stage.keys.timeout
            with suppress(FileNotFoundError):  # it waits for its driver
                if limit is not None and time.time() > running.begun.stat().st_mtime + limit:
                    self._end(running)
                    del self._running[name]
                    error = PenstockError(
                        f"stage {name} was stopped after {limit:g} s",
                        remedy="Give it a longer timeout:, and run the flow again: it resumes",
                    )
                    return name, {"error": error.to_dict()}
        return None

    def _end(self, running: Running) -> None:
        """Cancel a stage and end its driver, with all that runs there."""
        from penstock.cluster.drivers import end_driver

        running.future.cancel(force=True)
        end_driver(int(running.begun.read_text()))
        running.begun.unlink(missing_ok=True)

    def _free_workers(self) -> None:
        from penstock.cluster.query import worker_names
        from penstock.pipelines.flow.stage import free_memory

        client: Client = self._cluster["client"]
        with suppress(OSError, TimeoutError):  # of a worker that has just died
            workers = list(client.run_on_scheduler(worker_names))
            if workers:
                client.run(free_memory, workers=workers, wait=False, on_error="ignore")


def _lost(stage: str, got: str | None) -> PenstockError:
    return PenstockError(
        f"the process of stage {stage} ended before the stage did",
        got=got,
        remedy="It crashed, or memory ran out (dmesg); its log may show more. "
        "Run the flow again: it resumes",
    )


def check_gpus(flow: Flow) -> None:
    """Refuse stages that need more GPUs than exist."""
    most = max((stage.keys.gpus for stage in flow.stages.values()), default=0)
    there = gpus_of(flow) if most else 0
    if most > there:
        name = next(stage.name for stage in flow.stages.values() if stage.keys.gpus == most)
        raise CapacityError(
            f"stage {name} needs {most} GPUs",
            expected=f"at most {there}, the available ones",
            remedy="Lower gpus:, or name a cluster with that number",
        )


def gpus_of(flow: Flow) -> int:
    """Return how many GPUs stages can share: those of this machine, or one per requested worker."""
    spec = flow.spec.configured()
    if spec.cluster in ("mpi", "cuda") and spec.workers:
        return spec.workers
    from importlib.util import find_spec

    if find_spec("cupy") is None:
        return 0
    from penstock.workers.resources.device import devices_here

    return devices_here()
