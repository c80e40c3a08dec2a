"""``Context``: an argument of every job, besides its input, output and options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.cluster.spec import ClusterSpec, as_spec
from penstock.errors import PenstockError, changed_input
from penstock.limits import cores
from penstock.pipelines.display import Report
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.sizes import too_large_for_disk

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers

_NOTHING = Need(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


class Planned(BaseException):
    """Ends a job after its plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


class Watched:
    """Files that are read: one that changes meanwhile is an error.

    stamps  returns the stamps that they have now, by path
    """

    def __init__(self, stamps: Callable[[], dict[str, Any]]) -> None:
        self._stamps, self._before = stamps, stamps()

    def check(self, failed: Exception | None = None) -> None:
        """Raise InputError if one has changed, maybe the cause of another error."""
        before = self._before
        try:
            now = self._stamps()
        except FileNotFoundError as error:
            now = {path: before[path] for path in before if path != str(error.filename)}
        if changed := [path for path in before if before[path] != now.get(path)]:
            raise changed_input(changed[0]) from failed


class Context:
    """An argument of every job, besides its input, output and options.

    on_gpu  whether its tasks or ranks compute on GPUs if available
    plans   whether only the plan is requested
    out     the output, once the frame has opened it
    init    what --init names: a job checks it once it has read all of it, and needs it no longer
    """

    out: Output | None = None
    init: Watched

    def __init__(
        self,
        cluster: str | ClusterSpec | None,
        *,
        on_gpu: bool = False,
        quiet: bool = True,
        plans: bool = False,
    ) -> None:
        self._given, self._on_gpu, self.quiet, self.plans = cluster, on_gpu, quiet, plans
        self._open = ExitStack()
        self._workers: Workers | None = None

    def __enter__(self) -> Self:
        self._open.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster, if it is the job's own."""
        self._open.close()

    @cached_property
    def cluster(self) -> ClusterSpec:
        """The cluster, with the options of its file and of Dask's configuration."""
        return as_spec(self._given).configured()

    def workers(self, *, input_bytes: int = 0, ranks: int | None = None) -> Workers:
        """Return the workers of the cluster, which is started if needed.

        They stay until the job ends, and every call returns the same.

        input_bytes  how much the job reads: a small one needs no other processes
        ranks        number of ranks for its gangs, if it has any
        """
        if self._workers is None:
            from penstock.cluster.connect import connect
            from penstock.pipelines.job.workers import Workers

            connected = connect(
                self.cluster,
                input_bytes=input_bytes,
                ranks=ranks,
                on_gpu=self._on_gpu,
                quiet=self.quiet,
            )
            opened = partial(self._open.enter_context, connected)
            pool = None if ranks is not None else self._pool(input_bytes)
            client = opened if pool is not None else opened()
            self._workers = Workers(client, self.cluster, quiet=self.quiet, pool=pool)
        return self._workers

    def _pool(self, input_bytes: int) -> ThreadPoolExecutor | None:
        """Return threads of this process for tasks that do not need Dask, which loads slowly."""
        from concurrent.futures import ThreadPoolExecutor

        from penstock.cluster.connect import checked, kind_for
        from penstock.workers.resources.device import shows_gpu

        spec = self.cluster
        if kind_for(spec, input_bytes, None, on_gpu=self._on_gpu) != "threads":
            return None
        if self._on_gpu or shows_gpu() or spec.device == "gpu" or spec.worker_scratch is not None:
            return None
        spec = checked(spec, "threads", None)
        self._open.enter_context(_keeping_freed_memory())
        return self._open.enter_context(ThreadPoolExecutor(spec.threads or spec.worker_count()))

    def ranks(self, graph: Graph | None, parts: int | None) -> Workers:
        """Return one worker per rank; a missing partition is made.

        graph  the graph whose parts ranks read; None: they read no parts
        """
        if self._workers is not None:
            return self._workers
        from penstock.cluster.connect import checked, connect
        from penstock.pipelines.job.parts import partition_into
        from penstock.pipelines.job.ranks import resolve_ranks
        from penstock.pipelines.job.workers import Workers

        def cut(count: int) -> Path | None:
            return None if graph is None else partition_into(graph, count, quiet=self.quiet)

        kind, asked = resolve_ranks(parts, self.cluster)
        ranks = None if asked == 1 else asked
        # Before a partition is made for ranks that cannot start.
        spec = checked(self.cluster, kind, ranks)
        path = None if ranks is None else cut(ranks)
        if asked == 1 and kind == "local" and spec.workers is None:
            # One process with the whole machine, instead of one of many with a core.
            spec = replace(spec, workers=1, threads=spec.threads or cores())
        connected = connect(spec, ranks=ranks, on_gpu=True, quiet=self.quiet)
        client = self._open.enter_context(connected)
        workers = Workers(client, self.cluster, quiet=self.quiet, partition_path=path)
        has = workers.capacity  # read here: reports show it after workers have exited
        workers.count = asked or has.workers
        if path is None and workers.count > 1:
            workers.partition_path = cut(workers.count)
        self._workers = workers
        return workers

    def plan(
        self,
        what: str,
        *,
        steps: tuple[tuple[str, str], ...],
        memory: Need = _NOTHING,
        disk: int | None = None,
        scratch: int = 0,
        folder: Path | None = None,
        problem: PenstockError | None = None,
        detail: Report | None = None,
    ) -> None:
        """Declare the output: ``--plan`` ends here, a run continues if it fits.

        A job calls it once it knows these, and writes nothing before.

        what     one line that describes the output
        steps    name and description of each step, in order
        memory   of the fullest worker
        disk     bytes of the output, None if unknown; scratch: of intermediate files
        folder   in which a job without an output writes ``disk`` temporary bytes
        problem  why the run would fail
        detail   further details, such as the operations of a model
        """
        problem = problem or memory.problem(what)
        need, rooms = None, {folder: disk or 0} if folder is not None else {}
        if self.out is not None:
            rooms = self.out.room_for(disk or 0, scratch)
        if rooms:
            known = disk is not None or scratch
            need = disk_need(*next(iter(rooms.items()))) if known else Need(None)
            for where, size in rooms.items():
                problem = problem or too_large_for_disk(where, size, "the output")
        if self.plans:
            raise Planned(Plan(what, steps, memory, need, problem, detail))
        if problem is not None:
            raise problem


@contextmanager
def _keeping_freed_memory() -> Iterator[None]:
    """Let arrays of tasks reuse freed memory: new pages must first be cleared by the system.

    C libraries other than glibc have no such setting.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, 1 << 29)
    libc.mallopt(_TRIM_THRESHOLD, 1 << 30)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, 1 << 25)  # glibc's own maximum
        libc.mallopt(_TRIM_THRESHOLD, 1 << 26)
        libc.malloc_trim(0)
