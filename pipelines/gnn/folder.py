"""The folder of a run, in which the ranks write while they train.

run.json                        model, training, graph, state and results
split.parquet                   training, validation and test nodes
metrics.jsonl, plan.txt         a line per epoch; the plan
checkpoints/{last,best}.safetensors
profile.json                    with --profile

Unlike other outputs it is there from the first epoch on: to watch it, and to resume from.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import (
    CorruptFile,
    NewerVersion,
    OutputExists,
    PenstockError,
    UsageError,
)
from penstock.files import refuse_existing, save_json
from penstock.output_lock import (
    is_own_directory,
    output_lock,
    refuse_link,
    refuse_strangers_link,
)
from penstock.pipelines.gnn.split import DrawnSplit
from penstock.workers.gnn.plan.spec import (
    RESUMABLE,
    Model,
    Training,
    differences,
    make_model,
    make_training,
)

FORMAT = "penstock-gnn"
VERSION = 1
KIND = "run"


@dataclass(frozen=True)
class Run:
    """The content of run.json.

    model     complete: the width of its last layer is what the graph's labels ask for
    task      what is predicted: class, multi or value
    features  how many a node has; feature_names: their names, where the graph has them
    classes   their names, where the graph has them
    split     what --split drew; None: the graph's own split
    parts     into how many parts the graph was cut, last time
    state     training, interrupted or done
    results   what Trained holds, once it is done
    """

    graph: str
    graph_sha256: str
    model: Model
    training: Training
    task: str
    features: int
    classes: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    split: DrawnSplit | None = None
    parts: int = 1
    state: str = "training"
    options: dict[str, Any] | None = None
    results: dict[str, Any] | None = None

    def save(self, folder: Path) -> None:
        """Write ``folder/run.json``."""
        body = {**asdict(self), "model": self.model.to_dict()}
        save_json(folder / f"{KIND}.json", {"format": FORMAT, "version": VERSION, **body})

    @staticmethod
    def load(folder: Path) -> Run:
        """Read ``folder/run.json``, or say why it is not a run of ours."""
        path = folder / f"{KIND}.json"
        if not path.is_file():
            raise UsageError(
                f"{folder} is not a run",
                expected=f"a directory with {path.name}",
                got="no such file in it" if folder.is_dir() else "no such directory",
                remedy="Make one with penstock gnn train GRAPH RUN",
            )
        try:
            body = parse_json(path.read_bytes())
            if not isinstance(body, dict) or body.get("format") != FORMAT:
                raise UsageError(f"{path} was not written by penstock gnn train")
            if body["version"] > VERSION:
                raise NewerVersion(
                    f"{path} was written by a later penstock",
                    expected=f"version {VERSION} or older",
                    got=f"version {body['version']}",
                    remedy="Upgrade with pip install -U penstock",
                )
            body = {name: body[name] for name in Run.__dataclass_fields__ if name in body}
            body["model"] = make_model(body["model"], where=f"{path}: model")
            body["training"] = make_training(body["training"])
            for name in ("classes", "feature_names"):
                body[name] = None if body.get(name) is None else tuple(body[name])
            body["split"] = DrawnSplit.of(body.get("split"))
            return Run(**body)
        except PenstockError:
            raise
        except Exception as error:  # JSON's, pydantic's, or of a key that is not there
            raise CorruptFile(
                f"{path} is damaged",
                expected="what penstock gnn train writes",
                got=f"{type(error).__name__}: {error}",
                remedy="Restore the file or train again with --overwrite",
            ) from error

    def checkpoint(self, folder: Path, which: str) -> Path:
        """Return a file of weights, which is there."""
        path = folder / "checkpoints" / f"{which}.safetensors"
        if not path.is_file():
            raise UsageError(
                f"{folder} has no weights yet",
                expected=f"{path.relative_to(folder)}",
                got=f"a run that is {self.state}",
                remedy="Train first, or resume with --resume, or take --checkpoint last",
            )
        return path


@contextmanager
def run_folder(out: Path, run: Run, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Give the folder of a run to train in; it is kept however the block ends, bad input aside.

    An existing run is resumed with ``resume`` if it is the same. With ``overwrite`` it is moved
    aside, and removed once the new one has done an epoch.
    """
    # Through symbolic links, to the disk that the run will really stand on.
    refuse_strangers_link(out)
    out = out.resolve()
    with output_lock(out, command="penstock gnn train"):
        _recover(out)
        there = (out / f"{KIND}.json").is_file()
        if there and resume:
            _refuse_another(out, Run.load(out), run)
        elif there and not overwrite:
            _refuse_run(out)
        else:
            refuse_existing(out, overwrite=overwrite, kind=KIND)
        old = None if resume and there else _put_aside(out)
        before = (out / f"{KIND}.json").read_text() if resume and there else None
        out.mkdir(exist_ok=True)
        refuse_link(out / "checkpoints")
        run.save(out)
        try:
            yield out
        except BaseException as error:
            if before is not None and isinstance(error, PenstockError) and error.exit_code == 2:
                save_json(out / f"{KIND}.json", parse_json(before))
            elif before is None and not _has_begun(out):
                shutil.rmtree(out, ignore_errors=True)
                if old is not None:
                    old.rename(out)
            else:
                with suppress(OSError):  # a full disk; run.json says "training" then
                    replace(Run.load(out), state="interrupted").save(out)
                _forget(old)
                _say_how_to_resume(out)
            raise
        _forget(old)


