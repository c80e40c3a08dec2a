"""An output that is readable while it is made: the folder of a training run.

run.json       the model and options, state and identity, and the report once it is done
metrics.jsonl  a line per epoch
checkpoints/   files of ranks, each complete: ``--resume`` continues from ``last``

A run that replaces another one is hidden until it is done, like every other output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.documents import read_record
from penstock.errors import CapacityError, OutputExists
from penstock.files import remove, remove_temporaries
from penstock.formats import Format
from penstock.output import IDENTITY, Output, publish, recover, refuse_existing
from penstock.output_lock import output_lock
from penstock.system_errors import full_disk_explained

KIND = "run"
FILE = f"{KIND}.json"


class RunState(StrEnum):
    """The state of a training run, in its run.json."""

    TRAINING = "training"  # or it was killed
    INTERRUPTED = "interrupted"
    DONE = "done"
    DIVERGED = "diverged"


class RunOutput(Output):
    """A training run, which can be read and followed from its first epoch on.

    result  its folder: ``path``, or beside it if it replaces a run
    before  run.json of the resumed run; None: it starts anew
    """

    before: dict[str, Any] | None = None
    _anew = "replace it with --overwrite"
    _begun = False  # whether the folder belongs to this run

    def __init__(self, path: Path, **more: Any) -> None:
        super().__init__(path, **more)
        self._hidden = self.home
        self._choose()

    def _choose(self) -> None:
        """Choose the run's folder, and the run to resume."""
        self.home = self.path
        is_run = self._record_file.is_file()
        if is_run and self.overwrite and not (self.resume and not self._is_another()):
            self.home = self._hidden
        self.result, self.scratch, self.before = self.home, self.home / "scratch", None
        goes_on = self.resume and self._record_file.is_file()
        if goes_on and not (self.overwrite and self._is_another()):
            self.before = self._record()

    @property
    def _record_file(self) -> Path:
        return self.home / FILE

    @property
    def resumes(self) -> bool:
        """Whether ``resume`` continues an existing run."""
        return self.before is not None

    @property
    def finished(self) -> dict[str, Any] | None:
        """run.json of a run that is done and has this identity."""
        found = read_record(self.path / FILE)
        done = found.get("state") == RunState.DONE and found.get(IDENTITY) == self.identity
        return found if done and _has_checkpoint(self.path) else None

    @property
    def has_checkpoint(self) -> bool:
        """Whether a checkpoint exists to evaluate or resume."""
        return _has_checkpoint(self.result)

    def refuse_taken(self) -> None:
        """Raise if an existing run is neither resumed nor replaced, or the path is not a run."""
        if self.resumes:
            self._refuse_another()
            return
        refuse_existing(self.named, overwrite=True, kind=KIND)
        if not (self.path / FILE).is_file():
            return
        go_on = "Resume it with --resume, replace it with --overwrite, or name another output"
        standing = read_record(self.path / FILE)
        found = standing.get(IDENTITY)
        job = found.get("job") if isinstance(found, dict) else None
        if standing and self.identity is not None and job != self.identity["job"]:
            raise OutputExists(
                f"{self.named} is not a run of {self.command}", remedy="Name another output"
            )
        if not self.overwrite:
            raise OutputExists(f"{self.named} holds a run", remedy=go_on)

    @contextmanager
    def open(self) -> Iterator[Output]:
        """Lock it; keep the run if it has begun, even if the block fails."""
        with output_lock(self.path, command=self.command):
            recover(self.path, kind=KIND)
            self._choose()
            self.refuse_taken()
            self._remove_temporaries()
            try:
                with full_disk_explained(self.path):
                    yield self
            except BaseException:
                self._leave()
                raise
            self._remove_temporaries()
            if self.result != self.path:
                publish(self.result, self.path, kind=KIND)
            remove(self._hidden)

    def begin(self, manifest: Format, body: dict[str, Any]) -> None:
        """Create the folder, or use that of the resumed run.

        body  content of run.json besides state and identity
        """
        self._begun = True
        if self.before is None:
            remove(self._hidden)
        self.result.mkdir(exist_ok=True)
        self.describe(manifest, body)
        self._save(RunState.TRAINING)

    def diverge(self) -> None:
        """Record that the loss is not finite."""
        self._save(RunState.DIVERGED)

    def finish(self, **more: Any) -> None:
        """Record that the run is done."""
        self._save(RunState.DONE, **more)

    def _save(self, state: RunState, **more: Any) -> None:
        manifest, body = self._about
        manifest.save(self.result, {**body, **more, "state": state, IDENTITY: self.identity})

    def _remove_temporaries(self) -> None:
        """Remove files that a killed command or rank left half-written."""
        for folder in (self.result, self.result / "checkpoints"):
            remove_temporaries(folder)

    def tidy(self) -> None:
        """Remove the replacement of a run that is finished."""
        with suppress(OutputExists), output_lock(self.path, command=self.command):
            recover(self.path, kind=KIND)
            remove(self._hidden)

    def _leave(self) -> None:
        """Keep a run that can be resumed, and print a message."""
        if not self._begun:
            return
        metrics, replaces = self.result / "metrics.jsonl", self.result != self.path
        kept = self.before is not None or self.has_checkpoint
        if not replaces:
            kept = kept or (metrics.is_file() and metrics.stat().st_size > 0)
        if self._record().get("state") == RunState.TRAINING:
            if not kept:
                remove(self.result)
                return
            with suppress(OSError, CapacityError):  # a full disk; the state stays "training"
                self._save(RunState.INTERRUPTED)
            both = "--resume and --overwrite go" if replaces else "--resume goes"
            print(
                f"The run is kept in {self.result}: the same command with {both} on from its "
                "last checkpoint, or over if there is none.",
                file=sys.stderr,
            )
        elif replaces and not kept:
            remove(self.result)
        if replaces:
            print(f"{self.path} holds the previous run.", file=sys.stderr)


def _has_checkpoint(run: Path) -> bool:
    return any(any((run / "checkpoints").glob(f"{name}.*")) for name in ("last", "best"))
