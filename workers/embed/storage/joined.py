"""The files of several ranks, read as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from penstock.arrays import Array
from penstock.workers.embed.storage import Moved, PartitionFile, Slot, Version


class JoinedFiles(PartitionFile):
    """Tables of one geometry, only for reading; ``Version.file`` is the number of the table."""

    def __init__(self, tables: Sequence[PartitionFile]) -> None:
        first = tables[0]
        self.tables = tuple(tables)
        self.path, self.geometry = first.path, first.geometry
        self.why_not_direct = first.why_not_direct

    def exchange(
        self, slot: Slot, *, store: Version | None = None, load: Version | None = None
    ) -> Future[Moved]:
        """Read version ``load`` into ``slot``, from its file."""
        assert load is not None
        assert store is None, "only the rank that has a partition writes it"
        return self.tables[load.file].read(load, slot)

    def stream(self, version: Version) -> Iterator[tuple[int, Array]]:
        """Yield ``version`` from its file."""
        return self.tables[version.file].stream(version)

    def flush(self) -> None:
        """Do nothing: nothing is written."""

    def close(self) -> None:
        """Close the files."""
        for table in self.tables:
            table.close()
