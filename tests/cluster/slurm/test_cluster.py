"""Batch jobs as workers, with a stand-in for SLURM that runs its jobs on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import dask
import psutil
import pytest
from distributed import Client

from penstock.cluster.connect import connect
from penstock.cluster.slurm.cluster import open_slurm, slurm_options
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError

jobqueue = pytest.mark.skipif(
    find_spec("dask_jobqueue") is None, reason="needs dask-jobqueue: pip install '.[slurm]'"
)

# A job is a folder of its number: script, state, and the process group that runs it.
SBATCH = r"""#!/bin/bash
if [ -e "$FAKE_SLURM/refuse" ]; then
    echo "sbatch: error: invalid partition specified: moon" >&2
    exit 1
fi
if [ -e "$FAKE_SLURM/hang" ]; then exec sleep 600; fi
exec 9> "$FAKE_SLURM/lock"; flock 9
id=$((100 + $(ls -d "$FAKE_SLURM"/[0-9]* 2> /dev/null | wc -l)))
job="$FAKE_SLURM/$id"; mkdir "$job"
flock -u 9; exec 9>&-
cp "$1" "$job/script"
echo "Submitted batch job $id"
if [ -e "$FAKE_SLURM/full" ]; then echo 'PENDING|(Resources)' > "$job/state"; exit; fi
out=$(sed -n 's/^#SBATCH -o //p' "$1"); err=$(sed -n 's/^#SBATCH -e //p' "$1")
echo 'RUNNING|node7' > "$job/state"
if [ -e "$FAKE_SLURM/broken" ]; then sed -i '$s/.*/echo no such module; exit 3/' "$job/script"; fi
setsid bash -c 'bash "$0/script"; echo "FAILED|(NonZeroExitCode)" > "$0/state"' "$job" \
    > "${out//%J/$id}" 2> "${err//%J/$id}" < /dev/null &
echo $! > "$job/group"
"""
SQUEUE = r"""#!/bin/bash
for last; do :; done
found=
for id in ${last//,/ }; do
    if [ -e "$FAKE_SLURM/$id/state" ]; then echo "$id|$(cat "$FAKE_SLURM/$id/state")"; found=1; fi
done
if [ -z "$found" ]; then
    echo "slurm_load_jobs error: Invalid job id specified" >&2
    exit 1
fi
"""
SCANCEL = r"""#!/bin/bash
echo "$@" >> "$FAKE_SLURM/cancelled"
for id; do
    echo 'CANCELLED|' > "$FAKE_SLURM/$id/state"
    if [ -e "$FAKE_SLURM/$id/group" ]; then kill -- "-$(cat "$FAKE_SLURM/$id/group")"; fi
done
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the stand-in's jobs; its commands are first on PATH."""
    if shutil.which("setsid") is None or shutil.which("flock") is None:
        pytest.skip("needs setsid and flock of util-linux")
    programs, state = tmp_path / "programs", tmp_path / "jobs"
    programs.mkdir()
    state.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    work = tmp_path / "a folder"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(state))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield state
    for process in started_by(state):
        process.kill()


def started_by(state: Path) -> list[psutil.Process]:
    """Processes of the stand-in's jobs, whoever their parent is by now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FAKE_SLURM") == str(state) and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            continue
    return found


def spec(workers: int = 1, **more: Any) -> ClusterSpec:
    return ClusterSpec(cluster="slurm", workers=workers, memory_limit="500MB", **more)


@jobqueue
def test_jobs_work_and_go(fake: Path, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    scratch = tmp_path / "a scratch"
    with open_slurm(spec(2, threads=2, worker_scratch=scratch), quiet=True) as running:
        assert running.workers == 2
        assert running.dashboard is not None
        # Nobody on the network may open it.
        assert urlopen(running.dashboard, timeout=5).status == 200
        assert urlsplit(running.dashboard).hostname == "localhost"
        with Client(running.target) as client:
            client.wait_for_workers(2, timeout=60)
            told = client.run(
                lambda dask_worker: (str(dask_worker.name), dask_worker.state.nthreads)
            )
            assert set(told.values()) == {("slurm-0", 2), ("slurm-1", 2)}
            paths = client.run(lambda dask_worker: dask_worker.local_directory)
            assert all(path.startswith(str(scratch)) for path in paths.values())
            assert client.submit(sum, [1, 2, 3], pure=False).result() == 6
            assert running.missing is not None
            assert running.missing({"slurm-0", "slurm-1"}) == []
            assert running.failure is not None
            assert running.failure() is None
        processes = started_by(fake)
        assert len(processes) >= 4  # two nannies with a worker each
        started = time.monotonic()
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert time.monotonic() - started < 5
    assert not alive
    assert (fake / "cancelled").read_text().split() == ["100", "101"]
    left = {path for path in set(tmp_path.rglob("*")) - before if not path.is_relative_to(fake)}
    assert left == {scratch}


@jobqueue
def test_jobs_are_cancelled_when_the_start_fails(fake: Path) -> None:
    (fake / "full").touch()
    with pytest.raises(KeyboardInterrupt), open_slurm(spec(2), quiet=True):
        until(lambda: len(list(fake.glob("1*/state"))) == 2)
        raise KeyboardInterrupt
    assert {*(fake / "cancelled").read_text().split()} == {"100", "101"}
    assert not list(Path.cwd().iterdir())


@jobqueue
def test_an_sbatch_that_hangs(fake: Path) -> None:
    """The time-out of the start is kept, and no sbatch is left."""
    (fake / "hang").touch()
    began = time.monotonic()
    with (
        pytest.raises(ClusterError),
        connect("slurm", workers=2, memory_limit="500MB", start_timeout=3),
    ):
        pass
    assert time.monotonic() - began < 15
    until(lambda: not started_by(fake))


@jobqueue
def test_the_script_of_a_job(fake: Path) -> None:
    from dask_jobqueue import SLURMCluster

    site = {"queue": "gpu", "account": "abc", "walltime": "02:00:00", "memory": "3GB", "cores": 6}
    prologue = {"job-script-prologue": ["module load cuda"], "worker-extra-args": ["--lifetime", 9]}
    with dask.config.set({f"jobqueue.slurm.{k}": v for k, v in (site | prologue).items()}):
        options = slurm_options(ClusterSpec(workers=2, interface="lo"))
        with SLURMCluster(**options) as cluster:
            lines = cluster.job_script().splitlines()
    assert {"#SBATCH -p gpu", "#SBATCH -A abc", "#SBATCH -t 02:00:00", "module load cuda"} < {
        *lines
    }
    assert {"#SBATCH --cpus-per-task=6", "#SBATCH --mem=3G", "#SBATCH -J penstock"} < {*lines}
    command = lines[-1]
    assert "--nthreads 6 --memory-limit 2.79GiB --nanny" in command
    assert "--no-dashboard --dashboard-address localhost:0 --lifetime 9 --interface lo" in command


def until(condition: Any, *, seconds: float = 20) -> None:
    """Look again and again until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)
