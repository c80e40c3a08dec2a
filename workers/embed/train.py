"""The training loop of one rank: ``ranks.run(train, task)``; ranks/run.py has that of several.

Nodes lie in partitions, of which the buffer holds as many as train together; where there is one
partition the buffer holds all of it, and the disk is touched at checkpoints only. All edges of a
phase, which is what can be trained before a swap or while it runs, are mixed.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import CorruptFile
from penstock.files import append_text
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.embed_rules import Batch, Table
from penstock.kernels.streams import Stream
from penstock.partition.order import order
from penstock.threads import cores_of_rank
from penstock.workers.embed.batch_size import too_large_batch
from penstock.workers.embed.buffer import BufferVisit, PartitionBuffer, Phase
from penstock.workers.embed.busy import BusyTime
from penstock.workers.embed.edges import all_edges, split_edges
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
from penstock.workers.training.lines import keep_lines
from penstock.workers.training.stopped import Stopped

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator
    from penstock.workers.embed.layout.gpu_edges import DeviceColumns

BUCKETS = "buckets"  # the folder of edges in a run's, while it trains
VALIDATION = "valid"  # the split that a training run is validated on
# What draws of EMBED_SHUFFLE are for, in the upper bits of their numbers: which partition a node
# lies in, in which order the batches of a phase are trained.
_ASSIGN, _BATCH_ORDER = 3, 4
_MOST_PAIRS = 16  # of partitions, more than a buffer of four has
_LAUNCHED = 16  # batches that a GPU still has to train when the host waits for those before
_LOOK = 0.2  # seconds between two checks whether anybody waits for the result


@dataclass(frozen=True)
class EpochTime:
    """How long an epoch took in this process.

    seconds  evaluation and checkpoints not counted
    busy     in which kernels trained
    share    of the epoch's edges: less than 1, where it was begun before
    edges    that were trained here; others are those of other ranks
    exposed  in which it waited for the disk
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
        if gpu():  # to others on it, and to what ranks these vectors next
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()


def _train(comm: AnyCommunicator, task: TrainTask) -> Trained:
    started = time.monotonic()
    # The loss shows what is infinite.
    with np.errstate(over="ignore", invalid="ignore"), ExitStack() as opened:
        trainer: type[Trainer] = Trainer
        if comm.size > 1:
            from penstock.workers.embed.ranks.run import RankTrainer

            trainer = RankTrainer
        return trainer(comm, task, opened).train(started)


def node_layout(nodes: int, partitions: int, seed: int) -> NodeLayout:
    """Return which partition each node lies in: equal ones, drawn at random.

    Nodes of one community or one time often have numbers in a row: partitions of such would be no
    samples of the graph.
    """
    if partitions == 1:
        return NodeLayout.ranges(nodes, 1)
    keys = random_keys(seed, Stream.EMBED_SHUFFLE, _ASSIGN << 60, nodes)
    parts = np.empty(nodes, np.int32)
    parts[np.argsort(keys, kind="stable")] = np.arange(nodes, dtype=np.int64) * partitions // nodes
    return NodeLayout.of_assignment(parts, partitions)


