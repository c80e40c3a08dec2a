"""Another user of the host is turned away by every cluster that penstock starts."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from penstock import connect
from penstock.cluster.mpi.launcher import find_launcher, loaded_library
from penstock.cluster.mpi.mpiexec import launch_command, launch_environment
from penstock.pipelines.cli import run as penstock

STRANGER = Path(__file__).with_name("stranger.py")
NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


@pytest.fixture
def temporary(temporary, tmp_path, monkeypatch):
    # Only what penstock itself closes shall keep a stranger out.
    for place in (*tmp_path.parents, tmp_path, temporary):
        if place.is_relative_to("/tmp") and place != Path("/tmp"):
            place.chmod(0o755)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    return temporary


def listening(pids):
    """Return the addresses on which the processes, and all below them, listen."""
    found = set()
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in [process, *process.children(recursive=True)]:
                with suppress(psutil.Error):
                    for entry in one.net_connections("tcp"):
                        if entry.status == psutil.CONN_LISTEN:
                            host = "127.0.0.1" if entry.laddr.ip == "0.0.0.0" else entry.laddr.ip
                            found.add(f"{host}:{entry.laddr.port}")
    return sorted(found)


def files(*folders):
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def knocked(pids, secret):
    """Let a stranger try every port; return what was answered, and which files it read."""
    ports = listening(pids)
    assert ports
    command = [sys.executable, "-P", str(STRANGER), str(NOBODY), ":".join(map(str, secret))]
    with tempfile.TemporaryDirectory(dir="/tmp") as own:
        done = subprocess.run(
            [*command, *ports],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TMPDIR": own},
        )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert "'status': 'OK'" in lines[0], "the stranger itself does not work"
    read = [line.removeprefix("read ") for line in lines if line.startswith("read ")]
    tried = [line for line in lines[1:] if not line.startswith("read ")]
    assert len(tried) == 2 * len(ports)
    return [line for line in tried if " refused " not in line], read


def nobody_got_in(client, temporary, *more):
    keys = [path for path in files(temporary, *more) if path.suffix == ".pem"]
    # Nannies, too, if they are not children of this process.
    workers = [*client.run(os.getpid).values(), *client.run(os.getppid).values()]
    pids = [os.getpid(), *(pid for pid in dict.fromkeys(workers) if pid not in (1, os.getpid()))]
    answered, read = knocked(pids, keys)
    assert answered == []
    assert read == []
    for path in keys:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    below = [one for pid in pids for one in psutil.Process(pid).children(recursive=True)]
    for process in [*map(psutil.Process, pids), *below]:
        with suppress(psutil.Error):
            told = " ".join([*process.cmdline(), *process.environ().values()])
            assert "PRIVATE KEY" not in told


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", pytest.param("mpi", marks=pytest.mark.mpi)])
def test_a_cluster_of_one_command(kind, temporary):
    with connect(kind, workers=2) as client:
        assert client.scheduler.address.startswith("tls://")
        assert client.submit(sum, [1, 2]).result() == 3
        nobody_got_in(client, temporary)
    assert not list(temporary.iterdir())


@pytest.fixture
def kept(temporary):
    yield
    penstock(["cluster", "stop", "-q"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", pytest.param("mpi", marks=pytest.mark.mpi)])
def test_a_cluster_that_stays(kind, temporary, kept, tmp_path, capsys):
    from penstock.cluster.daemon.registry import find

    assert penstock(["cluster", "start", "--cluster", kind, "-n", "2", "-q"]) == 0
    entry = find("default")
    assert entry is not None
    assert entry.address is not None
    with connect("default") as client:
        assert client.submit(sum, [1, 2]).result() == 3
        keys = [path for path in files(tmp_path / "state") if path.suffix == ".pem"]
        assert len(keys) == 3
        answered, read = knocked([entry.pid], [*keys, *files(temporary)])
        assert (answered, read) == ([], [])
        nobody_got_in(client, temporary, tmp_path / "state")
    with connect(entry.address) as client:  # its credentials are found by its address too
        assert client.submit(sum, [1, 2]).result() == 3
    capsys.readouterr()
    assert penstock(["cluster", "status", "--json"]) == 0
    (there,) = json.loads(capsys.readouterr().out)["clusters"]
    assert (there["state"], len(there["present"])) == ("running", 2)
    assert penstock(["cluster", "stop", "-q"]) == 0
    assert not files(tmp_path / "state")


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_next_to_a_local_cluster(temporary):
    from penstock import gang

    with connect("local", workers=1) as client:
        assert gang.run(client, lambda comm: comm.size, ranks=2) == [2, 2]
        nobody_got_in(client, temporary)


JOB = """
import os, psutil, subprocess, sys
from penstock import connect
with connect("mpi", dashboard="none") as client:
    assert client.scheduler.address.startswith("tls://"), client.scheduler.address
    assert client.submit(sum, [1, 2]).result() == 3
    sys.path.insert(0, sys.argv[1])
    import test_strangers as t
    above = psutil.Process().parent().pid
    # In one piece: mpiexec writes a rank's number before each.
    sys.stdout.write(" ".join(map(str, [*t.knocked([above], []), "nobody got in\\n"])))
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_a_script_that_is_an_mpi_job_itself(tmp_path, temporary):
    job = tmp_path / "job.py"
    job.write_text(JOB)
    launcher = find_launcher(None, loaded_library())
    program = [sys.executable, "-P", str(job), str(STRANGER.parent)]
    command = launch_command(launcher, program, ranks=3, hosts=None)
    env = launch_environment(launcher, os.environ, root=True)
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "[] [] nobody got in" in done.stdout


@pytest.mark.gpu
@pytest.mark.slow
def test_dask_cuda_itself(temporary):
    pytest.importorskip("dask_cuda")
    with connect("cuda", workers=1, memory_limit="4GB") as client:
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        nobody_got_in(client, temporary)


def test_credentials_that_somebody_waits_for(tmp_path):
    """No other user can have put a link, or a file, at the path of the key."""
    from penstock.cluster.security.credentials import make_credentials

    (tmp_path / "tls").symlink_to(tempfile.gettempdir())
    with pytest.raises(FileExistsError):
        make_credentials(tmp_path / "tls")
