"""``penstock``: the command line. A command's module is imported only when it is called."""

from __future__ import annotations

import json
import sys
import traceback

from cyclopts import App, CycloptsError, Group

from penstock import __version__
from penstock.errors import PenstockError

app = App(
    name="penstock",
    version=__version__,
    help="Large graphs in; embeddings, walks, GNN predictions and centralities out.",
    help_format="plaintext",
    result_action="return_value",
)

_GRAPHS = Group("Graphs", sort_key=1)
_SHELL = Group("This program", sort_key=9)
app["--help"].group = _SHELL
app["--version"].group = _SHELL

app.command(
    "penstock.pipelines.etl.command:command", name="etl", group=_GRAPHS, sort_key=1,
    help="Edges in, graph out: Parquet, CSV, text, triples, TU folders, zoos of small graphs.",
)
app.command(
    "penstock.pipelines.generate.command:app", name="generate", group=_GRAPHS, sort_key=2,
    help="Make a graph: R-MAT, stochastic blocks, a knowledge graph, a zoo of small graphs.",
)
app.command(
    "penstock.pipelines.info:command", name="info", group=_GRAPHS, sort_key=3,
    help="Counts, degrees, components, features, size and partitions of a graph.",
)
app.command(
    "penstock.pipelines.validate:command", name="validate", group=_GRAPHS, sort_key=4,
    help="Read a whole graph and check every checksum and every row.",
)
app.command(
    "penstock.pipelines.partition:command", name="partition", group=_GRAPHS, sort_key=5,
    help="Cut a graph into k parts with ghosts and send lists, balanced by work.",
)
app.command(
    "penstock.pipelines.order:command", name="order", group=_GRAPHS, sort_key=6,
    help="Show in which order embedding partitions meet in the GPU's buffer.",
)
app.register_install_completion_command(group=_SHELL)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 failed, 2 bad usage."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; errors become one paragraph on standard error."""
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _fail(str(error), 2, arguments)
    except PenstockError as error:
        if "--json" in arguments:
            print(json.dumps(error.to_dict(), indent=1))
        return _fail(str(error), error.exit_code, arguments)
    except KeyboardInterrupt:
        return _fail("Interrupted; nothing half-written was left in place.", 1, arguments)
    except BrokenPipeError:
        # The reader (head, less) has gone: not worth a message, and stdout cannot take one.
        sys.stderr.close()
        return 1
    except Exception as error:
        return _fail(
            f"Penstock failed unexpectedly: {type(error).__name__}: {error}. "
            "This is a bug: please report it with the traceback that -v shows.",
            1,
            arguments,
        )
    return 0


def _fail(message: str, code: int, arguments: list[str]) -> int:
    if code == 1 and {"-v", "--verbose"} & set(arguments):
        traceback.print_exc()
    print(f"penstock: {message}", file=sys.stderr)
    return code
