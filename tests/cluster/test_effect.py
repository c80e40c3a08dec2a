"""An option of a cluster that would be ignored on a kind is refused, on every kind alike."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import dask
import pytest

from penstock import ClusterSpec, connect
from penstock.cluster.connect import kind_for
from penstock.errors import PenstockWarning, UsageError


def test_what_threads_have_anyway_may_be_asked_for() -> None:
    with connect("threads", no_tls=True, dashboard="none") as client:
        assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.parametrize("options", [{"hosts": "h1:2"}, {"interface": "lo"}, {"tls": "/tmp"}])
def test_connecting_refuses_it(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        connect("threads", **options).__enter__()


def test_where_auto_has_chosen_the_kind_there_is_a_warning() -> None:
    spec = ClusterSpec(worker_timeout=5.0, threads=3)
    assert kind_for(spec, 0, None) == "threads"
    with pytest.warns(PenstockWarning, match="--worker-timeout has no effect on threads, which"):
        assert spec.for_kind("threads") == ClusterSpec(threads=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert spec.for_kind("local") == spec


def test_dasks_configuration_is_for_every_kind() -> None:
    known = {"hosts": "h1:2", "interface": "lo", "threads": 2}
    with dask.config.set({"penstock.cluster": known}):
        spec = ClusterSpec(cluster="threads").configured()
        assert spec.hosts == "h1:2"
        assert spec.for_kind("threads") == ClusterSpec(cluster="threads", threads=2)
        assert spec.configured().for_kind("threads").hosts is None
        with pytest.raises(UsageError):
            ClusterSpec(cluster="threads", hosts="h2:2").configured().for_kind("threads")
        with connect("threads") as client:
            assert sum(client.nthreads().values()) == 2


def test_memory_of_a_gpu_has_no_meaning_on_a_cpu() -> None:
    spec = ClusterSpec(cluster="mpi", device="cpu", device_pool="1GB")
    with pytest.raises(UsageError):
        spec.for_kind("mpi")
    assert replace(spec, device="auto").for_kind("mpi").device_pool == "1GB"
