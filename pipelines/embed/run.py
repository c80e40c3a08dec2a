"""The files of a training run's folder, and the content of run.json.

run.json        model, training, graph, state, identity and report
ids.parquet     the user's id of every node, by number
_rows.npy       for --share: 64 bits of each row of the graph
chosen.npy      of --share: whether the edges of each node's row are trained
metrics.jsonl   one line per epoch
checkpoints/    last.safetensors and best.safetensors have relations and name versions of
                partitions, which are files such as nodes-0003-000012.table; places.npy has the
                location of each node
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.arrays import Array
from penstock.arrow import copy_columns
from penstock.errors import CorruptFile, UsageError
from penstock.graph import Graph
from penstock.pipelines.job.training import TrainingRun, run_format
from penstock.workers.embed.source import check_trained
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage.versions import BEST, LAST, Checkpoint, Checkpoints
from penstock.workers.embed.warm import IDS

FORMAT = run_format("embed")


@dataclass(frozen=True)
class Run(TrainingRun):
    """The content of run.json.

    training   with ``model`` and ``partitions`` set for this graph and machine
    relations  their names; None: the graph has none
    init       the run whose vectors it began with
    ranks      how many train together
    init_sha256  of the checkpoint that it began with: the other run may train further
    rows       of the graph, whose bits a run that begins with this one compares
    """

    format = FORMAT
    training: Training
    nodes: int
    relations: tuple[str, ...] | None = None
    init: str | None = None
    ranks: int = 1
    init_sha256: str | None = None
    rows: dict[str, Any] | None = None

    @property
    def inverse_suffix(self) -> str | None:
        """Return the suffix of an inverse relation's name; None: relations have no inverse."""
        if not self.training.is_reciprocal:
            return None
        names, suffix = set(self.relations or ()), "_inverse"
        while any(name + suffix in names for name in names):
            suffix += "_inverse"
        return suffix

    def relation_vectors(self, found: Checkpoint, at: Path) -> tuple[list[str], Array]:
        """Return names and vectors of relations, followed by their inverses, not shared ones."""
        if self.relations is None:
            raise UsageError(f"{at} has no vectors of relations")
        names, suffix = list(self.relations), self.inverse_suffix
        inverse = [] if suffix is None else [name + suffix for name in names]
        names += inverse
        return names, found.tensors["relations"][: len(names)]


def checkpoint_of(folder: Path, wanted: str, run: Run) -> Checkpoint:
    """Return the checkpoint to read of a run: ``best`` is the last if nothing was validated.

    CorruptFile if the best one, or an id, is missing.
    """
    checkpoints, asked = Checkpoints(folder / "checkpoints"), wanted
    if wanted not in (BEST, LAST):
        raise UsageError("no such checkpoint", expected=f"{BEST} or {LAST}", got=wanted)
    if wanted == BEST and not checkpoints.has(BEST):
        wanted = LAST
    run.checkpoint(folder, wanted)
    found = checkpoints.load(wanted)
    if asked == BEST != wanted and found.about.get("best_epoch"):
        raise CorruptFile(
            f"{checkpoints.path(BEST)} is missing",
            expected=f"the vectors of epoch {found.about['best_epoch']}, the best validated one",
            remedy="Restore the file, or take the last vectors with --checkpoint last",
        )
    check_trained(folder / "checkpoints", found)
    # The row of a vector is that of its id: with too few or too many ids, vectors get wrong ones.
    if (ids := _count_of_ids(folder)) != run.nodes:
        raise CorruptFile(
            f"{folder / IDS} is damaged",
            expected=f"the ids of {run.nodes:,} nodes",
            got="no table of them" if ids is None else f"{ids:,} ids",
            remedy="Restore the file, or write it again by penstock embed train --resume",
        )
    return found


def _count_of_ids(folder: Path) -> int | None:
    """Return the number of ids of a run; None if it has no table of ids."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(folder / IDS).num_rows)
    except (OSError, pa.ArrowInvalid):
        return None


def bytes_of_ids(folder: Path) -> int:
    """Return the bytes of a run's ids in memory."""
    import pyarrow.parquet as pq

    found = pq.read_metadata(folder / IDS)
    groups = (found.row_group(number) for number in range(found.num_row_groups))
    return sum(group.column(0).total_uncompressed_size for group in groups)


def keep_ids(folder: Path, graph: Graph) -> None:
    """Copy the ids of a graph's nodes to a run, which may outlive the graph."""
    if _count_of_ids(folder) != graph.num_nodes:
        # Ids are distinct: pyarrow would build a dictionary per row group, and discard it.
        how = {"compression": "snappy", "use_dictionary": False}
        copy_columns(graph.ids_file, folder / IDS, ["id"], **how)