class Trainer:
    """What trains on one rank.

    opened  closes what is opened here, also where not all of it can be
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
        if self.checkpoints.has(LAST):  # or one of zeros would be made
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
        self.steps = 0 if self.warm is None else self.warm.steps  # the optimizer's, before this
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
        self.negatives = Negatives(graph, training, self.layout, self.kernels)
        self.work = opened.enter_context(self.kernels.workspace(cores_of_rank(comm)))
        self.relations = self._initial_relations()
        self.epoch, self.buffer_state, self.batches = (
            0,
            0,
            0,
        )  # done: epochs, states of the next, batches
        self.best, self.best_epoch, self.bad = -1.0, 0, 0
        self.best_scores: dict[str, Any] | None = None
        self.loss, self.epoch_loss, self.epoch_edges = math.nan, 0.0, 0
        self.busy = BusyTime(device=gpu())
        self._losses = BatchLosses(device=gpu())
        self._last: Batch | None = None  # that was trained, whose rows are in the buffer
        self._before = math.nan  # the loss of the epoch before the last one
        self._saved = time.monotonic()
        self._saved_batches = -1  # that were trained when the last checkpoint was written
        self._looked = 0.0
        self.done = 0  # edges, in this process
        self.zeros = 0.0  # their loss, if all vectors were zeros

    # -- what is there before the first epoch ----------------------------------------------------

    def _check_seen(self) -> None:
        """Do nothing: no other rank may see another checkpoint."""

    def _versions(self, geometry: Geometry) -> Versions:
        return self.checkpoints.versions(geometry)

    def _bucket_schedule(self) -> BucketSchedule:
        training, count = self.training, self.task.partitions
        # Of one partition there is one order, whichever is given.
        chosen = order_in_memory(1) if count == 1 else order(training.order, count)
        return BucketSchedule(chosen, seed=training.seed, spread=True)

    def _unwritten(self) -> list[int]:
        """Return the partitions that this rank will fill, as they were never written."""
        return [version.partition for version in self.versions.newest if version.number == 0]

    def _before_visit(self, epoch: int, number: int) -> None:
        """Do nothing: the partitions of every state are here."""

    def _layout(self) -> NodeLayout:
        folder = self.task.checkpoints
        partitions = partitions_of(self.training, self.graph.num_nodes, self.comm.size)
        if (folder / f"{LAST}.json").is_file():
            found = NodeLayout.open(folder)
            if found.partitions != partitions:  # the schedule would leave edges out
                raise CorruptFile(
                    f"{self.task.run / 'run.json'} and {folder} do not belong together",
                    expected=f"{found.partitions:,} partitions, as the checkpoint has",
                    got=f"{partitions:,}",
                    remedy=RESTORE,
                )
            if found.nodes != self.graph.num_nodes:  # rows of others would be written
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
        """Return the sample of edges that is ranked now and then, and their known answers."""
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

    def _resume(self) -> None:
        if not self.checkpoints.has(LAST):
            self._drop_later()
            return
        found = self.checkpoints.load(LAST)
        about = found.about
        path, edges = self.task.checkpoints / f"{LAST}.json", self.graph.num_edges
        _check_position(path, about, len(self.bucket_schedule), edges)
        if about["epoch"] > 0 and not all(version.number for version in found.versions):
            raise _damaged(path, "versions of partitions that were never written")
        self.initialised, self.steps = about["known"], about["steps"]
        self.epoch, self.buffer_state, self.batches = (
            about["epoch"],
            about["state"],
            about["batches"],
        )
        self._saved_batches = self.batches
        self.best, self.best_epoch, self.bad = about["best"], about["best_epoch"], about["bad"]
        self.best_scores, self.loss = about["scores"], about["loss"]
        self.loss = math.nan if self.loss is None else self.loss
        self.epoch_loss, self.epoch_edges = about["epoch_loss"], about["epoch_edges"]
        self._drop_later()
        if self.relations is not None:
            self.relations.values[:] = to_device(found.tensors["relations"])
            self.relations.state[:] = to_device(found.tensors["relations_state"])
        self._compare_alike()

    def _drop_later(self) -> None:
        """Drop lines of what is done again, since a run was killed after its last checkpoint."""
        epoch, state = self.epoch, self.buffer_state

        def is_kept(line: Any) -> bool:
            done, within = line["epoch"], line.get("state", state + 1)
            return bool(done <= epoch or (done == epoch + 1 and within <= state))

        if self.comm.rank == 0:
            keep_lines(self.task.run / "metrics.jsonl", is_kept)

    def _compare_alike(self) -> None:
        """Rank the best vectors again, where they were ranked by another sample of edges."""
        if self.validation is None or self.best_scores is None:
            return
        if not self.checkpoints.has(BEST):
            self.best, self.best_epoch, self.bad, self.best_scores = -1.0, 0, 0, None
            return
        edges, known = self.validation
        if self.best_scores.get("ranks") == edges.count * len(self.rules.sides):
            return
        self.buffer.receive(0)  # nothing else is in the buffer yet
        folder, slot = self.task.checkpoints, self.buffer.slot(0)
        source, _ = open_checkpoint(folder, BEST, device=gpu(), slot=slot)
        try:
            ranks = rank(source, self.rules, edges, known=known, work=self.work)
        finally:
            source.close()
            self.buffer.forget(0)
        self.best_scores = self._agreed(Scores.of(np.concatenate(list(ranks.values()))).to_dict())
        self.best = self.best_scores["mrr"]

    def _agreed(self, scores: dict[str, Any]) -> dict[str, Any]:
        """Return what all ranks take for the scores that each has found."""
        return scores

    # -- epochs ----------------------------------------------------------------------------------

    def train(self, started: float) -> Trained:
        """Run the epochs that are left."""
        self._resume()
        first_epoch = self.epoch
        self.buckets = self._buckets()
        self._columns = _columns_on_device(self.buckets)
        most, partitions = self._batch_limit()
        problem = too_large_batch(
            self.training.batch, most, partitions=partitions, ranks=self.comm.size
        )
        if problem is not None:
            raise problem
        left = self.graph.num_edges * (self.training.epochs - self.epoch) - self.epoch_edges
        known = {} if self.warm is None else {"known": self.initialised}
        self._log(left=left, edges=0, **known)
        epochs: list[EpochTime] = []
        stopped = self._epochs(epochs)
        # The first one may have compiled kernels; one that was begun before is a part of one.
        timed = epochs[1:] or epochs
        seconds = sum(epoch.seconds for epoch in timed)
        penalty = 0.0
        if self._last is not None:
            nodes = Table(self.buffer.values, self.buffer.state)
            penalty = mean_penalty(nodes, self.relations, self._last, self.rules)
        if stopped is not Stopped.NAN and self._saved_batches != self.batches:
            self._save()
        self._drop_buckets()
        traffic = self.buffer.traffic
        return Trained(
            epochs=self.epoch,
            first_epoch=first_epoch,
            best_epoch=self.best_epoch or self.epoch,
            loss=self.loss if stopped is not Stopped.NAN and math.isfinite(self.loss) else None,
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
            stopped=stopped,
            utilization=sum(epoch.busy for epoch in timed) / seconds if seconds else 0.0,
            exposed_seconds=self._exposed,
            bytes_read=traffic.bytes_read,
            bytes_written=traffic.bytes_written,
            bandwidth=traffic.bandwidth,
            theorem=self._theorem(timed),
            validated=0 if self.validation is None else self.validation[0].count,
            validation=self.best_scores,
            known=self.initialised,
            device="gpu" if gpu() else "cpu",
        )

    def _buckets(self) -> EdgeBuckets:
        folder, ranks = self.task.run / BUCKETS, self.comm.size
        seed = self.training.seed
        return build_buckets(self.graph, self.layout, folder, seed=seed, sync=ranks > 1)

    def _batch_limit(self) -> tuple[int, int]:
        """Return how large a batch may be, and of how many partitions the bucket is that it is."""
        return self.buckets.largest, self.layout.partitions

    def _drop_buckets(self) -> None:
        shutil.rmtree(self.task.run / BUCKETS, ignore_errors=True)

    def _log(self, **metrics: Any) -> None:
        """Send figures of the whole training run to the client."""
        self.comm.log(**metrics)

    def _note(self, line: dict[str, Any]) -> None:
        """Write a line of metrics.jsonl."""
        append_text(self.task.run / "metrics.jsonl", json.dumps(line) + "\n")

    def _theorem(self, epochs: list[EpochTime]) -> str | None:
        """Say whether theorem 3 holds for this graph, by what was measured in this run."""
        condition = self._condition(epochs)
        return None if condition is None else condition.describe()

    def _condition(self, epochs: list[EpochTime]) -> Condition | None:
        """Return theorem 3 for what was measured here; None: nothing was swapped."""
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

    def _epochs(self, done: list[EpochTime]) -> Stopped:
        training, edges = self.training, self.graph.num_edges
        while self.epoch < training.epochs:
            if training.patience is not None and self.bad >= training.patience:
                return Stopped.PATIENCE
            begun, busy, edges_before = time.perf_counter(), self.busy.seconds, self.done
            exposed = self._exposed
            self.busy.pause()
            share = 1 - self.epoch_edges / edges
            paused = self._visits(self.epoch)
            if paused is None:
                return Stopped.NAN
            self._before, self.loss = self.loss, self.epoch_loss / max(self.epoch_edges, 1)
            took = EpochTime(
                time.perf_counter() - begun - paused,
                self.busy.seconds - busy,
                share,
                self.done - edges_before,
                self._exposed - exposed,
            )
            last = self.epoch + 1 == training.epochs
            validates = self.validation is not None and (
                last or (self.epoch + 1) % training.validate_every == 0
            )
            due = self._save_due()
            if (last or validates or due) and not self._finite():
                return Stopped.NAN
            if share:
                done.append(took)
            self.epoch, self.buffer_state = self.epoch + 1, 0
            self.epoch_loss, self.epoch_edges = 0.0, 0
            self._finish_epoch(took, validates=validates, due=due)
        return Stopped.EPOCHS

    def _visits(self, epoch: int) -> float | None:
        """Train the states of an epoch that are left; return the seconds of checkpoints.

        None: the loss is no number, or a vector is none.
        """
        paused = 0.0
        for visit in self.buffer.visits(epoch, start=self.buffer_state):
            if not self._visit(visit):
                return None
            self.buffer_state = visit.number + 1
            if not visit.last and self._save_due():
                if not self._settle():
                    return None
                visit.swap()
                self.buffer.wait()
                begun = time.perf_counter()
                if not self._finite():
                    return None
                self._save()
                states = len(self.bucket_schedule)
                self._note({"epoch": epoch + 1, "state": self.buffer_state, "states": states})
                paused += time.perf_counter() - begun
                self.busy.pause()
        return paused if self._settle() else None

    def _visit(self, visit: BufferVisit) -> bool:
        """Train what a state of the buffer can train; return whether the loss is a number.

        As far as seen: a GPU may still train when this returns, so that it never waits for the
        host between phases and states.
        """
        # What stays while a swap runs has its rows before, too: its edges can be gathered now.
        groups = {
            phase.which: self._groups(phase)
            for phase in (visit.before, visit.during)
            if phase.shares
        }
        return all(self._phase(phase, groups.pop(phase.which)) for phase in visit)

    def _phase(self, phase: Phase, groups: list[tuple[PhaseEdges, Draw]]) -> bool:
        """Train all edges of a phase, mixed; return whether the loss is a number, if seen."""
        size = self.training.batch or BATCH
        nodes = Table(self.buffer.values, self.buffer.state)
        zeros = self.training.loss_of_zeros(sum(count for _, count in phase.ranges))
        self.busy.swap()
        for number, start in self._batches([len(edges) for edges, _ in groups], phase.which, size):
            edges, draw = groups[number]
            heads, relations, tails = edges.batch(start, start + size)
            typed = None
            if self.relations is not None and relations is not None:
                typed = to_device(relations)
            heads, tails = to_device(heads), to_device(tails)
            chunks, drawn = self.rules.chunks(len(heads)), self._number()
            lr = self.training.lr_at(self._share())
            self.batches += 1
            number = self.steps + self.batches
            with self.busy.batch():
                batch = Batch(heads, typed, tails, draw(chunks, drawn))
                loss = self.kernels.step(
                    nodes, self.relations, batch, self.rules, lr, number, self.work
                )
            self._after_batch()  # which waits for other ranks, and does not count as training
            self._losses.append(loss)
            self._last = batch
            self.epoch_edges += len(heads)
            self.zeros += zeros * len(heads)
            if not self._progress(len(heads)):
                return False
        return True

    def _number(self) -> int:
        """Return the number of the next batch, which no other one of the training run has."""
        return self.batches

    def _after_batch(self) -> None:
        """Do nothing: no other rank has trained the same relations."""

    def _groups(self, phase: Phase) -> list[tuple[PhaseEdges, Draw]]:
        """Return the edges of a phase by the two partitions that they join, and their negatives."""
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
        """Return shares by the partitions whose negatives they are to have."""
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
        """Tell how many edges are done; return whether the loss is a number, if seen."""
        self.done += count
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return True
        self._looked = now
        self.comm.check()
        self.comm.log(edges=self.done)
        return self._settle(keep=_LAUNCHED if gpu() else 0)

    def _settle(self, keep: int = 0) -> bool:
        """Add losses up, which on a GPU waits for them; return whether their sum is a number.

        keep  of so many of the last batches later, which a GPU trains meanwhile
        """
        self.busy.settle(keep)
        # One by one: the sum does not depend on when it is checked.
        for loss in self._losses.take(keep):
            self.epoch_loss += loss
        return math.isfinite(self.epoch_loss)

    @property
    def _exposed(self) -> float:
        """In how many seconds training waited for the disk.

        A GPU that trains alone trains on while the host waits; its events tell when it did not.
        Of several, each has trained all of a state before its host waits for the next.
        """
        alone = gpu() and self.comm.size == 1
        return self.busy.exposed if alone else self.buffer.traffic.exposed_seconds

    def _finite(self) -> bool:
        """Return whether all vectors are numbers: the last update comes after the last loss."""
        found = self.buffer.finite()
        if self.relations is not None:
            tables = self.relations.values, self.relations.state
            are_finite = kernel("finite", self.relations.values).are_finite
            found = all(bool(are_finite(one)) for one in tables) and found
        return found

    def _share(self) -> float:
        """Return the share of the training run that is done."""
        edges = max(self.graph.num_edges, 1)
        return min((self.epoch + self.epoch_edges / edges) / self.training.epochs, 1.0)

    # -- after an epoch --------------------------------------------------------------------------

    def _finish_epoch(self, took: EpochTime, *, validates: bool, due: bool) -> None:
        """Note an epoch, rank the held-out edges and save a checkpoint where it is time."""
        line: dict[str, Any] = {"epoch": self.epoch, "loss": round(self.loss, 6)}
        shown: dict[str, Any] = {"epoch": self.epoch, "edges": self.done, "loss": self.loss}
        names: tuple[str, ...] = (LAST,)
        if validates:
            scores = self._validate()
            line["valid"] = scores
            shown["mrr"] = scores["mrr"]
            if scores["mrr"] > self.best:
                self.best, self.best_epoch, self.bad = scores["mrr"], self.epoch, 0
                self.best_scores = scores
                names = (LAST, BEST)
            else:
                self.bad += 1
        line["seconds"] = round(took.seconds, 6)
        line["utilization"] = round(took.busy / took.seconds, 4) if took.seconds else 0.0
        if self._on_disk:
            line["exposed_seconds"] = round(took.exposed, 6)
        self._note(line)
        self._log(**shown)
        if BEST in names or due:
            self._save(names, flushed=validates and self._on_disk)

    def _validate(self) -> dict[str, Any]:
        edges, known = self.validation
        ranks = rank(self._source(), self.rules, edges, known=known, work=self.work)
        return Scores.of(np.concatenate(list(ranks.values()))).to_dict()

    @property
    def _on_disk(self) -> bool:
        """Whether vectors are ranked from the disk, to which all are written for that."""
        return self.layout.partitions > 1

    def _source(self) -> VectorSource:
        relations = None if self.relations is None else self.relations.values
        if not self._on_disk:
            return BufferSource(self.buffer, self.layout, relations)
        self.buffer.flush()
        return TableSource(self.table, self.versions.newest, self.layout, relations, device=gpu())

    def _save_due(self) -> bool:
        return time.monotonic() - self._saved > 60 * self.training.checkpoint_minutes

    def _save(self, names: tuple[str, ...] = (LAST,), *, flushed: bool = False) -> None:
        """Write a checkpoint.

        flushed  whether the buffer was written since the last batch
        """
        if not flushed:
            self.buffer.flush()
        tensors, about = self._checkpoint_body()
        self.checkpoints.save(self.table, self.versions, tensors, about, names=names)
        self._saved, self._saved_batches = time.monotonic(), self.batches

    def _checkpoint_body(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return what a checkpoint holds besides the partitions: relations, and where it is."""
        tensors = {}
        if self.relations is not None:
            tensors["relations"] = to_host(self.relations.values)
            tensors["relations_state"] = to_host(self.relations.state)
        return tensors, {
            "epoch": self.epoch,
            "state": self.buffer_state,
            "batches": self.batches,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "bad": self.bad,
            "scores": self.best_scores,
            "loss": self.loss if math.isfinite(self.loss) else None,
            "epoch_loss": self.epoch_loss,
            "epoch_edges": self.epoch_edges,
            "known": self.initialised,
            "steps": self.steps,
        }


def _check_position(path: Path, about: dict[str, Any], states: int, edges: int) -> None:
    """Raise where a checkpoint does not say where in a training run it was written.

    states  of the buffer, in an epoch, which has so many ``edges``
    """
    for name, most in (("epoch", None), ("state", states - 1), ("epoch_edges", edges)):
        got = about.get(name)
        if type(got) is not int or got < 0 or (most is not None and got > most):
            raise _damaged(path, f"{name}: {got!r}")


def _damaged(path: Path, got: str) -> CorruptFile:
    return CorruptFile(
        f"{path} is damaged",
        expected="where in a training run of this graph it was written",
        got=got,
        remedy=RESTORE,
    )


def _columns_on_device(buckets: EdgeBuckets) -> DeviceColumns | None:
    """Return all edges where this worker computes, if it is a GPU and they fit besides the rest."""
    if not gpu():
        return None
    from penstock.workers.embed.layout.gpu_edges import columns_on_device

    return columns_on_device(buckets)


def _on_device(edges: PhaseEdges, columns: DeviceColumns | None) -> PhaseEdges:
    """Return edges where this worker computes."""
    if not gpu():
        return edges
    from penstock.workers.embed.layout.gpu_edges import on_device

    return on_device(edges, columns)
