"""An option of a cluster that would be ignored on a kind is refused, on every kind alike."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest

from penstock import ClusterSpec, connect
from penstock.cluster.connect import kind_for
from penstock.cluster.effect import EFFECTS, INSIDE, RUNNING, with_effect
from penstock.cluster.spec import KINDS
from penstock.errors import PenstockWarning, UsageError
from penstock.pipelines.cli import run as cli

ROOT = Path(__file__).resolve().parents[2]
GIVEN: dict[str, Any] = {
    "workers": 2, "threads": 2, "memory_limit": "1GB", "hosts": "h1:2", "mpiexec": "srun",
    "device": "gpu", "device_pool": "1GB", "device_limit": "0.5", "worker_scratch": Path("/tmp"),
    "interface": "lo", "scheduler_port": 8786, "dashboard": "localhost:8787",
    "start_timeout": 5.0, "worker_timeout": 5.0, "tls": Path("/tmp"), "no_tls": True,
}  # fmt: skip
STARTED = [kind for kind in KINDS if kind != "auto"]


def test_every_option_is_tried() -> None:
    assert {"cluster", *GIVEN} == set(ClusterSpec.__dataclass_fields__)


@pytest.mark.parametrize("kind", [*STARTED, "office"])
@pytest.mark.parametrize("name", GIVEN)
def test_an_option_has_an_effect_or_is_refused(name: str, kind: str) -> None:
    spec = ClusterSpec(cluster=kind, **{name: GIVEN[name]})
    where = kind if kind in KINDS else RUNNING
    if where in EFFECTS.get(name, {where}):
        assert with_effect(spec, kind) == spec
    elif (name, kind) == ("no_tls", "threads"):
        assert with_effect(spec, kind) == ClusterSpec(cluster=kind)
    else:
        flag = name.replace("_", "-")
        with pytest.raises(UsageError, match=f"--{flag} has no effect on .*{kind}.*Leave --{flag}"):
            with_effect(spec, kind)


def test_the_guide_says_on_which_kinds() -> None:
    table = (ROOT / "docs/cluster.md").read_text().split("| flag | default | says | kinds |")[1]
    said = dict(re.findall(r"^\| `--([a-z-]+)`.*\| ([a-z, ]*) \|$", table, re.MULTILINE))
    for name in GIVEN:
        kinds = [kind for kind in STARTED if kind in EFFECTS.get(name, {kind})]
        expected = ", ".join(sorted(kinds))
        if set(STARTED) - set(kinds) <= {"threads"}:
            expected = "all" if "threads" in kinds else "all but threads"
        assert said[name.replace("_", "-")] == expected, name


def test_what_threads_have_anyway_may_be_asked_for() -> None:
    with connect("threads", no_tls=True, dashboard="none") as client:
        assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.parametrize("options", [{"hosts": "h1:2"}, {"interface": "lo"}, {"tls": "/tmp"}])
def test_connecting_refuses_it(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has no effect on --cluster threads"):
        connect("threads", **options).__enter__()


def test_a_command_refuses_it(tmp_path: Path, capsys: Any) -> None:
    assert cli(["generate", "sbm", str(tmp_path / "g"), "--nodes", "100", "-q"]) == 0
    words = ["walk", str(tmp_path / "g"), str(tmp_path / "w"), "--cluster", "threads"]
    assert cli([*words, "--interface", "lo"]) == 2
    assert "--interface has no effect on --cluster threads" in capsys.readouterr().err
    assert cli(["cluster", "start", "--kind", "local", "--device-limit", "0.5"]) == 2
    assert "--device-limit has no effect on --cluster local" in capsys.readouterr().err


def test_where_auto_has_chosen_the_kind_there_is_a_warning() -> None:
    spec = ClusterSpec(worker_timeout=5.0, threads=3)
    assert kind_for(spec, 0, None) == "threads"
    with pytest.warns(PenstockWarning, match="--worker-timeout has no effect on threads, which"):
        assert with_effect(spec, "threads") == ClusterSpec(threads=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_effect(spec, "local") == spec


def test_dasks_configuration_is_for_every_kind() -> None:
    known = {"hosts": "h1:2", "interface": "lo", "threads": 2}
    with dask.config.set({"penstock.cluster": known}):
        spec = ClusterSpec(cluster="threads").configured()
        assert spec.hosts == "h1:2"
        assert with_effect(spec, "threads") == ClusterSpec(cluster="threads", threads=2)
        assert with_effect(spec.configured(), "threads").hosts is None
        with pytest.raises(UsageError, match="--hosts has no effect"):
            with_effect(ClusterSpec(cluster="threads", hosts="h2:2").configured(), "threads")
        with connect("threads") as client:
            assert sum(client.nthreads().values()) == 2


def test_a_file_of_options_names_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster: local\nhosts: h1:2\n")
    spec = ClusterSpec(cluster=str(file)).configured()
    with pytest.raises(UsageError, match="--hosts has no effect on --cluster local"):
        with_effect(spec, "local")


def test_memory_of_a_gpu_has_no_meaning_on_a_cpu() -> None:
    spec = ClusterSpec(cluster="mpi", device="cpu", device_pool="1GB")
    with pytest.raises(UsageError, match="--device-pool is about a GPU's memory"):
        with_effect(spec, "mpi")
    assert with_effect(replace(spec, device="auto"), "mpi").device_pool == "1GB"


def test_within_an_mpi_job_mpiexec_has_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.effect.inside_mpi_job", lambda environ: (0, 4))
    assert INSIDE in EFFECTS["threads"]
    assert with_effect(ClusterSpec(cluster="mpi", threads=2), "mpi").threads == 2
    with pytest.raises(UsageError, match="--workers has no effect on the workers of a script"):
        with_effect(ClusterSpec(cluster="mpi", workers=2), "mpi")
