"""The command line as a shell sees it: help, errors, exit codes, completion."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

import penstock
from penstock.errors import CorruptFile, InputError, UsageError
from penstock.options import options
from penstock.pipelines import cli
from penstock.pipelines.cli import app, run
from penstock.pipelines.display import Display
from penstock.pipelines.signals import Terminated

COMMANDS = ["demo", "doctor", "etl", "generate", "info", "validate", "partition", "order"]
COMMANDS += ["walk", "gnn", "word2vec", "embed", "centrality", "similar"]
COMMANDS += ["run", "runs", "report", "schedule", "schema"]
COMMANDS += ["cluster", "completion"]


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


def test_help_reads_like_a_table_of_contents(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    entries = [line for line in lines if re.match(r"  [a-z0-9]+  +[A-Z]", line)]
    assert [line.split()[0] for line in entries] == COMMANDS
    columns = {re.match(r"  [a-z0-9]+ +", line).end() for line in entries}
    assert len(columns) <= 5, "one column a group"
    assert max(map(len, lines)) <= 80
    assert run([]) == 0
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_the_common_options(command, capsys):
    assert run([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: penstock {command}")
    without = ["generate", "gnn", "word2vec", "embed", "runs", "schedule", "schema"]
    if command not in [*without, "cluster", "completion"]:
        for flag in ("--json", "-v, --verbose", "-q, --quiet"):
            assert flag in out


def flags_of_commands(of=app, path=""):
    """Yield every command with the flags that it takes."""
    for name in of:
        if not name.startswith("-"):
            one, here = of[name], f"{path}{name}"
            if one.default_command is None:
                yield from flags_of_commands(one, f"{here} ")
            else:
                arguments = one.assemble_argument_collection()
                yield here, {flag for each in arguments for flag in each.names}


def test_every_command_that_runs_on_a_cluster_has_a_plan():
    """Those that examine or start a cluster aside, and the plan itself; docs/tuning.md says so."""
    flags = dict(flags_of_commands())
    on_cluster = {name for name, of in flags.items() if of & {"--cluster", "--kind"}}
    with_plan = {name for name, of in flags.items() if "--plan" in of}
    assert {"etl", "walk", "gnn train", "embed predict", "similar"} <= on_cluster & with_plan
    no_jobs = {"doctor", "cluster start", "cluster script", "gnn plan"}
    assert on_cluster - with_plan == no_jobs
    kinds = {f"generate {kind}" for kind in ("rmat", "sbm", "kg", "zoo")}
    here = {"partition", "embed export", "word2vec evaluate", "word2vec export", "run"}
    assert with_plan - on_cluster == {*kinds, *here}


# What does the same from Python, as ``penstock`` hands it out.
FROM_PYTHON = {
    **{
        name: name for name in ("etl", "info", "validate", "order", "walk", "centrality", "similar")
    },
    **{f"generate {kind}": "generate" for kind in ("rmat", "sbm", "kg", "zoo")},
    **{f"gnn {verb}": f"gnn.{verb}" for verb in ("train", "predict", "evaluate", "plan")},
    **{f"embed {verb}": f"embed.{verb}" for verb in ("train", "predict", "evaluate", "export")},
    "partition": "partition_graph",
    "word2vec train": "word2vec",
    "word2vec evaluate": "evaluate_vectors",
    "word2vec export": "export_vectors",
    "run": "run_flow",
}
# Why others have no such name.
SHELL_ONLY = {
    "demo": "a first look, which shows commands",
    "doctor": "what it finds may keep penstock from being imported where it is to run",
    "runs list": "runs are folders with a run.json",
    "runs show": "the same",
    "runs serve": "it serves until it is stopped",
    "runs clean": "it removes such folders",
    "report": "a page to look at: run.json has what it shows",
    "schedule": "it runs until it is stopped, or prints a file",
    "schema": "it prints a file",
    "cluster start": "it stays when the command ends; connect is for a cluster of a block",
    "cluster status": "a client of Dask knows more",
    "cluster stop": "it ends what cluster start has started",
    "cluster script": "it prints a file",
    "completion": "it is for shells",
}


def test_every_command_has_a_public_name_in_python_or_a_reason():
    commands = dict(flags_of_commands())
    assert FROM_PYTHON.keys() | SHELL_ONLY.keys() == commands.keys()
    assert not FROM_PYTHON.keys() & SHELL_ONLY.keys()
    for name in FROM_PYTHON.values():
        first, *rest = name.split(".")
        assert first in penstock.__all__
        value = getattr(penstock, first)
        assert callable(value) if not rest else rest[0] in value.__all__, name


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        (
            "etl",
            "Reading, Edges, Filtering and numbering of nodes, Splits, Node table and features, "
            "Display, Options, Where it runs",
        ),
        (
            "walk",
            "Walks, Start nodes, Applications, Steps, Computation, Display, Options, Where it runs",
        ),
        ("centrality", "Metrics, Samples, Input, Computation, Display, Options, Where it runs"),
        ("gnn train", "Model, Training, Computation, Options, Where it runs"),
        ("partition", "Options"),
        ("cluster stop", "Options"),
        ("generate rmat", "Options"),
    ],
)
def test_options_stand_under_headings(command, headings, capsys):
    assert run([*command.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert [title for title in found if title != "Arguments"] == headings.split(", ")


def test_help_of_options_shows_choices_and_defaults(job, capsys):
    assert run(["job", "--help"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"--parts INT +how many parts \[required\]", out)
    assert re.search(r"\[round, square\]\s+\[default:\s+round\]", out)
    assert "--tidy, --no-tidy" in out
    assert "--no-json" not in out
    assert "--empty-shares" not in out


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == penstock.__version__


def test_python_m_penstock(tmp_path):
    command = [sys.executable, "-m", "penstock", "--version"]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == penstock.__version__


def test_a_terminal_in_ascii(tmp_path):
    assert run(["generate", "sbm", str(tmp_path / "g"), "--nodes", "50", "-q"]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "info", "g"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "50" in done.stdout


# -- bad usage: exit 2, one paragraph -----------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nosuch", "penstock has no command 'nosuch'. Expected one of demo, doctor, etl"),
        ("ifno", "Did you mean info?"),
        ("generate rmatt", "penstock generate has no command 'rmatt'. Expected one of rmat"),
        ("info", "penstock info needs GRAPH. Expected a graph's directory. See penstock info --he"),
        ("info a b", "penstock info does not know what to do with 'b'. See penstock info --help."),
        ("info --colour a", "penstock info has no option --colour. See penstock info --help."),
        (
            "etl e g --nodes u --feature-columns age posts more --label l",
            "with 'more'. Repeat the option: --feature-columns age --feature-columns more.",
        ),
        ("walk g w --start a b", "with 'b'. Repeat the option: --start a --start b."),
        ("info a --jsn", "penstock info has no option --jsn. Did you mean --json?"),
        ("info a --quiet=3", "option --quiet has a bad value. Expected yes or no, got '3'."),
        ("info a --quiet --quiet", "option --quiet is given twice."),
        ("completion", "penstock completion needs SHELL."),
        ("completion bsh", "Expected one of bash, zsh, fish, got 'bsh'. Did you mean bash?"),
        ("job g", "penstock job needs option --parts."),
        ("job g --parts", "option --parts needs a value."),
        ("job g --parts 0", "option --parts has a bad value. Expected a value greater than 0, got"),
        ("job g --parts x", "option --parts has a bad value. Expected a whole number, got 'x'."),
        ("job g --parts 1 --shape rund", "--shape has a bad value. Expected 'round' or 'square'"),
        ("job g --parts 1 --shares 1", "option --shares needs 2 values."),
        ("job g --parts 1 --shares 1 1", "--shares do not add up to one."),
    ],
)
def test_bad_usage_is_one_paragraph_and_exit_2(job, line, message, capsys):
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("penstock: ")
    assert message in err
    assert err.count("\n") == 1
    assert run([*line.split(), "-v"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert run([*line.split(), "--json"]) == 2


def test_bad_usage_as_json(capsys):
    assert run(["info", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == "UsageError"
    assert json.loads(out)["what"] == "penstock info needs GRAPH"
    assert err.startswith("penstock: penstock info needs GRAPH")


# -- failures: exit 1 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("row 3 is bad", remedy="Mend it"), "row 3 is bad. Mend it."),
        (KeyboardInterrupt(), "interrupted. Nothing half-written"),
        (PermissionError(13, "Permission denied", "/x"), "cannot use /x. Got Permission denied."),
        (MemoryError(), "memory ran out."),
        (RuntimeError("two\nlines"), "failed unexpectedly: RuntimeError: two lines. This is a bug"),
    ],
)
def test_failures_are_one_paragraph_and_exit_1(job, error, message, capsys):
    fails(job, error)
    assert run("job g --parts 1".split()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert run("job g --parts 1 --json".split()) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["what"].split("\n")[0] in err


def test_the_traceback_comes_with_v(job, capsys):
    fails(job, InputError("row 3 is bad"))
    assert run("job g --parts 1 -v".split()) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "in fail" in err
    assert err.splitlines()[-1] == "penstock: row 3 is bad."


def test_a_reader_that_leaves_is_no_failure_worth_a_message(make_graph):
    graph = make_graph()
    code = "import sys; from penstock.pipelines.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "info", str(graph.path)],
        cwd=graph.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert err == b""
    assert process.returncode == 1


def test_main_exits_with_the_code(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["penstock", "nosuch"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2


def test_quiet_prints_no_result(make_graph, capsys):
    assert run(["info", str(make_graph().path), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


# -- completion -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def completion():
    """What completion prints, which takes a second: once for each shell."""

    @cache
    def script(shell):
        printed = io.StringIO()
        with redirect_stdout(printed):
            assert run(["completion", shell]) == 0
        return printed.getvalue()

    return script


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(name, marks=pytest.mark.slow) for name in ("zsh", "fish"))]
)
def test_the_completion_script_names_commands_and_options(shell, completion):
    for word in [*COMMANDS, "rmat", "partition", "verbose", "json"]:
        assert re.search(rf"\b{word}\b", completion(shell)), word


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["penstock", "in"], {"info"}),
        (["penstock", "completion", "z"], {"zsh"}),
        (["penstock", "info", "--js"], {"--json"}),
    ],
)
def test_bash_completes(words, expected, completion, tmp_path):
    script = tmp_path / "penstock.bash"
    script.write_text(completion("bash"))
    ask = (
        f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        f"COMP_LINE='{' '.join(words)}'; COMP_POINT=${{#COMP_LINE}}; "
        "$(complete -p penstock | sed 's/.*-F \\([^ ]*\\).*/\\1/') penstock; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    out = subprocess.run(
        ["bash", "--norc", "-c", ask],
        cwd=tmp_path,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {word.strip() for word in out.stdout.splitlines()} == expected, out.stderr


def test_ctrl_c_while_the_command_line_is_imported(monkeypatch, capsys):
    from penstock.__main__ import main

    class Interrupted:
        def find_spec(self, name, path=None, target=None):
            if name == "penstock.pipelines.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "penstock.pipelines.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "penstock: interrupted. Nothing had begun.\n"


@pytest.mark.parametrize(("signal_seen", "code"), [(True, 143), (False, 1)])
def test_what_fails_after_a_signal_is_no_bug(monkeypatch, capsys, signal_seen, code):
    """Dask may fail in any way where a signal broke into it, and so does cleaning up."""

    def fail(*_, **__):
        try:
            if signal_seen:
                raise Terminated(signal.SIGTERM)
        finally:
            raise UnboundLocalError("cannot access local variable 'result'")

    monkeypatch.setattr(cli, "app", fail)
    assert run(["info", "g"]) == code
    said = capsys.readouterr().err
    assert ("This is a bug" in said) is not signal_seen
    assert ("ended by SIGTERM" in said) is signal_seen


def test_an_error_that_is_its_own_cause_is_reported(monkeypatch, capsys):
    """As Dask's are where they were raised in one thread and again in another."""

    def fail(*_, **__):
        first, second = ValueError("first"), CorruptFile("second")
        first.__context__, second.__context__ = second, first
        raise second

    monkeypatch.setattr(cli, "app", fail)
    assert run(["info", "g"]) == 1
    assert "second" in capsys.readouterr().err
