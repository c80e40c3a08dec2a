"""The one training loop: epochs, validation, patience, checkpoints, resume, metrics.

    ended = Loop(trainer, training, folder, evaluate_every=5).run()

Every rank runs it with its own trainer, and all make the same decisions: losses and scores are
those of all ranks, and rank 0's clock counts.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.files import append_text, save_text
from penstock.workers.training.stopped import Stopped

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.workers.comm.single import AnyCommunicator


_LOOK = 0.2  # seconds between checks of the ranks whether a checkpoint is due, about
_MOST_SKIPPED = 1000  # steps between these checks


@dataclass
class Position:
    """The position of a training run, which a checkpoint holds; only the loop changes it.

    epoch        finished epochs; step: the finished part of the next one, in the trainer's unit
    best_epoch   the one with the best score; 0: none was evaluated
    best         its score; None: NaN
    scores       the trainer's figures of it
    bad          evaluations since then without a better score
    """

    epoch: int = 0
    step: int = 0
    best_epoch: int = 0
    best: float | None = None
    scores: dict[str, Any] | None = None
    bad: int = 0

    @classmethod
    def of(cls, about: dict[str, Any]) -> Position:
        """Return a checkpoint's position."""
        return cls(**{each.name: about[each.name] for each in fields(cls)})


class Step(NamedTuple):
    """Progress of a trainer.

    loss   of this epoch so far; NaN or infinity ends the run
    done   of the epoch, as in ``Position.step``; 0: all of it
    whole  whether exactly this is trained, and no more, so that it can be saved and evaluated
    due    whether the trainer needs a checkpoint before it trains more
    """

    loss: float
    done: int
    whole: bool
    due: bool = False


class Evaluation(NamedTuple):
    """The quality of an epoch.

    score   higher is better
    finite  False: trained values are NaN or infinite
    """

    score: float
    scores: dict[str, Any]
    finite: bool = True


