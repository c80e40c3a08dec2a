"""One run of a flow: what must run, stages in the order of their inputs, gates, publishing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from penstock.errors import BaseRefused, PenstockError, UsageError, causes, warn
from penstock.options import given_options
from penstock.output_lock import output_lock, own_directory
from penstock.pipelines.flow.display import RunDisplay
from penstock.pipelines.flow.document import Flow, StageSpec, with_stages
from penstock.pipelines.flow.engine import Engine, check_gpus
from penstock.pipelines.flow.gates import flat_metrics
from penstock.pipelines.flow.notify import notify
from penstock.pipelines.flow.options import RunOptions
from penstock.pipelines.flow.previous import with_previous
from penstock.pipelines.flow.prometheus import save_metrics
from penstock.pipelines.flow.publishing import Publisher
from penstock.pipelines.flow.python import Check
from penstock.pipelines.flow.records import (
    ENDED_WELL,
    FOLDER,
    RunRecord,
    State,
    begin_run,
    clean,
    previous_metrics,
)
from penstock.pipelines.flow.report import FlowReport, reason_of, write_page
from penstock.pipelines.flow.state import FlowState, Made
from penstock.secrets import hidden
from penstock.system_errors import from_system

_KEPT_RUNS = 100
_POLL = 0.02
_RESUMES = "The next run resumes from the complete stages"


@dataclass
class _Turn:
    """A stage that must run: what of, and its attempts until now.

    why_whole  why an incremental stage has no base
    """

    stage: StageSpec
    made: Made
    outcome: dict[str, Any]
    previous: Path | None = None
    why_whole: str | None = None
    resume: bool = False
    attempt: int = 0
    not_before: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def based(self) -> bool:
        """Whether the stage starts from its previous output because it is incremental."""
        return self.stage.incremental and self.previous is not None and self.why_whole is None


class FlowRun:
    """A run under way."""

    def __init__(self, flow: Flow, options: RunOptions, *, quiet: bool) -> None:
        options.check(flow)
        check_gpus(flow)
        self.flow, self.options = flow, options
        self.chosen = options.chosen(flow)
        self.needed = flow.before(self.chosen)
        self.state = FlowState(flow)
        self.record: RunRecord | None = None
        self.contents: dict[str, str] = {}
        self.outcomes: dict[str, dict[str, Any]] = {}
        self._under_way: dict[str, _Turn] = {}
        self._display = RunDisplay(quiet=quiet)
        self._engine = Engine(flow, quiet=quiet)
        self._publisher = Publisher(flow, say=self._display.say, replace=options.replace_targets)

    # From its begin to its end

    def run(self) -> FlowReport:
        """Run what must run, check the gates, and publish if all is well; call the hook."""
        folder = self.flow.folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        page = None
        try:
            with output_lock(folder, command="penstock run"):
                self._run_locked()
        finally:
            if (record := self.record) is not None:
                try:
                    if self.options.report and record.state in (State.PASSED, State.FAILED):
                        page = write_page(record.folder)
                finally:  # also if a signal comes meanwhile
                    notify(self.flow, record)
        assert self.record is not None
        return FlowReport.of(self.record, page)

    def _run_locked(self) -> None:
        flow, began = self.flow, time.monotonic()
        flow.folder.mkdir(exist_ok=True)
        own_directory(self.state.folder)
        about = {
            "process": os.getpid(),
            "variables": flow.variables,
            "folder": str(flow.folder),
            "series": flow.series,
            "targets": [(one.name, to) for one in flow.stages.values() for to in one.keys.publish],
        }
        self.record = record = begin_run(
            flow.path, flow.name, flow.date, flow.text, {**self.options.origin, **about}
        )
        try:
            self._publisher.recover()
            running = [
                one
                for one, why, _ in foreseen(flow, self.state, self.options)
                if why is not None and one.name in self.chosen
            ]
            for stage in running if not self.options.replace_outputs else ():
                self.state.refuse_output(stage)
            if not self.options.only:
                self._publisher.refuse()
            self._execute(running)
            self._publish(record)
            if flow.incremental and not self._failed():
                self.state.forget_previous()
        except BaseException as error:
            ended = any(not isinstance(one, Exception) for one in causes(error))
            for one in causes(error):
                if isinstance(one, KeyboardInterrupt):  # the command's last line shows it
                    one.add_note(_RESUMES)
            record.body["state"] = State.INTERRUPTED if ended else State.FAILED
            record.body["error"] = _plain(error)
            record.body["final"] = getattr(error, "exit_code", 1) == 2  # so it is again
            raise
        finally:
            if record.state == State.RUNNING:
                record.body["state"] = State.FAILED if self._failed() else State.PASSED
            record.body["seconds"] = round(time.monotonic() - began, 3)
            record.body["stages"] = {
                name: self.outcomes[name] for name in flow.stages if name in self.outcomes
            }
            self._end(record)

    def _end(self, record: RunRecord) -> None:
        """Write what is kept of the run, also of a failure because of a full disk."""
        with suppress(PenstockError, OSError):  # they are computed again
            self.state.save_digests()
        try:
            record.save()
        except (PenstockError, OSError) as error:  # to readers it was killed
            record.body.update({"state": State.FAILED, "error": _plain(error)})
            warn(f"run.json could not be written: {error}")
        with suppress(PenstockError, OSError):
            save_metrics(record)
            clean(self.flow.home / FOLDER, _KEPT_RUNS)

    def _execute(self, running: list[StageSpec]) -> None:
        """Run stages when those that they need are done; functions are checked before."""
        sorter = TopologicalSorter({name: one.needs for name, one in self.flow.stages.items()})
        sorter.prepare()
        with check_of(self.flow, running) as check:
            try:
                self._follow(sorter, check)
            except BaseException:
                for name, turn in self._under_way.items():  # they did nothing wrong
                    turn.outcome |= {"state": State.INTERRUPTED, "why": "the flow was stopped"}
                    seconds = time.time() - turn.outcome["began"]
                    self.outcomes[name] = {**turn.outcome, "seconds": round(seconds, 3)}
                raise
            finally:
                self._engine.close()
                self._display.close()

    def _follow(self, sorter: TopologicalSorter[str], check: Check) -> None:
        waiting: list[_Turn] = []
        began, limit = time.monotonic(), self.flow.keys.timeout
        while sorter.is_active():
            if limit is not None and time.monotonic() > began + limit:
                raise PenstockError(f"the run took longer than its timeout: {limit:g} s")
            for name in sorter.get_ready():
                turn = self._begin(self.flow.stages[name])
                if turn is None:
                    sorter.done(name)
                else:
                    waiting.append(turn)
            if waiting:
                self._engine.prepare(len(waiting))
                check.passed()
            for turn in list(waiting):
                if time.monotonic() > turn.not_before and self._engine.has_room(turn.stage):
                    waiting.remove(turn)
                    if not self._start(turn):
                        sorter.done(turn.stage.name)
            if not self._under_way:
                time.sleep(_POLL if waiting else 0)
                continue
            ended = self._engine.next_ended()
            if ended is not None:
                turn = self._under_way[ended[0]]
                if self._ended(turn, ended[1]):
                    sorter.done(ended[0])
                else:
                    waiting.append(turn)

    # A stage

    def _begin(self, stage: StageSpec) -> _Turn | None:
        """Return the turn of a stage that must run; None: it has ended."""
        outcome: dict[str, Any] = {"job": stage.title, "began": time.time(), "state": State.FAILED}
        turn = None
        with _failing(outcome):
            turn = self._decide(stage, outcome)
        if turn is None:
            self._note(stage.name, outcome)
        return turn

    def _decide(self, stage: StageSpec, outcome: dict[str, Any]) -> _Turn | None:
        waiting = [one for one in stage.needs if self.outcomes[one]["state"] not in ENDED_WELL]
        if stage.name not in self.needed and waiting:
            outcome |= {"state": State.NOT_CHOSEN, "why": f"{waiting[0]} is to be made first"}
            return None
        if waiting:
            outcome |= {"state": State.NOT_RUN, "why": f"upstream stage {waiting[0]} failed"}
            return None
        force = self.options.force and stage.name in self.chosen
        made, why = self.state.decide(stage, self.contents, force=force)
        # The page about the run finds the output here, and whether it is unchanged.
        outcome |= {"out": str(self.flow.output(stage.name)), "key": made.key}
        if why is not None and stage.name not in self.chosen:
            if stage.name in self.needed:
                raise UsageError(
                    f"stage {stage.name} must run, but is not selected: {why}",
                    remedy=f"Run it too: --from {stage.name}, or without --only and --from",
                )
            outcome |= {"state": State.NOT_CHOSEN, "why": why}
            return None
        if why is None:
            report = self.state.record(stage.name).get("report")
            outcome |= {"state": State.SKIPPED, "why": "unchanged"}
            self._report(stage, report, outcome)
            return None
        outcome["why"] = why
        return _Turn(stage, made, outcome)

    def _start(self, turn: _Turn) -> bool:
        """Have the engine run a stage; False: it has failed."""
        stage, outcome = turn.stage, turn.outcome
        with _failing(outcome):
            if outcome["state"] != State.RUNNING:  # its first attempt
                turn.previous = self.state.keep_previous(stage) if stage.previous else None
                if stage.incremental:
                    turn.why_whole = self.state.why_whole(stage, force=self.options.force)
                resume = self.state.begin(stage, turn.made, self._by(), based=turn.based)
                turn.resume = resume and not self.options.force
                outcome["began"], turn.began = time.time(), time.monotonic()
            outcome["state"] = State.RUNNING
        if outcome["state"] != State.RUNNING:
            self._note(stage.name, outcome)
            return False
        # Written now, so that the record of a flow that is killed shows what ran.
        self._under_way[stage.name] = turn
        self._save_stages()
        self._display.begin(stage.name, outcome["why"], self._log(stage.name))
        self._engine.start(stage, self._order(turn))
        return True

    def _order(self, turn: _Turn) -> dict[str, Any]:
        name, log = turn.stage.name, self._log(turn.stage.name)
        whole = turn.why_whole is not None
        how: dict[str, Any] = {"resume": turn.resume, "previous": turn.previous, "whole": whole}
        attempt = f"{turn.attempt}{'-whole' * whole}"
        return {
            **order_of(self.flow, turn.stage, **how),
            "lock": str(self.state.folder / f"{name}.lock"),
            "log": str(log),
            "begun": str(log.with_name(f".{name}-{attempt}")),
        }

    def _ended(self, turn: _Turn, answer: dict[str, Any]) -> bool:
        """Take what a stage answers; False: it is to be tried again."""
        stage, outcome = turn.stage, turn.outcome
        del self._under_way[stage.name]
        if (error := answer.get("error")) is not None:
            if turn.based and error["error"] == BaseRefused.__name__:
                self._display.end(stage.name)
                self._display.say(f"{stage.name}: {error['what']}: made whole")
                turn.why_whole, turn.resume = str(error["what"]), False
                self.state.begin(stage, turn.made, self._by(), based=False)
                return False
            if turn.attempt < stage.keys.retries and not answer.get("usage"):
                self._display.end(stage.name)
                self._display.say(f"{stage.name}: {error['what']}: trying again")
                turn.not_before = time.monotonic() + min(2.0**turn.attempt, 60)
                turn.attempt, turn.resume = turn.attempt + 1, True
                return False
            outcome |= {"state": State.FAILED, "error": error}
        else:
            with _failing(outcome):
                report, seconds = answer["report"], time.monotonic() - turn.began
                based = turn.based
                rebuilt = self.state.end(stage, turn.made, report, seconds, self._by(), based=based)
                if stage.incremental:
                    outcome |= {"based": based, "rebuilt": rebuilt, "why_whole": turn.why_whole}
                self.contents[stage.name] = self.state.content(stage.name, turn.made)
                outcome["state"] = State.DONE
                self._report(stage, report, outcome)
        self._note(stage.name, outcome)
        return True

    def _report(self, stage: StageSpec, report: Any, outcome: dict[str, Any]) -> None:
        """Note what a stage reports, and whether its gates are met."""
        metrics = flat_metrics(report)
        outcome |= {"report": report if _small(report) else None, "metrics": metrics}
        if not stage.gates:
            return
        assert self.record is not None
        previous = previous_metrics(self.record, stage.name)
        checked = [gate.check(metrics, previous) for gate in stage.gates]
        outcome["gates"] = [one.to_dict() for one in checked]
        broken = [one for one in checked if not one.met]
        if broken and stage.name in self.options.accept:
            outcome["accepted"] = self.options.reason
        elif broken:
            outcome["state"] = State.GATE_FAILED
            outcome["why"] = "; ".join(one.text() for one in broken)

    def _note(self, name: str, outcome: dict[str, Any]) -> None:
        outcome["seconds"] = round(time.time() - outcome["began"], 3)
        self.outcomes[name] = outcome
        self._save_stages()
        well: dict[str, str] = {
            State.DONE: f"{outcome['seconds']:.1f} s",
            State.SKIPPED: "unchanged, skipped",
        }
        text = well.get(outcome["state"], f"{outcome['state']}: {reason_of(outcome)}")
        self._display.end(name)
        self._display.say(f"{name}: {text}")

    def _save_stages(self) -> None:
        assert self.record is not None
        under_way = {name: turn.outcome for name, turn in self._under_way.items()}
        self.record.body["stages"] = {**self.outcomes, **under_way}
        with suppress(PenstockError, OSError):  # its end reports it, if the disk is still full
            self.record.save()

    @property
    def _folder(self) -> Path:
        assert self.record is not None
        return self.record.folder

    def _log(self, stage: str) -> Path:
        return self._folder / "logs" / f"{stage}.log"

    def _by(self) -> dict[str, Any]:
        return {"flow": self.flow.name, "run": self._folder.name}

    # The end

    def _failed(self) -> bool:
        good = (*ENDED_WELL, State.NOT_CHOSEN)
        return any(one["state"] not in good for one in self.outcomes.values())

    def _publish(self, record: RunRecord) -> None:
        """Publish every stage that is to be, once all of the flow is well."""
        if self._failed() or len(self.outcomes) < len(self.flow.stages):
            return
        stale = [name for name, one in self.outcomes.items() if one["state"] == State.NOT_CHOSEN]
        if not stale:
            self._publisher.publish(record, self.contents)
        elif any(stage.keys.publish for stage in self.flow.stages.values()):
            self._display.say(f"nothing is published, as {stale[0]} is not up to date")


@contextmanager
def _failing(outcome: dict[str, Any]) -> Iterator[None]:
    """Note an error of Penstock, or of the system, as that of a stage, and raise no more."""
    try:
        yield
    except Exception as error:
        known = error if isinstance(error, PenstockError) else from_system(error)
        if known is None:
            raise
        outcome |= {"state": State.FAILED, "error": _plain(known)}


def foreseen(
    flow: Flow, state: FlowState, options: RunOptions
) -> Iterator[tuple[StageSpec, str | None, list[str]]]:
    """Yield every stage, why it must run as far as is known before (None: it need not), and the
    stages before it that will."""
    chosen, running, contents = options.chosen(flow), set[str](), dict[str, str]()
    for name, stage in flow.stages.items():
        before = [one for one in stage.needs if one in running]
        why: str | None = "an input cannot be read"  # its stage reports it
        with suppress(OSError):
            _, why = state.decide(stage, contents, force=options.force and name in chosen)
        contents.setdefault(name, "")
        if why is None and before:
            why = f"{before[0]} runs"
        if why is not None and name in chosen:
            running.add(name)
        yield stage, why, before


def order_of(
    flow: Flow,
    stage: StageSpec,
    *,
    resume: bool = False,
    previous: Path | None = None,
    whole: bool = False,
) -> dict[str, Any]:
    """Return what a stage is to run, as plain data.

    previous  a copy of its last output
    whole     whether an incremental stage starts without it
    """

    def path_of(name: str) -> Path:
        first, _, rest = name.partition("/")
        return flow.output(first) / rest if rest else flow.output(first)

    options = with_stages(with_previous(stage.with_base, None if whole else previous), path_of)
    if stage.job is not None:
        given = {"resume": resume, "overwrite": True}
        known = stage.job.option_defaults()
        options |= {name: True for name, on in given.items() if on and name in known}
    return {
        "name": stage.name,
        "job": None if stage.job is None else stage.job.name,
        "python": stage.keys.python,
        "home": str(flow.home),
        "inputs": [flow.path_of(one) for one in stage.inputs],
        "out": str(flow.output(stage.name)),
        "options": options,
        "cluster": given_options(flow.spec),
        "hidden": hidden(),
    }


def check_of(flow: Flow, stages: Iterable[StageSpec]) -> Check:
    """Return a check of the functions of stages."""
    return Check([order_of(flow, stage) for stage in stages if stage.job is None])


def _plain(error: BaseException) -> dict[str, Any]:
    if isinstance(error, PenstockError):
        return dict(error.to_dict())
    return {"error": type(error).__name__, "what": str(error) or "interrupted"}


def _small(report: Any) -> bool:
    return len(json.dumps(report, default=str)) < 1 << 20
