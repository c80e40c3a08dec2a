"""Options of a cluster come from flags, a YAML file, and Dask's configuration, in that order."""

import socket
import warnings

import dask
import pytest

from penstock import ClusterSpec, connect
from penstock.cluster.connect import kind_for
from penstock.errors import ClusterError, InputError, PenstockWarning, UsageError


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


@pytest.mark.parametrize("text", ["wrokers: 4\n", "- mpi\n", "workers: -1\n", "workers: [\n"])
def test_a_bad_file_is_refused(tmp_path, text):
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(UsageError):
        ClusterSpec(cluster=str(file)).configured()
    with pytest.raises(InputError):
        ClusterSpec(cluster=str(tmp_path / "other.yaml")).configured()


@pytest.mark.parametrize("option", ["scheduler_port", "dashboard"])
def test_a_port_in_use_is_an_error(option):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        value = port if option == "scheduler_port" else f"127.0.0.1:{port}"
        with pytest.raises(ClusterError), connect("local", workers=1, **{option: value}):
            pass


@pytest.mark.parametrize("values", [{"tls": "/nowhere"}, {}])
def test_no_tls_contradicts(values):
    required = {"distributed.comm.require-encryption": not values}
    with dask.config.set(required), pytest.raises(UsageError):
        connect("local", workers=1, no_tls=True, **values).__enter__()


def test_an_option_without_effect_on_the_kind_that_auto_chose_is_a_warning():
    spec = ClusterSpec(worker_timeout=5.0, threads=3)
    assert kind_for(spec, 0, None) == "threads"
    with pytest.warns(PenstockWarning):
        assert spec.for_kind("threads") == ClusterSpec(threads=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert spec.for_kind("local") == spec


def test_dasks_configuration_is_for_every_kind():
    known = {"hosts": "h1:2", "interface": "lo", "threads": 2}
    with dask.config.set({"penstock.cluster": known}):
        spec = ClusterSpec(cluster="threads").configured()
        assert spec.hosts == "h1:2"
        for one in (spec, spec.configured()):
            assert one.for_kind("threads") == ClusterSpec(cluster="threads", threads=2)
        with pytest.raises(UsageError):
            ClusterSpec(cluster="threads", hosts="h2:2").configured().for_kind("threads")
        with connect("threads") as client:
            assert sum(client.nthreads().values()) == 2
