"""Constants of an exponential in float32: ``e**x`` is ``2**n`` times a polynomial of the rest."""

from __future__ import annotations

LOG2_E = 1.4426950408889634
# ln 2 in two pieces: the first is short, so that its product with an integer is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690583e-4
# Added to a small number, it leaves the rounded number in the lowest bits.
ROUNDS, BITS_OF_ROUNDS = 1.5 * 2**23, 0x4B400000
# Beyond these the power of two, assembled from bits, would not be a float32.
HIGHEST, LOWEST = 88.37, -87.3
POWERS = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)  # 1 / n!, from the seventh
