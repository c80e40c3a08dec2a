"""What run.json holds of every run of training, and what plans and resumed runs have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from penstock.errors import InputError, UsageError
from penstock.formats import Format
from penstock.run_output import FILE, RunState
from penstock.sizes import plural


def run_format(job: str) -> Format:
    """Return the format of what run.json holds of ``penstock JOB train``."""
    return Format(
        name=f"penstock-{job}",
        version=1,
        file=FILE,
        thing=f"run of penstock {job}",
        make=f"Make one with penstock {job} train GRAPH RUN",
        restore="Restore the file or train again with --overwrite",
        absent=InputError,
        foreign=InputError,
    )


@dataclass(frozen=True)
class TrainingRun(ABC):
    """What run.json holds of every run of training, besides its identity and its report."""

    format: ClassVar[Format]
    graph: str
    graph_sha256: str
    _: KW_ONLY
    state: RunState = RunState.TRAINING
    options: dict[str, Any] | None = None

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
            if body.get("state") not in [*RunState]:
                raise ValueError(f"{body.get('state')!r} for state")
            known["state"] = RunState(body["state"])
            try:
                return cls.read(known)
            except UsageError as error:  # of an option that the model or the training has
                raise cls.format.damaged(
                    folder, error.what, expected=error.expected, got=error.got
                ) from error

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read ``folder/run.json``, or say why it is not a run of ours."""
        return cls.of(cls.format.load(folder), folder)


def refuse_fewer(out: Path, done: int, epochs: int) -> None:
    """Raise where a run that is resumed has trained more epochs than are asked for."""
    if done > epochs:
        raise UsageError(
            f"{out} has trained {plural(done, 'epoch')}",
            expected=f"--epochs {done:,} or more",
            got=f"{epochs:,}",
            remedy="Train another run for fewer",
        )


def epochs_text(epochs: int, done: int = 0) -> str:
    """Return how many epochs a plan has, of which some may be done."""
    of = plural(epochs, "epoch")
    return f"{done:,} of {of} {'is' if done == 1 else 'are'} done" if done else of
