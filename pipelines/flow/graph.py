"""The Dask graph of a flow: one node per stage, on a scheduler in this process, with a dashboard.

Nodes hold nothing but the stage's name: the run that they belong to is looked up in this process.
A stage that needs GPUs, or a gang, declares them as Dask resources, so that two that need the same
wait for each other.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import dask

from penstock.cluster.spec import ClusterSpec
from penstock.pipelines.flow.records import State
from penstock.workers.profiling import without_profile

if TYPE_CHECKING:
    from penstock.pipelines.flow.run import FlowRun

_RUNS: dict[int, FlowRun] = {}


def run_graph(run: FlowRun, width: int, *, quiet: bool) -> None:
    """Run the stages of ``run``, at most ``width`` side by side."""
    from distributed import Client, LocalCluster
    from distributed.utils import silence_logging_cmgr

    from penstock.cluster.dashboard import serve_dashboard
    from penstock.cluster.ended import forgotten_at_the_end
    from penstock.cluster.local import serve_on_loopback
    from penstock.pipelines.flow.run import gpus_of

    _RUNS[id(run)] = run
    gpus = gpus_of(run.flow) if any(stage.gpus for stage in run.flow.stages.values()) else 0
    try:
        with (
            forgotten_at_the_end(),
            silence_logging_cmgr(logging.CRITICAL),
            dask.config.set({"distributed.scheduler.work-stealing": False}),
            without_profile(unless_safe=False),
            LocalCluster(
                n_workers=0, threads_per_worker=width, processes=False, memory_limit=None,
                protocol="inproc", dashboard_address="localhost:0",
                scheduler_kwargs={"dashboard": False},
                resources={"gpu": gpus, "gang": 1},
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            serve_on_loopback(cluster)
            cluster.scale(1)
            link = serve_dashboard(cluster, ClusterSpec())
            if not quiet and link and len(run.flow.stages) > 1:
                print(f"stages: {link}", file=sys.stderr)
            nodes = graph_of(run)
            futures = client.compute(list(nodes.values()), optimize_graph=False)
            try:
                client.gather(futures)
            except BaseException:
                run.stop_processes()  # the worker's threads wait for them
                raise
    finally:
        _RUNS.pop(id(run), None)


def graph_of(run: FlowRun) -> dict[str, Any]:
    """Return a delayed node for each stage, by name."""
    nodes: dict[str, Any] = {}
    for name, stage in run.flow.stages.items():
        wants = {"gpu": stage.gpus} if stage.gpus else {}
        if stage.gang:
            wants["gang"] = 1
        # Retries are the flow's: a stage that is run again resumes.
        with dask.annotate(resources=wants, retries=0):
            nodes[name] = dask.delayed(_run_stage, pure=False)(
                id(run), name, [nodes[one] for one in stage.needs],
                dask_key_name=f"{name}-{id(run)}",
            )  # fmt: skip
    return nodes


def _run_stage(run: int, name: str, before: list[State]) -> State:
    return _RUNS[run].stage(name)
