"""``penstock``, and ``python -m penstock``.

Processes of workers that a command starts import this module too, as multiprocessing has it, so
the command line is imported only by the command.
"""


def main() -> None:
    """Run a command and exit."""
    from penstock.pipelines.cli import main

    main()


if __name__ == "__main__":
    main()
