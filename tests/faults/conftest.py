"""What every job reads, made once for the tests of a file; small disks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import small_disks
from every_job import make_inputs


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, its edges as a table, walks, vectors and models."""
    folder = tmp_path_factory.mktemp("given")
    make_inputs(folder)
    return folder


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return what mounts a disk of 8 MB, or mounts it again, with an option."""
    disk = tmp_path / "disk"
    yield lambda option: small_disks.mount(disk, option)
    if disk.is_mount():
        small_disks.unmount(disk)
