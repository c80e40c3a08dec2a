"""An option of a cluster that would be ignored on a kind is refused, on every kind alike."""

import warnings

import dask
import pytest

from penstock import ClusterSpec, connect
from penstock.cluster.connect import kind_for
from penstock.errors import PenstockWarning, UsageError


def test_where_auto_has_chosen_the_kind_there_is_a_warning():
    spec = ClusterSpec(worker_timeout=5.0, threads=3)
    assert kind_for(spec, 0, None) == "threads"
    with pytest.warns(PenstockWarning, match="--worker-timeout has no effect on threads, which"):
        assert spec.for_kind("threads") == ClusterSpec(threads=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert spec.for_kind("local") == spec


def test_dasks_configuration_is_for_every_kind():
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
