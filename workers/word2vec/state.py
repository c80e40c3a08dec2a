"""How far training is: its vectors and counts, checkpoints of them, and the line of each epoch.

checkpoints/last.json   how far it was, and the files that hold its vectors, by name and SHA-256
checkpoints/in-N.npy, out-N.npy
epochs.jsonl            a line an epoch: the loss, words, pairs, the learning rate

With the last checkpoint the Parquet files of the vectors are written: rows that come from a GPU are
hashed, written and encoded while the next come.
"""

from __future__ import annotations

import json
import math
import operator
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.documents import parse_json
from penstock.errors import CorruptFile
from penstock.files import FileEntry, append_text, npy_writer, save_json
from penstock.graph import load_npy
from penstock.kernels.word2vec_rules import Losses
from penstock.vector_parts import rows_of_part, save_part
from penstock.workers.resources.device import gpu, to_host, wait_for_gpu

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER, LAST, EPOCHS = "checkpoints", "checkpoints/last.json", "epochs.jsonl"
_START_OVER = "Run without --resume to start over"
# Pieces of an array that are copied ahead: hashing one takes longer than copying it, and to encode
# one as Parquet several times as long, which as many threads do, up to so many.
_AHEAD, _AHEAD_ENCODED = 6, 16


@dataclass
class Position:
    """Where a training run is: so many whole epochs, then so many sentences of the next.

    epoch_sums  of the epoch under way, sums of all ranks; total: of all before it
    """

    epoch: int = 0
    sentence: int = 0
    epoch_sums: Losses = field(default_factory=Losses)
    total: Losses = field(default_factory=Losses)
    last_loss: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        return {**asdict(self), "last_loss": _finite(self.last_loss)}

    @staticmethod
    def of(body: dict[str, Any]) -> Position:
        """Return what a checkpoint holds; ValueError, TypeError or KeyError where it cannot."""
        sums, total = (Losses(**body[name]) for name in ("epoch_sums", "total"))
        loss = body["last_loss"]
        return Position(
            operator.index(body["epoch"]),
            operator.index(body["sentence"]),
            sums,
            total,
            math.nan if loss is None else float(loss),
        )

    def within(self, epochs: int, sentences: int) -> bool:
        """Return whether a training run of so many epochs and sentences can be here."""
        if self.epoch == epochs:
            return self.sentence == 0
        return 0 <= self.epoch < epochs and 0 <= self.sentence < sentences

    def text(self, sentences: int) -> str:
        """Return it for people."""
        return f"epoch {self.epoch + 1}, {100 * self.sentence // max(sentences, 1)} %"


@dataclass(frozen=True)
class Parts:
    """What the Parquet files of vectors hold next to them, and where they go; threads: that encode.

    counts  (words,) int64
    """

    folder: Path
    ids: pa.Array
    counts: Array
    threads: int

    def save(self, number: int, values: Array) -> FileEntry:
        """Write one of the files."""
        some = slice(number * rows_of_part(values.shape[1]), None)
        ids, counts = (each[some][: len(values)] for each in (self.ids, self.counts))
        return save_part(self.folder, number, ids, values, counts)


