"""Which walks the ranks of a gang make at a time, and the memory that this takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.arrays import Array
from penstock.csr import id_dtype
from penstock.files import FileRanges
from penstock.kernels.walkers import record_words
from penstock.partition.manifest import PartitionManifest
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.walk.starts import Starts

WAVE_BYTES = 64 << 20  # of the paths of one wave, which has at least one file


@dataclass(frozen=True)
class PartitionedWalk:
    """Walks on the parts of a graph, the same for every rank of the gang.

    partition   its path; it has as many parts as the gang has ranks
    spec        how to prepare the rows of a part
    starts      where walks start; every rank computes all starts
    files       how the walks are spread over files
    todo        the files to write, ascending
    write       called with (number of the file, its first walk, paths) on the writing rank
    """

    partition: Path
    spec: WalkGraphSpec
    starts: Starts
    files: FileRanges
    todo: tuple[int, ...]
    write: Callable[[int, int, Array], None]


@dataclass(frozen=True)
class Wave:
    """Files whose walks are made together.

    files   (number, its slots), in the order of the slots
    bounds  (ranks + 1,): rank r writes the paths of slots bounds[r] .. bounds[r + 1]
    """

    files: tuple[tuple[int, slice], ...]
    bounds: tuple[int, ...]

    def files_of(self, rank: int) -> list[tuple[int, slice]]:
        """Return the files that a rank writes, and their rows in its paths."""
        low, high = self.bounds[rank : rank + 2]
        return [
            (number, slice(slots.start - low, slots.stop - low))
            for number, slots in self.files
            if low <= slots.start < high
        ]


def waves(task: PartitionedWalk, ranks: int, id_bytes: int) -> list[Wave]:
    """Return the remaining work in waves; files go to the ranks in turn."""
    path = task.spec.rules.length * id_bytes
    size = _files_of_wave(task.files.each * path, ranks)
    cuts = range(0, len(task.todo), size)
    return [_wave(task, cut, task.todo[cut : cut + size], ranks) for cut in cuts]


def _files_of_wave(file_bytes: int, ranks: int) -> int:
    size = max(1, WAVE_BYTES // file_bytes)
    return size - size % ranks if size > ranks else size  # all write the same amount


def _wave(task: PartitionedWalk, first: int, numbers: Sequence[int], ranks: int) -> Wave:
    slot, files, bounds = 0, [], [0]
    for rank in range(ranks):
        for position, number in enumerate(numbers, first):
            if position % ranks == rank:
                low, high = task.files.range(number)
                files.append((number, slice(slot, slot + high - low)))
                slot += high - low
        bounds.append(slot)
    return Wave(tuple(files), tuple(bounds))


def memory_of_part(manifest: PartitionManifest, spec: WalkGraphSpec, files: FileRanges) -> int:
    """Return the approximate memory of the rank with the largest part, on a device or host.

    If ranks compute on GPUs, the host needs no more than that.
    """
    ids = id_dtype(manifest.nodes)
    rows = max(
        spec.bytes(part.nodes, part.edges, ids.itemsize)
        # The order from the part's rows to the graph's, and the global ids of local ones.
        + (8 * part.edges + 2 * ids.itemsize * (part.nodes + part.ghosts))
        for part in manifest.parts
    )
    # assignment and local, and values of every node for an expression
    nodes = manifest.nodes * (4 + ids.itemsize + 4 * spec.labels + 4 * spec.degrees)
    path = spec.rules.length * ids.itemsize
    slots = files.each * _files_of_wave(files.each * path, manifest.k)
    # Paths that this rank knows, received ones, and those being written; walkers, packed, sorted,
    # and received.
    return rows + nodes + slots * (3 * path + 4 * 4 * record_words(ids))
