"""Options of a cluster come from flags, a YAML file, and Dask's configuration, in that order."""

import os
import socket
import subprocess
import sys

import dask
import pytest

from penstock import ClusterSpec, connect
from penstock.errors import ClusterError, UsageError


def test_what_is_not_given_is_taken_from_dasks_configuration():
    with dask.config.set({"penstock.cluster": {"workers": 3, "memory-limit": "1GB"}}):
        assert ClusterSpec().configured() == ClusterSpec(workers=3, memory_limit="1GB")
        assert ClusterSpec(workers=5).configured().workers == 5


def test_a_yaml_file_goes_before_dasks_configuration(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster: mpi\nworkers: 4\nhosts: h1:2,h2:2\nstart-timeout: 5\n")
    with dask.config.set({"penstock.cluster": {"workers": 3, "interface": "ib0"}}):
        spec = ClusterSpec(cluster=str(file), hosts="h3:9").configured()
    assert spec == ClusterSpec(
        cluster="mpi", workers=4, hosts="h3:9", start_timeout=5, interface="ib0"
    )


def test_the_environment_reaches_it():
    code = (
        "from penstock import ClusterSpec; spec = ClusterSpec().configured(); "
        "print(spec.cluster, spec.workers)"
    )
    env = {**os.environ, "DASK_PENSTOCK__CLUSTER__CLUSTER": "mpi"}
    env["DASK_PENSTOCK__CLUSTER__WORKERS"] = "7"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["mpi", "7"]


@pytest.mark.parametrize("text", ["wrokers: 4\n", "- mpi\n", "workers: -1\n", "workers: [\n"])
def test_a_bad_file_is_refused(tmp_path, text):
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(UsageError):
        ClusterSpec(cluster=str(file)).configured()
    with pytest.raises(UsageError):
        ClusterSpec(cluster=str(tmp_path / "other.yaml")).configured()


@pytest.mark.parametrize("option", ["scheduler_port", "dashboard"])
def test_a_port_in_use_is_told(option):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        value = port if option == "scheduler_port" else f"127.0.0.1:{port}"
        with pytest.raises(ClusterError), connect("local", workers=1, **{option: value}):
            pass


@pytest.mark.parametrize("values", [{"tls": "/nowhere"}, {}])
def test_no_tls_contradicts(values):
    import dask

    with (
        dask.config.set({"distributed.comm.require-encryption": not values}),
        pytest.raises(UsageError),
        connect("local", workers=1, no_tls=True, **values),
    ):
        pass
