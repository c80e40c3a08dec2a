"""The workers of a job: their resources, and ways to give them work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.spec import ClusterSpec
from penstock.pipelines.job.capacity import Capacity, TaskCapacity, capacity_of, task_capacity
from penstock.pipelines.job.ranks import run_ranks
from penstock.pipelines.job.tasks import run_tasks

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from distributed import Client

    from penstock.graph import Graph


class Workers:
    """The workers of a job: their resources, and ways to give them work.

    client          of the cluster, or a function that connects on demand
    pool            threads of this process, which run tasks instead
    count           number of ranks of a gang, if ``ranks`` is not given
    partition_path  the partition whose parts ranks read; None: they read no parts
    """

    def __init__(
        self,
        client: Client | Callable[[], Client],
        cluster: ClusterSpec,
        *,
        quiet: bool,
        pool: ThreadPoolExecutor | None = None,
        partition_path: Path | None = None,
    ) -> None:
        self._client, self.cluster, self.quiet = client, cluster, quiet
        self._pool, self.count, self.partition_path = pool, 1, partition_path

    @cached_property
    def client(self) -> Client:
        """The client of the cluster."""
        return self._client() if callable(self._client) else self._client

    @cached_property
    def capacity(self) -> Capacity:
        """The resources of every worker, as workers report them."""
        return capacity_of(self.client)

    @cached_property
    def task_capacity(self) -> TaskCapacity:
        """The resources of a task, as the scheduler reports them; no device is queried."""
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
        client, quiet = self._pool or self.client, self.quiet
        return run_tasks(client, title, step, calls, sizes=sizes, unit=unit, quiet=quiet, **shared)

    def ranks(
        self,
        function: Callable[..., Any] | str,
        arguments: Callable[[], tuple[Any, ...]] | tuple[Any, ...],
        *,
        ranks: int | None = None,
        **more: Any,
    ) -> list[Any]:
        """Run ``function(comm, *arguments)`` on communicating ranks: see ``run_ranks``."""
        return run_ranks(
            self.client, function, arguments, ranks=ranks or self.count, quiet=self.quiet, **more
        )

    def partition(self, graph: Graph, k: int) -> Path:
        """Return the partition of ``graph`` into ``k`` parts, made if it is missing."""
        from penstock.pipelines.job.parts import partition_into

        return partition_into(graph, k, quiet=self.quiet)
