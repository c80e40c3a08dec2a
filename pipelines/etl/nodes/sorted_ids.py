"""Distinct ids in ascending order, integers or strings, in memory and on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import InputError
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.splits import id_keys
from penstock.workers.resources.device import frames, to_device, to_host

_MOST_TYPES = 1000
_PLAIN = 1 << 19  # up to this many ids, NumPy is faster than loading Numba
# The bits of 8 bytes that belong to a text of n bytes: texts are filled with zeros.
_KEPT = np.array([(1 << 64) - (1 << 64 - 8 * length) for length in range(9)], np.uint64)
_BATCH = 1 << 20  # ids whose keys are made together


class SortedIds:
    """Distinct ids, ascending: a NumPy array of int64, or an Arrow array of anything else."""

    def __init__(self, values: Array | pa.Array) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def save(self, folder: Path, name: str = "ids") -> None:
        """Write ``folder/name.npy`` or ``folder/name.arrow``."""
        if isinstance(self.values, np.ndarray):
            np.save(folder / f"{name}.npy", self.values)
        else:
            table = pa.table({"id": self.values})
            with pa.ipc.new_file(folder / f"{name}.arrow", table.schema) as writer:
                # One chunk, so that positions in the file are positions among the ids.
                writer.write_table(table, max_chunksize=max(len(self), 1))

    @staticmethod
    def load(folder: Path, name: str = "ids") -> SortedIds:
        """Map what ``save`` wrote."""
        path = folder / f"{name}.npy"
        if path.exists():
            return SortedIds(load_npy(path))
        with pa.memory_map(str(folder / f"{name}.arrow")) as source:
            ids = pa.ipc.open_file(source).read_all().column("id")
        return SortedIds(ids.chunk(0) if ids.num_chunks else pa.array([], ids.type))

    def part(self, start: int, stop: int) -> SortedIds:
        """Return positions ``start:stop`` as ids of their own."""
        values = self.values
        return SortedIds(
            values[start:stop]
            if isinstance(values, np.ndarray)
            else values.slice(start, stop - start)
        )

    def to_arrow(self) -> pa.Array:
        """Return the ids as an Arrow array."""
        values = self.values
        return as_arrow(values) if isinstance(values, np.ndarray) else values

    def to_list(self) -> list[Any]:
        """Return the ids as Python objects."""
        result: list[Any] = self.to_arrow().to_pylist()
        return result

    def sample(self, count: int) -> list[Any]:
        """Return up to ``count`` ids, evenly spaced."""
        at = np.unique(np.linspace(0, len(self) - 1, min(count, len(self))).astype(np.int64))
        return [self._item(int(i)) for i in at]

    def position(self, bound: Any, *, end: bool = False) -> int:
        """Return the number of ids below ``bound``; None: the start, or the end."""
        if bound is None:
            return len(self) if end else 0
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._item(middle) < bound:
                low = middle + 1
            else:
                high = middle
        return low

    def _item(self, position: int) -> Any:
        value = self.values[position]
        return int(value) if isinstance(self.values, np.ndarray) else value.as_py()


def encode_ids(columns: Sequence[pa.ChunkedArray | pa.Array]) -> tuple[SortedIds, Array]:
    """Return the distinct values of all columns, ascending, and codes into them: (n,) int32.

    Codes run through the columns one after the other.
    """
    if pa.types.is_int64(columns[0].type):
        values = to_device(np.concatenate([as_numpy(column) for column in columns]))
        distinct, codes = kernel("ids", values, plain=_PLAIN).encode(values)
        return SortedIds(to_host(distinct)), to_host(codes)
    chunks = [chunk for column in columns for chunk in getattr(column, "chunks", [column])]
    chunked = pa.chunked_array(chunks, columns[0].type).cast(_wide(columns[0].type))
    if frames() and pa.types.is_large_string(chunked.type):
        return _encode_on_gpu(chunked)
    encoded = chunked.dictionary_encode().chunks
    # All chunks have one dictionary, which grows from chunk to chunk.
    distinct = encoded[-1].dictionary if encoded else pa.array([], chunked.type)
    order = _order_of_texts(distinct)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = [rank[as_numpy(chunk.indices)] for chunk in encoded]
    return SortedIds(distinct.take(as_arrow(order))), np.concatenate([rank[:0], *codes])


def _order_of_texts(texts: pa.Array) -> Array:
    """Return the order that makes distinct texts ascend: by 8 bytes as a number, ties by Arrow."""
    order = np.argsort(keys := _first_bytes(texts))
    keys = keys[order]
    same = keys[1:] == keys[:-1]
    if same.any():
        tied = np.append(same, False) | np.append(False, same)
        among = order[tied]
        order[tied] = among[as_numpy(pc.sort_indices(texts.take(as_arrow(among))))]
    return order


def _first_bytes(texts: pa.Array) -> Array:
    """Return the 8 bytes of each text after the common prefix: (n,) uint64, in order."""
    if len(texts) == 0:
        return np.empty(0, np.uint64)
    _, offsets, data = texts.buffers()
    at = np.frombuffer(offsets, np.int64, len(texts) + 1, texts.offset * 8)
    padded = np.append(np.frombuffer(data or b"", np.uint8, at[-1]), np.zeros(8, np.uint8))
    # A number at every byte, most significant byte first.
    words = np.ndarray((len(padded) - 7,), ">u8", padded.data, 0, (1,))
    begins, lengths, alike = at[:-1], np.diff(at), 0
    while True:
        left = np.clip(lengths - alike, 0, 8)
        keys: Array = words[np.minimum(begins + alike, at[-1])].astype(np.uint64)
        keys &= _KEPT[left]
        differ = int(np.bitwise_or.reduce(keys ^ keys[0]))
        more = (64 - differ.bit_length()) // 8
        if more == 0 or left.min() == 0:
            return keys
        alike += min(more, int(left.min()))


def encode_typed(
    columns: Sequence[pa.ChunkedArray | pa.Array], types: pa.DictionaryArray
) -> tuple[SortedIds, Array, dict[str, tuple[int, int]]]:
    """Return distinct ids, ascending within each type, and codes, as ``encode_ids`` does.

    types  (n,) of the values of all columns, one column after the other
    ->     also the type of each range of the distinct ids, types ascending
    """
    names = types.dictionary.to_pylist()
    if len(names) > _MOST_TYPES:
        raise InputError(
            f"there are more than {_MOST_TYPES} types of nodes",
            got=f"{len(names)}, such as {names[0]!r}",
            remedy="Name columns of types, rather than of ids",
        )
    chunks = [chunk for column in columns for chunk in getattr(column, "chunks", [column])]
    ids, numbers = pa.chunked_array(chunks, columns[0].type), np.asarray(types.indices)
    codes = np.empty(len(ids), np.int32)
    found: list[pa.Array] = []
    ranges: dict[str, tuple[int, int]] = {}
    at = 0
    for name in sorted(names):
        mask = numbers == names.index(name)
        distinct, codes_of_type = encode_ids([ids.filter(pa.array(mask))])
        codes[mask] = codes_of_type + np.int32(at)
        found.append(distinct.to_arrow())
        ranges[name] = (at, at + len(distinct))
        at += len(distinct)
    whole = pa.concat_arrays(found)
    return SortedIds(np.asarray(whole) if pa.types.is_int64(ids.type) else whole), codes, ranges


class NodeIds:
    """All nodes as nodes.parquet has them: by id or, if there are types, by TYPE:ID.

    ranges  the user's ids, ascending; with types within each type
    types   of each range; None: no types
    """

    def __init__(
        self, ranges: Sequence[SortedIds], types: Sequence[str] | None, *, unsigned: bool
    ) -> None:
        self.types, self._unsigned = types, unsigned
        self._ids = pa.chunked_array([part.to_arrow() for part in ranges])
        self._ends = np.cumsum([len(part) for part in ranges])

    def __len__(self) -> int:
        return len(self._ids)

    def columns(self, positions: range | Array) -> dict[str, Any]:
        """Return the columns id and, if there are types, type, of the nodes at ``positions``."""
        if isinstance(positions, range):
            ids = self._ids.slice(positions.start, len(positions))
        else:
            ids = self._ids.take(positions)
        ids = as_user_has_them(ids, unsigned=self._unsigned)
        if self.types is None:
            return {"id": ids}
        types = pa.array(self.types).take(pa.array(self._type_numbers(positions)))
        kind = ids.type if pa.types.is_large_binary(ids.type) else pa.large_string()
        named = pc.binary_join_element_wise(types.cast(kind), ids.cast(kind), pa.scalar(":", kind))
        return {"id": named, "type": types}

    def keys(self) -> Array:
        """Return 64 bits of each node's id, which decide its split: (nodes,) uint64."""
        starts = range(0, len(self), _BATCH)
        parts = (self.columns(range(at, min(at + _BATCH, len(self))))["id"] for at in starts)
        return np.concatenate([np.empty(0, np.uint64), *map(id_keys, parts)])

    def name(self, position: int) -> Any:
        """Return the name of a node, for a message."""
        return self.columns(range(position, position + 1))["id"][0].as_py()

    def count_types(self, order: Array | None) -> dict[str, int]:
        """Return the number of nodes of each type at the positions ``order`` (None: all)."""
        if self.types is None:
            return {}
        numbers = self._type_numbers(range(len(self)) if order is None else order)
        counts = np.bincount(numbers, minlength=len(self.types))
        found = dict.fromkeys(self.types, 0)
        for name, count in zip(self.types, counts.tolist(), strict=True):
            found[name] += count
        return found

    def _type_numbers(self, positions: range | Array) -> Array:
        return np.searchsorted(self._ends, np.asarray(positions), side="right")


def as_user_has_them(ids: pa.Array | pa.ChunkedArray, *, unsigned: bool) -> Any:
    """Return ids as they are written; in memory unsigned ones are shifted, see Layout.id_type."""
    return as_arrow(as_numpy(ids).view(np.uint64) ^ np.uint64(1 << 63)) if unsigned else ids


def _encode_on_gpu(strings: pa.ChunkedArray) -> tuple[SortedIds, Array]:
    import cudf

    codes, distinct = cudf.Series.from_arrow(strings.combine_chunks()).factorize(sort=True)
    values = distinct.to_arrow().cast(pa.large_string())
    return SortedIds(values), to_host(codes).astype(np.int32)


def _wide(kind: pa.DataType) -> pa.DataType:
    # 32-bit offsets overflow at 2 GB of characters.
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.large_string()
    return pa.large_binary()
