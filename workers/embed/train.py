"""Training on one rank; ranks/run.py has the differences on several. training/loop.py drives both.

Nodes are in partitions, and the buffer holds those that are trained together. A single partition
stays in the buffer, and only checkpoints use the disk. A phase has the edges that are trained
before a swap, or while it runs; they are all mixed.
"""

from __future__ import annotations

import math
import operator
import shutil
import statistics
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import CorruptFile
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.embed_rules import Batch, Table
from penstock.kernels.streams import Stream
from penstock.threads import cores_of_rank
from penstock.workers.embed.batch_size import too_large_batch
from penstock.workers.embed.buffer import BufferVisit, PartitionBuffer, Phase
from penstock.workers.embed.busy import BusyTime
from penstock.workers.embed.edges import all_edges, split_edges
from penstock.workers.embed.evaluation.candidates import RelationKinds
from penstock.workers.embed.evaluation.ranking import Scores, known_answers, rank, sample
from penstock.workers.embed.initial import fill_nodes, relation_rows
from penstock.workers.embed.layout.buckets import EdgeBuckets, PhaseEdges, build_buckets
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.losses import BatchLosses
from penstock.workers.embed.negatives import Draw, Negatives
from penstock.workers.embed.penalty import mean_penalty
from penstock.workers.embed.ranks.rounds import order_in_memory, partitions_of
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule, Share
from penstock.workers.embed.schedule.theorem import Condition, Machine
from penstock.workers.embed.source import (
    BufferSource,
    TableSource,
    VectorSource,
    open_checkpoint,
)
from penstock.workers.embed.spec import BATCH
from penstock.workers.embed.storage import RESTORE, Geometry, Slot, open_table
from penstock.workers.embed.storage.direct import check_file
from penstock.workers.embed.storage.versions import BEST, LAST, Checkpoints, Versions, table_path
from penstock.workers.embed.task import Trained, TrainTask
from penstock.workers.embed.warm import WarmStart
from penstock.workers.resources.device import arrays_of_device, gpu, to_device, to_host
from penstock.workers.training.loop import Evaluation, Loop, Position, Rules, Step, Trainer
from penstock.workers.training.stopped import Stopped

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator
    from penstock.workers.embed.layout.gpu_edges import DeviceColumns

