"""``penstock`` and ``python -m penstock``: the command line, once it is imported."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback while it is still imported, too."""
    try:
        from penstock.pipelines.cli import main as run
    except KeyboardInterrupt:
        print("penstock: interrupted. Nothing had begun.", file=sys.stderr)
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
