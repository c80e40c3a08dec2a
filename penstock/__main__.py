"""``penstock``, and ``python -m penstock``."""

import atexit
import gc
import os
import sys


def main() -> None:
    """Run a command and exit; Ctrl-C ends it without a traceback while it is imported, too."""
    # Imports make very many objects, and nothing to collect among them: a tenth of their time.
    gc.set_threshold(50_000)
    try:
        from penstock.pipelines.cli import main as run
    except KeyboardInterrupt:
        print("penstock: interrupted. Nothing had begun.", file=sys.stderr)
        sys.exit(1)
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, int):
            _end(end.code)
        raise


def _end(code: int) -> None:
    """End the process once what was registered for its end has run.

    Python would free object by object what the process has, gigabytes of graphs and a GPU's memory,
    which takes some tenths of a second; the system does it at once. MPI ends with Python, though.
    """
    if "mpi4py.MPI" in sys.modules:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            return  # Python says so, as it would have
    os._exit(code)


if __name__ == "__main__":
    main()
