"""One run of a flow: what must run, the Dask graph of its stages, gates, publishing.

Every stage is a node of one Dask graph, which a scheduler in this process runs: it tracks
dependencies, decides which stages run side by side, and shows them on its dashboard. A node
starts the process of its stage and waits for it. The cluster of the flow is another one: it is
started once, and the stages' processes connect to it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, PenstockError, UsageError, causes, warn
from penstock.limits import cores
from penstock.output_lock import output_lock, own_directory
from penstock.pipelines.flow.display import Display
from penstock.pipelines.flow.document import Flow, StageSpec
from penstock.pipelines.flow.gates import flat_metrics
from penstock.pipelines.flow.notify import notify
from penstock.pipelines.flow.publishing import Item, Publication
from penstock.pipelines.flow.publishing.owners import (
    is_other_publisher,
    made_by,
    output_problem,
    target_problem,
)
from penstock.pipelines.flow.publishing.targets import LocalTarget, target_of
from penstock.pipelines.flow.records import (
    ENDED_WELL,
    FOLDER,
    RunRecord,
    State,
    append_metrics,
    begin_run,
    clean,
    previous_metrics,
)
from penstock.pipelines.flow.report import FlowReport, shown_target
from penstock.pipelines.flow.stage import StageProcess, wait_for_older
from penstock.pipelines.flow.state import FlowState, Made
from penstock.system_errors import from_system
from penstock.temporary import TemporaryFolder
from penstock.workers.processes import process_began

PARALLEL = 4
_KEPT_RUNS = 100
_GOES_ON = "The next run resumes from the complete stages"
_STARTED_KINDS = ("local", "mpi", "cuda")


@dataclass(frozen=True)
class Choice:
    """Which stages of a flow run.

    force   also those whose outputs exist
    first   only this one and those that depend on it; the others' outputs must be there
    only    these alone
    """

    force: bool = False
    first: str | None = None
    only: tuple[str, ...] = ()

    def check(self, flow: Flow) -> None:
        """Refuse stages that there are not."""
        for name in (*([self.first] if self.first else []), *self.only):
            if name not in flow.stages:
                raise UsageError(
                    f"{flow.path} has no stage {name!r}",
                    expected=f"one of {', '.join(flow.stages)}",
                )
        if self.first and self.only:
            raise UsageError("--from and --only cannot go together")

    def chosen(self, flow: Flow) -> set[str]:
        """Return the stages that may run."""
        if self.only:
            return set(self.only)
        return flow.after((self.first,)) if self.first else set(flow.stages)


class FlowRun:
    """A run under way; its methods are called from the threads of Dask's worker."""

    def __init__(
        self,
        flow: Flow,
        choice: Choice,
        *,
        quiet: bool,
        replace_targets: bool = False,
        replace_outputs: bool = False,
    ) -> None:
        choice.check(flow)
        self.flow, self.choice, self.quiet = flow, choice, quiet
        self._replace_targets, self._replace_outputs = replace_targets, replace_outputs
        self.chosen = choice.chosen(flow)
        self.needed = flow.before(self.chosen)
        self.state = FlowState(flow)
        self._publication = Publication(self.state.journal, self.state.note_published)
        self.cluster: dict[str, Any] = dict(flow.cluster)
        self.record: RunRecord | None = None
        self.keys: dict[str, str] = {}
        self.outcomes: dict[str, dict[str, Any]] = {}
        self._under_way: dict[str, dict[str, Any]] = {}
        self._lock, self._processes = threading.Lock(), set[StageProcess]()
        self._ending = False
        self._display = Display(quiet=quiet)

    # From its begin to its end

    def run(self) -> FlowReport:
        """Run what must run, check the gates, and publish if all is well."""
        flow, began = self.flow, time.monotonic()
        for name, stage in flow.stages.items():
            for destination in map(flow.destination, stage.publish):
                target = target_of(destination, "")
                if isinstance(target, LocalTarget):  # a URL may be out of reach now, and not then
                    target.check(flow.output(name))
        flow.folder.parent.mkdir(parents=True, exist_ok=True)
        with output_lock(flow.folder, command="penstock run"):
            flow.folder.mkdir(exist_ok=True)
            own_directory(self.state.folder)
            self.record = record = begin_run(flow.home, flow.name, flow.path, flow.text)
            self._note_process()
            self._recover_publication()
            try:
                running = self._running()
                self._refuse_others(running)
                self._execute(running)
                self._publish()
            except BaseException as error:
                ended = any(not isinstance(one, Exception) for one in causes(error))
                for one in causes(error):
                    if isinstance(one, KeyboardInterrupt):  # the command's last line shows it
                        one.add_note(_GOES_ON)
                record.body["state"] = State.INTERRUPTED if ended else State.FAILED
                record.body["error"] = _told(error)
                raise
            finally:
                record.body.update({
                    "seconds": round(time.monotonic() - began, 3),
                    "stages": {name: self.outcomes[name] for name in flow.stages
                               if name in self.outcomes},
                })  # fmt: skip
                if record.state == State.RUNNING:
                    record.body["state"] = State.FAILED if self._failed() else State.PASSED
                self._end(record)
        return FlowReport.of(record)

    def _end(self, record: RunRecord) -> None:
        """Write the record and notify others, also of a failure because of a full disk."""
        with suppress(PenstockError, OSError):  # they are computed again
            self.state.save_digests()
        try:
            record.save()
            record.free_end()
        except (PenstockError, OSError) as error:
            if record.state == State.PASSED:  # the next run could not compare with it
                record.body.update({"state": State.FAILED, "error": _told(error)})
            with suppress(OSError):
                record.save_end()
            warn(f"run.json could not be written whole: {error}")
        notify(self.flow, record)
        with suppress(OSError):
            clean(self.flow.home / FOLDER, _KEPT_RUNS)

    def _note_process(self) -> None:
        assert self.record is not None
        pid = os.getpid()
        self.record.body.update({"process": pid, "process_began": process_began(pid),
                             "variables": self.flow.variables,
                             "folder": str(self.flow.folder)})  # fmt: skip
        self.record.save()

    def _execute(self, running: list[str]) -> None:
        flow = self.flow
        width = flow.parallel or min(PARALLEL, max(cores(), 1))
        with ExitStack() as stack:
            stack.callback(self._display.close)
            stack.callback(self.stop_processes)
            if running:  # so that the cluster is worth its start
                stack.enter_context(self._cluster())
            from penstock.pipelines.flow.graph import run_graph

            run_graph(self, width, quiet=self.quiet)

    def _running(self) -> list[str]:
        """Return the stages that will run, as far as is known before."""
        keys: dict[str, str] = {}
        found: list[str] = []
        for name, stage in self.flow.stages.items():
            try:
                made = self.state.made_of(stage, keys)
            except OSError:  # an input that cannot be read: its stage reports it
                keys[name], runs = "", True
            else:
                keys[name] = self.state.identity(name, made.key)
                runs = self.choice.force or bool(self.state.why(stage, made))
            if name in self.chosen and (runs or set(stage.needs) & set(found)):
                found.append(name)
        return found

    @contextmanager
    def _cluster(self) -> Iterator[None]:
        """Start the cluster of the flow, if it has one, and hand its address to the stages."""
        spec = self.flow.spec.configured()
        if spec.cluster not in _STARTED_KINDS:
            yield
            return
        from penstock.cluster.connect import connect
        from penstock.cluster.security.credentials import make_credentials

        with TemporaryFolder("penstock-flow") as folder:
            if spec.tls is None and not spec.no_tls:
                spec = replace(spec, tls=make_credentials(folder / "tls"))
            with connect(spec, ranks=self._ranks(spec), quiet=self.quiet) as client:
                self.cluster = {"cluster": client.scheduler.address, "device": spec.device}
                if spec.tls is not None:
                    self.cluster["tls"] = str(spec.tls)
                yield
        self.cluster = dict(self.flow.cluster)

    def _ranks(self, spec: ClusterSpec) -> int | None:
        if spec.cluster != "mpi":
            return None
        asked = [stage.options.get("parts") for stage in self.flow.stages.values() if stage.gang]
        return spec.workers or max([one for one in asked if isinstance(one, int)], default=2)

    # A stage

    def stage(self, name: str) -> State:
        """Run one stage if it must; return its state. Errors are recorded, never raised."""
        stage, began = self.flow.stages[name], time.time()
        outcome: dict[str, Any] = {"job": stage.title, "began": began, "state": State.FAILED}
        try:
            self._stage(stage, outcome)
        except BaseException as error:
            known = error if isinstance(error, PenstockError) else from_system(error)
            if self._ending:  # it did nothing wrong
                outcome |= {"state": State.INTERRUPTED, "why": "the flow was stopped"}
            else:
                outcome |= {"state": State.FAILED, "error": _told(known or error)}
            if known is None:
                raise
        finally:
            outcome["seconds"] = round(time.time() - began, 3)
            self._note(name, outcome)
        return State(outcome["state"])

    def _stage(self, stage: StageSpec, outcome: dict[str, Any]) -> None:
        waiting = [one for one in stage.needs if self.outcomes[one]["state"] not in ENDED_WELL]
        if stage.name not in self.needed and waiting:
            outcome |= {"state": State.NOT_CHOSEN, "why": f"{waiting[0]} is to be made first"}
            return
        if waiting:
            outcome |= {"state": State.NOT_RUN, "why": f"upstream stage {waiting[0]} failed"}
            return
        made = self.state.made_of(stage, self.keys)
        self.keys[stage.name] = self.state.identity(stage.name, made.key)
        # The page about the run finds the output here, and whether it is unchanged.
        outcome |= {"out": str(self.flow.output(stage.name)), "key": made.key}
        why = self.state.why(stage, made)
        if stage.name not in self.chosen:
            if why is not None and stage.name not in self.needed:
                outcome |= {"state": State.NOT_CHOSEN, "why": why}
                return
            if why is not None:
                raise UsageError(
                    f"stage {stage.name} must run, but is not selected: {why}",
                    remedy=f"Run it too: --from {stage.name}, or without --only and --from",
                )
        elif self.choice.force and why is None:
            why = "--force"
        if why is None:
            record = self.state.record(stage.name) or {}
            report = record.get("report")
            outcome |= {"state": State.SKIPPED, "why": "unchanged"}
            outcome["report"] = report if _small(report) else None
            metrics = flat_metrics(report)
        else:
            outcome["why"] = why
            self._note_begin(stage.name, outcome)
            metrics = self._run_process(stage, made, outcome)
        outcome["metrics"] = metrics
        self._check_gates(stage, metrics, outcome)

    def _run_process(
        self, stage: StageSpec, made: Made, outcome: dict[str, Any]
    ) -> dict[str, float]:
        assert self.record is not None
        found = self.state.interrupted(stage.name)
        resume = found is not None and found.get("key") == made.key and not self.choice.force
        if found is not None:
            wait_for_older(stage.name, found)
        log = self._log(stage.name)
        previous = self.state.keep_previous(stage) if stage.previous else None
        for attempt in range(stage.retries + 1):
            process = StageProcess(
                self.flow, stage, self.cluster, log, resume=resume, previous=previous
            )
            with self._lock:
                if self._ending:
                    raise PenstockError("the flow was stopped before this stage began")
                self._processes.add(process)
                process.start()
            try:
                self.state.begin(stage.name, made, process.identity(), self._by())
                began = time.monotonic()
                report = process.wait(stage.timeout)
            except PenstockError as error:
                if attempt == stage.retries or self._ending or isinstance(error, UsageError):
                    raise
                self._display.say(f"{stage.name}: {error.what}: trying again")
                resume = True
                time.sleep(min(2.0**attempt, 60))
                continue
            finally:
                process.stop()  # if the disk was full before it was waited for
                with self._lock:
                    self._processes.discard(process)
            break
        metrics = flat_metrics(report)
        self.state.end(stage, made, report, time.monotonic() - began, self._by())
        self.keys[stage.name] = self.state.identity(stage.name, made.key)
        append_metrics(self.record.folder, stage.name, metrics)
        outcome |= {"state": State.DONE, "report": report if _small(report) else None}
        return metrics

    def _check_gates(
        self, stage: StageSpec, metrics: dict[str, float], outcome: dict[str, Any]
    ) -> None:
        if not stage.gates:
            return
        flow = self.flow
        previous = previous_metrics(flow.home / FOLDER, flow.name, flow.path, stage.name)
        checked = [gate.check(metrics, previous) for gate in stage.gates]
        outcome["gates"] = [one.to_dict() for one in checked]
        broken = [one for one in checked if not one.met]
        if broken:
            outcome["state"] = State.GATE_FAILED
            outcome["why"] = "; ".join(one.text() for one in broken)

    def _note_begin(self, name: str, outcome: dict[str, Any]) -> None:
        """Note that a stage runs: the record of a killed flow shows its progress."""
        self._display.begin(name, outcome["why"], self._log(name))
        with self._lock:
            self._under_way[name] = {**outcome, "state": State.RUNNING}
            self._save_stages()

    def _log(self, stage: str) -> Path:
        assert self.record is not None
        return self.record.folder / "logs" / f"{stage}.log"

    def _save_stages(self) -> None:
        assert self.record is not None
        self.record.body["stages"] = {**self.outcomes, **self._under_way}
        with suppress(PenstockError, OSError):  # its end reports it, if the disk is still full
            self.record.save()

    def _note(self, name: str, outcome: dict[str, Any]) -> None:
        with self._lock:
            self._under_way.pop(name, None)
            self.outcomes[name] = outcome
            self._save_stages()
        well: dict[str, str] = {
            State.DONE: f"{outcome['seconds']:.1f} s",
            State.SKIPPED: "unchanged, skipped",
        }
        text = well.get(outcome["state"], f"{outcome['state']}: {_what(outcome)}")
        self._display.end(name)
        self._display.say(f"{name}: {text}")

    def _failed(self) -> bool:
        good = (*ENDED_WELL, State.NOT_CHOSEN)
        return any(one["state"] not in good for one in self.outcomes.values())

    def stop_processes(self) -> None:
        """End the processes of all stages, and start none any more."""
        with self._lock:
            self._ending = True
            processes = list(self._processes)
        for process in processes:
            process.stop()

    # The end

    def _publish(self) -> None:
        """Publish every stage that is to be, once all of the flow is well."""
        assert self.record is not None
        if self._failed() or len(self.outcomes) < len(self.flow.stages):
            return
        stale = [name for name, one in self.outcomes.items() if one["state"] == State.NOT_CHOSEN]
        if stale:
            if any(stage.publish for stage in self.flow.stages.values()):
                self._display.say(f"nothing is published, as {stale[0]} is not up to date")
            return
        items, flow = [], self.flow
        for name, stage in flow.stages.items():
            for target in stage.publish:
                destination = flow.destination(target)
                key = self.keys.get(name)
                # A URL is checked only when it may be written: it may be out of reach.
                taken = self._replace_targets and is_other_publisher(flow, self.state, destination)
                if taken or self.state.published(name, destination) != key:
                    self._display.say(f"{name}: publishing to {shown_target(destination)}")
                    items.append(Item(name, key, flow.output(name), destination))
        destinations = self._publication.publish(
            items, self.record.name, keep=flow.keep, by=self._by(),
            check=None if self._replace_targets else self._refuse_target,
        )  # fmt: skip
        for item, where in zip(items, destinations, strict=True):
            self.record.body["published"].append(
                {"stage": item.stage, "to": where, "key": item.key}
            )

    def _refuse_others(self, running: list[str]) -> None:
        """Refuse to replace what this flow has neither made nor published."""
        for name in () if self._replace_outputs else running:
            if error := output_problem(self.flow, self.state, name):
                raise error
        if self._replace_targets or self.choice.only:
            return
        for name, stage in self.flow.stages.items():
            for destination in map(self.flow.destination, stage.publish):
                if error := target_problem(self.flow, self.state, name, destination, urls=False):
                    raise error

    def _refuse_target(self, item: Item) -> None:
        if error := target_problem(self.flow, self.state, item.stage, item.destination, urls=True):
            raise error

    def _by(self) -> dict[str, Any]:
        assert self.record is not None
        return made_by(self.flow, self.record.name)

    def _recover_publication(self) -> None:
        """Complete or take back what a run was publishing when it was cut off."""
        try:
            if said := self._publication.recover():
                self._display.say(said)
        except PenstockError as error:
            # A destination that cannot be reached now may be at the end, when it must be.
            self._display.say(f"{error}; this run tries again when it publishes")


