"""The workers that a job has connected to: what they have, and how they are given work.

What gives them work is imported when it is asked for: it takes Dask, which no command loads for its
help, and the partition that ranks read is made by a job itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.spec import ClusterSpec
from penstock.limits import cores

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from distributed import Client

    from penstock.graph import Graph
    from penstock.pipelines.job.capacity import Capacity, TaskCapacity


class Workers:
    """The workers of a job: what they have, and how they are given work.

    client          of the cluster, or what connects to it once it is asked for
    pool            threads of this process, which run tasks instead
    count           of the ranks of a gang, if ``ranks`` is not given
    partition_path  of the partition whose parts ranks read; None: they read no parts
    """

    def __init__(
        self,
        client: Client | Callable[[], Client],
        cluster: ClusterSpec,
        *,
        quiet: bool,
        pool: ThreadPoolExecutor | None = None,
        count: int = 1,
        partition_path: Path | None = None,
    ) -> None:
        self._client, self.cluster, self.quiet = client, cluster, quiet
        self._pool, self.count, self.partition_path = pool, count, partition_path

    @cached_property
    def client(self) -> Client:
        """The client of the cluster."""
        return self._client() if callable(self._client) else self._client

    @cached_property
    def capacity(self) -> Capacity:
        """What every worker has, as workers report."""
        from penstock.pipelines.job.capacity import capacity_of

        return capacity_of(self.client)

    @cached_property
    def task_capacity(self) -> TaskCapacity:
        """What a task can have, as the scheduler reports; no device is queried."""
        from penstock.pipelines.job.capacity import TaskCapacity, task_capacity

        if self._pool is not None:
            return TaskCapacity.of([(self._pool._max_workers, 0)], self.cluster)
        return task_capacity(self.client, self.cluster)

    def tasks(
        self,
        title: str,
        step: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        sizes: Sequence[int],
        unit: str,
        **shared: Any,
    ) -> list[Any]:
        """Run ``step(*call, **shared)`` for every call, as independent tasks: see ``run_tasks``."""
        from penstock.pipelines.job.tasks import run_tasks

        return run_tasks(
            self._pool or self.client,
            title,
            step,
            calls,
            sizes=sizes,
            unit=unit,
            quiet=self.quiet,
            **shared,
        )

    def ranks(
        self,
        function: Callable[..., Any] | str,
        arguments: Callable[[], tuple[Any, ...]] | tuple[Any, ...],
        *,
        ranks: int | None = None,
        **more: Any,
    ) -> list[Any]:
        """Run ``function(comm, *arguments)`` on ranks that talk: see ``run_ranks``."""
        from penstock.pipelines.job.ranks import run_ranks

        return run_ranks(
            self.client, function, arguments, ranks=ranks or self.count, quiet=self.quiet, **more
        )

    def partition(self, graph: Graph, k: int) -> Path:
        """Return the partition of ``graph`` into ``k`` parts, which is made if it is missing."""
        from penstock.pipelines.job.parts import partition_into

        return partition_into(graph, k, quiet=self.quiet)


@contextmanager
def open_ranks(
    graph: Graph | None, parts: int | None, cluster: ClusterSpec, *, quiet: bool
) -> Iterator[Workers]:
    """Connect to as many workers as a job needs; the partition is made if it is missing.

    graph    the graph whose parts ranks read; None: they read no parts
    cluster  as it is configured
    """
    from penstock.cluster.connect import checked, connect
    from penstock.pipelines.job.parts import partition_into
    from penstock.pipelines.job.ranks import resolve_ranks

    kind, asked = resolve_ranks(parts, cluster)
    ranks = None if asked == 1 else asked
    spec = checked(cluster, kind, ranks)  # before a partition is made for ranks that cannot start

    def cut(count: int) -> Path | None:
        if graph is None:
            return None
        return partition_into(graph, count, quiet=quiet)

    path = None if ranks is None else cut(ranks)
    if asked == 1 and kind == "local" and spec.workers is None:
        # One process that has the machine, rather than one of many that has a core.
        spec = replace(spec, workers=1, threads=spec.threads or cores())
    with connect(spec, ranks=ranks, on_gpu=True, quiet=quiet) as client:
        workers = Workers(client, cluster, quiet=quiet, partition_path=path)
        has = workers.capacity  # read here: reports show it after workers have exited
        workers.count = asked or has.workers
        if path is None and workers.count > 1:
            workers.partition_path = cut(workers.count)
        yield workers
