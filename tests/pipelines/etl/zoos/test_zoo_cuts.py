"""Where a zoo is cut: into ranges that fit in memory, and into shards by counts alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.zoos import write as zoo_write
from penstock.pipelines.etl.zoos.write import (
    Shard,
    ZooSlice,
    plan_shards,
    write_in_groups,
)


def test_shards_span_ranges(tmp_path: Path) -> None:
    for number, (nodes, edges) in enumerate([([2, 3], [2, 4]), ([0], [0]), ([4, 1], [9, 0])]):
        folder = tmp_path / str(number)
        folder.mkdir()
        spill.put(folder, "graph_nodes", np.array(nodes, np.int64))
        spill.put(folder, "graph_edges", np.array(edges, np.int64))
    ranges = [tmp_path / str(number) for number in range(3)]
    # Sizes are 4, 7 | 0 | 13, 1.
    assert plan_shards(ranges, 24) == [
        Shard(0, 9, (ZooSlice(ranges[0], 0, 0, 5), ZooSlice(ranges[2], 5, 0, 4))),
        Shard(9, 10, (ZooSlice(ranges[2], 5, 4, 5),)),
    ]
    assert [(s.start, s.stop) for s in plan_shards(ranges, 1)] == [(0, 2), (2, 5), (5, 9), (9, 10)]
    assert plan_shards(ranges[1:2], 5) == [Shard(0, 0, ())]


def test_row_groups_do_not_depend_on_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo_write, "_ROW_GROUP", 10)
    table = pa.table({"id": np.arange(35)})
    for name, rows in (("one", 35), ("some", 7), ("many", 1)):
        cuts = (table.slice(start, rows) for start in range(0, 35, rows))
        write_in_groups(tmp_path, name, table.schema, cuts)
    file = pq.ParquetFile(tmp_path / "one")
    assert [file.metadata.row_group(i).num_rows for i in range(4)] == [10, 10, 10, 5]
    assert file.read().equals(table)
    one = (tmp_path / "one").read_bytes()
    assert (tmp_path / "some").read_bytes() == one == (tmp_path / "many").read_bytes()
