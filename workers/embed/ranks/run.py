"""Training on one of several ranks: how it differs from training on a single rank.

In every round a rank trains two blocks of nodes that no other rank has (rounds.py), in its memory
or from its own file; between rounds ranks send blocks to each other (moves.py). Relations are
synchronised every few batches (relations.py), and losses and counts after every state of the
buffers; all ranks have equally many states.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import UsageError
from penstock.workers.embed.batch_size import edges_of_round
from penstock.workers.embed.buffer import BufferVisit
from penstock.workers.embed.layout.buckets import FORMAT as BUCKETS_FORMAT
from penstock.workers.embed.layout.buckets import EdgeBuckets
from penstock.workers.embed.ranks.moves import Moves
from penstock.workers.embed.ranks.relations import SharedRelations, batches_between
from penstock.workers.embed.ranks.rounds import RankSchedule, laps_in_memory
from penstock.workers.embed.ranks.source import RankSource
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule, Share
from penstock.workers.embed.schedule.theorem import Condition
from penstock.workers.embed.source import VectorSource
from penstock.workers.embed.spec import BATCH
from penstock.workers.embed.storage import Geometry, Version
from penstock.workers.embed.storage.versions import BEST, LAST, RankVersions, Versions
from penstock.workers.embed.task import Trained, TrainTask
from penstock.workers.embed.train import BUCKETS, EmbedTrainer, EpochTime
from penstock.workers.resources.device import gpu
from penstock.workers.training.loop import Position

if TYPE_CHECKING:
    from penstock.partition.order import PartitionOrder
    from penstock.workers.comm.single import AnyCommunicator


class RankTrainer(EmbedTrainer):
    """The trainer on one of several ranks."""

    versions: RankVersions
    bucket_schedule: RankSchedule

    def __init__(self, comm: AnyCommunicator, task: TrainTask, opened: ExitStack) -> None:
        super().__init__(comm, task, opened)
        holders = self._first_holders()
        self.moves = Moves(comm, self.buffer, self.versions, holders, whole=self.whole)
        self._mine = self._all = 0  # edges of this state, on this rank and on all
        self._edges_before = 0  # edges of the epoch before this state, on all ranks

    # -- before the first epoch ----------------------------------------------------

    def _check_seen(self) -> None:
        """Raise if ranks see different checkpoints to resume from."""
        run, path = self.task.run, self.checkpoints.path(LAST)
        mark = self.checkpoints.mark(LAST) if run.is_dir() else None
        seen = self.comm.allgather((socket.gethostname(), mark))
        for rank, (host, found) in enumerate(seen):
            if found is None or found != seen[0][1]:
                what = str(run) if found is None else f"{path} as rank 0 does"
                raise _not_shared(f"rank {rank} on {host}", what)

    def _versions(self, geometry: Geometry) -> Versions:
        return self.checkpoints.rank_versions(geometry, self.comm.rank)

    def _first_holders(self) -> tuple[int, ...]:
        """Return the first rank of each partition."""
        last = self.checkpoints.has(LAST)
        return self.checkpoints.holders() if last else self.bucket_schedule.holders(0, 0)

    def _unwritten(self) -> list[int]:
        """Return the unwritten partitions that this rank has first: it receives others filled."""
        holders = self._first_holders()
        return [p for p in super()._unwritten() if holders[p] == self.comm.rank]

    def _bucket_schedule(self) -> BucketSchedule:
        comm, training, graph = self.comm, self.training, self.graph
        made: Callable[[int], PartitionOrder] | None = training.in_order
        laps = 1
        if self.task.partitions == 1:
            batch = training.batch or BATCH
            made = None
            laps = laps_in_memory(graph.num_nodes, graph.num_edges, comm.size, batch)
        schedule = RankSchedule(
            comm.size, comm.rank, self.layout.partitions, made, laps=laps, seed=training.seed
        )
        self.whole = len(schedule.order.states) == 1
        return schedule

    def load(self) -> Position | None:
        """Load the last checkpoint."""
        position = super().load()
        every = 0
        if self.relations is not None:
            # A relation may have the values of many nodes.
            every = len(self.relations.values) * -(-self.rules.relation_width // self.rules.dim)
        every = batches_between(every, self.training.batch or BATCH)
        self.shared = SharedRelations(self.comm, self.relations, self.rules, every)
        return position

    def _agreed(self, scores: dict[str, Any]) -> dict[str, Any]:
        return dict(self.comm.allgather(scores)[0])

    def _buckets(self) -> EdgeBuckets:
        """Return the edges. Rank 0 sorts them for all, which may take longer than other waits."""
        comm, folder = self.comm, self.task.run / BUCKETS
        sorted_ = np.zeros(1, np.int8)
        if comm.rank == 0:
            super()._buckets()
            comm.wait([comm.isend(sorted_, rank) for rank in range(1, comm.size)])
        else:
            comm.wait(comm.irecv(sorted_, 0), timeout=math.inf)
        if not (folder / BUCKETS_FORMAT.file).is_file():
            raise _not_shared(socket.gethostname(), f"{folder}, which rank 0 has written")
        names = self.graph.manifest.relations
        return EdgeBuckets.open(folder, self.layout, None if names is None else len(names))

    def _drop_buckets(self) -> None:
        self.comm.barrier()
        if self.comm.rank == 0:
            super()._drop_buckets()

    def _batch_limit(self) -> tuple[int, int]:
        """Return the same; if memory holds all partitions of a round, its edges are all mixed."""
        if not self.whole:
            return super()._batch_limit()
        return edges_of_round(self.graph.num_edges, self.comm.size), 1

    # -- epochs ----------------------------------------------------------------------------------

    def run(self, started: float) -> Trained:
        """Run the remaining epochs; figures are of all ranks."""
        found = super().run(started)
        traffic = self.buffer.traffic
        counted = self.comm.allgather(
            (
                found.bytes_read,
                found.bytes_written,
                traffic.exposed_seconds,
                found.utilization,
                self.moves.bytes,
                self.moves.seconds,
                self.zeros,
                self.done,
            )
        )
        read, written, exposed, busy, sent, moving, zeros, done = zip(*counted, strict=True)
        return replace(
            found,
            partitions=1 if self.whole else found.partitions,
            bytes_read=sum(read),
            bytes_written=sum(written),
            exposed_seconds=max(exposed),
            utilization=sum(busy) / len(busy),
            ranks=self.comm.size,
            bytes_exchanged=sum(sent),
            exchange_seconds=max(moving),
            loss_of_zeros=sum(zeros) / sum(done) if sum(done) else None,
        )

    def _theorem(self, epochs: list[EpochTime]) -> str | None:
        """Return the sentence of the rank whose swaps hide least."""
        condition = None if self.whole else self._condition(epochs)
        measured: list[Condition | None] = self.comm.allgather(condition)
        found = [one for one in measured if one is not None]
        if not found:
            return None
        return max(found, key=lambda one: one.ratio).describe()

    def _before_visit(self, epoch: int, number: int) -> None:
        """Fetch the partitions of a round to this rank."""
        self.moves.to(self.bucket_schedule.holders(epoch, number))

    def _visit(self, visit: BufferVisit) -> bool:
        """Train this rank's edges of a state, and combine the results of all ranks."""
        comm = self.comm
        batches, self._mine = self._planned(visit)
        planned = comm.allgather((batches, self._mine))
        most, self._all = max(b for b, _ in planned), sum(edges for _, edges in planned)
        loss, self._edges_before, first = self.epoch_loss, self.epoch_edges, self.batches
        self.epoch_loss, self.epoch_edges = 0.0, 0  # of this rank in this state
        self.shared.begin(most)
        finite = super()._visit(visit) and self._settle()
        self.shared.finish()
        self.batches = first + most
        found = comm.allgather((finite, self.epoch_loss))
        # Added in one order, so that every rank has the same sum, even in a resumed run.
        self.epoch_loss, self.epoch_edges = loss, self._edges_before + self._all
        for _, of_rank in found:
            self.epoch_loss += of_rank
        return all(one for one, _ in found) and math.isfinite(self.epoch_loss)

    def _planned(self, visit: BufferVisit) -> tuple[int, int]:
        """Return the number of batches, and of edges, that this rank trains in a state."""
        size, batches, edges = self.training.batch or BATCH, 0, 0
        for phase in (visit.before, visit.during):
            for shares in self._pairs(phase.shares).values():
                count = self.buckets.count(shares)
                batches, edges = batches - (-count // size), edges + count
        return batches, edges

    def _pairs(self, shares: Sequence[Share]) -> dict[frozenset[int], list[Share]]:
        """Return all shares as one group if all partitions are in memory."""
        if not self.whole:
            return super()._pairs(shares)
        return {frozenset(self.moves.held): list(shares)}

    def _number(self) -> int:
        return self.batches * self.comm.size + self.comm.rank

    def _after_batch(self) -> None:
        self.shared.trained()

    def _finite(self) -> bool:
        return all(self.comm.allgather(super()._finite()))

    def _share(self) -> float:
        """Return the share of the training run that is done, assuming that ranks progress alike."""
        here = self.epoch_edges / max(self._mine, 1) * self._all
        done = (self._edges_before + here) / max(self.graph.num_edges, 1)
        return min((self.position.epoch + done) / self.training.epochs, 1.0)

    # -- after an epoch --------------------------------------------------------------------------

    @property
    def _on_disk(self) -> bool:
        return not self.whole

    def _source(self) -> VectorSource:
        relations = None if self.relations is None else self.relations.values
        held, versions = self.moves.held, None
        if self._on_disk:
            self._flush()
            versions = self.versions.newest
        return RankSource(
            self.comm,
            self.layout,
            relations,
            held,
            buffer=self.buffer,
            versions=versions,
            device=gpu(),
        )

    def save(self, *, best: bool) -> None:
        """Write a checkpoint: every rank its partitions, then rank 0 the file that names them."""
        comm, names = self.comm, (LAST, BEST) if best else (LAST,)
        self._flush()
        self.table.flush()
        newest: dict[int, Version] = {}
        for found in comm.allgather([self.versions.newest[p] for p in self.moves.held]):
            newest |= {version.partition: version for version in found}
        versions = [newest[p] for p in range(self.layout.partitions)]
        if comm.rank == 0:
            tensors, about = self._checkpoint_body()
            self.checkpoints.write(self.table.geometry, versions, tensors, about, names=names)
        comm.barrier()  # until then no rank writes to a place that the previous checkpoint names
        for name in names:
            self.versions.keep(name, versions)


def _not_shared(who: str, what: str) -> UsageError:
    return UsageError(
        f"{who} does not see {what}",
        expected="a run in a folder that all hosts share",
        remedy="Give a folder on shared storage",
    )
