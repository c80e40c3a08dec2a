"""Training on a rank; training/loop.py drives it.

Nodes are in partitions, and the buffer holds those that are trained together. A single partition
stays in the buffer, and only checkpoints use the disk. A phase has the edges that are trained
before a swap, or while it runs; they are all mixed.

With several ranks, in every round a rank trains two blocks of nodes that no other rank has
(ranks/rounds.py), in its memory or from its own disk; between rounds ranks send partitions to each
other (ranks/moves.py). Relations are synchronised every few batches (ranks/relations.py), and
losses and counts after every state of the buffers; all ranks have equally many states.
"""

from __future__ import annotations

import math
import shutil
import socket
import statistics
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.bounds import check_length
from penstock.graph import Graph, load_npy
from penstock.kernels import kernel
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.embed_rules import Table
from penstock.kernels.streams import Stream
from penstock.threads import cores_of_rank
from penstock.workers.embed.batches import Batches
from penstock.workers.embed.buffer import BufferVisit, PartitionBuffer, Phase
from penstock.workers.embed.edges import all_edges, split_edges
from penstock.workers.embed.evaluation.candidates import RelationKinds
from penstock.workers.embed.evaluation.ranking import known_answers, rank, sample, scores_of
from penstock.workers.embed.initial import fill_nodes, relation_rows
from penstock.workers.embed.layout.buckets import (
    EdgeBuckets,
    PhaseEdges,
    build_buckets,
    edges_of,
    not_shared,
)
from penstock.workers.embed.layout.gpu_edges import buckets_on_device, on_device, sort_on_device
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.negatives import Draw, Negatives
from penstock.workers.embed.ranks.moves import Moves
from penstock.workers.embed.ranks.relations import SharedRelations, batches_between
from penstock.workers.embed.ranks.rounds import (
    RankSchedule,
    laps_in_memory,
    order_in_memory,
    partitions_of,
)
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule, Share
from penstock.workers.embed.schedule.theorem import Condition
from penstock.workers.embed.source import RankSource, VectorSource
from penstock.workers.embed.spec import BATCH
from penstock.workers.embed.storage import RESTORE, Geometry, Slot
from penstock.workers.embed.storage.direct import open_table
from penstock.workers.embed.storage.versions import BEST, LAST, Checkpoints
from penstock.workers.embed.task import TrainTask
from penstock.workers.embed.trained import Trained
from penstock.workers.embed.warm import WarmStart
from penstock.workers.resources.device import arrays_of_device, gpu, to_device, to_host
from penstock.workers.training.loop import Evaluation, Loop, Position, Step, Trainer
from penstock.workers.training.stopped import Stopped

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

BUCKETS = "buckets"  # folder of the edge buckets in a run's folder while it trains
VALIDATION = "valid"  # the split that a training run is validated on
# Upper bits of the numbers of EMBED_SHUFFLE's draws, one value per purpose: the partition of a
# node, the order of a phase's batches.
_ASSIGN, _BATCH_ORDER = 3, 4
_PAIRS = 16  # of partitions, at least: more than a buffer of five has
_LAUNCHED = 16  # batches that a GPU still has to train while the host waits for earlier ones
LOOK = 0.2  # seconds between two checks whether the run was cancelled


@dataclass(frozen=True)
class EpochTime:
    """The time of an epoch in this process.

    seconds  without evaluation and checkpoints
    busy     seconds in which kernels trained
    share    of the epoch's edges: less than 1 if the epoch was resumed
    edges    that this rank trained
    exposed  seconds of waiting for the disk
    """

    seconds: float
    busy: float
    share: float
    edges: int
    exposed: float = 0.0


def train(comm: AnyCommunicator, task: TrainTask) -> Trained:
    """Train, from the last checkpoint if there is one."""
    try:
        return _train(comm, task)
    finally:
        if gpu():  # return memory to its other users, and to the next evaluation
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()


def _train(comm: AnyCommunicator, task: TrainTask) -> Trained:
    started = time.monotonic()
    # Infinite values show in the loss.
    with np.errstate(over="ignore", invalid="ignore"), ExitStack() as opened:
        return EmbedTrainer(comm, task, opened).run(started)


