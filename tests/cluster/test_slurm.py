"""The script for sbatch: what it asks for, that a shell reads it, and what it then runs."""

import os
import re
import shutil
import subprocess
import sys

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import is_rank

from penstock.cluster.slurm import SlurmScript, slurm_script
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError


def requests(script):
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.MULTILINE))


def test_what_it_asks_for():
    script = slurm_script(
        ClusterSpec(threads=8, memory_limit="10GiB"),
        SlurmScript(
            nodes=8, gpus_per_node=4, time="1-12:00", partition="gpu", account="a.b", job_name="n1"
        ),
    )
    assert requests(script) == {
        "job-name": "n1",
        "nodes": "8",
        "ntasks-per-node": "4",
        "cpus-per-task": "8",
        "gpus-per-node": "4",
        "mem": f"{42 * 1024}M",  # four ranks, and two GiB for scheduler and client
        "time": "1-12:00",
        "partition": "gpu",
        "account": "a.b",
    }
    # sbatch stops to look for its options at the first line that is not a comment.
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert all(line.startswith("#SBATCH") for line in lines[1 : 1 + len(requests(script))])


@pytest.mark.parametrize(
    ("spec", "job"),
    [
        ({"cluster": "local"}, {}),
        ({"hosts": "h1:4"}, {}),
        ({}, {"gpus_per_node": 2, "ranks_per_node": 3}),
        ({}, {"command": ("penstock", "walk", "g", "-n", "4")}),
        ({}, {"time": "soon"}),
        ({}, {"job_name": "a\n#SBATCH --mem=1"}),
        ({}, {"account": "a\n#SBATCH --mem=1"}),
    ],
)
def test_bad_options(spec, job):
    with pytest.raises(UsageError):
        slurm_script(ClusterSpec(**spec), SlurmScript(**job))


def run(script, **environment):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    variables = {"PATH": os.environ["PATH"], "SLURM_JOB_NUM_NODES": "3", **environment}
    return subprocess.run([bash, "-c", script], env=variables, capture_output=True, check=False)


@pytest.fixture(scope="module")
def teller(tmp_path_factory):
    """A program named penstock, in a folder with a space, that prints its arguments."""
    program = tmp_path_factory.mktemp("a folder") / "penstock"
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    return program


words = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs",)), max_size=20
)


@settings(deadline=None, max_examples=15)  # each starts a shell
@given(st.lists(words.filter(lambda word: not word.startswith("-")), max_size=4), words)
def test_a_shell_passes_on_what_was_written(teller, arguments, interface):
    spec = ClusterSpec(interface=interface, device_limit="0.8")
    job = SlurmScript(ranks_per_node=4, command=(str(teller), *arguments))
    done = run(slurm_script(spec, job))
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("\0")[:-1] == [
        *arguments,
        *("--cluster", "mpi", "--mpiexec", "srun", "-n", "12"),
        *("--device-limit", "0.8", "--interface", interface),
    ]


# Takes srun's place: its own options go, and the mpiexec of this environment starts the ranks.
SRUN = """#!{python} -P
import os, sys
from penstock.cluster.mpi.launcher import find_launcher, loaded_library
from penstock.cluster.mpi.mpiexec import launch_command, launch_environment
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("slurm 22.05.8")
    sys.exit()
while arguments[0] != "-n":
    assert arguments.pop(0).startswith("--")
os.environ.pop("SLURM_JOB_NUM_NODES")
launcher = find_launcher(None, loaded_library())
command = launch_command(launcher, arguments[2:], ranks=int(arguments[1]), hosts=None)
os.execve(command[0], command, launch_environment(launcher, os.environ, root=os.geteuid() == 0))
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_a_cluster_that_a_batch_job_keeps(tmp_path):
    srun = tmp_path / "srun"
    srun.write_text(SRUN.format(python=sys.executable))
    srun.chmod(0o755)
    script = tmp_path / "job.sh"
    script.write_text(slurm_script(ClusterSpec(), SlurmScript(ranks_per_node=2)))
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PENSTOCK_STATE": str(tmp_path / "state"),
        "SLURM_JOB_NUM_NODES": "1",
        "TMPDIR": str(tmp_path / "temporary"),
    }
    (tmp_path / "temporary").mkdir()
    with subprocess.Popen(
        ["bash", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline()  # it is ready
            assert list((tmp_path / "state").rglob("*.json"))
            family = psutil.Process(job.pid).children(recursive=True)
            assert sum(map(is_rank, family)) == 2
        finally:
            job.terminate()  # as scancel does
        assert job.wait(timeout=20) == 0
    assert not psutil.wait_procs(family, timeout=5)[1]
    # On a busy machine the mpiexec behind this srun is killed before it removes its own folder.
    left = {path.name for path in (tmp_path / "temporary").iterdir()}
    assert {name for name in left if not name.startswith("ompi.")} <= {"dask-scratch-space"}
    assert not list((tmp_path / "state").rglob("*.json"))
