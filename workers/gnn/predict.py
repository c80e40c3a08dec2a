"""Prediction by one rank: the outputs of its nodes, written as its file of a Parquet dataset."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, read_table
from penstock.csr import offsets_of
from penstock.errors import UsageError
from penstock.files import atomic, part_name
from penstock.graph import SPLITS, Graph
from penstock.threads import results
from penstock.vector_parts import vector_lists
from penstock.workers.gnn.again import TILE, predict_again
from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.state import load_tensors
from penstock.workers.gnn.task import Columns, PredictTask
from penstock.workers.gnn.thread_pool import ThreadPool
from penstock.workers.resources.device import gpu, to_host
from penstock.workers.training import checkpoint

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_PIECE = 1 << 16  # nodes per table


def predict(comm: AnyCommunicator, task: PredictTask) -> int:
    """Write this rank's predictions to its file; return how many nodes were computed."""
    _check_seen(comm.rank, task)
    path = task.out / f"{part_name(comm.rank)}.parquet"
    if task.base is not None and (found := predict_again(comm, task)) is not None:
        nodes, outputs, inputs, splits = found
        kept = _Kept(task.base.path / path.name, nodes, len(splits))
        every = np.arange(len(splits))
        _write(path, task, every, splits, outputs, inputs, kept)
        return len(nodes)
    with (
        open_local(
            comm,
            task.graph,
            task.partition,
            weighted=task.training.weighted,
            for_training=False,
            feature_columns=task.feature_columns,
            split=task.split,
        ) as local,
        ThreadPool.of(comm) as pool,
    ):
        pool.tile = TILE
        tensors, _ = checkpoint.load(task.checkpoint)
        network = Network(task.plan, task.training, local, pool, comm, device=gpu())
        load_tensors(network, tensors)
        outputs = network.forward()
        network.synchronize()
        outputs = to_host(outputs)
        hidden = to_host(network.last_hidden()) if task.columns.embeddings else None
        _write(path, task, local.ids[: local.owned], local.splits, outputs, hidden)
        return local.owned


def _check_seen(rank: int, task: PredictTask) -> None:
    """Raise if the client made the folder on a disk that this rank cannot see."""
    if not task.out.is_dir():
        raise UsageError(
            f"rank {rank} cannot see the folder of the predictions",
            expected=f"{task.out} on a disk that the hosts of all ranks share",
            got=f"no such folder on {socket.gethostname()}",
            remedy=task.out_remedy,
        )


class _Kept:
    """The predictions of a base, which nodes keep that are not computed again."""

    def __init__(self, file: Path, nodes: Array, count: int) -> None:
        self.table = read_table(file)
        self.again = np.zeros(count, bool)
        self.again[nodes] = True
        self._number = np.cumsum(self.again) - 1

    def made_of(self, rows: Array) -> Array:
        """Return the numbers, among all that are computed again, of those among nodes."""
        found: Array = self._number[rows[self.again[rows]]]
        return found

    def joined(self, name: str, rows: Array, made: Any) -> Any:
        """Return a column of consecutive nodes, of which some are ``made`` again."""
        import pyarrow as pa

        kept = self.table.column(name).slice(rows[0], len(rows))
        again = self.again[rows]
        where = np.where(again, len(kept) + np.cumsum(again) - 1, rows - rows[0])
        both = pa.chunked_array([*kept.chunks, made.cast(kept.type)], kept.type)
        return both.combine_chunks().take(as_arrow(where))


def _write(
    path: Path,
    task: PredictTask,
    ids: Array,
    splits: Array,
    outputs: Array,
    hidden: Array | None,
    kept: _Kept | None = None,
) -> None:
    """Write predictions of nodes; ``outputs`` and ``hidden`` are of them, or of those not kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    order = np.argsort(ids)  # in the graph's order
    names = Graph.open(task.graph).user_ids(ids[order])
    with atomic(path) as partial:
        writer = None

        def table_from(first: int) -> pa.Table:
            rows = order[first : first + _PIECE]
            here = rows if kept is None else kept.made_of(rows)
            found = _predictions(outputs[here], task.columns)
            if hidden is not None and task.columns.embeddings:
                found["embedding"] = vector_lists(hidden[here].astype(np.float32))
            if kept is not None:
                found = {name: kept.joined(name, rows, made) for name, made in found.items()}
            found |= {"id": names[first : first + _PIECE], "split": _splits(splits[rows])}
            return pa.table({name: found[name] for name in task.columns.names})

        for table in results(table_from, range(0, max(len(ids), 1), _PIECE)):
            if writer is None:
                writer = pq.ParquetWriter(partial, table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _predictions(outputs: Array, columns: Columns) -> dict[str, Any]:
    import pyarrow as pa

    kind, classes = columns.task, columns.classes
    if kind == "value":
        return {"prediction": as_arrow(outputs[:, 0])}
    if kind == "multi":
        chance = 1 / (1 + np.exp(-outputs.astype(np.float64)))
        chosen = outputs > 0
        starts = as_arrow(offsets_of(chosen.sum(axis=1)).astype(np.int32))
        numbers = as_arrow(np.nonzero(chosen)[1].astype(np.int32))
        found: dict[str, Any] = {"prediction": pa.ListArray.from_arrays(starts, numbers)}
        if classes is not None:
            names = pa.array(classes, pa.string()).take(numbers)
            found["predicted_label"] = pa.ListArray.from_arrays(starts, names)
    else:
        shifted = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
        chance = shifted / shifted.sum(axis=1, keepdims=True)
        best = np.argmax(outputs, axis=1)
        found = {"prediction": as_arrow(best.astype(np.int32))}
        if classes is not None:
            found["predicted_label"] = pa.array(classes, pa.string()).take(found["prediction"])
        found["probability"] = as_arrow(chance[np.arange(len(best)), best].astype(np.float32))
    if columns.probabilities:
        found["probabilities"] = vector_lists(chance.astype(np.float32))
    return found


def _splits(splits: Array) -> Any:
    import pyarrow as pa

    names = pa.array([*SPLITS, None])
    return names.take(as_arrow(np.where(splits < 0, len(SPLITS), splits).astype(np.int32)))
