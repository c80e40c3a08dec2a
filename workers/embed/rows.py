"""What the rows of a run's vectors are: one number, which its checkpoints and its table repeat.

Rows have no names: which node or relation one is, and what its values mean, other files say. One of
these that was edited, or copied from another run, is as good a file as before; but its digest is
another than that of the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from penstock.arrow import as_numpy
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.spec import Training

_BYTES = 6  # of a digest: a number that every reader of JSON keeps


def rows_digest(
    training: Training, relations: Sequence[str] | None, ids: str, layout: NodeLayout
) -> int:
    """Return the digest of a run, more than 0; 0 where ``ids`` is empty, and nothing is known.

    relations  their names
    ids        the digest of node ids
    layout     which node is in which row

    What it is made of never changes: checkpoints of earlier versions would be refused.
    """
    if not ids:
        return 0
    rules = training.rules(len(relations or ()))
    about = {
        "model": rules.model.name,
        "dim": rules.dim,
        "inverse": rules.inverse,
        "optimizer": rules.optimizer.name,
        "seed": training.seed,
        "relations": None if relations is None else list(relations),
        "ids": ids,
    }
    digest = sha256(json.dumps(about).encode())
    digest.update(layout.starts.astype("<i8").tobytes())
    if layout.positions is not None:
        digest.update(np.ascontiguousarray(layout.positions).data)
    return int.from_bytes(digest.digest()[:_BYTES], "big") or 1


def ids_digest(path: Path) -> str:
    """Return the digest of the column ``id`` of a Parquet file, however it is packed there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Lengths and characters apart: where a batch ends must not matter.
    lengths, values = sha256(), sha256()
    with pq.ParquetFile(path) as file:
        kind = file.schema_arrow.field("id").type
        for batch in file.iter_batches(columns=["id"]):
            column = batch.column(0)
            if pa.types.is_integer(kind):
                values.update(np.ascontiguousarray(as_numpy(column)).data)
                continue
            column = column.cast(pa.large_string())
            _, offsets, characters = column.buffers()
            stops = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
            lengths.update(np.diff(stops).data)
            if characters is not None:
                values.update(memoryview(characters)[stops[0] : stops[-1]])
    return sha256(str(kind).encode() + lengths.digest() + values.digest()).hexdigest()
