"""Whether a graph suits a model, and the memory and disk that training takes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from penstock.cluster.query import ask_workers
from penstock.errors import CapacityError, UsageError
from penstock.graph import Graph
from penstock.kernels.cpu.embed.step import pieces_of
from penstock.kernels.embed_rules import EmbedRules, Model
from penstock.partition.order import MOST_IN_WIDE
from penstock.pipelines.embed.run import Run, bytes_of_ids
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.job.workers import Workers
from penstock.sizes import does_not_fit, format_bytes, free_disk
from penstock.workers.embed.evaluation import ranking
from penstock.workers.embed.ranks.rounds import partitions_of
from penstock.workers.embed.spec import BATCH, Training
from penstock.workers.embed.storage import Geometry
from penstock.workers.plugin import resources

if TYPE_CHECKING:
    from distributed import Worker

_CONTEXT = 400_000_000  # of a GPU's memory: CUDA's context, and kernels
_RANKED = 32  # bytes of an edge to rank, and of its ranks
_VALUE = 16  # bytes per value of a query: the query, its answer, and the nodes of both
_EDGE, _WEIGHT = 12, 4  # bytes of an edge in its bucket, and of its weight
_ID = 24  # bytes of a node's id, about
_PLACE = 16  # bytes of a node's position in the layout, and while the layout is made
_GROUPED = 36  # bytes of a gradient's row number on CPUs, while equal rows are found
_SORTED = 24  # the same on a GPU
_THREAD = 4 * (3 * 1024 + 3 * 256)  # bytes per value of the queries of a thread's piece
_TILE, _TILE_ROWS = 3 << 20, 64  # bytes of a thread's scores, and their least number of rows
_NEGATIVE = 16  # bytes of a negative in order
WIDEST_TILE = 512  # values of a row that any GPU scores in tiles
_WIDE_SCORES = 1 << 26  # bytes of rows wider than a GPU's tiles, at a time
# The most partitions of a rank, whose order is made within seconds; and of all ranks, as each pair
# of partitions has a bucket.
_MOST_OF_RANK, _MOST = 1024, 4096
# A warm start on CPUs: bytes per node besides its id while ids are looked up and rows are found;
# and bytes per node of the other run in the hash table of ids.
_BEGUN, _LOOKED_UP, _OF_NEW = 64, 128, 100
_DEGREES, _CHANCES = 16, 24  # bytes of a node drawn by degree, and more while degrees are counted
_ALIAS, _ALIAS_MADE = 8, 40  # bytes of a row in an alias table, and while the table is made
_TYPED = 56  # bytes of a node if several tables limit it by its type


def check_graph(graph: Graph, training: Training, ranks: int = 1) -> None:
    """Raise if the graph's manifest shows that it cannot be trained on with these options."""
    about = graph.manifest
    if about.graphs is not None:
        raise UsageError(
            f"{graph.path} is a zoo of {about.graphs:,} graphs",
            expected="one graph, whose nodes get a vector each",
        )
    if graph.num_edges == 0:
        raise UsageError(f"{graph.path} has no edges to learn from")
    if training.has_relations and about.relations is None:
        raise UsageError(
            f"{graph.path} has no relations, which --model {training.model} is for",
            expected="a graph whose edges have relations",
            remedy="Use --model dot, or name their column with penstock etl --relation",
        )
    if training.weighted and "weights" not in about.dtypes:
        raise UsageError(
            f"{graph.path} has no weights, which --weighted is for",
            remedy="Name their column with penstock etl --weight",
        )
    if ranks > 1 and 2 * ranks > graph.num_nodes:
        raise UsageError(
            f"{graph.num_nodes:,} nodes are too few for {ranks} ranks, two blocks each",
            expected="4 nodes or more"
            if graph.num_nodes < 4
            else f"-k {graph.num_nodes // 2} or less",
            got=f"-k {ranks}",
        )
    if training.partitions is not None:
        most = min(_MOST, _MOST_OF_RANK * ranks, graph.num_nodes)
        if training.partitions > most:
            raise UsageError(
                f"{graph.num_nodes:,} nodes cannot lie in {training.partitions:,} partitions",
                expected=f"--partitions {most:,} or less",
                got=str(training.partitions),
                remedy="Leave --partitions out: they are then as few as fit in memory",
            )
        if training.partitions > 1 and training.held > 3:
            training.in_order(training.partitions // ranks)  # raises if there is none


def geometry(graph: Graph, training: Training, ranks: int = 1) -> Geometry:
    """Return the geometry of the table of all vectors."""
    count = partitions_of(training, graph.num_nodes, ranks)
    rows = -(-graph.num_nodes // count)
    return Geometry.of(count, rows, training.dim, training.rules(1).state_width(1))


def memory_to_train(
    graph: Graph,
    training: Training,
    ranks: int = 1,
    on: Capacity | None = None,
    *,
    begin: int = 0,
    tables: int = 0,
) -> int:
    """Return the approximate bytes that each worker needs at most.

    on     the capacity of workers [default: CPUs of unknown memory]
    begin  host memory that a warm start takes: see ``memory_to_begin``
    tables alias tables that candidates need
    """
    table = geometry(graph, training, ranks)
    held, slots = table.partitions // ranks, 1
    in_memory = (training.partitions or 1) == 1
    if not in_memory:
        held = min(held, training.held)
    if ranks > 1 or not in_memory:
        slots = held + 1  # a partition on its way, or of an evaluation
    both = ranks > 1 and not in_memory and bool(graph.manifest.heldout.get("valid"))
    batch = min(training.batch or BATCH, max(graph.num_edges, 1))
    negatives: int = (
        min(graph.num_nodes // ranks, slots * table.rows)
        if training.negatives == "all"
        else training.negatives
    )
    relations = len(graph.manifest.relations or ()) if training.has_relations else 0
    rules = training.rules(relations)
    on_gpu = on is not None and on.on_gpu
    # Values and the optimizer's state, and the same for a checkpoint; several ranks also have their
    # former values and the exchanged ones.
    kept = 1 + rules.state_width(1)
    copies = kept + 1 if on_gpu else 2 * kept
    if ranks > 1:
        copies = 3 * (kept + 1)
    rows = relations * (1 + training.is_reciprocal) + rules.shared_rows
    work = 4 * rows * rules.relation_width * copies
    # Every node is a negative of all edges, and of both sides.
    chunks, sides = (1, 1) if training.negatives == "all" else (None, len(rules.sides))
    if on_gpu:
        work += _step_on_gpu(rules, batch, negatives, chunks or rules.chunks(batch), relations)
    else:
        cores = on.cores if on is not None else 0
        work += _step(rules, batch, negatives, sides, cores, relations)
    if ranked := min(graph.manifest.heldout.get("valid", 0), training.validate_sample):
        work += memory_to_rank(ranked, training.dim, graph.num_nodes)
    if table_count := max(tables, training.by_degree > 0):
        # Each pair of partitions has its own alias tables, unless all are in memory.
        pairs = 1 if in_memory else held**2
        rows = min(graph.num_nodes, held * table.rows)
        work += _ALIAS * rows * table_count * pairs
        if not on_gpu:
            work += (_DEGREES + _TYPED * (table_count > 1)) * graph.num_nodes
            work += max(_CHANCES * graph.num_nodes, _ALIAS_MADE * rows)
    if not on_gpu:
        work += begin
    needed: int = (slots + both) * table.bytes + graph.num_nodes * _PLACE + work
    return needed


def memory_to_begin(graph: Graph, folder: Path, init: Run) -> int:
    """Return the host memory that a warm start from the run in ``folder`` takes on each worker.

    It assumes that the graph's ids are as long as that run's, and new nodes have as many edges.
    """
    each = -(-bytes_of_ids(folder) // max(init.nodes, 1))
    rules = init.training.rules(len(init.relations or ()))
    looked_up = graph.num_nodes * (2 * each + _BEGUN) + init.nodes * (3 * each + _LOOKED_UP)
    new = max(graph.num_nodes - init.nodes, 0) / max(graph.num_nodes, 1)
    looked_up += int(new * graph.num_edges) * _OF_NEW
    return looked_up + _bytes_of_relations(rules, len(init.relations or ()))


def _bytes_of_relations(rules: EmbedRules, relations: int) -> int:
    """Return the bytes of relations' vectors and of their optimizer state."""
    rows = relations + rules.inverse + rules.shared_rows
    return 4 * rows * rules.relation_width * (1 + rules.state_width(1))


def _step(
    rules: EmbedRules, batch: int, negatives: int, sides: int, cores: int, relations: int
) -> int:
    """Return the bytes of a batch on CPUs: gradients, and each thread's tiles of scores.

    sides  number of sides with their own negatives
    cores  0: unknown
    """
    pieces = pieces_of(batch, rules.chunk)
    threads = min(pieces, cores or pieces)
    nodes = 2 * batch + pieces * sides * negatives
    rows = _relation_rows(rules, batch)
    tile = max(_TILE, _TILE_ROWS * negatives * 4 * (2 if rules.is_distance else 1))
    tile += _NEGATIVE * negatives
    thread = 4 * 2 * negatives * rules.dim + _THREAD * rules.dim + tile
    values = nodes * rules.dim + rows * rules.relation_width
    values += _of_matrices(rules, batch, relations)
    return 4 * values + _GROUPED * (nodes + rows) + threads * thread


def _step_on_gpu(rules: EmbedRules, batch: int, negatives: int, chunks: int, relations: int) -> int:
    """Return the bytes of a batch on a GPU: gradients, queries, negatives and their sums."""
    sides = len(rules.sides)
    drawn = sides * chunks * negatives
    rows = _relation_rows(rules, batch)
    values = (2 * batch + 2 * sides * batch + 2 * drawn) * rules.dim
    values += rows * rules.relation_width + _of_matrices(rules, batch, relations, on_gpu=True)
    scores = 0
    if rules.dim > WIDEST_TILE:
        # As many rows of a chunk at a time as fit; each such piece has its sums.
        most = -(-batch // chunks)
        at_once = max(1, min(most, _WIDE_SCORES // max(negatives, 1)))
        pieces = -(-most // at_once)
        scores = 4 * at_once * negatives
        values += drawn * rules.dim * pieces if pieces > 1 else 0
    # A step is launched once kernel by kernel; as a CUDA graph it then has its own memory.
    return 2 * (4 * values + _SORTED * (2 * batch + drawn + rows) + scores)


def _of_matrices(rules: EmbedRules, batch: int, relations: int, *, on_gpu: bool = False) -> int:
    """Return the values of gradients of a batch's queries, and of its matrices."""
    if not rules.has_matrices:
        return 0
    queries, matrices = len(rules.sides) * batch, relations * (1 + bool(rules.inverse))
    composed = rules.model == Model.TUCKER
    if on_gpu:  # which keeps queries, composes all matrices, and changes others at once
        return 2 * queries * rules.dim + 2 * composed * matrices * rules.dim**2
    return queries * rules.dim + (1 + composed) * min(queries, matrices) * rules.dim**2


def _relation_rows(rules: EmbedRules, batch: int) -> int:
    """Return the number of rows of relations' gradients in a batch, besides matrices."""
    if rules.has_matrices or not rules.relation_width:
        return rules.shared_rows
    return (len(rules.sides) if rules.inverse else 1) * batch


def memory_there(capacity: Capacity) -> int:
    """Return the bytes available to training: on a host, without Python and libraries."""
    return max(0, capacity.memory - _CONTEXT) if capacity.on_gpu else capacity.memory


def memory_to_rank(edges: int, dim: int, nodes: int, *, filtered: bool = True) -> int:
    """Return the bytes for ranking edges, besides the vectors and all known answers."""
    block = min(edges, ranking.BLOCK, max(1, ranking.VALUES // dim))
    known = min(ranking.ANSWERS, block * nodes) if filtered else 0
    return edges * _RANKED + block * dim * _VALUE + known * 4


def in_memory(training: Training, ranks: int) -> bool:
    """Return whether memory holds all partitions of a rank."""
    count = training.partitions or 1
    return count == 1 or len(training.in_order(count // ranks).states) == 1


def disk_to_train(
    graph: Graph, training: Training, ranks: int = 1, spare: int | None = None
) -> int:
    """Return the disk space of a run: versions of all partitions, relations, buckets of edges, ids.

    spare  versions besides those of checkpoints; None: one per partition
    """
    table = geometry(graph, training, ranks)
    checkpoints = 2 if graph.manifest.heldout.get("valid") else 1
    kept = table.partitions * checkpoints
    made = (kept + (table.partitions if spare is None else spare)) * table.bytes
    relations = len(graph.manifest.relations or ()) if training.has_relations else 0
    # A checkpoint is written beside the one that it replaces.
    made += (checkpoints + 1) * _bytes_of_relations(training.rules(relations), relations)
    edge = _EDGE + _WEIGHT * training.weighted
    return made + graph.num_edges * edge + graph.num_nodes * (_ID + _PLACE)


def spare_versions(graph: Graph, training: Training, ranks: int, there: int) -> int | None:
    """Return the number of versions besides those of checkpoints; None: one per partition.

    There is at least one for each partition in memory; the others take at most half of the space
    that then remains. Fewer versions make more checkpoints due, and each writes all partitions in
    memory.

    there  bytes that the run may use
    """
    if ranks > 1 or in_memory(training, ranks):
        return None
    table, least = geometry(graph, training), training.held
    left = there - disk_to_train(graph, training, spare=least)
    spare = least + max(0, left) // 2 // table.bytes
    return None if spare >= table.partitions else spare


def scratch_to_train(
    graph: Graph, training: Training, ranks: int, workers: Workers, run: Path
) -> tuple[str | None, CapacityError | None]:
    """Return the scratch space of the ranks, in words, and the error if there is too little.

    Both are None if memory holds all partitions. Scratch on the run's own disk does not count here:
    ``disk_to_train`` has its versions, which are moved to the run.
    """
    if in_memory(training, ranks):
        return None, None
    table, text, problem = geometry(graph, training, ranks), None, None
    share = table.partitions // ranks * table.bytes
    found = ask_workers(workers.client, partial(_scratch_of, run=run)).values()
    for (host, root, disk), count in Counter(one[:3] for one in found if one[3] != one[2]).items():
        needed = share * min(count, ranks)
        free = max(one[4] for one in found if one[:3] == (host, root, disk))
        text = text or f"{format_bytes(needed)} on the scratch disk {root} of every host"
        if needed > free:
            remedy = "Name another with --worker-scratch, or the run's own disk"
            where = f"in {root} on {host}"
            problem = does_not_fit("the partitions of ranks", where, needed, free, remedy=remedy)
    return text, problem


def _scratch_of(dask_worker: Worker, run: Path) -> tuple[str, str, int, int, int]:
    """Return host, folder and disk of a worker's scratch, the run's disk, and the free bytes.

    The worker takes its scratch first, which removes what killed workers left there.
    """
    has = resources(dask_worker)
    scratch, root = has.scratch, str(has.scratch_root())
    there = next(folder for folder in run.parents if folder.exists())
    return gethostname(), root, scratch.stat().st_dev, there.stat().st_dev, free_disk(scratch)


def fewest_partitions(
    graph: Graph,
    training: Training,
    there: int,
    ranks: int = 1,
    on: Capacity | None = None,
    *,
    begin: int = 0,
    tables: int = 0,
) -> int:
    """Return 1 if everything fits in memory, or else the fewest partitions that fit."""
    most = min(_MOST // ranks, _MOST_OF_RANK, graph.num_nodes // ranks)
    # On one rank; each of several ranks has two blocks of the same size.
    several = (
        [4**i for i in range(1, 6)]
        if training.order == "cover"
        else range(training.held + 1, (MOST_IN_WIDE if training.held > 3 else most) + 1)
    )
    within = (count for count in several if count <= most and (ranks == 1 or count % 2 == 0))

    def fits(count: int) -> bool:
        chosen = replace(training, partitions=count)
        return memory_to_train(graph, chosen, ranks, on, begin=begin, tables=tables) <= there

    if fits(1):
        return 1
    counts = [ranks * count for count in within]
    first = bisect_left(counts, True, key=fits)  # more partitions never take more memory
    return counts[first] if first < len(counts) else training.partitions or 1
