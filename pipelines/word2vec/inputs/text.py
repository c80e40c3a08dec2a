"""Text: words between blanks, a sentence a line; plain, .gz, .zst or .bz2, larger than memory.

Blanks are those of ``str.split``, which gensim takes too, and Arrow. Two passes over the files, as
tasks: one counts the words, one writes their numbers. A plain file is cut at newlines into ranges
of bytes, a packed one is read from its beginning by one task.
"""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.errors import InputError
from penstock.files import FileEntry
from penstock.output import Pieces
from penstock.pipelines.tables.sources import codec_of, head_of, open_stream, read_fully
from penstock.pipelines.word2vec.inputs import CORPUS, Input, Prepared
from penstock.pipelines.word2vec.sentences import cut_sentences, looked_up, without_unknown
from penstock.pipelines.word2vec.vocabulary import COUNTS, Vocabulary, load_ids, merged
from penstock.workers.word2vec.corpus import Encoded, EncodedPiece

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipelines.job.workers import Workers

_RANGE = 1 << 24  # bytes of a plain file that one task reads
_BLOCK = 1 << 24  # bytes read at a time
_PIECE_WORDS = 1 << 24  # numbers written at a time
_UNPACKED = 4  # about how many times larger text is than compressed
_BYTES_OF_WORD = 5  # at least, on average, its blank included: for estimates
_BLANKS = b" \t\v\f\r\x1c\x1d\x1e\x1f"  # those of one byte, but for newlines


@dataclass(frozen=True)
class ByteRange:
    """What one task reads: bytes of a file; of a packed one all of it.

    A sentence belongs to the range in which it begins: after a newline, or at the file's begin.
    """

    number: int
    path: Path
    first: int
    last: int

    @property
    def name(self) -> str:
        """What its pieces are called."""
        return f"range-{self.number:05d}"

    @property
    def size(self) -> int:
        """How many bytes are read."""
        return self.last - self.first

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of text with the byte of the file's text at which each begins.

        A block ends with a newline, or within a sentence of more bytes after a blank.
        """
        packed = is_packed(self.path)
        with open_stream(str(self.path)) as file:
            at = 0 if packed else self._first_sentence(file)
            rest, whole = b"", True  # whole: what was read ends a sentence
            if not self.first:
                rest = read_fully(file, len(BOM_UTF8))
                if rest == BOM_UTF8:  # no part of the first word
                    at, rest, whole = len(BOM_UTF8), b"", False
                elif not packed:
                    file.seek(0)
                    rest = b""
            while packed or at + len(rest) < self.last or not whole:
                left = self.last - at - len(rest)
                if packed or left > 0:
                    read = file.read(_BLOCK if packed else min(_BLOCK, left))
                else:  # the last sentence goes on behind the range
                    read = file.readline(_BLOCK)
                if not read:
                    break
                data = rest + read
                whole = data.endswith(b"\n")
                end = data.rfind(b"\n") + 1 or max(data.rfind(blank) for blank in _BLANKS) + 1
                if end:
                    yield at, data[:end]
                    at += end
                rest = data[end:]
            if rest:
                yield at, rest

    def words(self) -> Iterator[tuple[pa.Array, Array]]:
        """Yield the words of blocks, and how many words are before the end of each line.

        Words after the last line go on in the next block.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        for at, data in self.blocks():
            try:
                text = pa.array([data], pa.large_binary()).cast(pa.large_string())
            except pa.ArrowInvalid:
                raise self._not_utf8(at, data) from None
            # Trimmed: of two blanks at the end Arrow takes the last one for a word.
            lines = pc.utf8_trim_whitespace(pc.split_pattern(text, "\n").flatten())
            lists = pc.utf8_split_whitespace(lines)
            words = lists.flatten()
            there = as_numpy(pc.binary_length(words)) > 0  # not that of an empty line
            before = np.zeros(len(words) + 1, np.int64)
            np.cumsum(there, out=before[1:])
            yield words.filter(pa.array(there)), before[as_numpy(lists.offsets)[1:-1]]

    def _not_utf8(self, at: int, data: bytes) -> InputError:
        try:
            data.decode()
            bad = 0
        except UnicodeDecodeError as error:
            bad = error.start
        return InputError(
            f"{self.path} is not UTF-8: byte {at + bad:,} of its text",
            expected="text in UTF-8",
            got=f"the byte 0x{data[bad]:02x} there",
            remedy="Convert it, as with iconv -f LATIN1 -t UTF-8",
        )

    def _first_sentence(self, file: BinaryIO) -> int:
        """Go to where the first sentence of the range begins, and return that byte."""
        if not self.first:
            return 0
        file.seek(self.first - 1)  # which ends the sentence before, if it is a newline
        while file.tell() < self.last:
            line = file.readline(_BLOCK)
            if not line or line.endswith(b"\n"):
                break
        return file.tell()


