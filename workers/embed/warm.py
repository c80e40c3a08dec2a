"""A warm start: nodes begin with the vector and optimizer state of the same id in another run."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.errors import GraphError, UsageError
from penstock.files import sha256_of
from penstock.graph import Graph
from penstock.kernels.embed_rules import EmbedRules
from penstock.system_errors import full_disk_explained
from penstock.workers.embed.buffer import state_rows
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.source import open_checkpoint
from penstock.workers.embed.storage import Geometry, Slot
from penstock.workers.embed.storage.versions import BEST, Checkpoints
from penstock.workers.resources.device import to_device

_BYTES = 1 << 22  # of the copy, read at a time
IDS = "ids.parquet"  # file of a run: the user's id of every node, by number


class WarmStart:
    """The nodes and relations of a graph that another run has, too.

    opened       closes the other run's file, and its copy
    sha256       of the checkpoint to begin with; None: any
    initialised  number of nodes and relations that begin with vectors of the run
    steps        of the optimizer before, needed for Adam's bias correction
    """

    def __init__(
        self,
        run: Path,
        names: tuple[str, ...],
        graph: Graph,
        rules: EmbedRules,
        opened: ExitStack,
        sha256: str | None = None,
    ) -> None:
        folder, self._opened = run / "checkpoints", opened
        self.source, found = open_checkpoint(folder, newest(folder))
        opened.callback(self.source.close)
        self._checkpoint = Checkpoints(folder).path(found.name)
        self._sha256 = sha256 or sha256_of(self._checkpoint)
        self._check_same()
        self.tensors = found.tensors
        self.steps = found.about["batches"] + found.about["steps"]
        self._copied: _Copied | None = None
        nodes = numbers_of(graph.user_ids(), run)
        positions = self.source.layout.positions
        if positions is not None:
            nodes = np.where(nodes < 0, -1, positions[nodes])
        self.positions = nodes
        now = graph.manifest.relations or ()
        number = {name: i for i, name in enumerate(names)}
        self.relations = np.array([number.get(name, -1) for name in now], np.int64)
        self.old_relations, self.inverse = len(names), rules.inverse
        self.shared = rules.shared_rows
        self.initialised = {
            "nodes": int(np.count_nonzero(nodes >= 0)),
            "relations": int(np.count_nonzero(self.relations >= 0)),
        }

    def _check_same(self) -> None:
        """Raise if the other run has a new checkpoint by now: ranks would mix the two."""
        if sha256_of(self._checkpoint) != self._sha256:
            raise UsageError(
                f"{self._checkpoint} was replaced while a training run began with its vectors",
                expected="a run that does not train meanwhile",
                remedy="Wait for its end, and train again",
            )

    def copy(self, layout: NodeLayout, partitions: Sequence[int], folder: Path) -> None:
        """Copy the initial values of ``partitions`` of this layout to a file.

        Their nodes are anywhere in the other run's table: it is read once, in order, instead of
        once per partition. The file has no name, and ends when all partitions are filled.
        """
        positions = [self.positions[layout.nodes_of(partition)] for partition in partitions]
        positions = [np.sort(some[some >= 0]) for some in positions]
        counts = dict(zip(partitions, map(len, positions), strict=True))
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (it stays open)
        self._opened.enter_context(file)
        self._copied = _Copied(file, folder / "init", counts, self.source.table.geometry)
        for at, rows, is_state in self._rows(np.concatenate(positions)):
            self._copied.write(at, rows, is_state=is_state)

    def fill(self, nodes: Array, slot: Slot, partition: int | None = None) -> None:
        """Fill the rows of ``nodes``, the first of a slot, with their values in the other run, if
        any.

        Threads may call it at once: several partitions may be filled while others are written.

        partition  number of the slot's partition, if it was copied
        """
        wanted = self.positions[nodes]
        here = np.flatnonzero(wanted >= 0)
        here = here[np.argsort(wanted[here], kind="stable")]
        copied = self._copied
        found: Iterator[tuple[Any, Array, bool]] = self._rows(wanted[here])
        if copied is not None and partition in copied.rows:
            found = copied.read(partition)
        for at, rows, is_state in found:
            (state_rows(slot) if is_state else slot[0])[here[at]] = to_device(rows)
        if copied is not None and partition in copied.rows:
            copied.done(partition)

    def _rows(self, wanted: Array) -> Iterator[tuple[Array, Array, bool]]:
        """Read the other run once; yield blocks of rows with their indices in ``wanted``.

        A block has values, or states, in ascending order of ``at``.
        """
        order = np.argsort(wanted, kind="stable")
        ordered, layout = wanted[order], self.source.layout
        for partition in range(layout.partitions):
            first, stop = int(layout.starts[partition]), int(layout.starts[partition + 1])
            if np.searchsorted(ordered, first) == np.searchsorted(ordered, stop):
                continue
            for row, rows, is_state in self._blocks(partition):
                begin, end = min(first + row, stop), min(first + row + len(rows), stop)
                low, high = np.searchsorted(ordered, [begin, end])
                if low < high:
                    at = np.argsort(order[low:high], kind="stable") + low
                    yield order[at], rows[ordered[at] - begin], is_state

    def _blocks(self, partition: int) -> Iterator[tuple[int, Array, bool]]:
        try:
            yield from self.source.blocks(partition)
        except GraphError:
            self._check_same()  # training removes files that no checkpoint names
            raise

    def fill_relations(self, values: Array, state: Array) -> None:
        """Fill relations with their values in the other run, if any; and their inverses, and shared
        rows."""
        here = np.flatnonzero(self.relations >= 0)
        old = self.relations[here]
        for array, name in ((values, "relations"), (state, "relations_state")):
            array[here] = self.tensors[name][old]
            if self.inverse:
                array[self.inverse + here] = self.tensors[name][self.old_relations + old]
            old_shared = self.tensors[name][len(self.tensors[name]) - self.shared :]
            array[len(array) - self.shared :] = old_shared


class _Copied:
    """The copied rows of partitions in a file: all values, then all states.

    file  without a name; path: its name in errors
    rows  number of rows of each partition that is not filled yet
    """

    def __init__(
        self, file: IO[bytes], path: Path, rows: dict[int, int], geometry: Geometry
    ) -> None:
        self._file, self._path, self.rows = file, path, dict(rows)
        starts = np.cumsum([0, *rows.values()])
        self._starts = dict(zip(rows, starts.tolist(), strict=False))
        self._widths = geometry.width, geometry.width * geometry.states
        self._states_at = 4 * geometry.width * int(starts[-1])
        self._lock = threading.Lock()
        size = self._states_at + 4 * self._widths[1] * int(starts[-1])
        with full_disk_explained(self._path):
            os.posix_fallocate(self._file.fileno(), 0, max(size, 1))

    def write(self, at: Array, rows: Array, *, is_state: bool) -> None:
        """Write rows to their ascending numbers ``at``; consecutive numbers are one write."""
        cuts = np.flatnonzero(np.diff(at) != 1) + 1
        begins = [0, *cuts.tolist()]
        for begin, end in zip(begins, [*begins[1:], len(at)], strict=True):
            data = np.ascontiguousarray(rows[begin:end]).data.cast("B")
            offset = self._offset(int(at[begin]), is_state)
            with full_disk_explained(self._path):
                while data:
                    done = os.pwrite(self._file.fileno(), data, offset)
                    data, offset = data[done:], offset + done

    def read(self, partition: int) -> Iterator[tuple[slice, Array, bool]]:
        """Yield some of a partition's rows at a time: their numbers, and values or states."""
        first, count = self._starts[partition], self.rows[partition]
        for is_state in (False, True):
            width = self._widths[is_state]
            most = max(1, _BYTES // (4 * max(width, 1)))
            for begin in range(0, count if width else 0, most):
                rows = np.empty((min(most, count - begin), width), np.float32)
                data, offset = rows.data.cast("B"), self._offset(first + begin, is_state)
                while data:
                    done = os.preadv(self._file.fileno(), [data], offset)
                    assert done, "a file without a name keeps its length"

                    data, offset = data[done:], offset + done
                yield slice(begin, begin + len(rows)), rows, is_state

    def done(self, partition: int) -> None:
        """Forget a partition; after the last one the file's space is freed."""
        with self._lock:
            del self.rows[partition]
            if not self.rows:
                self._file.close()

    def _offset(self, row: int, is_state: bool) -> int:
        return (self._states_at if is_state else 0) + 4 * self._widths[is_state] * row


def numbers_of(ids: Any, run: Path) -> Array:
    """Return the run's node of each of a graph's ids, -1 if the run does not have the id.

    Ids of another type are compared as text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    old = read_column(run / IDS, "id")
    if ids.type != old.type:
        ids, old = ids.cast(pa.large_string()), old.cast(pa.large_string())
    found = pc.index_in(ids, value_set=old)
    return np.asarray(pc.fill_null(found.cast(pa.int64()), -1))


def newest(folder: Path) -> str:
    """Return the checkpoint to begin with: the best or, if there is none, the last."""

    return BEST if Checkpoints(folder).has(BEST) else "last"
