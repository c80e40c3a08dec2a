"""One batch on the GPU: queries, tiles of scores, gradients of edges, one update per row."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.cuda.embed import wide
from penstock.kernels.cuda.embed.cuda_graphs import Branch, Workspace, side_stream
from penstock.kernels.cuda.embed.matrices import MatrixBatch
from penstock.kernels.cuda.embed.sort import SortedRows, sort_rows
from penstock.kernels.cuda.embed.tiles import (
    NOTE,
    WEIGHTS,
    WIDEST,
    TiledBatch,
    Tiles,
    pieces_of,
    widest_distance,
)
from penstock.kernels.cuda.gnn.launch import matrix
from penstock.kernels.cuda.module import launch, launch_blocks, processors
from penstock.kernels.embed_rules import Batch, EmbedRules, Loss, Model, Side, Table

WIDEST_PRODUCT = 4096  # values of a node, for models whose scores are products

_BATCH_FILE, _EDGES_FILE, _PRODUCT_FILE = "embed/batch", "embed/edges", "embed/product"
_UPDATE_FILE = "embed/update"
_FOLDED = (1, 32), (32, 1024), (1024, 1 << 18)  # units of folds, and their least numbers of keys
_LOSS_BLOCKS = 64
_ROW_BLOCKS = 8  # per multiprocessor, for rows whose number only the GPU knows


def workspace(
    threads: int | None = None, rules: EmbedRules | None = None
) -> AbstractContextManager[Any]:
    """Return the context manager of other functions' ``work``, which holds CUDA graphs.

    rules  of the following steps: another thread compiles their kernels meanwhile
    """
    return Workspace(None if rules is None else partial(_compile_step, rules))


def _compile_step(rules: EmbedRules) -> None:
    few = cp.zeros(64, cp.int32)
    batch = Batch(few, few, few, cp.zeros((len(rules.sides), 1, len(few)), cp.int32))
    rows, width = 1 + rules.inverse + rules.shared_rows, rules.relation_width
    step(
        _zeros(rules, 1, rules.dim), _zeros(rules, rows, width) if width else None, batch, rules, 0
    )


def _zeros(rules: EmbedRules, rows: int, width: int) -> Table:
    state = cp.zeros((rows, rules.state_width(width)), cp.float32)
    return Table(cp.zeros((rows, width), cp.float32), state)


def step(
    nodes: Table,
    relations: Table | None,
    batch: Batch,
    rules: EmbedRules,
    lr: float,
    number: int = 1,
    work: Workspace | None = None,
) -> DeviceArray:
    """Train one batch, in place; return its loss, a float64 on the GPU, without waiting.

    ``float`` of the loss waits. With ``work``, a repeated step with the same tables and number of
    edges is launched as one CUDA graph. See ``naive.embed.step``.
    """
    _check(nodes, relations, rules)

    def prepare() -> _Inputs:
        if _is_wide(rules) or rules.model == Model.TUCKER:
            wide.prepare()
        return _Inputs.like(batch, rules)

    def stage(inputs: _Inputs) -> None:
        inputs.stage(batch, rules, lr, number)

    def train(inputs: _Inputs) -> DeviceArray:
        found = _gradients(nodes, relations, inputs, rules)
        _update(nodes, relations, found, rules, inputs.rates)
        return found.loss

    if work is None:
        inputs = prepare()
        stage(inputs)
        return train(inputs)
    tables = [array for table in (nodes, relations) for array in _arrays_of(table)]
    key = (rules, len(batch.heads), batch.negatives.shape, batch.weights is None, *tables)
    return work.run(key, prepare, stage, train)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """A step's inputs besides the tables, in separate memory.

    rows     int32: heads, tails, relations (or none) and negatives, one after another
    rates    the fields of optimizer.cuh's Rates
    weights  (edges + 1,): of edges, relative to the largest, which comes last; or None
    """

    rows: DeviceArray
    rates: DeviceArray
    weights: DeviceArray | None
    edges: int
    shape: tuple[int, int, int]  # of the negatives
    typed: bool

    @classmethod
    def like(cls, batch: Batch, rules: EmbedRules) -> _Inputs:
        edges, shape = len(batch.heads), tuple(batch.negatives.shape)
        typed = rules.model != Model.DOT
        count = (2 + typed) * edges + batch.negatives.size
        weights = None if batch.weights is None else cp.empty(edges + 1, cp.float32)
        rows, rates = cp.empty(count, cp.int32), cp.empty(6, cp.float32)
        return cls(rows, rates, weights, edges, shape, typed)

    def stage(self, batch: Batch, rules: EmbedRules, lr: float, number: int) -> None:
        numbers = (
            *(lr, rules.epsilon, rules.beta1, rules.beta2),
            *(1 - rules.beta1**number, 1 - rules.beta2**number),
        )
        launch(
            _BATCH_FILE,
            "stage",
            max(len(self.rows), 1),
            *(_rows(batch.heads), _rows(batch.tails)),
            *(_rows(batch.relations) if self.typed else None, np.int64(self.edges)),
            *(_rows(batch.negatives), np.int64(batch.negatives.size)),
            *(*map(np.float32, numbers), self.rows, self.rates),
        )
        if self.weights is not None and batch.weights is not None and self.edges:
            heaviest = self.weights[self.edges :]
            cp.max(batch.weights, out=heaviest.reshape(()))
            # If all are 0, any divisor will do.
            cp.divide(
                batch.weights, cp.where(heaviest > 0, heaviest, 1), out=self.weights[: self.edges]
            )

    @property
    def heads(self) -> DeviceArray:
        return self.rows[: self.edges]

    @property
    def tails(self) -> DeviceArray:
        return self.rows[self.edges : 2 * self.edges]

    @property
    def relations(self) -> DeviceArray | None:
        return self.rows[2 * self.edges : 3 * self.edges] if self.typed else None

    @property
    def negatives(self) -> DeviceArray:
        return self.rows[(2 + self.typed) * self.edges :].reshape(self.shape)


@dataclass(frozen=True, eq=False)
class _Found:
    loss: DeviceArray
    rows: SortedRows
    node_slopes: DeviceArray
    relation_slopes: DeviceArray | None
    matrices: MatrixBatch | None


def _gradients(nodes: Table, relations: Table | None, inputs: _Inputs, rules: EmbedRules) -> _Found:
    """Return a batch's gradients, and change the rows that occur only once."""
    model = rules.model.name
    edges, sides, dim = inputs.edges, len(rules.sides), rules.dim
    heads, tails, typed, negatives = inputs.heads, inputs.tails, inputs.relations, inputs.negatives
    negative_sides, chunks, count = inputs.shape
    chunk = rules.chunk if chunks > 1 else max(edges, 1)
    head_sides = _bits([side == Side.HEAD for side in rules.sides])
    width = rules.relation_width
    values, stride = matrix(nodes.values)
    r = matrix(None if relations is None else relations.values)
    ends = heads, tails, typed, np.int32(rules.inverse)
    tiles = Tiles(rules, edges, chunk, chunks, count, negative_sides)
    given = (values, stride), r, ends, negatives, tiles, head_sides, inputs.weights
    batch = TiledBatch(*given)

    matrices = None
    if rules.has_matrices:
        matrices = MatrixBatch.of(batch)
        typed = None  # no rows with a gradient per edge
    # A negative that both sides share has one row of gradients for each.
    every = cp.repeat(negatives, sides, axis=0) if negative_sides < sides else negatives
    slots = sides if typed is not None and rules.inverse else 1
    firsts = [
        len(values) + (rules.inverse if side == Side.HEAD else 0) for side in rules.sides[:slots]
    ]
    # Sorting takes few multiprocessors, and the first kernels need no order.
    with side_stream() as sorted_too:
        rows = sort_rows(
            (heads, tails, every.reshape(-1)),
            2 * edges if matrices is None else 0,
            len(values) + (0 if relations is None else len(relations.values)),
            typed,
            tuple(firsts),
        )

    relation_slopes = None
    if typed is not None:
        relation_slopes = cp.empty((slots * edges, width), cp.float32)
    node_slopes = cp.empty((2 * edges + sides * chunks * count, dim), cp.float32)
    in_negatives = node_slopes[2 * edges :]
    splits, branch = 1, None
    sums: DeviceArray | None = None
    read: tuple[DeviceArray, ...] = ()
    if _is_wide(rules):
        vectors, weights = wide.multiply(batch, in_negatives)
        sorted_too.wait()
    else:
        splits, vectors, sums, weights, branch, read = _tiled(
            batch, in_negatives, matrices, sorted_too
        )
    losses, loss_sum = cp.empty(edges, cp.float64), cp.empty((), cp.float64)
    exponential = rules.loss in (Loss.SOFTMAX, Loss.CONTRASTIVE, Loss.SELF_ADVERSARIAL)
    if matrices is not None:
        matrices.gradients(
            splits, vectors, sums, weights, node_slopes, losses, exponential=exponential
        )
    else:
        exponentials = str(exponential).lower()
        of = f"{model}, {exponentials}, {rules.optimizer.name}, {min(tiles.pieces, 4)}"
        launch(
            _EDGES_FILE,
            f"edge_gradients<{of}>",
            32 * edges,
            *(values, stride, *matrix(nodes.state), np.int32(dim), *r, np.int32(width)),
            *(*batch.of_edges, np.int32(splits), vectors, sums, weights, rows.alone),
            *(np.float32(rules.node_penalty), np.float32(rules.relation_penalty)),
            *(np.int32(rules.power), np.int32(slots), inputs.rates, node_slopes),
            *(relation_slopes, losses),
        )
    partial = cp.empty(_LOSS_BLOCKS, cp.float64)
    for blocks, parts, to in ((_LOSS_BLOCKS, losses, partial), (1, partial, loss_sum)):
        launch_blocks(_BATCH_FILE, "sum_losses", blocks, 256, parts, np.int64(len(parts)), to)
    if branch is not None:
        branch.wait()
    del read  # not before: its memory would be reused
    return _Found(loss_sum, rows, node_slopes, relation_slopes, matrices)


