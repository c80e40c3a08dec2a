"""Where a job runs, as data: the options that all jobs share."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from pydantic import AfterValidator, Field

from penstock.documents import read_yaml
from penstock.errors import UsageError, warn
from penstock.limits import SMALLEST_LIMIT, WORKER_ITSELF, cores, total_memory, workers_share
from penstock.options import (
    ClientPath,
    WorkerPath,
    flag,
    given_in,
    given_options,
    options,
    with_underscores,
)
from penstock.paths import client_path
from penstock.sizes import checked_size, format_bytes, parse_bytes

# Any other text is an address, a scheduler file, a YAML file, or a started cluster.
KINDS = ("auto", "local", "threads", "mpi", "cuda")

_INSIDE = "inside"  # a script that mpiexec started
_RUNNING = "running"  # a cluster that already runs
_STARTED = frozenset({"local", "mpi", "cuda"})
_PROCESSES = _STARTED | {_INSIDE}
_OURS = _PROCESSES | {"threads"}
# The kinds on which an option has an effect; the other options have one on every kind.
EFFECTS: dict[str, frozenset[str]] = {
    "workers": _STARTED | {"threads"},
    "threads": _OURS,
    "memory_limit": _OURS,
    "hosts": frozenset({"mpi"}),
    "mpiexec": frozenset({"mpi"}),
    "device_limit": frozenset({"mpi", "cuda"}),
    "interface": _PROCESSES,
    "scheduler_port": _STARTED,
    "dashboard": _PROCESSES,
    "worker_timeout": _PROCESSES,
    "tls": _PROCESSES | {_RUNNING},
    "no_tls": _PROCESSES | {_RUNNING},
}
# Always true of threads: no connection to encrypt, and no dashboard.
_ANYWAY = (("threads", "no_tls", True), ("threads", "dashboard", "none"))
_OF_A_GPU = ("device_pool", "device_limit")

_WHERE = Group("Where it runs", sort_key=8)
_GIVEN = "_given"


def _where(text: str) -> str:
    named = text.endswith((".json", ".yaml", ".yml")) and "://" not in text
    return str(client_path(text)) if named else text


def _hosts(text: str) -> str:
    return str(client_path(text)) if "/" in text or Path(text).is_file() else text


def _program(text: str) -> str:
    return str(client_path(text)) if "/" in text else text  # else PATH finds it


def _worker_memory(text: str) -> str:
    size = parse_bytes(checked_size(text))
    if size < SMALLEST_LIMIT:
        raise ValueError(
            f"at least {format_bytes(SMALLEST_LIMIT)}: a worker alone takes about "
            f"{format_bytes(WORKER_ITSELF)}, and gets no tasks beyond 80 % of its limit"
        )
    return text


def _shared() -> int:
    return workers_share(total_memory())


@Parameter(group=_WHERE)
@options
class ClusterSpec:
    """Options of the cluster on which a job runs.

    Parameters
    ----------
    cluster, workers, threads, memory_limit, ...
        the options of every command under "Where it runs" (``penstock etl --help``), each with the
        text under its field below. Those not given are read from Dask's configuration, under
        ``penstock.cluster`` (a YAML file, or ``DASK_PENSTOCK__CLUSTER__WORKERS=4``)

    Raises
    ------
    UsageError
        an option has a bad value

    Examples
    --------
    >>> spec = ClusterSpec(cluster="mpi", workers=4, start_timeout=120)
    >>> with connect(spec) as client: ...
    >>> spec.configured().worker_count(), spec.worker_memory()
    """

    cluster: Annotated[str, AfterValidator(_where), Parameter(name="--cluster")] = "auto"
    """threads: in this process; local: processes on this machine; mpi: ranks that mpiexec starts;
    cuda: one process per GPU; tcp://host:port, a scheduler file, or the name of a running cluster;
    a YAML file with these options; auto: chosen for the job"""
    workers: Annotated[int | None, Field(gt=0), Parameter(alias="-n")] = None
    """how many workers; ranks for mpi [default: one per core, GPU or slot; fewer if memory is
    scarce]"""
    threads: Annotated[int | None, Field(gt=0)] = None
    """threads of one worker [default: 1; with threads: one per core]"""
    memory_limit: Annotated[str, AfterValidator(_worker_memory)] | None = None
    """memory of one worker, such as 1.5GB [default: its share of three quarters of the memory of
    the machine or its control group]"""
    hosts: Annotated[str, AfterValidator(_hosts)] | None = None
    """hosts of kind mpi: names with slots, such as h1:4,h2:4, or a hostfile [default: here]"""
    mpiexec: Annotated[str, AfterValidator(_program)] | None = None
    """the mpiexec that starts ranks, or srun [default: that of the MPI that mpi4py loads]"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """device of the workers; auto: a GPU if there is one"""
    device_pool: str | None = None
    """GPU memory to take at the start, such as 40GB or 0.8 of it [default: as needed]"""
    device_limit: str | None = None
    """GPU memory beyond which results move to host memory, such as 60GB or 0.8 of it"""
    worker_scratch: WorkerPath | None = None
    """fast local disk of the workers [default: the fastest writable one]"""
    interface: str | None = None
    """network interface that scheduler and workers use, such as ib0"""
    scheduler_port: Annotated[int, Field(ge=0, lt=65536)] = 0
    """port of the scheduler; 0: any free port"""
    dashboard: str = "localhost:0"
    """address of the dashboard, or none"""
    start_timeout: Annotated[float, Field(gt=0, le=86400)] = 60.0
    """seconds within which every worker must connect"""
    worker_timeout: Annotated[float, Field(ge=1, le=86400)] = 300.0
    """seconds without a heartbeat after which a worker counts as lost and its tasks run again
    (Dask's worker-ttl)"""
    tls: ClientPath | None = None
    """a folder with ca.pem, cert.pem and key.pem for encrypted connections [default: each cluster
    that penstock starts makes its own]"""
    no_tls: Annotated[bool, Parameter(negative="")] = False
    """start without encryption: anyone who reaches the scheduler's port (on one host every local
    user, with --hosts the network) can run code as you"""

    @property
    def given(self) -> frozenset[str]:
        """The options that differ from their defaults, without those of Dask's configuration."""
        return frozenset(self.__dict__.get(_GIVEN, given_options(self)))

    def configured(self) -> ClusterSpec:
        """Return this with missing options taken from the YAML file or Dask's configuration.

        Returns
        -------
        ClusterSpec
            Complete, and not looked up again.

        Raises
        ------
        UsageError
            An unknown option there, or a bad value.
        """
        import dask

        spec, given = self, self.given
        if self.cluster.endswith((".yaml", ".yml")):
            spec = replace(self, cluster="auto")._filled(
                read_yaml(Path(self.cluster), "file of cluster options"), self.cluster
            )
            given |= frozenset(given_options(spec))
        configuration = dask.config.get("penstock.cluster", None) or {}
        found = spec._filled(configuration, "Dask's configuration")
        object.__setattr__(found, _GIVEN, given)
        return found

    def _filled(self, values: Any, source: str) -> ClusterSpec:
        if not isinstance(values, dict):
            raise UsageError(
                f"the cluster options in {source}", expected="a mapping", got=type(values).__name__
            )
        values = with_underscores(values, source)
        own = given_options(self)  # explicit options win
        missing = {name: value for name, value in values.items() if name not in own}
        with given_in(source):
            return replace(self, **missing)

    def for_kind(self, kind: str) -> ClusterSpec:
        """Return this without the options that have no effect on a kind of cluster.

        One that was given with an explicit kind is refused; if ``auto`` chose the kind, there is a
        warning. Dask's configuration is for every kind, and gives no warning.

        Parameters
        ----------
        kind
            As ``kind_for`` returns it: never ``auto``.

        Returns
        -------
        ClusterSpec
            Every option of it has an effect.

        Raises
        ------
        UsageError
            An option was given that would be ignored.
        """
        place, plain, left = _place(kind), ClusterSpec(), {}
        for name in given_options(self):
            if place not in EFFECTS.get(name, {place}):
                if name in self.given and (place, name, getattr(self, name)) not in _ANYWAY:
                    _without_effect(self, name, kind, place)
            elif name in _OF_A_GPU and self.device == "cpu":
                if name in self.given:
                    raise UsageError(
                        f"{flag(name)} is about a GPU's memory, and has no effect with "
                        "--device cpu",
                        got=f"{flag(name)} {getattr(self, name)}",
                        remedy="Leave one of them out",
                    )
            else:
                continue
            left[name] = getattr(plain, name)
        return replace(self, **left) if left else self

    def worker_count(self) -> int:
        """Return ``workers``, or else one per core, fewer if memory is scarce."""
        return self.workers or max(1, min(cores(), _shared() // (2 * SMALLEST_LIMIT)))

    def worker_memory(self) -> int:
        """Return ``memory_limit`` in bytes, or else a share of this machine's limit."""
        if self.memory_limit is not None:
            return parse_bytes(self.memory_limit)
        return _shared() // self.worker_count()


def as_spec(cluster: str | ClusterSpec | None, **options: Any) -> ClusterSpec:
    """Return where to run, from a spec, a kind, an address, a name or a file."""
    if isinstance(cluster, ClusterSpec):
        return cluster
    return ClusterSpec(cluster="auto" if cluster is None else cluster, **options)


def _place(kind: str) -> str:
    """Return the key of a kind of cluster in the table of effects."""
    if kind not in KINDS:
        return _RUNNING
    if kind == "mpi":
        from penstock.cluster.mpi import inside_mpi_job

        return _INSIDE if inside_mpi_job(os.environ) is not None else kind
    return kind


def _without_effect(spec: ClusterSpec, name: str, kind: str, place: str) -> None:
    option = flag(name)
    kinds = " or ".join(one for one in KINDS if one in EFFECTS[name])
    if spec.cluster == "auto":
        warn(
            f"{option} has no effect on {kind}, which --cluster auto chose for this job: "
            f"name one of the kinds {kinds} to have it"
        )
        return
    where = {
        _RUNNING: f"the cluster {kind}, which already runs",
        _INSIDE: "the workers of a script that mpiexec has started",
    }
    raise UsageError(
        f"{option} has no effect on {where.get(place, f'--cluster {kind}')}",
        expected=f"it with --cluster {kinds}",
        got=f"{option} {getattr(spec, name)}",
        remedy=f"Leave {option} out"
        + (", or give it to penstock cluster start" if place == _RUNNING else ""),
    )