class Checkpoints:
    """The last checkpoint of a training run, which one rank writes and all read."""

    def __init__(self, folder: Path, minutes: float) -> None:
        self.folder, self.minutes = folder, minutes
        self._saved_at = time.monotonic()
        self.said = ""  # where the last one was, for people

    @property
    def due(self) -> bool:
        """Whether so many minutes have passed."""
        return self.minutes > 0 and time.monotonic() - self._saved_at > 60 * self.minutes

    def save(
        self,
        position: Position,
        vectors: tuple[AnyArray, AnyArray],
        sentences: int,
        parts: Parts | None = None,
    ) -> list[FileEntry]:
        """Write one; the one before is there until this one is whole.

        parts  write the Parquet files of the input vectors too, whose entries are returned
        """
        number = self.number + 1
        made: list[Future[FileEntry]] = []

        def write(name: str, array: AnyArray, *how: Any) -> FileEntry:
            return _save_rows(self.folder, f"{FOLDER}/{name}-{number}.npy", array, *how)

        if gpu():
            wait_for_gpu()  # the threads below have streams of their own
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
        save_json(
            self.folder / LAST,
            {"number": number, **position.to_dict(), "files": [asdict(file) for file in files]},
        )
        kept = {self.folder / file.name for file in files}
        for old in (self.folder / FOLDER).glob("*.npy"):
            if old not in kept:
                old.unlink(missing_ok=True)
        self.said = position.text(sentences)
        self._saved_at = time.monotonic()
        return [each.result() for each in made]

    def position(self) -> Position | None:
        """Return where the last one was written, if there is one; its vectors are not read."""
        return None if (found := self._read()) is None else found[0]

    def _read(self) -> tuple[Position, list[FileEntry]] | None:
        """Return what the last one says, if there is one."""
        if not (self.folder / LAST).is_file():
            return None
        try:
            body = parse_json((self.folder / LAST).read_bytes())
            _, _ = files = [FileEntry(**file) for file in body["files"]]
            position = Position.of(body)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(
                f"{self.folder / LAST} is damaged",
                expected="what a checkpoint holds",
                got=f"no {error}" if isinstance(error, KeyError) else str(error),
                remedy=_START_OVER,
            ) from error
        return position, files

    def load(self) -> tuple[Position, tuple[AnyArray, AnyArray]] | None:
        """Return the last one, if there is one: its vectors are mapped."""
        if (found := self._read()) is None:
            return None
        position, files = found
        for file in files:
            file.check_size(self.folder, listed_in=LAST, remedy=_START_OVER)
            file.check_sum(self.folder, remedy=_START_OVER)
        vectors, context = (load_npy(self.folder / file.name, remedy=_START_OVER) for file in files)
        return position, (vectors, context)

    def load_for(
        self, epochs: int, sentences: int, shape: tuple[int, int]
    ) -> tuple[Position, tuple[AnyArray, AnyArray]] | None:
        """Return the last one as ``load`` does; CorruptFile where it is of another training run."""
        saved = self.load()
        if saved is None:
            return None
        position, vectors = saved
        if not position.within(epochs, sentences) or any(each.shape != shape for each in vectors):
            shapes = " and ".join(str(each.shape) for each in vectors)
            raise CorruptFile(
                f"{self.folder / LAST} is not of this training run",
                expected=f"{epochs} epochs of {sentences:,} sentences, and vectors of {shape}",
                got=f"epoch {position.epoch}, sentence {position.sentence:,}, vectors of {shapes}",
                remedy=_START_OVER,
            )
        return saved

    def entries(self) -> list[FileEntry]:
        """Return the files of the last one: of the input and of the output vectors."""
        body = parse_json((self.folder / LAST).read_bytes())
        return [FileEntry(**file) for file in body["files"]]

    @property
    def number(self) -> int:
        """The number of the last one, 0 where there is none: its files have it in their names."""
        try:
            return int(parse_json((self.folder / LAST).read_bytes())["number"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0


def _save_rows(
    folder: Path,
    name: str,
    array: AnyArray,
    encode: Callable[[int, Array], Future[FileEntry]] | None = None,
    ahead: int = _AHEAD,
) -> FileEntry:
    """Write an array as .npy, rows of a part at a time: the next are copied while some are hashed.

    encode  starts what else is made of a piece, which stays until that is done
    ahead   pieces that are there at once, at most
    """
    rows = rows_of_part(array.shape[1])
    under_way: deque[tuple[Array, list[Future[Any]]]] = deque()
    with npy_writer(folder, name, array.shape, array.dtype) as writer:
        for number, start in enumerate(range(0, len(array), rows)):
            memory = None
            if len(under_way) == ahead:  # whose memory, which the system has given, is used again
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


def note_epoch(folder: Path, position: Position, lr: float, seconds: float) -> None:
    """Append the line of an epoch that is done."""
    sums = position.epoch_sums
    line = {
        "epoch": position.epoch + 1,
        "loss": _finite(sums.loss / sums.pairs) if sums.pairs else None,
        "words": sums.words,
        "kept": sums.kept,
        "pairs": sums.pairs,
        "lr": round(lr, 10),
        "seconds": round(seconds, 3),
    }
    append_text(folder / EPOCHS, json.dumps(line) + "\n")


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
