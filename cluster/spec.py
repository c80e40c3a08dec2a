"""Where a job runs, as data: the options that every job shares."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
from cyclopts import Group, Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import options
from penstock.sizes import parse_bytes

# Whatever is not one of these is an address, a scheduler file, a YAML file, or a started cluster.
KINDS = ("auto", "local", "threads", "mpi", "cuda", "slurm")

_WHERE = Group("Where it runs", sort_key=8)


@options
class ClusterSpec:
    """Options that say where a job's tasks run.

    What is not given is looked up in Dask's configuration, under ``penstock.cluster`` (a YAML file
    of Dask's, or ``DASK_PENSTOCK__CLUSTER__WORKERS=4``).
    """

    cluster: Annotated[str, Parameter(name=("--cluster", "--kind"), group=_WHERE)] = "auto"
    """threads: in this process; local: processes on this machine; mpi: ranks that mpiexec starts;
    cuda: a process a GPU; slurm: batch jobs; tcp://host:port, a scheduler file, or the name of a
    cluster that runs already; a YAML file with these options; auto: what fits the job"""
    workers: Annotated[int | None, Field(gt=0), Parameter(alias="-n", group=_WHERE)] = None
    """how many workers, which are ranks for mpi [default: one a core, GPU or slot]"""
    threads: Annotated[int | None, Field(gt=0), Parameter(group=_WHERE)] = None
    """threads of one worker [default: 1; with threads: one a core]"""
    memory_limit: Annotated[str | None, Parameter(group=_WHERE)] = None
    """memory of one worker, such as 1.5GB [default: its share of three quarters of the machine]"""
    hosts: Annotated[str | None, Parameter(group=_WHERE)] = None
    """hosts of kind mpi: names with slots, such as h1:4,h2:4, or a hostfile [default: here]"""
    mpiexec: Annotated[str | None, Parameter(group=_WHERE)] = None
    """the mpiexec that starts ranks, or srun [default: that of the MPI which mpi4py loads]"""
    device: Annotated[Literal["auto", "cpu", "gpu"], Parameter(group=_WHERE)] = "auto"
    """what workers compute on; auto: on a GPU where there is one"""
    device_pool: Annotated[str | None, Parameter(group=_WHERE)] = None
    """GPU memory to take at the start, such as 40GB or 0.8 of it [default: as needed]"""
    device_limit: Annotated[str | None, Parameter(group=_WHERE)] = None
    """GPU memory beyond which results move to host memory, such as 60GB or 0.8 of it"""
    worker_scratch: Annotated[Path | None, Parameter(group=_WHERE)] = None
    """fast local disk of the workers [default: the fastest that they can write to]"""
    interface: Annotated[str | None, Parameter(group=_WHERE)] = None
    """network interface that scheduler and workers use, such as ib0"""
    scheduler_port: Annotated[int, Field(ge=0, lt=65536), Parameter(group=_WHERE)] = 0
    """port of the scheduler; 0: any that is free"""
    dashboard: Annotated[str, Parameter(group=_WHERE)] = "localhost:0"
    """address of the dashboard, or none"""
    start_timeout: Annotated[float, Field(gt=0), Parameter(group=_WHERE)] = 60.0
    """seconds within which every worker must have arrived"""
    tls: Annotated[Path | None, Parameter(group=_WHERE)] = None
    """a folder with ca.pem, cert.pem and key.pem for encrypted connections [default: what penstock
    starts makes its own, for itself alone]"""
    no_tls: Annotated[bool, Parameter(negative="", group=_WHERE)] = False
    """start without encryption: whoever reaches the scheduler's port (on one host every local user,
    with --hosts the network) can run code as you"""

    def configured(self) -> ClusterSpec:
        """Return this with what is not given taken from the YAML file or Dask's configuration."""
        import dask

        spec = self
        if self.cluster.endswith((".yaml", ".yml")):
            spec = replace(self, cluster="auto")._filled(_read_yaml(self.cluster), self.cluster)
        return spec._filled(dask.config.get("penstock.cluster", None) or {}, "Dask's configuration")

    def _filled(self, values: Any, source: str) -> ClusterSpec:
        names = [field.name for field in fields(self)]
        if not isinstance(values, dict):
            raise UsageError(
                f"the cluster options in {source}", expected="a mapping", got=type(values).__name__
            )
        values = {str(key).replace("-", "_"): value for key, value in values.items()}
        if unknown := set(values) - set(names):
            raise UsageError(
                f"{source} has the unknown cluster option {sorted(unknown)[0]!r}",
                expected=f"one of {', '.join(names)}",
            )
        plain = ClusterSpec()
        missing = {k: v for k, v in values.items() if getattr(self, k) == getattr(plain, k)}
        return replace(self, **missing)

    def worker_count(self) -> int:
        """Return how many workers to start on this machine."""
        return self.workers or max(1, len(os.sched_getaffinity(0)))

    def worker_memory(self) -> int:
        """Return how many bytes one worker may use."""
        if self.memory_limit is not None:
            return parse_bytes(self.memory_limit)
        return int(psutil.virtual_memory().total * 3 // 4 // self.worker_count())


def _read_yaml(path: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path} with cluster options") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {path} as YAML", got=str(error), remedy="Write one `option: value` a line"
        ) from error
