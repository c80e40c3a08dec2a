"""``penstock``: the command line. A command's module is imported only when it is called."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

from cyclopts import App, CycloptsError, Group

from penstock import __version__
from penstock.errors import PenstockError, PenstockWarning, causes
from penstock.pipelines.help_page import OPTIONS, HelpPage
from penstock.pipelines.signals import Terminated, heard, ignore_more, raise_terminations
from penstock.system_errors import from_system

app = App(
    name="penstock",
    version=__version__,
    help="Large graphs in; embeddings, walks, GNN predictions and centralities out.\n\n"
    "penstock COMMAND --help describes one command and its options.",
    group_parameters=OPTIONS,
    help_format="plaintext",
    help_formatter=HelpPage(),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

_START = Group("Start here", sort_key=0)
_GRAPHS = Group("Graphs", sort_key=1)
_JOBS = Group("Jobs", sort_key=2)
_NIGHT = Group("Flows", sort_key=3)
_CLUSTERS = Group("Clusters", sort_key=4)
_SHELL = Group("This program", sort_key=9)
for _flag, _help in (("--help", "Show this page"), ("--version", "Print the version")):
    app[_flag].group, app[_flag].help = _SHELL, _help

# One line each, so that `penstock --help` is a table of contents: a command's module, and its help.
_COMMANDS: dict[Group, dict[str, tuple[str, str]]] = {
    _START: {
        "demo": ("demo:command", "Try everything once, small: in about a minute, from nothing"),
        "init": ("init:command", "Write a flow to begin with, and comments that explain it"),
        "doctor": (
            "doctor.command:command",
            "What this machine has, and how to fix the rest",
        ),
    },
    _GRAPHS: {
        "etl": ("etl:command", "Edges in, graph out: Parquet, CSV, text, triples, zoos"),
        "generate": (
            "generate:app",
            "Make a graph: R-MAT, stochastic blocks, triples, a zoo",
        ),
        "info": ("info:command", "Show counts, degrees, components, features and size"),
        "validate": ("validate:command", "Read a whole graph and check every file"),
        "partition": ("partition:command", "Cut a graph into k parts, balanced by work"),
        "order": ("order:command", "Show in which order partitions meet in a GPU's buffer"),
    },
    _JOBS: {
        "walk": (
            "walk:command",
            "Random walks: DeepWalk, PPR, Node2Vec, MetaPath, your own",
        ),
        "gnn": ("gnn:app", "Train a GNN, predict, evaluate: GCN, SAGE, GIN, GAT"),
        "word2vec": (
            "word2vec:app",
            "Vectors of nodes and words: DeepWalk, Node2Vec, skip-gram",
        ),
        "embed": (
            "embed:app",
            "Train vectors of nodes and relations, rank, predict: ComplEx, TransE, RotatE",
        ),
        "centrality": (
            "centrality:command",
            "Closeness, betweenness, PageRank and more, of one graph or many small ones",
        ),
        "similar": (
            "similar:command",
            "Nearest neighbours among vectors: of some ids, or of all",
        ),
        "vectors": ("export:app", "Export vectors: word2vec, npy, Parquet, usearch, faiss"),
    },
    _NIGHT: {
        "run": (
            "flow.command:command",
            "Run a flow: jobs as stages of one YAML file, gates, publishing",
        ),
        "runs": ("runs:app", "List, show, serve and clean the runs of flows"),
        "publish": ("publish:command", "Publish one output by hand, or roll a place back"),
        "report": ("report.command:command", "Write one HTML page about a run of a flow"),
        "schedule": (
            "schedule.command:app",
            "Run flows by cron expression, or for systemd, cron, k8s, Airflow",
        ),
        "schema": ("flow.command:schema", "Print the JSON schema of flows, for editors"),
    },
    _CLUSTERS: {
        "cluster": ("cluster:app", "Start a long-running cluster, show it, stop it"),
    },
    _SHELL: {
        "completion": ("completion:command", "Print the completion script of bash, zsh or fish"),
    },
}
for _group, _commands in _COMMANDS.items():
    for _position, (_name, (_where, _help)) in enumerate(_commands.items(), start=1):
        app.command(
            f"penstock.pipelines.{_where}", name=_name, group=_group, sort_key=_position, help=_help
        )


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 failed, 2 bad usage, 143 and 129 terminated."""
    if isinstance(sys.stdout, TextIOWrapper):  # perhaps of a terminal in ASCII
        sys.stdout.reconfigure(errors="backslashreplace")
    raise_terminations()
    code = run(sys.argv[1:] if arguments is None else arguments)
    ignore_more()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; errors become one paragraph on standard error."""

    def command() -> None:
        since = time.time()
        try:
            app(arguments, exit_on_error=False, print_error=False)
        except Exception as error:
            due = arguments[:1] == ["run"] and "--scheduled" in arguments
            if due and _interrupt_behind(error) is error:
                from penstock.pipelines.flow.command import could_not_start

                could_not_start(arguments[1:], _as_ours(error), since)
            raise
        sys.stdout.flush()

    def failed(error: PenstockError) -> None:
        if "--json" in arguments and not error.reported:
            print(json.dumps(error.to_dict(), indent=1))
        if error.exit_code == 1 and {"-v", "--verbose"} & set(arguments):
            traceback.print_exc()

    return guarded(command, failed)


def guarded(command: Callable[[], None], failed: Callable[[PenstockError], None]) -> int:
    """Call a command, print its error on standard error, and return the exit code.

    failed  called with the error before it is printed
    """
    try:
        with _warnings_in_a_line():
            command()
    except BrokenPipeError:  # head or less has read enough; Python would complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        cause = _interrupt_behind(error)
        ours = _as_ours(cause)
        failed(ours)
        print(f"penstock: {ours}", file=sys.stderr)
        return cause.exit_code if isinstance(cause, Terminated) else ours.exit_code
    return 0


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show our warnings as our errors are shown, without a place in the source."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
        if issubclass(category, PenstockWarning):
            print(f"penstock: warning: {message}", file=sys.stderr)
        else:
            shown(message, category, *location, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


def _interrupt_behind(error: BaseException) -> BaseException:
    """Return the signal during whose handling an error was raised, or else the error itself.

    If a signal interrupts Dask, Dask may fail in any way, and so may the cleanup; other libraries
    raise errors of their own.
    """
    for one in causes(error):
        if isinstance(one, KeyboardInterrupt):
            return one
    if heard:
        return KeyboardInterrupt() if heard[0] == signal.SIGINT else Terminated(heard[0])
    return error


def _as_ours(error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, CycloptsError):
        from penstock.pipelines.usage import usage_error  # with pydantic, which takes long

        return usage_error(error)
    if isinstance(error, KeyboardInterrupt):
        notes = dict.fromkeys(getattr(error, "__notes__", ()))
        return PenstockError(
            str(error) or "interrupted",
            remedy=". ".join(["Nothing half-written was left in place", *notes]),
        )
    return from_system(error) or PenstockError(
        f"penstock failed unexpectedly: {type(error).__name__}: {error}",
        remedy="This is a bug: please report it with the traceback that -v shows",
    )