class Trainer(ABC):
    """One rank's part of a training, which the loop drives.

    position  of the run: the loop advances it while ``steps`` waits
    """

    comm: AnyCommunicator
    position: Position

    @abstractmethod
    def load(self) -> Position | None:
        """Load the last checkpoint, and return its position; None without one."""

    @abstractmethod
    def steps(self) -> Generator[Step, bool, None]:
        """Train the rest, from the position.

        The loop sends whether it wants a checkpoint: then the next step is whole as soon as
        possible.
        """

    @abstractmethod
    def is_finite(self) -> bool:
        """Return whether all trained values are finite: losses precede the last update."""

    @abstractmethod
    def figures(
        self, evaluated: Evaluation | None, seconds: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the finished epoch's line of metrics, and the figures shown to people.

        seconds  of its training, without evaluations and checkpoints
        """

    @abstractmethod
    def save(self, *, best: bool) -> None:
        """Write a checkpoint of the position.

        best  the current values are the best so far, and were not held
        """

    # Of trainers that evaluate.

    def evaluate(self, epoch: int) -> Evaluation:
        """Evaluate the last trained epoch."""
        raise NotImplementedError

    def hold_best(self) -> bool:
        """Hold the current values as the best until a checkpoint; return False to save at once."""
        raise NotImplementedError


class Ended(NamedTuple):
    """How a training run ended.

    first_epoch  epochs that were finished before
    """

    stopped: Stopped
    first_epoch: int


class Loop:
    """A training run on one rank; rank 0 writes the metrics, one line per epoch.

    training        the options: epochs, and checkpoint_epochs and checkpoint_minutes between
                    checkpoints, of which 0 does not count
    evaluate_every  epochs between evaluations, the last epoch included; 0: no evaluation
    patience        evaluations without a better score before it ends; None: all epochs
    """

    def __init__(
        self,
        trainer: Trainer,
        training: Any,
        folder: Path,
        *,
        evaluate_every: int = 0,
        patience: int | None = None,
    ) -> None:
        self.comm, self.trainer, self.metrics = trainer.comm, trainer, folder / "metrics.jsonl"
        self.training, self.evaluate_every, self.patience = training, evaluate_every, patience
        self._saved_at, self._saved_epoch = time.monotonic(), 0
        self._is_saved = False  # whether the last checkpoint is up to date
        self._seconds = 0.0  # of training, in this epoch
        self._asked_at, self._skip, self._skipped = time.monotonic(), 0, 0  # rank 0's clock, steps

    def run(self) -> Ended:
        """Train the rest, from the last checkpoint."""
        position = self.trainer.load()
        if position is not None:
            self.trainer.position = position
            self._is_saved = True
        position = self.trainer.position
        first = self._saved_epoch = position.epoch
        if self.comm.rank == 0:
            _keep_epochs(self.metrics, first)
        stopped = Stopped.PATIENCE if self._out_of_patience() else self._train()
        if stopped is not Stopped.NAN and not self._is_saved:
            self._save()
        return Ended(stopped, first)

    def _train(self) -> Stopped:
        position = self.trainer.position
        steps, wanted = self.trainer.steps(), False
        step = self._next(steps, None)
        while step is not None:
            if not math.isfinite(step.loss):
                return Stopped.NAN
            self._is_saved = False
            ends = step.done == 0
            wanted = wanted or step.due or self._is_due(position.epoch + ends)
            if wanted and step.whole and not self.trainer.is_finite():
                return Stopped.NAN
            if ends:
                if not self._end_epoch():
                    return Stopped.NAN
            else:
                position.step = step.done
            if wanted and step.whole:
                if not self._is_saved:
                    self._save()
                wanted = False
            if ends and self._out_of_patience():
                return Stopped.PATIENCE
            step = self._next(steps, wanted)
        return Stopped.EPOCHS

    def _next(self, steps: Generator[Step, bool, None], wanted: bool | None) -> Step | None:
        """Return the next step; None after the last one."""
        begun = time.perf_counter()
        try:
            return next(steps) if wanted is None else steps.send(wanted)
        except StopIteration:
            return None
        finally:
            self._seconds += time.perf_counter() - begun

    def _end_epoch(self) -> bool:
        """Evaluate an epoch if due, write its metrics, hold the best; return False if not finite.

        The epoch counts as finished if its values are finite.
        """
        trainer, position, every = self.trainer, self.trainer.position, self.evaluate_every
        epoch, evaluated, better = position.epoch + 1, None, False
        last = epoch == self.training.epochs
        if every and (last or epoch % every == 0):
            evaluated = trainer.evaluate(epoch)
            if not evaluated.finite:
                return False
            score = evaluated.score
            before = -math.inf if position.best is None else position.best
            # A finished run has a best epoch, with any score.
            better = score > before or (last and position.best_epoch == 0)
        position.epoch, position.step = epoch, 0
        if evaluated is not None and better:
            position.best_epoch, position.scores = epoch, evaluated.scores
            position.best, position.bad = evaluated.score, 0
            if not math.isfinite(evaluated.score):
                position.best = None
        elif evaluated is not None and epoch % every == 0:
            position.bad += 1
        line, shown = trainer.figures(evaluated, self._seconds)
        self._seconds = 0.0
        if self.comm.rank == 0:
            append_text(self.metrics, json.dumps({"epoch": epoch, **line}) + "\n")
            self.comm.log(epoch=epoch, **shown)
        if better and not trainer.hold_best():
            self._save(best=True)
        return True

    def _out_of_patience(self) -> bool:
        """Return whether ``patience`` evaluations have passed without a better one."""
        position = self.trainer.position
        if self.patience is None or position.epoch >= self.training.epochs:
            return False
        return position.bad >= self.patience

    def _is_due(self, epoch: int) -> bool:
        """Return whether to write a checkpoint; the end of the run is one reason.

        epoch  number of finished ones
        """
        epochs, minutes = self.training.checkpoint_epochs, self.training.checkpoint_minutes
        if epoch == self.training.epochs or (epochs and epoch - self._saved_epoch >= epochs):
            return True
        if not minutes:
            return False
        if self._skipped < self._skip:
            self._skipped += 1
            return False
        now = time.monotonic()
        late: bool = now - self._saved_at > 60 * minutes
        if self.comm.size > 1:
            # Rank 0's clock counts, and short steps do not compare it each time.
            each = (now - self._asked_at) / (self._skipped + 1)
            skip = 0 if late else min(_LOOK / max(each, 1e-9), _MOST_SKIPPED)
            clock = self.comm.broadcast(np.array([late, skip], np.int64), 0)
            late, self._skip = bool(clock[0]), int(clock[1])
            self._asked_at, self._skipped = now, 0
        return late

    def _save(self, *, best: bool = False) -> None:
        self.trainer.save(best=best)
        self._saved_at, self._saved_epoch = time.monotonic(), self.trainer.position.epoch
        self._is_saved = True


def _keep_epochs(path: Path, epoch: int) -> None:
    """Remove the lines of epochs after this one, which are trained again, and incomplete lines."""
    if not path.is_file():
        return
    kept = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            if float(json.loads(text)["epoch"]) <= epoch:
                kept.append(text + "\n")
    save_text(path, "".join(kept))
