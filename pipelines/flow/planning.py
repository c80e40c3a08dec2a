"""What a run of a flow would do: which stages run and why, and what they would take."""

from __future__ import annotations

from contextlib import chdir, suppress
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.pipelines.display import CountsReport
from penstock.pipelines.flow.document import Flow, StageSpec
from penstock.pipelines.flow.engine import check_gpus
from penstock.pipelines.flow.options import RunOptions
from penstock.pipelines.flow.places import Place
from penstock.pipelines.flow.publishing import place_of
from penstock.pipelines.flow.run import check_of, foreseen, order_of
from penstock.pipelines.flow.stage import job_call
from penstock.pipelines.flow.state import FlowState
from penstock.secrets import masked
from penstock.sizes import format_bytes


@dataclass(frozen=True)
class StagePlan:
    """The plan of one stage; its needs are None if they are not known.

    last_seconds  what it took when it was last run
    assumed       what runs before it: the figures are for the output that this has at present
    unknown       what must run before it can be estimated
    """

    name: str
    job: str
    runs: bool
    why: str
    after: tuple[str, ...]
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    problem: str | None = None
    last_seconds: float | None = None
    assumed: str | None = None
    unknown: str | None = None


@dataclass(frozen=True)
class FlowPlan(CountsReport):
    """What would be done of a flow."""

    flow: str
    folder: str
    stages: tuple[StagePlan, ...]

    def text(self) -> str:
        """Return one line per stage."""
        width = max(len(one.name) for one in self.stages)
        jobs = max(len(one.job) for one in self.stages)
        lines = [f"{self.flow} would write {self.folder}"]
        for one in self.stages:
            what = "run " if one.runs else "skip"
            lines.append(f"  {one.name:<{width}}  {one.job:<{jobs}}  {what}  {one.why}")
            if one.runs and (needs := _needs(one)):
                lines.append(f"  {'':<{width}}  {'':<{jobs}}        {needs}")
            if one.problem:
                lines.append(f"  {'':<{width}}  {'':<{jobs}}        problem: {one.problem}")
        return "\n".join(lines)


def _needs(one: StagePlan) -> str:
    parts = []
    if one.memory_bytes is not None:
        parts.append(f"memory about {format_bytes(one.memory_bytes)}")
    if one.disk_bytes:  # an evaluation takes none
        parts.append(f"disk about {format_bytes(one.disk_bytes)}")
    if parts and one.assumed:
        parts[-1] += f" (if {one.assumed} stays as it is now)"
    if one.last_seconds is not None:
        # Estimates are of the job's work; that of the process, imports above all, is some seconds.
        parts.append(f"last time {one.last_seconds:.3g} s with its start")
    if one.unknown:
        parts.append(f"memory and disk are known once {one.unknown} has run")
    return ", ".join(parts)


def plan_flow(flow: Flow, options: RunOptions) -> FlowPlan:
    """Return the plan of a run; jobs whose inputs exist estimate their needs.

    Of inputs that will be rebuilt, those of the last run will do: nights are much alike.
    """
    options.check(flow)
    check_gpus(flow)
    chosen, state = options.chosen(flow), FlowState(flow)
    needed = flow.before(chosen)
    running: list[StageSpec] = []
    stages = []
    for stage, why, before in foreseen(flow, state, options):
        name = stage.name
        runs = why is not None and name in chosen
        if why is not None and name not in chosen:
            why = f"not chosen, though {why}"
        needs: dict[str, Any] = {}
        if name not in chosen and why is not None and name in needed:
            needs["problem"] = "what is chosen reads it, and the run would be refused"
        if runs:
            running.append(stage)
            if stage.incremental:
                why_whole = state.why_whole(stage, force=options.force)
                how = "from its previous output" if why_whole is None else f"whole: {why_whole}"
                why = f"{why}; {how}"
            needs = _asked(flow, name, before) | {"last_seconds": state.record(name).get("seconds")}
        try:
            if runs and not options.replace_outputs:
                state.refuse_output(stage)
            for place in () if options.replace_targets or options.only else _places(flow, stage):
                if place.local:  # a URL may be out of reach now
                    place.refuse_others()
        except PenstockError as problem:
            needs["problem"] = masked(problem.what)
        stages.append(StagePlan(name, stage.title, runs, why or "unchanged", stage.needs, **needs))
    with check_of(flow, running) as check:
        check.passed()
    with suppress(PenstockError, OSError):  # a plan needs no place to write to
        state.save_digests()
    return FlowPlan(flow.name, str(flow.folder), tuple(stages))


def _places(flow: Flow, stage: StageSpec) -> list[Place]:
    return [place_of(flow, flow.destination(one)) for one in stage.keys.publish]


def _asked(flow: Flow, name: str, before: list[str]) -> dict[str, Any]:
    """Return the needs in a job's plan.

    before  stages that will have made its inputs again
    """
    stage = flow.stages[name]
    if stage.job is None or not stage.job.plans:
        return {}
    if before and not all(flow.output(one).exists() for one in before):
        return {"unknown": before[0]}
    try:
        with chdir(flow.home):
            given, named = job_call(order_of(flow, stage))
            found = stage.job.plan(*given, **named)
    except PenstockError as error:
        return {"unknown": before[0]} if before else {"problem": str(error)}
    return {
        "memory_bytes": found.memory.bytes,
        "disk_bytes": found.disk and found.disk.bytes,
        "assumed": before[0] if before else None,
        "problem": None if before or found.problem is None else found.problem.what,
    }
