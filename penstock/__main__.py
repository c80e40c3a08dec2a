"""``penstock``, and ``python -m penstock``.

Processes of workers that a command starts import this module too, as multiprocessing has it, so
the command line is imported only by the command.
"""

import gc


def main() -> None:
    """Run a command and exit."""
    # Imports make very many objects, and nothing to collect among them: a tenth of their time.
    gc.set_threshold(50_000)
    from penstock.pipelines.cli import main

    main()


if __name__ == "__main__":
    main()
