"""What the ranks of a gang walk together at a time, and the memory that this takes."""

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

WAVE_BYTES = 64 << 20


@dataclass(frozen=True)
class PartitionedWalk:
    """Walks to make on the parts of a graph, as every rank of the gang is given them.

    partition   where it lies, with as many parts as the gang has ranks
    spec        how the rows of a part are made
    starts      where walks start; it is asked for all walks on every rank
    files       how the walks are spread over files
    todo        the files to write, ascending
    write       called with (number of the file, its first walk, paths) on the rank that has them
    wave_bytes  what the paths of one wave may take; but a wave has one file at least
    """

    partition: Path
    spec: WalkGraphSpec
    starts: Starts
    files: FileRanges
    todo: tuple[int, ...]
    write: Callable[[int, int, Array], None]
    wave_bytes: int = WAVE_BYTES


@dataclass(frozen=True)
class Wave:
    """Files whose walks are made at once.

    files   (number, its slots), in the order of the slots
    bounds  (ranks + 1,): rank r writes the paths of slots bounds[r] .. bounds[r + 1]
    """

    files: tuple[tuple[int, slice], ...]
    bounds: tuple[int, ...]

    def files_of(self, rank: int) -> list[tuple[int, slice]]:
        """Return the files that a rank writes, and their rows among the paths it writes."""
        low, high = self.bounds[rank : rank + 2]
        return [
            (number, slice(slots.start - low, slots.stop - low))
            for number, slots in self.files
            if low <= slots.start < high
        ]


def waves(task: PartitionedWalk, ranks: int, id_bytes: int) -> list[Wave]:
    """Return what is still to do, in waves; files go to the ranks in turn."""
    path = task.spec.rules.length * id_bytes
    size = _files_of_wave(task.files.each * path, task.wave_bytes, ranks)
    cuts = range(0, len(task.todo), size)
    return [_wave(task, cut, task.todo[cut : cut + size], ranks) for cut in cuts]


def _files_of_wave(file_bytes: int, wave_bytes: int, ranks: int) -> int:
    size = max(1, wave_bytes // file_bytes)
    return size - size % ranks if size > ranks else size  # all write as much


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


def memory_of_part(
    manifest: PartitionManifest,
    spec: WalkGraphSpec,
    files: FileRanges,
    wave_bytes: int = WAVE_BYTES,
) -> int:
    """Return about how many bytes the rank with the largest part takes, on a device or in memory.

    Where ranks compute on GPUs, the host needs no more than that.
    """
    ids = id_dtype(manifest.nodes)
    rows = max(
        spec.bytes(part.nodes, part.edges, ids.itemsize)
        # The order that leads from the part's rows to the graph's, and local ids' global ones.
        + (8 * part.edges + 2 * ids.itemsize * (part.nodes + part.ghosts))
        for part in manifest.parts
    )
    # assignment and local, and what an expression reads of every node
    nodes = manifest.nodes * (4 + ids.itemsize + 4 * spec.labels + 4 * spec.degrees)
    path = spec.rules.length * ids.itemsize
    slots = files.each * _files_of_wave(files.each * path, wave_bytes, manifest.k)
    # Paths as this rank knows them, as they come, and those being written; walkers, packed,
    # sorted, and as they come.
    return rows + nodes + slots * (3 * path + 4 * 4 * record_words(ids))
