"""A cluster that encrypts accepts only clients with its credentials."""

import os
import shutil
import subprocess
import sys

import dask
import pytest
from certificates import make_certificates
from distributed import Client

from penstock import connect
from penstock.cluster.security import security, tls_environment
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, UsageError


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "mine")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "other")


def tls(folder):
    return ClusterSpec(tls=folder)


def test_a_missing_file_is_named(certificates, tmp_path):
    folder = shutil.copytree(certificates, tmp_path / "tls")
    (folder / "key.pem").unlink()
    with pytest.raises(UsageError) as raised:
        security(tls(folder))
    assert str(folder) in str(raised.value)


def configuration(folder, *roles):
    values = {"distributed.comm.tls.ca-file": str(folder / "ca.pem")}
    for role in roles:
        values[f"distributed.comm.tls.{role}.cert"] = str(folder / "cert.pem")
        values[f"distributed.comm.tls.{role}.key"] = str(folder / "key.pem")
    return values


def test_credentials_of_dasks_configuration(certificates, strangers):
    values = configuration(certificates, "client", "scheduler", "worker")
    with dask.config.set(values | {"distributed.comm.require-encryption": True}):
        used = security(ClusterSpec())
        assert used.require_encryption
        assert used.tls_worker_key == str(certificates / "key.pem")
        # What is said on the command line goes first.
        assert security(tls(strangers)).tls_worker_key == str(strangers / "key.pem")
    with dask.config.set(configuration(certificates, "client")):
        assert not security(ClusterSpec()).require_encryption  # as Dask itself takes it


@pytest.fixture(scope="module")
def encrypted(certificates, tmp_path_factory):
    """The address of a scheduler with one worker, each a process that only has the variables."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    environment = os.environ | tls_environment(security(tls(certificates)))
    started = []
    try:
        for words in (
            "dask_scheduler --host 127.0.0.1 --port 0 --protocol tls",
            "dask_worker --no-nanny --local-directory work",
        ):
            program = [sys.executable, "-P", "-m", *f"distributed.cli.{words}".split()]
            command = [*program, "--scheduler-file", str(file), "--no-dashboard"]
            with (folder / "log").open("a") as log:
                started.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
                )
        with Client(
            scheduler_file=str(file), security=security(tls(certificates)), timeout=30
        ) as client:
            client.wait_for_workers(1, timeout=30)
            yield client.scheduler.address
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_only_clients_with_the_credentials_are_accepted(encrypted, certificates, strangers):
    assert encrypted.startswith("tls://")
    with connect(encrypted, tls=certificates) as client:
        assert client.submit(lambda: 5, pure=False).result(timeout=20) == 5
        (worker,) = client.run(lambda dask_worker: dask_worker.address)
        assert worker.startswith("tls://")
    for address, given in (
        (encrypted, {}),
        (encrypted.replace("tls://", "tcp://"), {}),
        (encrypted, {"tls": strangers}),
    ):
        with pytest.raises(ClusterError), connect(address, start_timeout=1, **given):
            pass