def _is_wide(rules: EmbedRules) -> bool:
    return rules.dim > WIDEST and not rules.is_distance


def _tiled(
    batch: TiledBatch,
    in_negatives: DeviceArray,
    matrices: MatrixBatch | None,
    sorted_too: Branch,
) -> tuple[int, DeviceArray, DeviceArray, DeviceArray, Branch, tuple[DeviceArray, ...]]:
    """Return splits, sums of weighted negatives and of losses, weights of rows, the branch that
    writes gradients of negatives, and its inputs. See ``wide.multiply``."""
    tiles, negatives = batch.tiles, batch.negatives
    edges, sides, chunks, count = tiles.edges, tiles.sides, tiles.chunks, tiles.count
    rules, dim = tiles.rules, tiles.rules.dim
    model, loss = rules.model.name, rules.loss.name
    asked, others = tiles.rows_of(sides * edges), tiles.rows_of(negatives.size)
    tile_rows = asked, _notes(sides * edges), others, _notes(negatives.size)
    if matrices is not None:
        matrices.pack(*tile_rows)
    else:
        (wide.pack if dim > WIDEST else _pack)(batch, *tile_rows)

    splits = tiles.splits(queries=True)
    vectors = cp.empty((splits, sides * edges, dim), cp.float32)
    sums = cp.empty((splits, sides * edges, 3), cp.float32)
    tiles.run(True, splits, tile_rows, vectors, sums)

    weights = cp.empty((sides * edges, WEIGHTS // 4), cp.float32)
    launch(
        _EDGES_FILE,
        f"finish_rows<{model}, {loss}>",
        sides * edges,
        *(sums, np.int64(sides * edges), np.int32(splits), *tiles.loss_numbers()),
        *(batch.weights, np.int64(edges)),
        *(tile_rows[1], weights),
    )
    sorted_too.wait()
    # These tiles and gradients of edges are independent: small batches run both at once.
    with side_stream() as tiled_too:
        shared = tiles.splits(queries=False)
        pieces = in_negatives
        if shared > 1:
            pieces = cp.empty((shared, *in_negatives.shape), cp.float32)
        tiles.run(False, shared, tile_rows, pieces, None, batch.weights)
        if shared > 1:
            launch(
                _PRODUCT_FILE,
                "add_splits",
                in_negatives.size,
                *(pieces, np.int64(sides * chunks), np.int32(shared), np.int64(count * dim)),
                in_negatives,
            )
    return splits, vectors, sums, weights, tiled_too, (*tile_rows, pieces)


def _pack(
    batch: TiledBatch,
    queries: DeviceArray,
    query_notes: DeviceArray,
    others: DeviceArray,
    negative_notes: DeviceArray,
) -> None:
    """Write queries and negatives in the format of tiles, a row's values in registers at once."""
    tiles, negatives = batch.tiles, batch.negatives
    model, width = tiles.rules.model.name, np.int32(tiles.width)
    launch(
        _EDGES_FILE,
        f"pack_queries<{model}, {tiles.pieces}>",
        32 * tiles.edges,
        *(*batch.of_nodes, *batch.relations, *batch.of_edges, width, queries, query_notes),
    )
    launch(
        _EDGES_FILE,
        f"pack_rows<{model}, {pieces_of(tiles.width)}>",
        32 * negatives.size,
        *(*batch.of_nodes, negatives, np.int64(negatives.size), width, others, negative_notes),
    )


def _update(
    nodes: Table, relations: Table | None, found: _Found, rules: EmbedRules, rates: DeviceArray
) -> None:
    count = len(found.rows.keys)
    if not count:
        return
    if found.matrices is not None and relations is not None:
        found.matrices.update(relations, rules.optimizer, rates)
        relations = None
    slopes: tuple[Any, ...] = (
        *(found.node_slopes, np.int32(found.node_slopes.shape[1]), np.int64(len(nodes.values))),
        *(np.int64(len(found.node_slopes)), None, np.int32(0)),
    )
    if found.relation_slopes is not None:
        slopes = (*slopes[:4], found.relation_slopes, np.int32(found.relation_slopes.shape[1]))
    folded = 1
    for unit, least in _FOLDED:
        if count > least:
            launch(
                _UPDATE_FILE,
                "fold",
                -(-count // unit),
                *(found.rows.keys, np.int64(count), np.int64(unit), *slopes),
            )
            folded = 32 * unit
    tables = [nodes.values, nodes.state]
    tables += [None, None] if relations is None else [relations.values, relations.state]
    launch_blocks(
        _UPDATE_FILE,
        f"update_rows<{rules.optimizer.name}>",
        min(-(-count // 8), _ROW_BLOCKS * processors()),
        256,
        *(found.rows.keys, np.int64(count), found.rows.listed, found.rows.begins),
        *(np.int64(folded), *slopes),
        *(value for table in tables for value in matrix(table)),
        rates,
    )


def _notes(count: int) -> DeviceArray:
    return cp.empty((count, NOTE // 4), cp.float32)


def _arrays_of(table: Table | None) -> tuple[Any, ...]:
    if table is None:
        return ()
    return tuple(
        (array.data.ptr, array.shape, array.strides)
        for array in (table.values, table.state)
        if array is not None
    )


def _rows(ids: AnyArray) -> DeviceArray:
    return cp.ascontiguousarray(ids, cp.int32)


def _bits(flags: list[bool]) -> int:
    return sum(1 << at for at, flag in enumerate(flags) if flag)


def _check(nodes: Table, relations: Table | None, rules: EmbedRules) -> None:
    widest = widest_distance() if rules.is_distance else WIDEST_PRODUCT
    assert 1 <= rules.dim <= (WIDEST if rules.has_matrices else widest), rules.dim
    for table in (nodes, relations):
        if table is not None:
            assert table.values.dtype == np.float32, table.values.dtype
            assert table.state is None or table.state.dtype == np.float32, table.state.dtype
