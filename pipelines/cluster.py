"""``penstock cluster start|status|stop|script``: clusters that run between jobs."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Annotated

from cyclopts import App, Parameter

from penstock.cluster.daemon.registry import Registered, all_registered, check_name, find, type_this
from penstock.cluster.daemon.status import Status, query
from penstock.cluster.daemon.stop import stop as end_cluster
from penstock.cluster.slurm import SlurmScript, slurm_script
from penstock.cluster.spec import KINDS, ClusterSpec
from penstock.errors import ClusterError, PenstockError, UsageError
from penstock.options import ClientPath
from penstock.pipelines.cluster_report import StartReport, StatusReport, StopReport
from penstock.pipelines.display import Display
from penstock.pipelines.help_page import OPTIONS

app = App(name="cluster", group_parameters=OPTIONS)

Name = Annotated[str, Parameter(help="its name, which jobs give as --cluster NAME")]


@app.command(name="start", sort_key=1)
def start(
    *,
    name: Name = "default",
    foreground: Annotated[bool, Parameter(negative="")] = False,
    scheduler_file: ClientPath | None = None,
    spec: ClusterSpec = ClusterSpec(),
    output: Display = Display(),
) -> None:
    """Start a cluster, and return when every worker has connected.

    Parameters
    ----------
    foreground
        keep it in this process until Ctrl-C or SIGTERM: for systemd, containers and sbatch
    scheduler_file
        also write the scheduler's address to this file, for Dask's own tools
    """
    from penstock.cluster.daemon.daemon import keep, launch

    check_name(name)
    spec = _startable(spec)
    if scheduler_file is not None and not scheduler_file.parent.is_dir():
        raise UsageError(
            f"the folder of --scheduler-file does not exist: {scheduler_file}",
            remedy="Make the folder first",
        )
    began = time.monotonic()

    def ready(cluster: Registered) -> None:
        output.show(StartReport(cluster, time.monotonic() - began))
        sys.stdout.flush()  # in the foreground this is not the end

    def notify(text: str) -> None:
        if not output.quiet:
            print(text, file=sys.stderr)

    if foreground:
        keep(name, spec, ready, scheduler_file=scheduler_file, quiet=output.quiet)
    else:
        ready(launch(name, spec, scheduler_file=scheduler_file, notify=notify))


@app.command(name="status", sort_key=2)
def status(
    *,
    name: Annotated[str | None, Parameter(help="this one only, with its workers")] = None,
    output: Display = Display(),
) -> None:
    """Show which clusters are started, and who is present."""
    if name is None:
        output.show(StatusReport(query(all_registered()), details=output.verbose))
        return
    status = query([_known(name)])[0]
    if status.state in ("ended", "silent"):
        if not output.quiet and (lines := status.cluster.log_tail()):
            print(f"the last lines of {status.cluster.log}:\n{lines}", file=sys.stderr)
        raise _trouble(status)
    output.show(StatusReport([status], details=True))


@app.command(name="stop", sort_key=3)
def stop(
    *,
    name: Annotated[str, Parameter(help="which one")] = "default",
    everything: Annotated[
        bool, Parameter(name="--all", negative="", help="all that run on this host")
    ] = False,
    output: Display = Display(),
) -> None:
    """Stop a cluster: within five seconds in order, then by force."""
    if everything and name != "default":
        raise UsageError("--all and --name exclude each other")
    clusters = all_registered() if everything else [_known(name)]
    here = [cluster for cluster in clusters if cluster.alive() is not None]
    elsewhere = [cluster for cluster in clusters if cluster.alive() is None]
    if elsewhere and not everything:
        raise ClusterError(
            f"cluster {name!r} was started on host {elsewhere[0].host}, and ends only there",
            remedy=f"Run {type_this('stop', name)} on that host; if it no longer exists, delete "
            f"{elsewhere[0].folder}",
        )
    ended = []
    for cluster in here:
        began = time.monotonic()
        how = end_cluster(cluster)
        ended.append((cluster, how, time.monotonic() - began))
    output.show(StopReport(ended, elsewhere))


@app.command(name="script", sort_key=4)
def script(
    *command: str,
    job: SlurmScript | None = None,
    spec: ClusterSpec = ClusterSpec(),
) -> None:
    """Print a script for sbatch: a command, or a cluster, on an MPI world that srun starts.

    Parameters
    ----------
    command
        what to run, after --, such as -- penstock etl edges.parquet g [default: keep a cluster]
    """
    print(slurm_script(spec, replace(job or SlurmScript(), command=command)).rstrip("\n"))


def _startable(spec: ClusterSpec) -> ClusterSpec:
    """Return ``spec`` with its kind decided; some cannot be shared, or run already."""
    spec = spec.configured()
    if spec.cluster == "auto":
        kind = "mpi" if spec.hosts is not None or spec.mpiexec is not None else "local"
        spec = replace(spec.for_kind(kind), cluster=kind)
    kinds = [kind for kind in KINDS if kind not in ("auto", "threads")]
    if spec.cluster not in kinds:
        why = (
            "threads belong to the process of one job"
            if spec.cluster == "threads"
            else "that is not a kind of cluster"
        )
        raise UsageError(
            f"cannot start a cluster of kind {spec.cluster!r}: {why}",
            expected=f"one of {', '.join(kinds)}",
        )
    return spec.for_kind(spec.cluster)


def _known(name: str) -> Registered:
    cluster = find(name)
    if cluster is not None:
        return cluster
    names = [each.name for each in all_registered()]
    raise ClusterError(
        f"no cluster {name!r} was started" + ("" if names else ", nor any other"),
        expected=f"one of {', '.join(names)}" if names else None,
        remedy=None if names else f"Start it with {type_this('start', name)}",
    )


def _trouble(status: Status) -> PenstockError:
    cluster = status.cluster
    if status.state == "ended":
        return cluster.ended()
    there = f"on host {cluster.host}" if cluster.alive() is None else f"process {cluster.pid}"
    return ClusterError(
        f"the scheduler of cluster {cluster.name!r} ({there}) does not answer at {cluster.address}",
        got=status.trouble,
        remedy=f"Try again; if it fails again, end it with {type_this('stop', cluster.name)}",
    )
