"""The folder of a run that replaces another one: the more valuable one exists after a kill."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import OutputExists
from penstock.formats import Format
from penstock.pipelines.flow.previous import copy_output
from penstock.run_output import RunOutput

FORMAT = Format("test-run", 1, "run.json", "run", make="Make one", restore="Restore it")


def train(out: Path, which: str, *, overwrite: bool = False, fails: bool = False) -> None:
    identity = {"job": "train", "options": {"which": which}}
    run = RunOutput(out, kind="run", identity=identity, overwrite=overwrite)
    with run.open():
        run.begin(FORMAT, {})
        (run.path / "which").write_text(which)
        if fails:
            raise OSError("a cable")
        (run.path / "checkpoints").mkdir()
        (run.path / "checkpoints/last.npy").touch()
        run.finish()


def killed_before(step: int, work: Callable[[], None]) -> bool:
    """Do the work in a process that is killed before its nth change of a folder; whether it was."""
    if (child := os.fork()) == 0:
        try:
            os.close(2)
            left = [step]

            def killing(change: Callable[..., Any]) -> Callable[..., Any]:
                def changed(*given: Any, **named: Any) -> Any:
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return change(*given, **named)

                return changed

            for name in ("rename", "replace", "mkdir"):
                setattr(Path, name, killing(getattr(Path, name)))
            shutil.rmtree = killing(shutil.rmtree)  # type: ignore[assignment]
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of threads and fork
@pytest.mark.parametrize("fails", [False, True])
def test_a_kill_at_any_step_leaves_the_old_run_or_one_with_a_checkpoint(
    tmp_path: Path, *, fails: bool
) -> None:
    train(tmp_path / "0", "old")
    for step in range(1, 20):
        out = shutil.copytree(tmp_path / "0", tmp_path / str(step) / "run")
        killed = killed_before(step, partial(train, out, "new", overwrite=True, fails=fails))
        new = any(out.glob("checkpoints/last*")) and (out / "which").read_text() == "new"
        with pytest.raises(OutputExists):
            train(out, "another")
        assert (out / "which").read_text() == ("new" if new else "old")
        assert os.listdir(out.parent) == ["run"]
        if not killed:
            break
    assert step > 4
    assert not killed
    assert new != fails


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_copy_of_an_output_is_whole_or_not_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "file").write_text(name)
    copy = tmp_path / "previous/v"

    def whole() -> bool:
        return [(copy / name / "file").read_text() for name in ("a", "b")] == ["a", "b"]

    for step in range(1, 20):
        killed = killed_before(step, lambda: copy_output(tmp_path / "out", copy))
        assert not copy.exists() or whole()
        if not killed:
            break
        copy_output(tmp_path / "out", copy)
        assert whole()
        assert os.listdir(copy.parent) == ["v"]
    assert step > 2
    assert not killed
