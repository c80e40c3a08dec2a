"""The state of a training: vectors and sums, and checkpoints of them.

checkpoints/last.safetensors   the position, and the files of its vectors, by name and SHA-256
checkpoints/in-N.npy, out-N.npy

The last checkpoint also writes the Parquet files of the vectors: rows from a GPU are hashed,
written and encoded while the next are copied.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.arrays import AnyArray, Array
from penstock.files import FileEntry, npy_writer
from penstock.graph import load_npy
from penstock.kernels.word2vec_rules import Losses
from penstock.vector_parts import rows_of_part, save_part
from penstock.workers.resources.device import gpu, to_host, wait_for_gpu
from penstock.workers.training import checkpoint
from penstock.workers.training.checkpoint import LAST
from penstock.workers.training.loop import Position

if TYPE_CHECKING:
    import pyarrow as pa

METRICS = "metrics.jsonl"  # one line per epoch: the loss, words, pairs, the learning rate
_START_OVER = "Run without --resume to start over"
# Pieces of an array that are copied ahead: hashing one takes longer than copying it, and encoding
# one as Parquet takes several times as long, so several threads encode, up to this many.
_AHEAD, _AHEAD_ENCODED = 6, 16


@dataclass
class Sums:
    """Sums over all ranks.

    epoch  of the current epoch; total: of all before it
    """

    epoch: Losses = field(default_factory=Losses)
    total: Losses = field(default_factory=Losses)
    last_loss: float = math.nan

    def end_epoch(self) -> Losses:
        """Return the sums of the epoch, and begin the next one."""
        sums, self.epoch = self.epoch, Losses()
        self.total += sums
        if sums.pairs:  # else it is the epoch before's
            self.last_loss = sums.loss / sums.pairs
        return sums

    def to_dict(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        loss = self.last_loss
        return {**asdict(self), "last_loss": loss if math.isfinite(loss) else None}

    @staticmethod
    def of(body: dict[str, Any]) -> Sums:
        """Return a checkpoint's sums."""
        loss = body["last_loss"]
        epoch, total = (Losses(**body[name]) for name in ("epoch", "total"))
        return Sums(epoch, total, math.nan if loss is None else float(loss))


@dataclass(frozen=True)
class Parts:
    """The Parquet files of vectors: the other columns, and the folder; threads: that encode.

    counts  (words,) int64
    """

    folder: Path
    ids: pa.Array
    counts: Array
    threads: int

    def save(self, number: int, values: Array) -> FileEntry:
        """Write one file."""
        some = slice(number * rows_of_part(values.shape[1]), None)
        ids, counts = (each[some][: len(values)] for each in (self.ids, self.counts))
        return save_part(self.folder, number, ids, values, counts)


class Saved(NamedTuple):
    """The metadata of a checkpoint.

    files  of the input and of the output vectors
    """

    number: int
    position: Position
    sums: Sums
    files: tuple[FileEntry, FileEntry]


class Checkpoints:
    """The last checkpoint of a training run, which one rank writes and all read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(
        self,
        position: Position,
        sums: Sums,
        vectors: tuple[AnyArray, AnyArray],
        parts: Parts | None = None,
    ) -> list[FileEntry]:
        """Write a checkpoint; the one before stays until this one is complete.

        parts  also write the Parquet files of the input vectors, and return their entries
        """
        number = self.number + 1
        made: list[Future[FileEntry]] = []

        def write(name: str, array: AnyArray, *how: Any) -> FileEntry:
            return _save_rows(self.folder, f"checkpoints/{name}-{number}.npy", array, *how)

        if gpu():
            wait_for_gpu()  # the threads below have their own streams
        with (
            ThreadPoolExecutor(1) as background,
            ThreadPoolExecutor(1 if parts is None else parts.threads) as encoding,
        ):
            context = background.submit(write, "out", vectors[1])

            def encode(number: int, values: Array) -> Future[FileEntry]:
                assert parts is not None
                made.append(encoding.submit(parts.save, number, values))
                return made[-1]

            if parts is None:
                first = write("in", vectors[0])
            else:
                ahead = min(max(_AHEAD, parts.threads), _AHEAD_ENCODED)
                first = write("in", vectors[0], encode, ahead)
            files = [first, context.result()]
        about = {**asdict(position), "sums": sums.to_dict(), "number": number}
        checkpoint.save(self.folder / LAST, {}, {**about, "files": [asdict(one) for one in files]})
        kept = {self.folder / file.name for file in files}
        for old in (self.folder / LAST).parent.glob("*.npy"):
            if old not in kept:
                old.unlink(missing_ok=True)
        return [each.result() for each in made]

    def last(self) -> Saved | None:
        """Return the last checkpoint's metadata, if there is one; its vectors are not read."""
        path = self.folder / LAST
        if not path.is_file():
            return None
        _, about = checkpoint.load(path)
        first, second = (FileEntry(**file) for file in about["files"])
        return Saved(about["number"], Position.of(about), Sums.of(about["sums"]), (first, second))

    def load(self) -> tuple[Position, Sums, tuple[AnyArray, AnyArray]] | None:
        """Return the last checkpoint, if any; its vectors are mapped."""
        if (found := self.last()) is None:
            return None
        for file in found.files:
            file.check_size(self.folder, listed_in=LAST, remedy=_START_OVER)
            file.check_sum(self.folder, remedy=_START_OVER)
        one, other = (load_npy(self.folder / file.name, remedy=_START_OVER) for file in found.files)
        return found.position, found.sums, (one, other)

    @property
    def number(self) -> int:
        """The number of the last checkpoint, part of its files' names; 0 if there is none."""
        return 0 if (found := self.last()) is None else found.number


def _save_rows(
    folder: Path,
    name: str,
    array: AnyArray,
    encode: Callable[[int, Array], Future[FileEntry]] | None = None,
    ahead: int = _AHEAD,
) -> FileEntry:
    """Write an array as .npy, some rows at a time: the next are copied while some are hashed.

    encode  starts another use of a piece, which stays until that is done
    ahead   most pieces in memory at once
    """
    rows = rows_of_part(array.shape[1])
    under_way: deque[tuple[Array, list[Future[Any]]]] = deque()
    with npy_writer(folder, name, array.shape, array.dtype) as writer:
        for number, start in enumerate(range(0, len(array), rows)):
            memory = None
            if len(under_way) == ahead:  # its memory is already mapped, and used again
                memory, futures = under_way.popleft()
                for future in futures:
                    future.result()
            some = array[start : start + rows]
            memory = memory if memory is None else memory[: len(some)]
            piece = to_host(some, memory)
            started: list[Future[Any]] = list(writer.add(piece))
            if encode is not None:
                started.append(encode(number, piece))
            under_way.append((piece, started))
        for _, futures in under_way:
            for future in futures:
                future.result()
    return writer.entry
