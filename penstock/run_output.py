"""An output that exists while it is made: the folder of a run of training.

run.json       what is trained, its state and identity, and the report once it is done
metrics.jsonl  a line per epoch
checkpoints/   files of ranks, each complete: ``--resume`` continues from ``last``
.NAME.old      next to it: the run that it replaces, until this one has a checkpoint and has ended
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.errors import CapacityError, OutputExists
from penstock.files import remove, remove_temporaries
from penstock.formats import Format
from penstock.output import IDENTITY, Output, aside, put_aside, refuse_existing
from penstock.output_lock import output_lock
from penstock.system_errors import full_disk_explained

KIND = "run"
FILE = f"{KIND}.json"


class RunState(StrEnum):
    """The state of a run of training, in its run.json."""

    TRAINING = "training"  # or it was killed
    INTERRUPTED = "interrupted"
    DONE = "done"
    DIVERGED = "diverged"


class RunOutput(Output):
    """A run of training, which can be read and followed from its first epoch on.

    before  what run.json holds of the run that is resumed; None: it begins anew
    """

    before: dict[str, Any] | None = None
    _anew = "replace it with --overwrite"
    _begun = False  # whether the folder is that of this run

    def __init__(self, path: Path, **more: Any) -> None:
        super().__init__(path, **more)
        self.home = self.result = self.path
        self.scratch = self.path / "scratch"
        self.before = self._interrupted()

    @property
    def _record_file(self) -> Path:
        return self.path / FILE

    @property
    def resumes(self) -> bool:
        """Whether there is a run, which ``resume`` continues."""
        return self.before is not None

    def _interrupted(self) -> dict[str, Any] | None:
        """Return the run.json of a run to resume; ``overwrite`` replaces another one."""
        if not self.resume or not self._record_file.is_file():
            return None
        return None if self.overwrite and self._is_another() else self._record()

    @property
    def finished(self) -> dict[str, Any] | None:
        """What run.json holds of a run that is done and has this identity."""
        found = self._record()
        done = found.get("state") == RunState.DONE and found.get(IDENTITY) == self.identity
        return found if done and self.has_checkpoint else None

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to evaluate, or to resume from."""
        return any(any((self.path / "checkpoints").glob(f"{name}.*")) for name in ("last", "best"))

    def refuse_taken(self) -> None:
        """Raise if there is a run that is neither resumed nor replaced, or something else."""
        if self.resumes:
            self._refuse_another()
            return
        refuse_existing(self.named, overwrite=True, kind=KIND)
        if not self._record_file.is_file():
            return
        go_on = "Resume it with --resume, replace it with --overwrite, or name another output"
        found = self._record().get(IDENTITY)
        job = found.get("job") if isinstance(found, dict) else None
        if self._record() and self.identity is not None and job != self.identity["job"]:
            raise OutputExists(
                f"{self.named} is not a run of {self.command}", remedy="Name another output"
            )
        if not self.overwrite:
            raise OutputExists(f"{self.named} holds a run", remedy=go_on)

    @contextmanager
    def open(self) -> Iterator[Output]:
        """Lock it; keep the run however the block ends, if it has begun."""
        with output_lock(self.path, command=self.command):
            self._recover()
            self.before = self._interrupted()
            self.refuse_taken()
            try:
                with full_disk_explained(self.path):
                    yield self
            except BaseException:
                self._leave()
                raise
            self._recover()

    def begin(self, manifest: Format, body: dict[str, Any]) -> None:
        """Give the run its final name from now on; one that it replaces waits aside.

        body  what run.json holds besides state and identity
        """
        self._begun = True
        if self.before is None and self._record_file.is_file():
            put_aside(self.path)
        self.path.mkdir(exist_ok=True)
        self.describe(manifest, body)
        self._save(RunState.TRAINING)

    def diverge(self) -> None:
        """Note that the loss is no longer a number."""
        self._save(RunState.DIVERGED)

    def finish(self, **more: Any) -> None:
        """Note that the run is done."""
        self._save(RunState.DONE, **more)

    def _save(self, state: RunState, **more: Any) -> None:
        manifest, body = self._about
        manifest.save(self.path, {**body, **more, "state": state, IDENTITY: self.identity})

    def tidy(self) -> None:
        """Remove the run that a finished one has replaced."""
        with suppress(OutputExists), output_lock(self.path, command=self.command):
            self._recover()

    def _recover(self) -> None:
        """Restore the run that one without a checkpoint was to replace, or remove it.

        Never in the place of something else than a run.
        """
        old, half = aside(self.path), self.path.with_name(f".{self.path.name}.partial")
        if old.is_dir() and self.has_checkpoint:
            remove(old)
        elif (old / FILE).is_file() and not self._is_something_else():
            if self.path.exists():
                self.path.rename(half)
            old.rename(self.path)
        remove(half)
        for folder in (self.path, self.path / "checkpoints"):  # what a kill leaves half-written
            remove_temporaries(folder)

    def _is_something_else(self) -> bool:
        if not self.path.is_dir() or self._record_file.is_file():
            return self.path.is_file()
        return any(not path.name.startswith(".") for path in self.path.iterdir())

    def _leave(self) -> None:
        """Keep what can be resumed, and print a message."""
        if not self._begun:
            return
        replaced = not self.has_checkpoint and (aside(self.path) / FILE).is_file()
        self._recover()
        metrics, state = self.path / "metrics.jsonl", self._record().get("state")
        if replaced:
            print(
                f"{self.path} holds the run before again: the new one has no checkpoint",
                file=sys.stderr,
            )
        elif state == RunState.TRAINING and (
            self.before is not None
            or self.has_checkpoint
            or (metrics.is_file() and metrics.stat().st_size)
        ):
            with suppress(OSError, CapacityError):  # a full disk; it says "training" then
                self._save(RunState.INTERRUPTED)
            print(
                f"The run is kept in {self.path}: the same command with --resume resumes from its "
                "last checkpoint, or starts over if there is none.",
                file=sys.stderr,
            )
        elif state == RunState.TRAINING:
            shutil.rmtree(self.path, ignore_errors=True)