class TextInput(Input):
    """Text files."""

    kind = "text"

    def check(self) -> None:
        """Check the first bytes of the files."""
        for path in self.paths:
            if is_packed(path):
                next(ByteRange(0, path, 0, 1).blocks(), None)
            coding = _wide_coding(head_of(str(path), 4))
            if coding is not None:
                raise InputError(
                    f"{path} is {coding}",
                    expected="text in UTF-8",
                    remedy=f"Convert it, as with iconv -f {coding} -t UTF-8",
                )

    @property
    def scratch_bytes(self) -> int:
        """About what numbers of words take at most, 4 bytes each."""
        size = sum(p.stat().st_size * (_UNPACKED if is_packed(p) else 1) for p in self.paths)
        return size * 4 // _BYTES_OF_WORD

    def ranges(self) -> list[ByteRange]:
        """Cut the files into what tasks read; the cuts follow from the files alone."""
        found: list[ByteRange] = []
        for path in self.paths:
            size = path.stat().st_size
            step = max(size, 1) if is_packed(path) else _RANGE
            for first in range(0, size, step):
                found.append(ByteRange(len(found), path, first, min(first + step, size)))
        return found

    def count(self, workers: Workers, folder: Path) -> None:
        """Count the words."""
        ranges = self.ranges()
        sizes = [each.size for each in ranges]
        calls = [(each,) for each in ranges]
        Vocabulary.of(
            merged(workers.tasks("count", count_words, calls, sizes, "B")),
            what=self.what,
            min_count=self.options.least_count(self.kind),
            max_vocab=self.options.max_vocab,
        ).save(folder)

    def prepare(self, workers: Workers, rows: int, scratch: Path) -> Prepared:
        """Write the numbers of the words."""
        folder, ranges = scratch / CORPUS, self.ranges()
        records = Pieces(folder, folder)
        todo = [each for each in ranges if not records.done(each.name)]
        workers.tasks(
            "encode",
            encode_words,
            [(each, folder, records) for each in todo],
            [each.size for each in todo],
            "B",
            longest=self.options.max_sentence,
        )
        pieces: list[EncodedPiece] = []
        for each in ranges:
            pieces += [EncodedPiece(*piece) for piece in records.load(each.name)[0]["pieces"]]
        corpus = Encoded(folder)
        corpus.save(pieces)
        return Prepared(corpus, folder / COUNTS, sum(piece.words for piece in pieces))


# -- tasks -----------------------------------------------------------------------------------------


def count_words(text: ByteRange) -> pa.Table:
    """Return the words of a range and how often each is; runs on a worker."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = pa.table({"id": pa.array([], pa.string()), "count": pa.array([], pa.int64())})
    waiting, rows = [total], 0
    for words, _ in text.words():
        counted = pc.value_counts(words)
        ids = counted.field("values").cast(pa.string())
        waiting.append(pa.table({"id": ids, "count": counted.field("counts")}))
        rows += len(ids)
        if rows > len(total):
            total, rows = merged(waiting), 0
            waiting = [total]
    return merged(waiting)


def encode_words(text: ByteRange, folder: Path, records: Pieces, *, longest: int) -> None:
    """Write the numbers of the words of a range, and the record; runs on a worker."""
    vocabulary = load_ids(folder)
    pieces: list[EncodedPiece] = []
    files: list[FileEntry] = []
    waiting: list[Array] = []
    ends: list[Array] = []
    held = 0

    def save(*, last: bool = False) -> None:
        """Write the sentences that wait; what goes on behind them waits for the next time."""
        nonlocal held
        tokens = np.concatenate(waiting)
        lines = np.concatenate([[0], *ends, [held]])
        offsets = cut_sentences(lines[np.diff(lines, prepend=-1) > 0], longest)
        if not last and int(lines[-2]) < held < int(offsets[-2]) + longest:
            offsets = offsets[:-1]
        end = int(offsets[-1])
        numbers, offsets = without_unknown(tokens[:end], offsets)
        piece = EncodedPiece(f"{text.name}.{len(pieces)}", len(offsets) - 1, len(numbers))
        if piece.sentences:
            files.extend(piece.save(folder, numbers, offsets))
            pieces.append(piece)
        waiting[:], ends[:], held = [tokens[end:]], [], held - end

    for words, lines in text.words():
        waiting.append(looked_up(words, vocabulary))
        ends.append(lines + held)
        held += len(words)
        if held >= _PIECE_WORDS:
            save()
    if held:
        save(last=True)
    records.save(text.name, {"pieces": [[p.name, p.sentences, p.words] for p in pieces]}, files)


def _wide_coding(head: bytes) -> str | None:
    """Return which coding of two or four bytes a text begins in, None where it is none.

    Without a mark, letters of ASCII have zeros next to them: no text in UTF-8 has these.
    """
    if head in (BOM_UTF32_LE, BOM_UTF32_BE) or (any(head) and b"\0\0\0" in head):
        return "UTF-32"
    zeros = len(head) == 4 and any(head) and b"\0\0" in (head[::2], head[1::2])
    return "UTF-16" if zeros or head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else None


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed, as its name says."""
    return codec_of(str(path)) is not None
