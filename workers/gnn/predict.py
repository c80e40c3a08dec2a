"""Prediction by one rank: the outputs of its nodes, written as its file of a Parquet dataset."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow
from penstock.csr import offsets_of
from penstock.errors import UsageError
from penstock.files import atomic, part_name
from penstock.graph import SPLITS, Graph
from penstock.vector_parts import vector_lists
from penstock.workers.gnn.data.local import LocalGraph, open_local
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.state import load_tensors
from penstock.workers.gnn.task import Predicted, PredictTask
from penstock.workers.gnn.thread_pool import ThreadPool
from penstock.workers.resources.device import gpu, to_host
from penstock.workers.training import checkpoint

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_PIECE = 1 << 16  # nodes per table


def predict(comm: AnyCommunicator, task: PredictTask) -> Predicted:
    """Predict this rank's nodes and write them; each rank writes one file."""
    _check_seen(comm.rank, task)
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
        tensors, about = checkpoint.load(task.checkpoint)
        network = Network(task.plan, task.model, task.training, local, pool, comm, device=gpu())
        load_tensors(network, tensors, task.checkpoint)
        outputs = network.forward()
        network.synchronize()
        outputs = to_host(outputs)
        hidden = None
        if task.embeddings:
            hidden = to_host(network.last_hidden())
        kind = about["label_kind"]
        path = task.out / f"{part_name(local.rank)}.parquet"
        _write(path, task, local, outputs, hidden, kind)
        return Predicted(nodes=local.owned, bytes=path.stat().st_size)


def _check_seen(rank: int, task: PredictTask) -> None:
    """Raise if the client made the folder on a disk that this rank cannot see."""
    if not task.out.is_dir():
        raise UsageError(
            f"rank {rank} cannot see the folder of the predictions",
            expected=f"{task.out} on a disk that the hosts of all ranks share",
            got=f"no such folder on {socket.gethostname()}",
            remedy=task.out_remedy,
        )


def _write(
    path: Path,
    task: PredictTask,
    local: LocalGraph,
    outputs: Array,
    hidden: Array | None,
    kind: str,
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = local.ids[: local.owned]
    order = np.argsort(ids)  # in the graph's order
    names = Graph.open(task.graph).user_ids(ids[order])
    with atomic(path) as partial:
        writer = None
        for first in range(0, max(local.owned, 1), _PIECE):
            rows = order[first : first + _PIECE]
            columns: dict[str, Any] = {"id": names[first : first + _PIECE]}
            columns |= _predictions(
                outputs[rows], kind, task.classes, probabilities=task.probabilities
            )
            columns["split"] = _splits(local.splits[rows])
            if hidden is not None:
                columns["embedding"] = vector_lists(hidden[rows].astype(np.float32))
            table = pa.table(columns)
            if writer is None:
                writer = pq.ParquetWriter(partial, table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _predictions(
    outputs: Array, kind: str, classes: tuple[str, ...] | None, *, probabilities: bool
) -> dict[str, Any]:
    import pyarrow as pa

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
    if probabilities:
        found["probabilities"] = vector_lists(chance.astype(np.float32))
    return found


def _splits(splits: Array) -> Any:
    import pyarrow as pa

    names = pa.array([*SPLITS, None])
    return names.take(as_arrow(np.where(splits < 0, len(SPLITS), splits).astype(np.int32)))
