"""What every job reads, made once for the tests of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from every_job import make_inputs


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, its edges as a table, walks, vectors and models."""
    folder = tmp_path_factory.mktemp("given")
    make_inputs(folder)
    return folder
