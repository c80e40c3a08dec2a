"""Arrays that a worker keeps between tasks, on its device or in memory; the least recently used
are dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class _Entry:
    is_loaded: bool = False
    users: int = 1
    value: Any = None
    nbytes: int = 0


class DeviceCache:
    """Arrays by key, at most ``limit_bytes`` besides those in use.

    cache = DeviceCache(40 << 30)
    with cache.hold(("features", path), load) as features:
        ...

    ``load`` is called once per key, from any number of threads. Arrays in use are never dropped; an
    item larger than the limit is dropped after its last user.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()  # longest unused first
        self._nbytes = 0
        self._changed = threading.Condition()

    @property
    def nbytes(self) -> int:
        """The bytes kept, including those in use."""
        return self._nbytes

    @contextmanager
    def hold(self, key: Hashable, load: Callable[[], T]) -> Iterator[T]:
        """Give the result of ``load`` for ``key``, kept or loaded now."""
        entry = self._enter(key, load)
        try:
            yield entry.value
        finally:
            self._leave(key, entry)

    def clear(self) -> None:
        """Drop everything; users keep theirs until the end of the block."""
        with self._changed:
            dropped, self._entries = self._entries, OrderedDict()
            self._nbytes = 0
            self._changed.notify_all()
        # Memory is freed outside the lock, here and below.
        dropped.clear()

    def _enter(self, key: Hashable, load: Callable[[], Any]) -> _Entry:
        dropped: list[_Entry] = []
        with self._changed:
            while (entry := self._entries.get(key)) is not None and not entry.is_loaded:
                self._changed.wait()
            if entry is not None:
                entry.users += 1
                return entry
            entry = self._entries[key] = _Entry()
        try:
            value = load()
            nbytes = array_bytes(value)
        except BaseException:
            with self._changed:
                if self._entries.get(key) is entry:
                    del self._entries[key]
                self._changed.notify_all()  # another waiting thread loads it
            raise
        with self._changed:
            entry.is_loaded, entry.value, entry.nbytes = True, value, nbytes
            if self._entries.get(key) is entry and nbytes <= self.limit_bytes:
                self._nbytes += nbytes
                dropped = self._make_room()
            self._changed.notify_all()
        dropped.clear()
        return entry

    def _leave(self, key: Hashable, entry: _Entry) -> None:
        with self._changed:
            entry.users -= 1
            if self._entries.get(key) is not entry:  # cleared in between
                return
            self._entries.move_to_end(key)
            if entry.nbytes > self.limit_bytes and entry.users == 0:
                del self._entries[key]
            dropped = self._make_room()
        dropped.clear()

    def _make_room(self) -> list[_Entry]:
        """Remove the longest unused entries until the rest fits."""
        dropped: list[_Entry] = []
        for key, entry in list(self._entries.items()):
            if self._nbytes <= self.limit_bytes:
                break
            if entry.users == 0:
                del self._entries[key]
                self._nbytes -= entry.nbytes
                dropped.append(entry)
        return dropped


def array_bytes(value: Any) -> int:
    """Return the bytes of the arrays in ``value``: NumPy's, CuPy's, sparse, or nested."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if value is None or isinstance(value, bool | int | float | str):
        return 0
    if isinstance(value, dict):
        return sum(array_bytes(part) for part in value.values())
    if isinstance(value, list | tuple):
        return sum(array_bytes(part) for part in value)
    if is_dataclass(value):
        return sum(array_bytes(getattr(value, field.name)) for field in fields(value))
    if hasattr(value, "indptr"):  # a sparse matrix
        return array_bytes([value.indptr, value.indices, value.data])
    raise TypeError(f"a cache keeps arrays, not {type(value).__name__}")
