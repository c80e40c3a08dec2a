"""The command line as a shell sees it: help, errors, exit codes, completion."""

import json
import signal
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from penstock.errors import InputError, UsageError
from penstock.options import options
from penstock.pipelines.cli import app, run
from penstock.pipelines.display import Display
from penstock.pipelines.signals import Terminated

COMMANDS = [name for name in app if not name.startswith("-")]


@options
class Steps:
    """Options of a command that only exists here."""

    parts: Annotated[int, Field(gt=0)]
    """how many parts"""
    shape: Literal["round", "square"] = "round"
    """what they look like"""
    shares: tuple[float, float] | None = None
    """two shares that add up to one"""
    tidy: bool = True
    """leave nothing behind"""

    def __post_init__(self) -> None:
        if self.shares is not None and sum(self.shares) != 1:
            raise UsageError("--shares do not add up to one")


@pytest.fixture
def job(monkeypatch):
    """A command ``job`` whose function the test chooses."""
    does = []

    def command(graph: Path, /, *, steps: Steps, output: Display = Display()) -> None:
        """Do a job."""
        for function in does:
            function()

    app.command(command, name="job")
    yield does
    del app["job"]


def fails(job, error):
    def fail():
        raise error

    job.append(fail)


# -- help and version -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_the_common_options(command, capsys):
    assert run([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"penstock {command}" in out.splitlines()[0]
    without = ["generate", "gnn", "word2vec", "vectors", "embed", "runs", "schedule", "schema"]
    if command not in [*without, "cluster", "completion"]:
        for flag in ("--json", "-v, --verbose", "-q, --quiet"):
            assert flag in out


# -- bad usage: exit 2, one paragraph -----------------------------------------------------------


def test_a_bad_value_is_not_shown(job, capsys):
    """It may be a secret."""
    for line in ("job g --parts hunter2", "job g --parts 1 --shares hunter2 1"):
        assert run(line.split()) == 2
        assert "hunter2" not in capsys.readouterr().err


# -- failures: exit 1 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        InputError("row 3 is bad", remedy="Mend it"),
        KeyboardInterrupt(),
        PermissionError(13, "Permission denied", "/x"),
        MemoryError(),
        RuntimeError("two\nlines"),
    ],
)
def test_failures_are_one_paragraph_and_exit_1(job, error, capsys):
    fails(job, error)
    assert run("job g --parts 1".split()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert run("job g --parts 1 --json".split()) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["what"].split("\n")[0] in err


@pytest.mark.parametrize(
    "line",
    [
        # Commands without an output; the others are in tests/faults/test_bad_input.py.
        *("info X", "validate X", "report X", "run X"),
        *("embed evaluate X", "gnn evaluate X", "word2vec evaluate X"),
    ],
)
def test_a_missing_input_is_not_bad_usage(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(line.replace("X", "nowhere").split()) == 1
    assert "nowhere" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- completion -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("signal_seen", "code"), [(True, 143), (False, 1)])
def test_what_fails_after_a_signal_ends_with_its_code(job, signal_seen, code):
    """If a signal interrupts Dask, Dask may fail in any way, and so may the cleanup."""

    def fail():
        try:
            if signal_seen:
                raise Terminated(signal.SIGTERM)
        finally:
            raise UnboundLocalError("cannot access local variable 'result'")

    job.append(fail)
    assert run("job g --parts 1".split()) == code
