"""Who is of another Python or penstock is refused, by name."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from penstock import __version__
from penstock.cluster.startup import check_versions
from penstock.errors import ClusterError

PYTHON = ".".join(map(str, sys.version_info[:3]))


class Cluster:
    """Stands in for a client: what scheduler and workers would say of themselves."""

    def __init__(self, scheduler: str, workers: dict[str, str], penstock: dict[str, Any]) -> None:
        self.versions_said = {"host": {"python": f"{scheduler}.final.0"}}
        self.workers, self.penstock = workers, penstock
        self.scheduler = self

    def versions(self) -> None:
        raise AssertionError

    def sync(self, function: Any, callback_timeout: float) -> Any:
        assert function == self.versions
        return self.versions_said

    def run_on_scheduler(self, function: Any, **_: Any) -> dict[str, str]:
        return self.workers

    def run(self, function: Any, on_error: str, callback_timeout: float) -> dict[str, Any]:
        assert not any(python != PYTHON for python in self.workers.values()), "asked too early"
        return self.penstock


def test_all_alike() -> None:
    check_versions(Cluster(PYTHON, {"tcp://a": PYTHON}, {"tcp://a": __version__}))


def test_another_patch_release_is_no_other_python() -> None:
    minor = ".".join(PYTHON.split(".")[:2])
    check_versions(Cluster(f"{minor}.99", {}, {}))


@pytest.mark.parametrize(
    ("cluster", "match"),
    [
        (Cluster("3.9.1", {}, {}), "the scheduler has another Python.*got Python 3.9"),
        (Cluster(PYTHON, {"tcp://b": "3.9.1"}, {}), "worker at tcp://b has another Python"),
        (
            Cluster(PYTHON, {"tcp://b": PYTHON}, {"tcp://b": "0.0.1"}),
            rf"worker at tcp://b has another penstock.*penstock {__version__}, as here, got "
            "penstock 0.0.1",
        ),
        (
            Cluster(PYTHON, {"tcp://b": PYTHON}, {"tcp://b": ModuleNotFoundError("penstock")}),
            "got penstock none that can be imported",
        ),
        (
            Cluster(PYTHON, {"tcp://b": PYTHON}, {"tcp://b": OSError("connection lost")}),
            "the worker at tcp://b does not say which penstock it has. Got OSError: connection "
            "lost",
        ),
    ],
)
def test_others_are_refused(cluster: Any, match: str) -> None:
    with pytest.raises(ClusterError, match=match):
        check_versions(cluster)


def test_a_worker_that_dies_while_it_is_asked_is_lost_as_at_any_other_time() -> None:
    class Dying(Cluster):
        def run(self, function: Any, on_error: str, callback_timeout: float) -> dict[str, Any]:
            del self.workers["tcp://b"]
            return self.penstock

    pythons = {"tcp://a": PYTHON, "tcp://b": PYTHON}
    check_versions(Dying(PYTHON, pythons, {"tcp://a": __version__, "tcp://b": OSError("gone")}))