def node_layout(nodes: int, partitions: int, seed: int) -> NodeLayout:
    """Return the layout of nodes in random partitions of equal size.

    Nodes of one community or one time often have consecutive numbers: ranges of numbers would not
    be samples of the graph.
    """
    if partitions == 1:
        return NodeLayout.ranges(nodes, 1)
    keys = random_keys(seed, Stream.EMBED_SHUFFLE, _ASSIGN << 60, nodes)
    parts = np.empty(nodes, np.int32)
    parts[np.argsort(keys, kind="stable")] = np.arange(nodes, dtype=np.int64) * partitions // nodes
    return NodeLayout.of_assignment(parts, partitions)


class EmbedTrainer(Trainer):
    """The trainer on one rank; a step is a state of the buffer.

    opened  closes everything that is opened here, also if opening fails halfway
    """

    def __init__(self, comm: AnyCommunicator, task: TrainTask, opened: ExitStack) -> None:
        self.comm, self.task, self.training = comm, task, task.training
        self.checkpoints = Checkpoints(task.checkpoints)
        self._check_seen()
        has = self.checkpoints.has(LAST)
        self._saved = self.checkpoints.load(LAST) if has else None  # to resume from
        self.graph = graph = Graph.open(task.graph)
        training = self.training
        self.chosen = None  # whether the edges of each node's row are trained; None: all
        if task.chosen is not None:
            self.chosen = np.asarray(load_npy(task.chosen, remedy=RESTORE), bool)
            check_length(self.chosen, graph.num_nodes, task.chosen, remedy=RESTORE)
        self.edges = edges_of(graph, self.chosen)
        self.relation_count = len(graph.manifest.relations or ()) if training.has_relations else 0
        self.rules = training.rules(self.relation_count)
        task.checkpoints.mkdir(exist_ok=True)
        self.layout = self._layout()
        self.validation = self._validation()
        states = self.rules.state_width(1)
        count, rows = self.layout.partitions, max(self.layout.sizes)
        geometry = Geometry.of(count, rows, training.dim, states)
        newest, number = self.checkpoints.versions(self._saved)
        if comm.rank == 0:  # no rank writes here before all have opened
            self.checkpoints.clean()
        self.bucket_schedule = self._bucket_schedule()
        # Whether memory holds all partitions of this rank.
        self.whole = len(self.bucket_schedule.order.states) == 1
        slots = self.bucket_schedule.slots
        self._most_pairs = _PAIRS if self.whole else max(_PAIRS, math.comb(slots + 1, 2))
        scratch = None
        if not self.whole:
            from penstock.workers.plugin import resources  # imports Dask

            # If the disk fails, its error is to be seen, not that of removing the folder.
            made = TemporaryDirectory(
                prefix="embed-", dir=resources().scratch, ignore_cleanup_errors=True
            )
            scratch = Path(opened.enter_context(made))
        given = task.checkpoints, geometry, newest, number
        self.table = open_table(*given, scratch=scratch, device=gpu(), storage=training.storage)
        opened.callback(self.table.close)
        for partition in range(count):
            self.table.check(partition)
        self.warm = None
        if task.init is not None and not all(self.table.newest):  # a lost rank
            self.warm = WarmStart(task, graph, self.rules, opened)
        self.initialised = {} if self.warm is None else self.warm.initialised
        # Steps of the optimizer before this run.
        self.steps_before = 0 if self.warm is None else self.warm.steps
        position = Position() if self._saved is None else Position.of(self._saved.about)
        # Any rank can read the partitions of a checkpoint.
        holders = self.bucket_schedule.holders(position.epoch, position.step)
        buffer = PartitionBuffer(
            self.table,
            self.bucket_schedule,
            sizes=self.layout.sizes,
            initial=self._initial,
            prefetch=training.prefetch,
            xp=arrays_of_device(),
            before_visit=self._before_visit,
        )
        self.buffer = opened.enter_context(buffer)
        self.moves = Moves(comm, self.buffer, holders, whole=self.whole)
        self.kernels = kernel("embed", self.buffer.values)
        self.candidates, kinds = task.candidates.groups(self.layout), None
        if task.candidates.graph is not None:
            kinds = RelationKinds.of(graph, self.relation_count)
        mask = task.candidates.mask(graph.num_nodes)
        self.negatives = Negatives(graph, training, self.layout, self.kernels, mask, kinds)
        self.work = opened.enter_context(self.kernels.workspace(cores_of_rank(comm), self.rules))
        self.relations = self._initial_relations()
        self.position, self.batches = Position(), 0
        self.loss, self.epoch_loss, self.epoch_edges = math.nan, 0.0, 0
        self.launched = Batches(device=gpu())
        self._before = math.nan  # the loss of the epoch before the last one
        self._checked = False  # whether the buffer was checked to be finite since the last state
        # Edges of this state on this rank and on all, and of the epoch before it on all. A single
        # rank does not set them.
        self._mine, self._all, self._edges_before = 1, 1, 0
        self._epoch_times: list[EpochTime] = []
        self._looked = 0.0
        self.done = 0  # edges, in this process
        self._done_before = 0  # edges of all ranks, before this process

    # -- before the first epoch ----------------------------------------------------

    def _check_seen(self) -> None:
        """Raise if ranks see different checkpoints to resume from."""
        run, path = self.task.run, self.checkpoints.path(LAST)
        mark = self.checkpoints.mark(LAST) if run.is_dir() else None
        seen = self.comm.allgather((socket.gethostname(), mark))
        for number, (host, found) in enumerate(seen):
            if found is None or found != seen[0][1]:
                what = str(run) if found is None else f"{path} as rank 0 does"
                raise not_shared(f"rank {number} on {host}", what)

    def _bucket_schedule(self) -> BucketSchedule:
        comm, training, graph = self.comm, self.training, self.graph
        # One partition has one order, whatever --order is.
        made, laps = training.in_order, 1
        if self.task.partitions == 1:
            made, batch = order_in_memory, training.batch or BATCH
            laps = laps_in_memory(graph.num_nodes, self.edges, comm.size, batch)
        if comm.size == 1:
            return BucketSchedule(made(self.layout.partitions), seed=training.seed)
        return RankSchedule(
            comm.size, comm.rank, self.layout.partitions, made, laps=laps, seed=training.seed
        )

    def _before_visit(self, epoch: int, number: int) -> None:
        """Fetch the partitions of a round to this rank."""
        self.moves.to(self.bucket_schedule.holders(epoch, number))

    def _layout(self) -> NodeLayout:
        folder = self.task.checkpoints
        if self._saved is not None:
            return NodeLayout.open(folder, self._saved.tensors["starts"])
        partitions = partitions_of(self.training, self.graph.num_nodes, self.comm.size)
        layout = node_layout(self.graph.num_nodes, partitions, self.training.seed)
        if self.comm.rank == 0:
            layout.save(folder)
        return layout

    def _validation(self) -> Any:
        """Return the sample of validation edges, and their known answers."""
        if not self.graph.manifest.heldout.get(VALIDATION):
            return None
        typed = self.training.has_relations
        edges = split_edges(self.graph, VALIDATION, typed=typed)
        edges = sample(edges, self.training.validate_sample, self.training.seed)
        held = all_edges(self.graph, typed=typed)
        return edges, known_answers(held, edges, self.rules.sides, self.layout, self.relation_count)

    def _initial(self, partition: int, slot: Slot) -> None:
        nodes = self.layout.nodes_of(partition)
        fill_nodes(self.training.seed, nodes, slot[0], self.training.scale)
        slot[1][:] = 0
        if self.warm is not None:
            self.warm.fill(nodes, slot)

    def _initial_relations(self) -> Table | None:
        rules = self.rules
        if not rules.relation_width:
            return None
        values = relation_rows(self.training.seed, rules, self.relation_count, self.training.scale)
        state = np.zeros((len(values), rules.state_width(rules.relation_width)), np.float32)
        if self.warm is not None:
            self.warm.fill_relations(values, state)
        return Table(to_device(values), to_device(state))

    def load(self) -> Position | None:
        """Load the last checkpoint, and sort the edges into buckets."""
        position = self._loaded()
        self.buckets = buckets_on_device(self._buckets())
        rows = 0 if self.relations is None else len(self.relations.values)
        rows *= -(-self.rules.relation_width // self.rules.dim)  # a matrix is as large as many
        every = batches_between(rows, self.negatives.window)
        self.shared = SharedRelations(self.comm, self.relations, self.rules, every)
        return position

    def _loaded(self) -> Position | None:
        found, self._saved = self._saved, None
        if found is None:
            return None
        about = found.about
        self.epoch_edges = about["epoch_edges"]
        self.initialised, self.steps_before = about["known"], about["steps"]
        self.batches, self.epoch_loss = about["batches"], about["epoch_loss"]
        self.loss = math.nan if about["loss"] is None else about["loss"]
        if self.relations is not None:
            self.relations.values[:] = to_device(found.tensors["relations"])
            self.relations.state[:] = to_device(found.tensors["relations_state"])
        return Position.of(about)

    # -- epochs ----------------------------------------------------------------------------------

    def run(self, started: float) -> Trained:
        """Run the remaining epochs; figures are of all ranks."""
        training = self.training
        every, patience = training.validate_every, training.patience
        every = 0 if self.validation is None else every
        ended = Loop(self, training, self.task.run, evaluate_every=every, patience=patience).run()
        position, epochs = self.position, self._epoch_times
        # The first epoch may have compiled kernels; a resumed epoch is not a whole one.
        timed = epochs[1:] or epochs
        seconds = sum(epoch.seconds for epoch in timed)
        self.comm.barrier()
        if self.comm.rank == 0:
            shutil.rmtree(self.task.run / BUCKETS, ignore_errors=True)
        traffic, is_nan = self.buffer.traffic, ended.stopped is Stopped.NAN
        busy = sum(epoch.busy for epoch in timed) / seconds if seconds else 0.0
        counted = self.comm.allgather(
            (
                traffic.bytes_read,
                traffic.bytes_written,
                self._exposed,
                busy,
                self.moves.bytes,
                self.moves.seconds,
            )
        )
        read, written, exposed, utilized, sent, moving = zip(*counted, strict=True)
        return Trained(
            epochs=position.epoch,
            first_epoch=ended.first_epoch,
            best_epoch=position.best_epoch or position.epoch,
            loss=None if is_nan or not math.isfinite(self.loss) else self.loss,
            loss_before=self._before if math.isfinite(self._before) else None,
            nodes=self.graph.num_nodes,
            edges=self.edges,
            relations=self.relation_count,
            partitions=1 if self.whole else self.layout.partitions,
            batches=self.batches,
            seconds=time.monotonic() - started,
            epoch_seconds=statistics.median([one.seconds / one.share for one in timed] or [0.0]),
            stopped=ended.stopped,
            utilization=sum(utilized) / len(utilized),
            exposed_seconds=max(exposed),
            bytes_read=sum(read),
            bytes_written=sum(written),
            bandwidth=traffic.bandwidth,
            theorem=self._theorem(timed),
            validated=0 if self.validation is None else self.validation[0].count,
            validation=position.scores,
            known=self.initialised,
            ranks=self.comm.size,
            bytes_exchanged=sum(sent),
            exchange_seconds=max(moving),
            device="gpu" if gpu() else "cpu",
        )

    def _buckets(self) -> EdgeBuckets:
        alone = self.whole and self.comm.size == 1 and self.chosen is None
        if gpu() and alone and not self.training.weighted:
            found = sort_on_device(self.graph, self.training.seed)
            if found is not None:
                return found
        return build_buckets(
            self.graph,
            self.layout,
            self.task.run / BUCKETS,
            comm=self.comm,
            seed=self.training.seed,
            weighted=self.training.weighted,
            chosen=self.chosen,
            threads=cores_of_rank(self.comm),
        )

    def _theorem(self, epochs: list[EpochTime]) -> str | None:
        """Return whether theorem 3 holds for this graph with the rates of this run, in words.

        With several ranks, of the rank whose swaps hide least.
        """
        measured: list[Condition | None] = self.comm.allgather(self._condition(epochs))
        found = [one for one in measured if one is not None]
        return max(found, key=lambda one: one.ratio).describe() if found else None

    def _condition(self, epochs: list[EpochTime]) -> Condition | None:
        """Return the condition of theorem 3 with the measured rates; None: nothing was swapped."""
        traffic, busy = self.buffer.traffic, sum(epoch.busy for epoch in epochs)
        if self.whole or not busy or not traffic.bandwidth:
            return None
        trained = sum(epoch.edges for epoch in epochs)
        return Condition(
            edges=self.edges,
            geometry=self.table.geometry,
            slots=self.training.held,
            seconds_per_edge=busy / trained,
            seconds_per_byte=2 / traffic.bandwidth,  # of reads and writes in flight together
            buckets=self.bucket_schedule.hiding,
            order=self.training.order,
            ranks=self.comm.size,
        )

    def steps(self) -> Generator[Step, bool, None]:
        """Train one state of the buffer per step, with its swap."""
        position, edges = self.position, self.edges
        self._done_before = position.epoch * edges + self.epoch_edges
        while position.epoch < self.training.epochs:
            share, busy = 1 - self.epoch_edges / edges, self.launched.seconds
            self._begun = share, busy, self.done, self._exposed
            self.launched.pause()
            for visit in self.buffer.visits(position.epoch, start=position.step):
                self._checked = False
                self._visit(visit)
                if visit.last:
                    continue
                due = self._is_disk_full()
                wanted = yield Step(self.epoch_loss, visit.number + 1, whole=False, due=due)
                if wanted:
                    self._settle()
                    visit.swap()
                    self.buffer.wait()
                    yield Step(self.epoch_loss, visit.number + 1, whole=True)
                    self.launched.pause()
            self._settle()
            yield Step(self.epoch_loss, 0, whole=True, due=self._is_disk_full())

    def _is_disk_full(self) -> bool:
        """Return whether the versions of the next state may exceed the spare ones."""
        if self.task.spare is None or self.table.number == 0:
            return False
        return len({*self.table.changed, *self.buffer.first_rows}) > self.task.spare

    def _visit(self, visit: BufferVisit) -> None:
        """Train this rank's edges of a state, and combine the results of all ranks.

        The GPU of a single rank may still train when this returns, so that it never waits for the
        host between phases and states.
        """
        comm = self.comm
        if comm.size == 1:
            self._train(visit)
            return
        batches, mine = self._planned(visit)
        self._mine = max(mine, 1)
        planned = comm.allgather((batches, mine))
        most, self._all = max(b for b, _ in planned), sum(edges for _, edges in planned)
        loss, self._edges_before, first = self.epoch_loss, self.epoch_edges, self.batches
        self.epoch_loss, self.epoch_edges = 0.0, 0  # of this rank in this state
        self.shared.begin(most)
        self._train(visit)
        self._settle()
        self.shared.finish()
        self.batches = first + most
        found = comm.allgather(self.epoch_loss)
        # Added in one order, so that every rank has the same sum, even in a resumed run.
        self.epoch_loss, self.epoch_edges = loss, self._edges_before + self._all
        for of_rank in found:
            self.epoch_loss += of_rank

    def _planned(self, visit: BufferVisit) -> tuple[int, int]:
        """Return the number of batches, and of edges, that this rank trains in a state."""
        size, batches, edges = self.negatives.window, 0, 0
        for phase in (visit.before, visit.during):
            for shares in self._pairs(phase.shares).values():
                count = self.buckets.count(shares)
                batches, edges = batches - (-count // size), edges + count
        return batches, edges

    def _train(self, visit: BufferVisit) -> None:
        """Train this rank's edges of a state; stop early if the loss is not finite."""
        # Partitions that stay during a swap keep their rows: their edges can be gathered now.
        groups = {
            phase.which: self._groups(phase)
            for phase in (visit.before, visit.during)
            if phase.shares
        }
        for phase in visit:
            if not self._phase(phase, groups.pop(phase.which)):
                return

    def _phase(self, phase: Phase, groups: list[tuple[PhaseEdges, Draw]]) -> bool:
        """Train all edges of a phase, mixed; return whether all known losses are finite."""
        size = self.negatives.window
        nodes = Table(self.buffer.values, self.buffer.state)
        self.launched.swap()
        for number, start in self._batches([len(edges) for edges, _ in groups], phase.which, size):
            edges, draw = groups[number]
            heads, relations, tails, weights = edges.batch(start, start + size)
            typed = None
            if self.relations is not None and relations is not None:
                typed = to_device(relations)
            heads, tails = to_device(heads), to_device(tails)
            # Unique in the training run.
            drawn = self.batches * self.comm.size + self.comm.rank
            self.batches += 1
            number = self.steps_before + self.batches
            with self.launched.batch() as losses:
                columns = heads, typed, tails, weights
                for batch in self.negatives.batches(draw, drawn, self.rules, *columns):
                    # A CUDA graph has one number of edges.
                    work = self.work if self.negatives.kinds is None or not gpu() else None
                    given = self.rules, self.training.lr_at(self._share()), number, work
                    losses.append(self.kernels.step(nodes, self.relations, batch, *given))
                    self.epoch_edges += len(batch.heads)
            self.shared.trained()  # this waits for other ranks, and does not count as training
            if not self._progress(len(heads)):
                return False
        return True

    def _groups(self, phase: Phase) -> list[tuple[PhaseEdges, Draw]]:
        """Return the edges of a phase, grouped by their two partitions, and their negatives."""
        found = []
        for number, (pair, shares) in enumerate(self._pairs(phase.shares).items()):
            edges = self.buckets.phase(
                shares,
                self.buffer.first_rows,
                rows=len(self.buffer.values),
                seed=self.training.seed,
                which=phase.which * self._most_pairs + number,
            )
            draw = self.negatives.of(phase, pair, self.buffer.first_rows)
            found.append((on_device(edges), draw))
        return found

    def _pairs(self, shares: Sequence[Share]) -> dict[frozenset[int], list[Share]]:
        """Return shares, grouped by the partitions that determine their negatives.

        If all partitions are in memory, all shares are one group.
        """
        if self.whole:
            return {frozenset(self.moves.held): list(shares)}
        pairs: dict[frozenset[int], list[Share]] = {}
        for share in shares:
            pairs.setdefault(frozenset(share.bucket), []).append(share)
        return pairs

    def _batches(self, counts: list[int], which: int, size: int) -> list[tuple[int, int]]:
        """Return group and first edge of every batch of a phase, groups mixed."""
        batches = [(i, start) for i, count in enumerate(counts) for start in range(0, count, size)]
        if len(counts) < 2:
            return batches
        first = (_BATCH_ORDER << 60) + (which << 32)
        keys = random_keys(self.training.seed, Stream.EMBED_SHUFFLE, first, len(batches))
        return [batches[i] for i in np.argsort(keys, kind="stable")]

    def _progress(self, count: int) -> bool:
        """Report the number of trained edges; return whether all known losses are finite."""
        self.done += count
        now = time.monotonic()
        if now - self._looked < LOOK:
            return True
        self._looked = now
        self.comm.check()
        total = self.training.epochs * self.edges
        done = min(int(self._share() * total), total - 1)  # the last epoch ends with its figures
        if self.comm.rank == 0:
            self.comm.log(done=done, before=self._done_before)
        return self._settle(keep=_LAUNCHED if gpu() else 0)

    def _settle(self, keep: int = 0) -> bool:
        """Wait for losses and add them up; return whether their sum is finite.

        keep  number of last batches to leave for later: a GPU trains them meanwhile
        """
        # One by one: the sum does not depend on when it is checked.
        for loss in self.launched.settle(keep):
            self.epoch_loss += loss
        return math.isfinite(self.epoch_loss)

    @property
    def _exposed(self) -> float:
        """Seconds in which training waited for the disk.

        A single GPU continues to train while the host waits; its events measure when it did not.
        With several ranks, each has trained all of a state before its host waits for the next.
        """
        alone = gpu() and self.comm.size == 1
        return self.launched.exposed if alone else self.buffer.traffic.exposed_seconds

    def is_finite(self) -> bool:
        """Return whether all vectors are finite."""
        if not self._checked:
            found = self.buffer.finite()
            if self.relations is not None:
                tables = self.relations.values, self.relations.state
                are_finite = kernel("finite", self.relations.values).are_finite
                found = all(bool(are_finite(one)) for one in tables) and found
            self._checked = all(self.comm.allgather(found))
        return self._checked

    def _share(self) -> float:
        """Return the share of the training run that is done, assuming that ranks progress alike."""
        here = self.epoch_edges / self._mine * self._all
        done = (self._edges_before + here) / max(self.edges, 1)
        return min((self.position.epoch + done) / self.training.epochs, 1.0)

    # -- after an epoch --------------------------------------------------------------------------

    def evaluate(self, epoch: int) -> Evaluation:
        """Rank held-out edges."""
        if not self.is_finite():
            return Evaluation(math.nan, {}, finite=False)
        edges, known = self.validation
        given = {"known": known, "candidates": self.candidates, "work": self.work}
        ranks = rank(self._source(), self.rules, edges, **given)
        scores = scores_of(np.concatenate(list(ranks.values())))
        return Evaluation(scores["mrr"], scores)

    def figures(
        self, evaluated: Evaluation | None, seconds: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the epoch's loss, scores and times, and begin the next epoch."""
        share, busy, edges, exposed = self._begun
        busy, edges = self.launched.seconds - busy, self.done - edges
        took = EpochTime(seconds, busy, share, edges, self._exposed - exposed)
        if share:
            self._epoch_times.append(took)
        self._before, self.loss = self.loss, self.epoch_loss / max(self.epoch_edges, 1)
        self.epoch_loss, self.epoch_edges = 0.0, 0
        line: dict[str, Any] = {"loss": round(self.loss, 6)}
        done = self.position.epoch * self.edges
        shown: dict[str, Any] = {"done": done, "before": self._done_before, "loss": self.loss}
        if evaluated is not None:
            line["valid"], shown["mrr"] = evaluated.scores, evaluated.score
        line["seconds"] = round(seconds, 6)
        line["utilization"] = round(took.busy / seconds, 4) if seconds else 0.0
        if not self.whole:
            line["exposed_seconds"] = round(took.exposed, 6)
        return line, shown

    def _source(self) -> VectorSource:
        """Return the vectors to evaluate: in memory, or on the disk after the buffer is written."""
        if not self.whole:
            self.buffer.flush()
        relations = None if self.relations is None else self.relations.values
        return RankSource(
            self.comm,
            self.buffer,
            self.layout,
            relations,
            self.moves.held,
            whole=self.whole,
            device=gpu(),
        )

    def hold_best(self) -> bool:
        """Do nothing: the best vectors are saved at once."""
        return False

    def save(self, *, best: bool) -> None:
        """Write a checkpoint: every rank its partitions, then rank 0 the file that names them."""
        comm, table = self.comm, self.table
        self.buffer.flush()
        table.publish()
        newest: dict[int, int] = {}
        for found in comm.allgather({p: table.newest[p] for p in self.moves.held}):
            newest |= found
        if comm.rank == 0:
            tensors, about = self._checkpoint_body()
            self.checkpoints.save(
                table.geometry,
                [newest[p] for p in range(self.layout.partitions)],
                table.number + 1,
                tensors,
                about,
                names=(LAST, BEST) if best else (LAST,),
            )
        comm.barrier()  # before the next publish: rank 0 removes versions without a checkpoint
        table.saved()

    def _checkpoint_body(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the rest of a checkpoint: where partitions start, relations, its position."""
        tensors = {"starts": self.layout.starts}
        if self.relations is not None:
            tensors["relations"] = to_host(self.relations.values)
            tensors["relations_state"] = to_host(self.relations.state)
        return tensors, {
            **asdict(self.position),
            "batches": self.batches,
            "loss": self.loss if math.isfinite(self.loss) else None,
            "epoch_loss": self.epoch_loss,
            "epoch_edges": self.epoch_edges,
            "known": self.initialised,
            "steps": self.steps_before,
        }
