"""What every job reads, made once; commands that are forked; results of undisturbed runs; disks."""

from functools import cache

import pytest
import small_disks
from every_job import make_inputs, results, words_of
from midway import Commands


@pytest.fixture(scope="session")
def given(tmp_path_factory):
    """A graph, its edges as a table, walks, vectors, models. A test copies what it changes."""
    folder = tmp_path_factory.mktemp("given")
    make_inputs(folder)
    return folder


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    found = Commands(tmp_path_factory.mktemp("commands"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def whole(given, commands, tmp_path_factory):
    """Return what gives the results of an undisturbed job, and how often it writes."""

    @cache
    def of(job):
        home = tmp_path_factory.mktemp("whole")
        code, said = commands.run(words_of(job, given, home / "out"), home)
        assert code == 0, said
        assert [one.name for one in home.iterdir()] == ["out"]
        return results(home / "out"), commands.count

    return of


@pytest.fixture
def mount(tmp_path):
    """Return what mounts a small disk, or mounts it again, with an option."""
    disk = tmp_path / "disk"
    yield lambda option: small_disks.mount(disk, option)
    if disk.is_mount():
        small_disks.unmount(disk)
