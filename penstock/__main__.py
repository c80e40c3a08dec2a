"""``penstock``, and ``python -m penstock``."""

import atexit
import gc
import os
import sys


def main() -> None:
    """Run a command and exit; Ctrl-C ends it without a traceback, even during imports."""
    # Imports make many objects, none of them garbage: collection takes a tenth of their time.
    gc.set_threshold(50_000)
    try:
        from penstock.pipelines.cli import main as run
    except KeyboardInterrupt:
        print("penstock: interrupted before the start.", file=sys.stderr)
        sys.exit(1)
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, int):
            _end(end.code)
        raise


def _end(code: int) -> None:
    """End the process after its exit handlers.

    Python would free all objects one by one, gigabytes of graphs and a GPU's memory, which takes
    some tenths of a second; the system does it at once. MPI must end with Python, though.
    """
    if "mpi4py.MPI" in sys.modules:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            return  # Python reports it
    os._exit(code)


if __name__ == "__main__":
    main()