BUCKETS = "buckets"  # folder of the edge buckets in a run's folder while it trains
VALIDATION = "valid"  # the split that a training run is validated on
# Upper bits of the numbers of EMBED_SHUFFLE's draws, one value per purpose: the partition of a
# node, the order of a phase's batches.
_ASSIGN, _BATCH_ORDER = 3, 4
_MOST_PAIRS = 16  # of partitions; more than a buffer of four has
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
        trainer: type[EmbedTrainer] = EmbedTrainer
        if comm.size > 1:
            from penstock.workers.embed.ranks.run import RankTrainer

            trainer = RankTrainer
        return trainer(comm, task, opened).run(started)


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
        self.graph = graph = Graph.open(task.graph)
        training = self.training
        self.relation_count = len(graph.manifest.relations or ()) if training.has_relations else 0
        self.rules = training.rules(self.relation_count)
        task.checkpoints.mkdir(exist_ok=True)
        self.layout = self._layout()
        self.validation = self._validation()
        states = self.rules.state_width(1)
        places = 2 if self.validation is None else 3
        count, rows = self.layout.partitions, max(self.layout.sizes)
        geometry = Geometry.of(count, rows, training.dim, states, places, comm.size)
        self.versions = self._versions(geometry)
        path = table_path(task.checkpoints, geometry, comm.rank)
        if self.checkpoints.has(LAST):  # otherwise a table of zeros would be made
            check_file(path, geometry)
        self.table = open_table(path, geometry, device=gpu())
        opened.callback(self.table.close)
        self.bucket_schedule = self._bucket_schedule()
        self.warm = None
        if task.init is not None and not self.checkpoints.has_all():  # after a lost rank
            self.warm = WarmStart(
                task.init, task.init_relations, graph, self.rules, opened, task.init_sha256
            )
        self.initialised = {} if self.warm is None else self.warm.initialised
        # Steps of the optimizer before this run.
        self.steps_before = 0 if self.warm is None else self.warm.steps
        if self.warm is not None and len(first := self._unwritten()) > 1:
            self.warm.copy(self.layout, first, task.run)
        buffer = PartitionBuffer(
            self.table,
            self.versions,
            self.bucket_schedule,
            sizes=self.layout.sizes,
            initial=self._initial,
            prefetch=training.prefetch,
            xp=arrays_of_device(),
            before_visit=self._before_visit,
        )
        self.buffer = opened.enter_context(buffer)
        self.kernels = kernel("embed", self.buffer.values)
        mask = self.candidates = kinds = None
        if task.candidates is not None:
            self.candidates = task.candidates.groups(self.layout)
            if task.candidates.bits is None:
                kinds = RelationKinds.of(graph, self.relation_count)
            else:
                mask = task.candidates.mask
        self.negatives = Negatives(graph, training, self.layout, self.kernels, mask, kinds)
        self.work = opened.enter_context(self.kernels.workspace(cores_of_rank(comm), self.rules))
        self.relations = self._initial_relations()
        self.position, self.batches = Position(), 0
        self.loss, self.epoch_loss, self.epoch_edges = math.nan, 0.0, 0
        self.busy = BusyTime(device=gpu())
        self._losses = BatchLosses(device=gpu())
        self._last: Batch | None = None  # the last trained state, whose rows are in the buffer
        self._before = math.nan  # the loss of the epoch before the last one
        # Whether the buffer was written, and was checked to be finite, since the last state.
        self._flushed = self._checked = False
        self._epoch_times: list[EpochTime] = []
        self._looked = 0.0
        self.done = 0  # edges, in this process
        self.zeros = 0.0  # their loss if all vectors were zeros
        self._done_before = 0  # edges of all ranks, before this process

    # -- before the first epoch ----------------------------------------------------

    def _check_seen(self) -> None:
        """Do nothing: a single rank sees one checkpoint."""

    def _versions(self, geometry: Geometry) -> Versions:
        return self.checkpoints.versions(geometry)

    def _bucket_schedule(self) -> BucketSchedule:
        training, count = self.training, self.task.partitions
        # One partition has one order, whatever --order is.
        chosen = order_in_memory(1) if count == 1 else training.in_order(count)
        return BucketSchedule(chosen, seed=training.seed, spread=True)

    def _unwritten(self) -> list[int]:
        """Return the partitions that were never written, which this rank fills."""
        return [version.partition for version in self.versions.newest if version.number == 0]

    def _before_visit(self, epoch: int, number: int) -> None:
        """Do nothing: this rank has all partitions."""

    def _layout(self) -> NodeLayout:
        folder = self.task.checkpoints
        partitions = partitions_of(self.training, self.graph.num_nodes, self.comm.size)
        if self.checkpoints.has(LAST):
            found = NodeLayout.open(folder)
            if found.partitions != partitions:  # the schedule would leave edges out
                raise CorruptFile(
                    f"{self.task.run / 'run.json'} and {folder} do not belong together",
                    expected=f"{found.partitions:,} partitions, as the checkpoint has",
                    got=f"{partitions:,}",
                    remedy=RESTORE,
                )
            if found.nodes != self.graph.num_nodes:  # otherwise other rows would be written
                raise CorruptFile(
                    f"{folder / 'starts.npy'} is of another graph",
                    expected=f"{self.graph.num_nodes:,} nodes",
                    got=f"{found.nodes:,}",
                    remedy=RESTORE,
                )
            return found
        layout = node_layout(self.graph.num_nodes, partitions, self.training.seed)
        if self.comm.rank == 0:
            layout.save(folder)
        return layout

    def _validation(self) -> Any:
        """Return the sample of validation edges, and their known answers."""
        if not self.graph.manifest.heldout.get(VALIDATION):
            return None
        edges = split_edges(self.graph, VALIDATION)
        edges = sample(edges, self.training.validate_sample, self.training.seed)
        held = all_edges(self.graph)
        if not self.training.has_relations:
            held, edges = (one.without_relations() for one in held), edges.without_relations()
        return edges, known_answers(held, edges, self.rules.sides, self.layout, self.relation_count)

    def _initial(self, partition: int, slot: Slot) -> None:
        nodes = self.layout.nodes_of(partition)
        fill_nodes(self.training.seed, nodes, slot[0], self.training.scale)
        for state in slot[1:]:
            state[:] = 0
        if self.warm is not None:
            self.warm.fill(nodes, slot, partition)

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
        position, training = self._loaded(), self.training
        self.buckets = self._buckets()
        self._columns = _columns_on_device(self.buckets)
        most, partitions = self._batch_limit()
        problem = too_large_batch(training.batch, most, partitions=partitions, ranks=self.comm.size)
        if problem is not None:
            raise problem
        return position

    def _loaded(self) -> Position | None:
        if not self.checkpoints.has(LAST):
            return None
        found = self.checkpoints.load(LAST)
        about, path = found.about, self.checkpoints.path(LAST)
        try:
            position = Position.of(about, len(self.bucket_schedule))
            self.epoch_edges = operator.index(about["epoch_edges"])
            if not 0 <= self.epoch_edges <= self.graph.num_edges:
                raise ValueError(f"{self.epoch_edges} edges of an epoch")
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(path, str(error)) from error
        if position.epoch > 0 and not all(version.number for version in found.versions):
            raise _damaged(path, "versions of partitions that were never written")
        self.initialised, self.steps_before = about["known"], about["steps"]
        self.batches, self.epoch_loss = about["batches"], about["epoch_loss"]
        self.loss = math.nan if about["loss"] is None else about["loss"]
        if self.relations is not None:
            self.relations.values[:] = to_device(found.tensors["relations"])
            self.relations.state[:] = to_device(found.tensors["relations_state"])
        self._compare_alike(position)
        return position

    def _compare_alike(self, position: Position) -> None:
        """Rank the best vectors again if they were ranked with another sample of edges."""
        if self.validation is None or position.scores is None:
            return
        if not self.checkpoints.has(BEST):
            position.best_epoch, position.best, position.scores, position.bad = 0, None, None, 0
            return
        edges, _ = self.validation
        if position.scores.get("ranks") == edges.count * len(self.rules.sides):
            return
        self.buffer.receive(0)  # the buffer is still empty
        folder, slot = self.task.checkpoints, self.buffer.slot(0)
        source, _ = open_checkpoint(folder, BEST, device=gpu(), slot=slot)
        try:
            scores = self._scores(source)
        finally:
            source.close()
            self.buffer.forget(0)
        position.scores = self._agreed(scores)
        position.best = position.scores["mrr"]

    def _agreed(self, scores: dict[str, Any]) -> dict[str, Any]:
        """Return the scores that all ranks use."""
        return scores

    # -- epochs ----------------------------------------------------------------------------------

    def run(self, started: float) -> Trained:
        """Run the remaining epochs."""
        training = self.training
        rules = Rules(
            training.epochs,
            0 if self.validation is None else training.validate_every,
            training.patience,
            training.checkpoint_minutes,
            training.checkpoint_epochs,
        )
        ended = Loop(self.comm, self, rules, self.task.run / "metrics.jsonl").run()
        position, epochs = self.position, self._epoch_times
        # The first epoch may have compiled kernels; a resumed epoch is not a whole one.
        timed = epochs[1:] or epochs
        seconds = sum(epoch.seconds for epoch in timed)
        penalty = 0.0
        if self._last is not None:
            nodes = Table(self.buffer.values, self.buffer.state)
            penalty = mean_penalty(nodes, self.relations, self._last, self.rules)
        self._drop_buckets()
        traffic, is_nan = self.buffer.traffic, ended.stopped is Stopped.NAN
        return Trained(
            epochs=position.epoch,
            first_epoch=ended.first_epoch,
            best_epoch=position.best_epoch or position.epoch,
            loss=None if is_nan or not math.isfinite(self.loss) else self.loss,
            loss_before=self._before if math.isfinite(self._before) else None,
            penalty=penalty if math.isfinite(penalty) else None,
            loss_of_zeros=self.zeros / self.done if self.done else None,
            nodes=self.graph.num_nodes,
            edges=self.graph.num_edges,
            relations=self.relation_count,
            partitions=self.layout.partitions,
            batches=self.batches,
            seconds=time.monotonic() - started,
            epoch_seconds=statistics.median([one.seconds / one.share for one in timed] or [0.0]),
            stopped=ended.stopped,
            utilization=sum(epoch.busy for epoch in timed) / seconds if seconds else 0.0,
            exposed_seconds=self._exposed,
            bytes_read=traffic.bytes_read,
            bytes_written=traffic.bytes_written,
            bandwidth=traffic.bandwidth,
            theorem=self._theorem(timed),
            validated=0 if self.validation is None else self.validation[0].count,
            validation=position.scores,
            known=self.initialised,
            device="gpu" if gpu() else "cpu",
        )

    def _buckets(self) -> EdgeBuckets:
        folder, ranks = self.task.run / BUCKETS, self.comm.size
        seed, weighted = self.training.seed, self.training.weighted
        return build_buckets(
            self.graph, self.layout, folder, seed=seed, weighted=weighted, sync=ranks > 1
        )

    def _batch_limit(self) -> tuple[int, int]:
        """Return the largest batch, and the number of partitions whose largest bucket it equals."""
        return self.buckets.largest, self.layout.partitions

    def _drop_buckets(self) -> None:
        shutil.rmtree(self.task.run / BUCKETS, ignore_errors=True)

    def _log(self, **metrics: Any) -> None:
        """Send the figures of the training run to the client."""
        if self.comm.rank == 0:
            self.comm.log(**metrics)

    def _theorem(self, epochs: list[EpochTime]) -> str | None:
        """Return whether theorem 3 holds for this graph with the rates of this run, in words."""
        condition = self._condition(epochs)
        return None if condition is None else condition.describe()

    def _condition(self, epochs: list[EpochTime]) -> Condition | None:
        """Return the condition of theorem 3 with the measured rates; None: nothing was swapped."""
        traffic, busy = self.buffer.traffic, sum(epoch.busy for epoch in epochs)
        if self.layout.partitions == 1 or not busy or not traffic.bandwidth:
            return None
        trained = sum(epoch.edges for epoch in epochs)
        rate = traffic.bandwidth  # of reads and writes in flight together
        return Condition(
            nodes=self.graph.num_nodes,
            edges=self.graph.num_edges,
            geometry=self.table.geometry,
            slots=self.buffer.slots,
            machine=Machine(busy / trained, rate / 2, rate / 2, exchange=rate),
            buckets=self.bucket_schedule.hiding,
            order=self.training.order,
            ranks=self.comm.size,
        )

    def steps(self) -> Generator[Step, bool, None]:
        """Train one state of the buffer per step, with its swap."""
        position, edges = self.position, self.graph.num_edges
        self._done_before = position.epoch * edges + self.epoch_edges
        if self.warm is not None:
            self._log(known=self.initialised)
        while position.epoch < self.training.epochs:
            self._begun = 1 - self.epoch_edges / edges, self.busy.seconds, self.done, self._exposed
            self.busy.pause()
            for visit in self.buffer.visits(position.epoch, start=position.step):
                self._flushed = self._checked = False
                self._visit(visit)
                if visit.last:
                    continue
                wanted = yield Step(self.epoch_loss, visit.number + 1, whole=False)
                if wanted:
                    self._settle()
                    visit.swap()
                    self.buffer.wait()
                    yield Step(self.epoch_loss, visit.number + 1, whole=True)
                    self.busy.pause()
            self._settle()
            yield Step(self.epoch_loss, 0, whole=True)

    def _visit(self, visit: BufferVisit) -> bool:
        """Train a state of the buffer; return False, and stop early, if the loss is not finite.

        A GPU may still train when this returns, so that it never waits for the host between phases
        and states: it returns True for losses that are not known yet.
        """
        # Partitions that stay during a swap keep their rows: their edges can be gathered now.
        groups = {
            phase.which: self._groups(phase)
            for phase in (visit.before, visit.during)
            if phase.shares
        }
        return all(self._phase(phase, groups.pop(phase.which)) for phase in visit)

    def _phase(self, phase: Phase, groups: list[tuple[PhaseEdges, Draw]]) -> bool:
        """Train all edges of a phase, mixed; return whether all known losses are finite."""
        size = self.training.batch or BATCH
        nodes = Table(self.buffer.values, self.buffer.state)
        zeros = self.training.loss_of_zeros(sum(count for _, count in phase.ranges))
        self.busy.swap()
        for number, start in self._batches([len(edges) for edges, _ in groups], phase.which, size):
            edges, draw = groups[number]
            heads, relations, tails, weights = edges.batch(start, start + size)
            typed = None
            if self.relations is not None and relations is not None:
                typed = to_device(relations)
            heads, tails = to_device(heads), to_device(tails)
            drawn, losses = self._number(), []
            lr = self.training.lr_at(self._share())
            self.batches += 1
            number = self.steps_before + self.batches
            with self.busy.batch():
                columns = heads, typed, tails, weights
                for batch in self.negatives.batches(draw, drawn, self.rules, *columns):
                    # A CUDA graph has one number of edges.
                    work = self.work if self.negatives.kinds is None or not gpu() else None
                    losses.append(
                        self.kernels.step(
                            nodes, self.relations, batch, self.rules, lr, number, work
                        )
                    )
            self._after_batch()  # this waits for other ranks, and does not count as training
            self._losses.append(sum(losses[1:], losses[0]))
            self._last = batch
            self.epoch_edges += len(heads)
            self.zeros += zeros * len(heads)
            if not self._progress(len(heads)):
                return False
        return True

    def _number(self) -> int:
        """Return the number of the next batch, unique in the training run."""
        return self.batches

    def _after_batch(self) -> None:
        """Do nothing: no other rank trains relations."""

    def _groups(self, phase: Phase) -> list[tuple[PhaseEdges, Draw]]:
        """Return the edges of a phase, grouped by their two partitions, and their negatives."""
        found = []
        for number, (pair, shares) in enumerate(self._pairs(phase.shares).items()):
            edges = self.buckets.phase(
                shares,
                self.buffer.first_rows,
                rows=len(self.buffer.values),
                seed=self.training.seed,
                which=phase.which * _MOST_PAIRS + number,
            )
            draw = self.negatives.of(phase, pair, self.buffer.first_rows)
            found.append((_on_device(edges, self._columns), draw))
        return found

    def _pairs(self, shares: Sequence[Share]) -> dict[frozenset[int], list[Share]]:
        """Return shares, grouped by the partitions that determine their negatives."""
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
        total = self.training.epochs * self.graph.num_edges
        done = min(int(self._share() * total), total - 1)  # the last epoch ends with its figures
        self._log(done=done, before=self._done_before)
        return self._settle(keep=_LAUNCHED if gpu() else 0)

    def _settle(self, keep: int = 0) -> bool:
        """Wait for losses and add them up; return whether their sum is finite.

        keep  number of last batches to leave for later: a GPU trains them meanwhile
        """
        self.busy.settle(keep)
        # One by one: the sum does not depend on when it is checked.
        for loss in self._losses.take(keep):
            self.epoch_loss += loss
        return math.isfinite(self.epoch_loss)

    @property
    def _exposed(self) -> float:
        """Seconds in which training waited for the disk.

        A single GPU continues to train while the host waits; its events measure when it did not.
        With several ranks, each has trained all of a state before its host waits for the next.
        """
        alone = gpu() and self.comm.size == 1
        return self.busy.exposed if alone else self.buffer.traffic.exposed_seconds

    def is_finite(self) -> bool:
        """Return whether all vectors are finite."""
        self._checked = self._checked or self._finite()
        return self._checked

    def _finite(self) -> bool:
        found = self.buffer.finite()
        if self.relations is not None:
            tables = self.relations.values, self.relations.state
            are_finite = kernel("finite", self.relations.values).are_finite
            found = all(bool(are_finite(one)) for one in tables) and found
        return found

    def _share(self) -> float:
        """Return the share of the training run that is done."""
        edges = max(self.graph.num_edges, 1)
        return min((self.position.epoch + self.epoch_edges / edges) / self.training.epochs, 1.0)

    # -- after an epoch --------------------------------------------------------------------------

    def evaluate(self, epoch: int) -> Evaluation:
        """Rank held-out edges."""
        if not self.is_finite():
            return Evaluation(math.nan, {}, finite=False)
        scores = self._scores(self._source())
        return Evaluation(scores["mrr"], scores)

    def _scores(self, source: VectorSource) -> dict[str, Any]:
        """Return the scores of the validation edges."""
        edges, known = self.validation
        given = {"known": known, "candidates": self.candidates, "work": self.work}
        ranks = rank(source, self.rules, edges, **given)
        return Scores.of(np.concatenate(list(ranks.values()))).to_dict()

    def figures(
        self, evaluated: Evaluation | None, seconds: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the epoch's loss, scores and times, and begin the next epoch."""
        share, busy, edges, exposed = self._begun
        busy, edges = self.busy.seconds - busy, self.done - edges
        took = EpochTime(seconds, busy, share, edges, self._exposed - exposed)
        if share:
            self._epoch_times.append(took)
        self._before, self.loss = self.loss, self.epoch_loss / max(self.epoch_edges, 1)
        self.epoch_loss, self.epoch_edges = 0.0, 0
        line: dict[str, Any] = {"loss": round(self.loss, 6)}
        done = self.position.epoch * self.graph.num_edges
        shown: dict[str, Any] = {"done": done, "before": self._done_before, "loss": self.loss}
        if evaluated is not None:
            line["valid"], shown["mrr"] = evaluated.scores, evaluated.score
        line["seconds"] = round(seconds, 6)
        line["utilization"] = round(took.busy / seconds, 4) if seconds else 0.0
        if self._on_disk:
            line["exposed_seconds"] = round(took.exposed, 6)
        return line, shown

    @property
    def _on_disk(self) -> bool:
        """Whether the evaluation reads vectors from the disk, after the buffer is written."""
        return self.layout.partitions > 1

    def _source(self) -> VectorSource:
        relations = None if self.relations is None else self.relations.values
        if not self._on_disk:
            return BufferSource(self.buffer, self.layout, relations)
        self._flush()
        return TableSource(self.table, self.versions.newest, self.layout, relations, device=gpu())

    def _flush(self) -> None:
        """Write the buffer, unless it was written since the last state."""
        if not self._flushed:
            self.buffer.flush()
            self._flushed = True

    def hold_best(self) -> bool:
        """Do nothing: the best vectors are saved at once, in places of the table that are kept."""
        return False

    def save(self, *, best: bool) -> None:
        """Write a checkpoint, which names places in the table."""
        self._flush()
        tensors, about = self._checkpoint_body()
        names = (LAST, BEST) if best else (LAST,)
        self.checkpoints.save(self.table, self.versions, tensors, about, names=names)

    def _checkpoint_body(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the rest of a checkpoint besides partitions: relations, and its position."""
        tensors = {}
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


def _damaged(path: Path, got: str) -> CorruptFile:
    return CorruptFile(
        f"{path} is damaged",
        expected="where in a training run of this graph it was written",
        got=got,
        remedy=RESTORE,
    )


def _columns_on_device(buckets: EdgeBuckets) -> DeviceColumns | None:
    """Return all edges on this worker's GPU, if it has one and they fit beside the rest."""
    if not gpu():
        return None
    from penstock.workers.embed.layout.gpu_edges import columns_on_device

    return columns_on_device(buckets)


def _on_device(edges: PhaseEdges, columns: DeviceColumns | None) -> PhaseEdges:
    """Return edges on this worker's device."""
    if not gpu():
        return edges
    from penstock.workers.embed.layout.gpu_edges import on_device

    return on_device(edges, columns)
