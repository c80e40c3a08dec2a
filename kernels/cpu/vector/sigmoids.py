"""From scores to gradients and losses of a block's pairs, in vector registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from penstock.kernels.cpu.vector import Emit, instruction
from penstock.kernels.cpu.vector.blocks import PAIRS
from penstock.kernels.cpu.vector.exponent import (
    BITS_OF_ROUNDS,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    LOWEST,
    POWERS,
    ROUNDS,
)
from penstock.kernels.cpu.vector.registers import (
    FLOATS,
    LANES,
    WHOLE,
    constant,
    integer,
    load,
    over,
    plus_product,
    splat,
    store,
    variable,
)

PADDED = -(-PAIRS // LANES) * LANES

_NUMBERS = types.CPointer(types.float32)
_POWERS = POWERS[1:]  # for arguments not above 0, less exact


@instruction(lambda *_: types.void(*[_NUMBERS] * 3, types.float32, *[_NUMBERS] * 3))
def gradients(
    emit: Emit,
    score: Any,
    sign: Any,
    weight: Any,
    lr: Any,
    gradient: Any,
    factor: Any,
    excess: Any,
) -> None:
    """Write the gradients of a block's pairs, and their loss: ``log(factor) + excess``.

    With ``z = sign * score`` the loss is ``log(1 + exp(z))`` and the gradient ``-sigmoid(z)``, both
    times ``weight``. PADDED numbers each.
    """
    builder = emit.builder
    zero, one, lrs = constant(0), constant(1), splat(builder, lr)
    for at in range(0, PADDED, LANES):
        place = integer(at)
        signs, weights = load(builder, sign, place), load(builder, weight, place)
        z = builder.fmul(signs, load(builder, score, place))
        negative = builder.fcmp_ordered("<", z, zero)
        e = _exponential(builder, builder.select(negative, z, builder.fneg(z)))
        above = builder.fadd(one, e)
        sigmoid = builder.fdiv(builder.select(negative, e, one), above)
        counts = builder.fcmp_ordered(">", weights, zero)
        least = builder.fneg(builder.fmul(builder.fmul(signs, weights), lrs))
        found = builder.select(counts, builder.fmul(least, sigmoid), zero)
        store(builder, found, gradient, place)
        store(builder, builder.select(counts, above, one), factor, place)
        kept = builder.and_(counts, builder.fcmp_unordered(">=", z, zero))
        store(builder, builder.select(kept, z, zero), excess, place)


@instruction(lambda *_: types.void(*[_NUMBERS] * 3, types.intp, *[_NUMBERS] * 2))
def collect(
    emit: Emit, factor: Any, excess: Any, weight: Any, times: Any, product: Any, total: Any
) -> None:
    """Add a block's loss to that of others: ``log(product) + total``.

    Sums across it, and logarithms, are deferred. No weight is above ``times``.
    """
    builder = emit.builder
    places = [integer(at) for at in range(0, PADDED, LANES)]
    for place in places:
        losses = load(builder, total, place), load(builder, excess, place)
        sums = plus_product(builder, losses[0], load(builder, weight, place), losses[1])
        store(builder, sums, total, place)
    products = [variable(builder, load(builder, product, place)) for place in places]
    with over(builder, times) as time:
        less = splat(builder, builder.sitofp(time, ir.FloatType()))
        for place, into in zip(places, products, strict=True):
            counts = builder.fcmp_ordered(">", load(builder, weight, place), less)
            more = builder.select(counts, load(builder, factor, place), constant(1))
            builder.store(builder.fmul(builder.load(into), more), into)
    for place, found in zip(places, products, strict=True):
        store(builder, builder.load(found), product, place)


def _exponential(builder: Any, value: Any) -> Any:
    """Return e to the power of numbers that are not above 0; NaN stays NaN."""
    low = constant(LOWEST)
    value = builder.select(builder.fcmp_ordered("<", value, low), low, value)
    shifted = plus_product(builder, constant(ROUNDS), value, constant(LOG2_E))
    whole = builder.fsub(shifted, constant(ROUNDS))
    rest = plus_product(builder, value, whole, constant(-LN2_HIGH))
    rest = plus_product(builder, rest, whole, constant(-LN2_LOW))
    power = constant(_POWERS[0])
    for each in _POWERS[1:]:
        power = plus_product(builder, constant(each), power, rest)
    bits = builder.sub(
        builder.bitcast(shifted, WHOLE), ir.Constant(WHOLE, [BITS_OF_ROUNDS] * LANES)
    )
    bits = builder.shl(bits, ir.Constant(WHOLE, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(power, WHOLE), bits), FLOATS)
