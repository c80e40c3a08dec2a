"""What tests of clusters share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest


@pytest.fixture
def left_over() -> Callable[[], list[str]]:
    """Return the processes that the test has started and that run, Python's own helper aside."""
    before = set(psutil.Process().children(recursive=True))

    def look() -> list[str]:
        found = []
        for child in set(psutil.Process().children(recursive=True)) - before:
            with suppress(psutil.NoSuchProcess):
                found.append(" ".join(child.cmdline()))
        return [command for command in found if "resource_tracker" not in command]

    return look
