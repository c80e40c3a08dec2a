"""``penstock``, and ``python -m penstock``.

Processes of workers that a command starts import this module too, as multiprocessing has it, so
the command line is imported only by the command.
"""

import gc


def main() -> None:
    """Run a command and exit; Ctrl-C ends it without a traceback while it is imported, too."""
    # Imports make very many objects, and nothing to collect among them: a tenth of their time.
    gc.set_threshold(50_000)
    try:
        from penstock.pipelines.cli import main as run
    except KeyboardInterrupt:
        import sys

        print("penstock: interrupted. Nothing had begun.", file=sys.stderr)
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