def _has_begun(out: Path) -> bool:
    metrics = out / "metrics.jsonl"
    return metrics.is_file() and metrics.stat().st_size > 0


def _refuse_run(out: Path) -> None:
    state = Run.load(out).state
    stands = {"done": "a finished run", "diverged": "a run whose loss became NaN"}.get(
        state, "an interrupted run"
    )
    more = " and more --epochs" if state == "done" else ""
    raise OutputExists(
        f"{out} holds {stands}",
        remedy=f"Resume it with --resume{more}, replace it with --overwrite, or name another",
    )


def _refuse_another(out: Path, old: Run, new: Run) -> None:
    """Raise where a run cannot be resumed as ``new``."""
    found = differences(new.model.to_dict(), old.model.to_dict(), "run")
    ours, theirs = (
        {name: value for name, value in asdict(run.training).items() if name not in RESUMABLE}
        for run in (new, old)
    )
    if new.training.schedule == "cosine":
        ours["epochs"], theirs["epochs"] = new.training.epochs, old.training.epochs
    found += differences(ours, theirs, "run")
    drawn, kept = (run.split.declared if run.split else "the graph's" for run in (new, old))
    found += differences({"split": drawn}, {"split": kept}, "run")
    if new.graph_sha256 != old.graph_sha256:
        changed = f"{new.graph} has changed"
        other = f"{new.graph}, in the run {old.graph}"
        found.append(f"the graph: {changed if new.graph == old.graph else other}")
    if found:
        raise UsageError(
            f"the run in {out} is another one",
            expected="the same model, training and graph",
            got="; ".join(found),
            remedy="Repeat its command with --resume, or replace it with --overwrite",
        )


def _put_aside(out: Path) -> Path | None:
    """Move a run out of the way, and return where to."""
    if not out.exists() or not any(out.iterdir()):
        return None
    old = out.with_name(f".{out.name}.old")
    refuse_link(old)
    shutil.rmtree(old, ignore_errors=True)
    return out.rename(old)


def _recover(out: Path) -> None:
    """Put back the run that a killed one had moved aside, and had not yet replaced.

    Only what is this user's run, and never in the place of something else than a run.
    """
    old = out.with_name(f".{out.name}.old")
    if out.is_dir() and not (out / f"{KIND}.json").is_file():
        replaced = all(path.name.startswith(".") for path in out.iterdir())
    else:
        replaced = not out.is_file()
    ours = is_own_directory(old) and (old / f"{KIND}.json").is_file()
    if ours and replaced and not _has_begun(out):
        shutil.rmtree(out, ignore_errors=True)
        old.rename(out)


def _forget(old: Path | None) -> None:
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _say_how_to_resume(out: Path) -> None:
    saved = (out / "checkpoints/last.safetensors").is_file()
    go_on = "resume from its last checkpoint" if saved else "start over: there is no checkpoint yet"
    print(
        f"The run is kept in {out}: the same command with --resume will {go_on}.", file=sys.stderr
    )
