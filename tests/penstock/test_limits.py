"""Limits of control groups and of resources count as the machine's own do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import limits
from penstock.limits import available_memory, cores, total_memory, usable_memory

GiB = 1 << 30


@pytest.fixture
def system(tmp_path, monkeypatch):
    """An empty tree in which control groups are looked for."""
    monkeypatch.setattr(limits, "TOP", tmp_path)
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_groups_of_version_2(system):
    write(system / "proc/self/cgroup", "0::/batch/job/step\n")
    batch = system / "sys/fs/cgroup/batch"
    for folder, limit, used in (
        (batch, str(3 * GiB), str(GiB)),
        (batch / "job", str(2 * GiB), "300"),
        (batch / "job/step", "max", "300"),
    ):
        write(folder / "memory.max", f"{limit}\n")
        write(folder / "memory.current", f"{used}\n")
        write(folder / "memory.stat", "anon 5\ninactive_file 50\n")
    write(batch / "job/cpu.max", "100000 100000\n")
    write(batch / "job/step/cpu.max", "max 100000\n")
    assert total_memory() == 2 * GiB
    assert available_memory() == 2 * GiB - 250
    assert cores() == 1
    write(batch / "job/step/memory.high", str(GiB))  # held back beyond it, though not killed
    assert total_memory() == GiB


def test_groups_of_version_1(system):
    write(system / "proc/self/cgroup", "9:cpu,cpuacct:/job\n4:memory:/job/step\n0::/\n")
    job = system / "sys/fs/cgroup/memory/job"
    write(job / "memory.limit_in_bytes", f"{2 * GiB}\n")
    write(job / "memory.usage_in_bytes", f"{2 * GiB + 200}\n")
    write(job / "memory.stat", "total_inactive_file 100\n")
    write(job / "step/memory.limit_in_bytes", "9223372036854771712\n")
    cpu = system / "sys/fs/cgroup/cpu,cpuacct/job"
    write(cpu / "cpu.cfs_quota_us", "50000\n")
    write(cpu / "cpu.cfs_period_us", "100000\n")
    assert total_memory() == 2 * GiB
    assert available_memory() == 0
    assert cores() == 1
    write(cpu / "cpu.cfs_quota_us", "-1\n")
    assert cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("needed", [0, 23_437_501, 123_456_789, 10**12])
def test_the_least_limit_that_leaves_enough(needed):
    limit = limits.limit_for(needed)
    assert usable_memory(limit) >= needed
    assert limit == limits.SMALLEST_LIMIT or usable_memory(limit - 1) < needed


@pytest.fixture
def group():
    """A real control group of 1 GiB below our own."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    found = {names: path for _, names, path in lines}
    if "memory" in found:
        parent, limit = Path("/sys/fs/cgroup/memory" + found["memory"]), "memory.limit_in_bytes"
    else:
        parent, limit = Path("/sys/fs/cgroup" + found.get("", "/nowhere")), "memory.max"
    group = parent / f"penstock-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(GiB))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"needs the right to make a control group: {error}")
    yield group
    group.rmdir()


def test_a_real_group(group):
    # In the group before Python begins, as a container's or a batch job's processes are.
    code = (
        "from penstock import ClusterSpec; from penstock.limits import *;"
        "print(total_memory(), available_memory(), ClusterSpec(workers=1).worker_memory())"
    )
    enter = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]
    command = [*enter, sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    total, available, worker = map(int, done.stdout.split())
    assert total == GiB
    assert available < GiB
    assert worker == GiB * 3 // 4
