"""Workers as SLURM batch jobs, one a job, through dask-jobqueue: for plain Dask work.

What a site wants said (partition, account, wall time, modules to load) stands in dask-jobqueue's
own configuration, ``jobqueue.slurm``. Gangs need an MPI world instead: see script.py.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.addresses import scheduler_addresses
from penstock.cluster.dashboard import serve_dashboard
from penstock.cluster.running import Running
from penstock.cluster.security.credentials import credentials
from penstock.cluster.slurm.jobs import Jobs
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, MissingExtra, UsageError, pip_install
from penstock.sizes import parse_bytes
from penstock.temporary import TemporaryFolder

if TYPE_CHECKING:
    from distributed import Security

CLOSE_TIMEOUT = 4.0
_SUBMIT_SECONDS = 2.0  # for an sbatch to answer, where the cluster closes before it has


def slurm_options(spec: ClusterSpec, used: Security | None = None) -> dict[str, Any]:
    """Return the keyword arguments of ``dask_jobqueue.SLURMCluster``; ``used``: the credentials.

    Where the site's configuration says something that ``spec`` does not, that holds.
    """
    import dask

    site: dict[str, Any] = dask.config.get("jobqueue.slurm", None) or {}
    if spec.workers is None:
        raise UsageError(
            "a cluster of kind slurm needs to know how many jobs to submit",
            remedy="Say it with --workers: each job runs one worker",
        )
    memory = spec.memory_limit or site.get("memory")
    if memory is None:
        raise UsageError(
            "a cluster of kind slurm needs to know how much memory a job may use",
            remedy="Say it with --memory-limit, or for every job in Dask's configuration: "
            "jobqueue.slurm.memory",
        )
    if used is not None:
        _refuse_odd_paths(used)
    scheduler = dict(site.get("scheduler-options") or {})
    if spec.dashboard != ClusterSpec().dashboard or "dashboard_address" not in scheduler:
        scheduler["dashboard_address"] = spec.dashboard
    if scheduler["dashboard_address"] == "none":
        # Given no address, Dask would serve something at its usual port.
        scheduler |= {"dashboard_address": "localhost:0", "dashboard": False}
    if spec.scheduler_port:
        scheduler["port"] = spec.scheduler_port
    options: dict[str, Any] = {
        "name": "slurm",
        "job_name": "penstock",
        "cores": spec.threads or site.get("cores") or 1,
        "processes": 1,
        "memory": parse_bytes(str(memory)),
        "local_directory": '"$penstock_scratch"',
        "job_script_prologue": [
            *(site.get("job-script-prologue") or []),
            *_scratch_lines(spec, site.get("local-directory")),
        ],
        # Workers would serve theirs on every interface of their hosts.
        "worker_extra_args": [
            *("--no-dashboard", "--dashboard-address", "localhost:0"),
            *(site.get("worker-extra-args") or []),
        ],
        "scheduler_options": scheduler,
        "security": used,
        # A failed task is reported once, by the job, with its remedy.
        "silence_logs": logging.CRITICAL,
    }
    if not site.get("python"):
        # -P: not the folder that the jobs start in, where a folder penstock/ may lie.
        options["python"] = f"{shlex.quote(sys.executable)} -P"
    if spec.interface is not None:
        options["interface"] = spec.interface
    return options


def _scratch_lines(spec: ClusterSpec, site: str | None) -> list[str]:
    """Return shell lines that make a folder for one job, which goes when the job does.

    A cancelled job has no time to tidy up itself.
    """
    if spec.worker_scratch is not None:
        base = shlex.quote(str(spec.worker_scratch))
    else:
        base = f'"{site}"' if site else '"${TMPDIR:-/tmp}"'  # the site's may have variables too
    return [
        f"mkdir -p {base}",
        f"penstock_scratch=$(mktemp -d {base}/penstock-job-XXXXXXXX) || exit 1",
        "trap 'rm -rf \"$penstock_scratch\"' EXIT",
    ]


@contextmanager
def open_slurm(spec: ClusterSpec, *, quiet: bool) -> Iterator[Running]:
    """Submit a job a worker, and cancel them all in the end."""
    _need_slurm()
    from dask_jobqueue import SLURMCluster

    with (
        credentials(spec, None) as used,
        TemporaryFolder("penstock-slurm") as folder,
        _log_folder() as (named, logs),
    ):
        options = slurm_options(spec, used)
        scheduler_addresses(
            spec, str(folder), used=used, remote=False
        )  # refuses what cannot be used
        options["scheduler_options"].setdefault("local_directory", str(folder))
        jobs = Jobs(logs)
        try:
            cluster = SLURMCluster(**options, job_cls=_job_class(jobs), log_directory=named)
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(
                "the scheduler of the SLURM cluster could not start",
                got=str(error),
                remedy="Check --interface, --dashboard, and jobqueue.slurm in Dask's configuration",
            ) from error
        jobs.cluster = cluster
        try:
            cluster.scale(spec.workers)
            yield Running(
                target=cluster,
                workers=spec.workers,
                dashboard=serve_dashboard(cluster, spec),
                security=options["security"],
                log=jobs.log,
                missing=jobs.missing,
                failure=jobs.failure,
            )
        finally:
            # Closing asks the workers one by one to finish; without jobs there are none.
            jobs.cancel()
            with suppress(TimeoutError):
                cluster.close(timeout=CLOSE_TIMEOUT)
            jobs.cancel()  # those that sbatch answered meanwhile


def _job_class(jobs: Jobs) -> Any:
    from dask_jobqueue.slurm import SLURMJob
    from distributed.core import Status

    class WorkerJob(SLURMJob):  # type: ignore[misc]
        """A batch job that tells ``jobs`` its number, or why there is none."""

        async def start(self) -> None:
            # Concurrently: a client that connects would wait for every sbatch, and without end.
            self._submission = asyncio.ensure_future(self._submitted())
            self.status = Status.running

        async def _submitted(self) -> None:
            try:
                await super().start()
            except (OSError, RuntimeError, ValueError) as error:
                # The cluster's event loop would log it, and everybody wait for this worker.
                jobs.refused = " ".join(str(error).rpartition("stderr:")[2].split())
                self.status = Status.running
            else:
                jobs.ids[str(self.name)] = self.job_id

        async def _submit_job(self, script_filename: str) -> str:
            sbatch = await asyncio.create_subprocess_exec(
                *shlex.split(self.submit_command),
                script_filename,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                out, said = await sbatch.communicate()
            finally:
                if sbatch.returncode is None:  # it hangs, and nobody waits for it any more
                    sbatch.kill()
            if sbatch.returncode:
                raise RuntimeError(f"stderr:{said.decode(errors='replace')}")
            return out.decode()

        async def close(self) -> None:
            # What sbatch has submitted without saying so would stay in the queue.
            _, unanswered = await asyncio.wait({self._submission}, timeout=_SUBMIT_SECONDS)
            if unanswered:
                self._submission.cancel()
            elif self.job_id not in jobs.cancelled:
                await super().close()
            self.status = Status.closed

    return WorkerJob


@contextmanager
def _log_folder() -> Iterator[tuple[str, Path]]:
    """Give the folder for the jobs' logs, as named in their scripts and as a path.

    It must be one that compute nodes see: the site's, which stays, or one in the current folder,
    which does not.
    """
    import dask

    site = dask.config.get("jobqueue.slurm.log-directory", None)
    if site is not None:
        yield str(site), Path(site)
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix=".penstock-slurm-", dir=Path.cwd()))
    except OSError as error:
        raise UsageError(
            "the jobs' logs cannot be written to the current folder",
            got=error.strerror,
            remedy="Start from a folder that compute nodes see too, or name one in Dask's "
            "configuration: jobqueue.slurm.log-directory",
        ) from error
    try:
        # Relative to where sbatch is called: its options cannot quote every path.
        yield folder.name, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _need_slurm() -> None:
    if find_spec("dask_jobqueue") is None:
        raise MissingExtra(
            "a cluster of kind slurm needs dask-jobqueue, which is not installed",
            remedy=f"Install it: {pip_install('slurm')}",
        )
    for program in ("sbatch", "scancel"):
        if shutil.which(program) is None:
            raise MissingExtra(
                f"a cluster of kind slurm needs SLURM's {program}, which is not on PATH",
                remedy="Run this on a host that submits jobs, such as a login node, or use another "
                "--cluster",
            )


def _refuse_odd_paths(credentials: Security) -> None:
    # dask-jobqueue writes them into the job script as they are.
    for path in credentials.get_tls_config_for_role("worker").values():
        if path is not None and shlex.quote(path) != path and "/" in path:
            raise UsageError(
                f"{path} cannot be passed to SLURM jobs",
                expected="paths without spaces and quotes",
                remedy="Name the folder of --tls, or PENSTOCK_STATE, through a link without them",
            )
