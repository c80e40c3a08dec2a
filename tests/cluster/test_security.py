"""A cluster that encrypts accepts only clients with its credentials."""

import shutil

import dask
import pytest
from certificates import make_certificates

from penstock import connect
from penstock.cluster.security import security
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
    with pytest.raises(UsageError, match=str(folder)):
        security(tls(folder))


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


def test_only_clients_with_the_credentials_are_accepted(certificates, strangers):
    with connect("local", workers=1, tls=certificates) as owner:
        address = owner.scheduler.address
        assert address.startswith("tls://")
        with connect(address, tls=certificates) as client:
            assert client.submit(lambda: 5, pure=False).result(timeout=20) == 5
            (worker,) = client.run(lambda dask_worker: dask_worker.address)
            assert worker.startswith("tls://")
        for wrong, given in (
            (address, {}),
            (address.replace("tls://", "tcp://"), {}),
            (address, {"tls": strangers}),
        ):
            with pytest.raises(ClusterError), connect(wrong, start_timeout=1, **given):
                pass