def run_flow_checked(
    flow: Flow,
    choice: Choice,
    *,
    quiet: bool,
    replace_targets: bool = False,
    replace_outputs: bool = False,
    failed: Callable[[Path], object] | None = None,
) -> FlowReport:
    """Run a flow that was read.

    replace_targets  publish also over what this flow has not published
    replace_outputs  stages may also replace what this flow has not made
    failed  called with the run's folder if it fails as a whole, as by a publication
    """
    check_gpus(flow)
    run = FlowRun(
        flow, choice, quiet=quiet, replace_targets=replace_targets, replace_outputs=replace_outputs
    )
    try:
        return run.run()
    except Exception:
        if failed is not None and run.record is not None and run.record.state == State.FAILED:
            failed(run.record.folder)
        raise


def check_gpus(flow: Flow) -> None:
    """Refuse stages that need more GPUs than exist."""
    most = max((stage.gpus for stage in flow.stages.values()), default=0)
    there = gpus_of(flow) if most else 0
    if most > there:
        name = next(stage.name for stage in flow.stages.values() if stage.gpus == most)
        raise CapacityError(
            f"stage {name} needs {most} GPUs", expected=f"at most {there}, the available ones",
            remedy="Lower gpus:, or name a cluster with that number",
        )  # fmt: skip


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


def _told(error: BaseException) -> dict[str, Any]:
    if isinstance(error, PenstockError):
        return dict(error.to_dict())
    return {"error": type(error).__name__, "what": str(error) or "interrupted"}


def _what(outcome: dict[str, Any]) -> str:
    error = outcome.get("error") or {}
    return str(error.get("what") or outcome.get("why") or "no reason known")


def _small(report: Any) -> bool:
    import json

    return len(json.dumps(report, default=str)) < 1 << 20
