"""An output that is there while it is made: the folder of a run, to watch and to resume from.

run.json           what is trained, its state and its results: see ``TrainingRun``
metrics.jsonl      a line per epoch; with the first one the run has begun
checkpoints/       what ranks write; ``last`` is what ``--resume`` goes on from
.NAME.old          next to it: the run to replace, until the new one has a checkpoint and has ended

A run is known by its files: what a run that was killed leaves says that it is training.
"""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, MISSING, asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from penstock.documents import parse_json
from penstock.errors import (
    CapacityError,
    GraphError,
    InputError,
    OutputExists,
    PenstockError,
    UsageError,
)
from penstock.files import remove, remove_temporaries, temporaries
from penstock.formats import Format
from penstock.output import aside, put_aside, refuse_existing
from penstock.output_lock import (
    output_lock,
)
from penstock.pipelines.job.plan import Need, Plan
from penstock.run_output import RunState
from penstock.sizes import plural
from penstock.workers.stopped import Stopped

if TYPE_CHECKING:
    from penstock.pipelines.job import Job

KIND = "run"
_CHECKPOINTS = "last", "best"
_E = TypeVar("_E", bound=StrEnum)
_T = TypeVar("_T")


_HOLDS = {
    RunState.TRAINING: "an interrupted run",
    RunState.INTERRUPTED: "an interrupted run",
    RunState.DONE: "a finished run",
    RunState.DIVERGED: "a run whose loss became NaN",
}


def run_format(job: str) -> Format:
    """Return the format of what run.json holds of ``penstock JOB train``."""
    return Format(
        name=f"penstock-{job}",
        version=1,
        file=f"{KIND}.json",
        thing=f"run of penstock {job}",
        make=f"Make one with penstock {job} train GRAPH RUN",
        restore="Restore the file or train again with --overwrite",
        absent=InputError,
        foreign=InputError,
    )


