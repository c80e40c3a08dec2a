"""Options of a cluster come from flags, a YAML file, and Dask's configuration, in that order."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import pytest

from penstock import ClusterSpec, connect
from penstock.cluster.addresses import scheduler_addresses
from penstock.errors import ClusterError, UsageError


def test_what_is_not_given_is_taken_from_dasks_configuration() -> None:
    with dask.config.set({"penstock.cluster": {"workers": 3, "memory-limit": "1GB"}}):
        assert ClusterSpec().configured() == ClusterSpec(workers=3, memory_limit="1GB")
        assert ClusterSpec(workers=5).configured().workers == 5


def test_a_yaml_file_goes_before_dasks_configuration(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster: mpi\nworkers: 4\nhosts: h1:2,h2:2\nstart-timeout: 5\n")
    with dask.config.set({"penstock.cluster": {"workers": 3, "interface": "ib0"}}):
        spec = ClusterSpec(cluster=str(file), hosts="h3:9").configured()
    assert spec == ClusterSpec(
        cluster="mpi", workers=4, hosts="h3:9", start_timeout=5, interface="ib0"
    )


def test_the_environment_reaches_it() -> None:
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


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("wrokers: 4\n", r"cluster\.yaml: there is no option 'wrokers'\. Did you mean 'workers'"),
        ("kind: mpi\n", r"cluster\.yaml: there is no option 'kind'\. Expected one of cluster, "),
        ("- mpi\n", "Expected a mapping, got list"),
        ("workers: -1\n", r"cluster\.yaml: option --workers has a bad value"),
        ("start-timeout: 5\nstart_timeout: 6\n", r"cluster\.yaml: start_timeout is given twice"),
        ("workers: [\n", "cannot read .* as YAML"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, match: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=match):
        ClusterSpec(cluster=str(file)).configured()
    with pytest.raises(UsageError, match="there is no file"):
        ClusterSpec(cluster=str(tmp_path / "other.yaml")).configured()


@pytest.mark.parametrize("option", ["scheduler_port", "dashboard"])
def test_a_port_in_use_is_told(option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        value: Any = port if option == "scheduler_port" else f"127.0.0.1:{port}"
        flag = option.replace("_", "-")
        with (
            pytest.raises(ClusterError, match=rf"port {port} of --{flag} cannot be used"),
            connect("local", workers=1, **{option: value}),
        ):
            pass


def test_everything_listens_on_this_machine_alone_unless_told() -> None:
    place = scheduler_addresses(ClusterSpec(), "/tmp", used=None, remote=False)
    assert (place["host"], place["dashboard_address"]) == ("127.0.0.1", "localhost:0")
    assert "host" not in scheduler_addresses(
        ClusterSpec(interface="lo"), "/tmp", used=None, remote=True
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [(None, "there is no scheduler file"), ("{}", "not a scheduler file"), ("[", "not a sched")],
)
def test_a_bad_scheduler_file(tmp_path: Path, text: str | None, match: str) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ClusterError, match=match), connect(str(file)):
        pass


def test_a_scheduler_file_leads_to_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect("local", workers=1, no_tls=True) as owner:
        file = tmp_path / "scheduler.json"
        owner.write_scheduler_file(str(file))
        with connect(str(file)) as guest:
            assert guest.submit(lambda: 6, pure=False).result() == 6
        assert capsys.readouterr().err == ""
        with connect(str(file), quiet=False):
            pass
        said = f"the scheduler at {owner.scheduler.address} is open: connections are not encrypted"
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"tls": "/nowhere"}, "--tls and --no-tls exclude each other"),
        ({}, "Dask's configuration asks for encryption, and --no-tls for none"),
    ],
)
def test_no_tls_contradicts(values: dict[str, Any], match: str) -> None:
    import dask

    with (
        dask.config.set({"distributed.comm.require-encryption": not values}),
        pytest.raises(UsageError, match=match),
        connect("local", workers=1, no_tls=True, **values),
    ):
        pass
