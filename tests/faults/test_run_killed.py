"""The folder of a run that replaces another one: the old or the new run is there, each whole."""

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import OutputExists
from penstock.formats import Format
from penstock.pipelines.flow.previous import copy_output
from penstock.run_output import RunOutput

FORMAT = Format("test-run", 1, "run.json", "run", make="Make one", restore="Restore it")


def train(out, which, *, overwrite=False, fails=False):
    identity = {"job": "train", "options": {"which": which}}
    run = RunOutput(out, kind="run", identity=identity, overwrite=overwrite)
    with run.open():
        run.begin(FORMAT, {})
        (run.result / "which").write_text(which)
        if fails:
            raise OSError("a cable")
        (run.result / "checkpoints").mkdir()
        (run.result / "checkpoints/last.npy").touch()
        run.finish()


def killed_before(step, work):
    """Do the work in a process that is killed before its nth change of a folder; whether it was."""
    if (child := os.fork()) == 0:
        try:
            os.close(2)
            left = [step]

            def killing(change):
                def changed(*given, **named):
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return change(*given, **named)

                return changed

            for name in ("rename", "replace", "mkdir"):
                setattr(Path, name, killing(getattr(Path, name)))
            shutil.rmtree = killing(shutil.rmtree)
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of threads and fork
@pytest.mark.parametrize("fails", [False, True])
def test_a_kill_at_any_step_leaves_the_old_run_or_the_new_one(tmp_path, *, fails):
    train(tmp_path / "0", "old")
    for step in range(1, 20):
        out = shutil.copytree(tmp_path / "0", tmp_path / str(step) / "run")
        killed = killed_before(step, partial(train, out, "new", overwrite=True, fails=fails))
        found = (out / "which").read_text()
        assert found in ("old", "old" if fails else "new")
        assert json.loads((out / "run.json").read_text())["state"] == "done"
        with pytest.raises(OutputExists):
            train(out, "another")
        assert (out / "which").read_text() == found
        train(out, "another", overwrite=True)
        assert (out / "which").read_text() == "another"
        assert os.listdir(out.parent) == ["run"]
        if not killed:
            break
    assert step > 4
    assert not killed
    assert found == ("old" if fails else "new")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_copy_of_an_output_is_whole_or_not_there(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "file").write_text(name)
    copy = tmp_path / "previous/v"

    def whole():
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
