"""``python -m penstock`` is ``penstock``."""

from penstock.pipelines.cli import main

if __name__ == "__main__":
    main()