@dataclass(frozen=True)
class TrainingRun(ABC):
    """What run.json holds of every training run.

    results  what Trained holds, once it has ended
    """

    format: ClassVar[Format]
    graph: str
    graph_sha256: str
    _: KW_ONLY
    state: RunState = RunState.TRAINING
    options: dict[str, Any] | None = None
    results: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what run.json holds."""
        return asdict(self)

    @classmethod
    @abstractmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Return what a run.json says; UsageError, KeyError and the like where it is damaged."""

    @classmethod
    def of(cls, body: dict[str, Any], folder: Path) -> Self:
        """Return what run.json in ``folder`` says."""
        with cls.format.reading(folder):
            needed = [each for each in fields(cls) if each.name in body or each.default is MISSING]
            known = {each.name: body[each.name] for each in needed}
            known["state"] = state_of(body, folder, cls.format)
            try:
                run = cls.read(known)
            except UsageError as error:  # of an option that the model or the training has
                raise cls.format.damaged(
                    folder, error.what, expected=error.expected, got=error.got
                ) from error
            if not isinstance(run.results, dict | None):
                raise ValueError(f"{run.results!r} for results")
            return run

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read ``folder/run.json``, or say why it is not a run of ours."""
        return cls.of(cls.format.load(folder), folder)

    @abstractmethod
    def differences(self, old: Self) -> list[str]:
        """Return what keeps this run from going on where ``old`` stopped."""
        if self.graph_sha256 == old.graph_sha256:
            return []
        changed = f"{self.graph} has changed"
        other = f"{self.graph}, in the run {old.graph}"
        return [f"the graph: {changed if self.graph == old.graph else other}"]

    def ended(self, trained: Any) -> Self:
        """Return what run.json holds of a run that has ended so."""
        state = RunState.DIVERGED if trained.stopped is Stopped.NAN else RunState.DONE
        return replace(self, state=state, results=asdict(trained))

    def trained(self, kind: type[_T], folder: Path) -> _T | None:
        """Return the results of a run that is done; None: it is not."""
        results = self.results or {}
        if self.state is not RunState.DONE:
            return None
        with self.format.reading(folder):
            known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
            given = {name: value for name, value in results.items() if name in known}
            stopped = _one_of(Stopped, given["stopped"], "results.stopped", folder, self.format)
            return kind(**given | {"stopped": stopped})


def state_of(body: dict[str, Any], folder: Path, manifest: Format) -> RunState:
    """Return the state that run.json of ``folder`` names; CorruptFile where that is none."""
    return _one_of(RunState, body.get("state"), "state", folder, manifest)


def _one_of(kind: type[_E], value: Any, key: str, folder: Path, manifest: Format) -> _E:
    if value in [*kind]:
        return kind(value)
    expected = f"{key}: one of {', '.join(kind)}"
    raise manifest.damaged(folder, expected=expected, got=repr(value))


def refuse_fewer(out: Path, done: int, epochs: int) -> None:
    """Raise where a run that is resumed has trained more epochs than are asked for."""
    if done > epochs:
        raise UsageError(
            f"{out} has trained {plural(done, 'epoch')}",
            expected=f"--epochs {done:,} or more",
            got=f"{epochs:,}",
            remedy="Train another run for fewer",
        )


def is_trained(stopped: Stopped, before: Any, training: Any) -> bool:
    """Return whether a run that was trained with the options ``before`` has nothing left of others.

    One that ran out of patience stops at once, however many epochs it is to have.
    """
    epochs = training.epochs if stopped is Stopped.PATIENCE else before.epochs
    return bool(replace(before, epochs=epochs) == training)


def epochs_text(epochs: int, done: int = 0) -> str:
    """Return how many epochs a plan has, of which some may be done."""
    of = plural(epochs, "epoch")
    return f"{done:,} of {of} {'is' if done == 1 else 'are'} done" if done else of


def finished_plan(what: str, epochs: int, done: int, stopped: Stopped) -> Plan:
    """Return the plan of a run that is resumed with nothing left to train."""
    why = epochs_text(epochs, done)
    if stopped is Stopped.PATIENCE:
        why = f"early stopping after {done:,} of {epochs_text(epochs)}"
    return Plan(what, (("train", f"nothing is left to train: {why}"),), Need(0))


@contextmanager
def run_folder(job: Job[Any], manifest: Format) -> Iterator[Path]:
    """Give the folder of a run to train in; it is kept however the block ends, bad input aside.

    An existing run is resumed with ``resume`` if it is the same. With ``overwrite`` it is moved
    aside, and comes back where the new one ends without a checkpoint, of which nothing could be
    read and nothing resumed: ``job.brought_back`` says so.
    """
    # Through symbolic links, to the disk that the run will really stand on.
    out, resume = job.out.resolve(), job.options.resume
    with output_lock(out, command=job.command):
        if not _is_this(job, manifest):
            _recover(out, manifest)
        refuse_taken(job, manifest)
        remove_temporaries(out, manifest.file)  # all that a kill at the very start leaves
        resumes = resume and (out / manifest.file).is_file()
        if resumes:
            old = _lies_aside(out, manifest)
        else:
            old = put_aside(out) if out.exists() and any(out.iterdir()) else None
        if _has_checkpoint(out):
            _forget(old)
            old = None
        before = manifest.load(out) if resumes else None
        written = _written(out)
        try:
            out.mkdir(exist_ok=True)
            _remove_halves(out)
            manifest.save(out, job.first_manifest())
            yield out
        except BaseException as error:
            # What is damaged stays so, and keeps a run from going on.
            damaged = isinstance(error, GraphError) and _written(out) == written
            refused = isinstance(error, PenstockError) and error.exit_code == 2
            if before is not None and (refused or damaged):
                manifest.save(out, before)
            elif old is not None and not _has_checkpoint(out):
                _bring_back(old, out)
                if not isinstance(error, InputError | UsageError | CapacityError):
                    _say_what_is_back(out)
            elif before is None and not _has_begun(out):
                shutil.rmtree(out, ignore_errors=True)
            else:
                # A full disk; the manifest says "training" then.
                with suppress(OSError, CapacityError):
                    manifest.save(out, manifest.load(out) | {"state": RunState.INTERRUPTED})
                _forget(old)
                if not damaged:
                    _say_how_to_resume(out)
            raise
        diverged = manifest.load(out)["state"] == RunState.DIVERGED
        if old is not None and diverged and not _has_checkpoint(out):
            _bring_back(old, out)
            job.brought_back = True
            return
        _remove_halves(out)  # of a worker that was killed, whose work another has done again
        _forget(old)


def refuse_taken(job: Job[Any], manifest: Format) -> None:
    """Raise where the folder holds what this run neither resumes nor may replace."""
    out = job.out.resolve()
    there = (out / manifest.file).is_file()
    if there and job.options.resume:
        if found := job.differences(manifest.load(out)):
            raise UsageError(
                f"the run in {out} is another one",
                expected="the same model, training and graph",
                got="; ".join(found),
                remedy="Repeat its command with --resume, or replace it with --overwrite",
            )
    elif there and not job.options.overwrite:
        state = state_of(manifest.load(out), out, manifest)
        go_on = "Resume it with --resume, replace"
        if state is RunState.DONE:
            go_on = "Resume it with --resume and more --epochs, replace"
            go_on = go_on if job.goes_on() else "Replace"
        elif state is RunState.DIVERGED:  # and would again
            go_on = "Replace"
        raise OutputExists(
            f"{out} holds {_HOLDS[state]}",
            remedy=f"{go_on} it with --overwrite, or name another",
        )
    elif there and (name := _other_format(out, manifest)) is not None:
        raise OutputExists(
            f"{out} is not a {manifest.thing}",
            expected=f'"format": "{manifest.name}" in its {manifest.file}',
            got=f'"format": "{name}"',
            remedy=f"Name another output; only a {manifest.thing} is replaced, even with "
            "--overwrite",
        )
    elif not (out.is_dir() and {*out.iterdir()} == {*temporaries(out, manifest.file)}):
        refuse_existing(out, overwrite=job.options.overwrite, kind=KIND)


def _other_format(out: Path, manifest: Format) -> str | None:
    """Return the format of another job's run, or of a flow's, as run.json of ``out`` has it."""
    body: Any = None
    with suppress(OSError, ValueError):  # what is damaged may be replaced
        body = parse_json((out / manifest.file).read_bytes())
    name = body.get("format") if isinstance(body, dict) else None
    return name if isinstance(name, str) and name != manifest.name else None


def _remove_halves(out: Path) -> None:
    """Remove what a kill leaves: half a checkpoint, under a name of its own."""
    for folder in (out, out / "checkpoints"):
        remove_temporaries(folder)


def _is_this(job: Job[Any], manifest: Format) -> bool:
    """Return whether the folder holds the run that is to be resumed."""
    out = job.out.resolve()
    there = job.options.resume and (out / manifest.file).is_file()
    return there and not job.differences(manifest.load(out))


def _written(out: Path) -> dict[str, int]:
    """Return the checkpoints of a run, and when each was written."""
    found = {}
    for name in _CHECKPOINTS:
        for path in (out / "checkpoints").glob(f"{name}*"):
            with suppress(OSError):
                found[path.name] = path.stat().st_mtime_ns
    return found


def _has_checkpoint(out: Path, *names: str) -> bool:
    """Return whether something can be read of a run, or with ``last`` be resumed."""
    return any(any((out / "checkpoints").glob(f"{name}*")) for name in names or _CHECKPOINTS)


def _has_begun(out: Path) -> bool:
    metrics = out / "metrics.jsonl"
    return metrics.is_file() and metrics.stat().st_size > 0


def _bring_back(old: Path, out: Path) -> None:
    remove(out)
    old.rename(out)


def _lies_aside(out: Path, manifest: Format) -> Path | None:
    """Return the run that one which was killed had moved aside."""
    old = aside(out)
    return old if old.is_dir() and (old / manifest.file).is_file() else None


def _recover(out: Path, manifest: Format) -> None:
    """Put back the run that a killed one had moved aside, or remove it where it was replaced.

    Never in the place of something else than a run.
    """
    old = _lies_aside(out, manifest)
    if old is None:
        return
    if out.is_dir() and not (out / manifest.file).is_file():
        replaced = all(path.name.startswith(".") for path in out.iterdir())
    else:
        replaced = not out.is_file()
    if replaced and not _has_checkpoint(out):
        _bring_back(old, out)
    elif (out / manifest.file).is_file() and _has_checkpoint(out):
        _forget(old)


def _forget(old: Path | None) -> None:
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _say_how_to_resume(out: Path) -> None:
    saved = _has_checkpoint(out, "last")
    go_on = "resume from its last checkpoint" if saved else "start over: there is no checkpoint yet"
    print(
        f"The run is kept in {out}: the same command with --resume will {go_on}.", file=sys.stderr
    )


def _say_what_is_back(out: Path) -> None:
    print(
        f"{out} holds the run before again: the new one ended before its first checkpoint.",
        file=sys.stderr,
    )
