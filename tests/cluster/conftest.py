"""What tests of clusters share."""

from contextlib import suppress

import psutil
import pytest


@pytest.fixture
def left_over():
    """Return the processes that the test has started and that run, Python's own helper aside."""
    before = set(psutil.Process().children(recursive=True))

    def look():
        found = []
        for child in set(psutil.Process().children(recursive=True)) - before:
            with suppress(psutil.NoSuchProcess):
                found.append(" ".join(child.cmdline()))
        return [command for command in found if "resource_tracker" not in command]

    return look
