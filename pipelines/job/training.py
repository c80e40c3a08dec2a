"""The common content of every training run's run.json, and functions of plans and resumed runs."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import InputError, PenstockError, UsageError
from penstock.formats import Content, Format
from penstock.run_output import FILE, RunState
from penstock.sizes import plural
from penstock.workers.training.checkpoint import BEST, LAST


def run_format(job: str) -> Format:
    """Return the format of the run.json of ``penstock JOB train``."""
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
class TrainingRun(Content):
    """The common content of every training run's run.json, besides identity and report."""

    graph: str
    graph_sha256: str
    _: KW_ONLY
    state: RunState = RunState.TRAINING
    options: dict[str, Any] | None = None

    def checkpoint(self, folder: Path, which: str) -> Path:
        """Return the path of an existing checkpoint, best or last."""
        path = folder / {"best": BEST, "last": LAST}[which]
        if not path.is_file():
            diverged = self.state is RunState.DIVERGED
            how = "--overwrite and a lower --lr" if diverged else "--resume"
            raise InputError(
                f"{folder} has no {which} checkpoint yet",
                expected=f"{path.relative_to(folder)}",
                got=f"a run that is {self.state}",
                remedy=f"Train again with {how}, or use --checkpoint last",
            )
        return path


def refuse_fewer(out: Path, done: int, epochs: int) -> None:
    """Raise if a run that is resumed has trained more epochs than requested."""
    if done > epochs:
        raise UsageError(
            f"{out} has trained {plural(done, 'epoch')}",
            expected=f"--epochs {done:,} or more",
            got=f"{epochs:,}",
            remedy="Train another run with fewer epochs",
        )


def diverged(epochs: int, remedy: str, kept: Path | None) -> PenstockError:
    """Return the error of a training that became NaN or infinite after ``epochs`` epochs.

    kept  the path with the last checkpoint, if any
    """
    if kept is not None:
        remedy += f"; {kept} holds the last good checkpoint"
    what = f"the loss, or what is trained, became NaN or infinite in epoch {epochs + 1}"
    return PenstockError(what, remedy=remedy)


def epochs_text(epochs: int, done: int = 0) -> str:
    """Return how many epochs a plan has, including finished ones."""
    of = plural(epochs, "epoch")
    return f"{done:,} of {of} {'is' if done == 1 else 'are'} done" if done else of
