"""Constants, and tables made once, that all backends of graph generators share."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from penstock.arrays import Array

# -- R-MAT ---------------------------------------------------------------------------------------

LEVELS = 8  # quadrants chosen from one Philox draw


def thresholds(a: float, b: float, c: float) -> Array:
    """Return a, a + b and a + b + c in units of 2**-16: (3,) uint32."""
    return np.round(np.cumsum([a, b, c]) * 65536).astype(np.uint32)


def below(high: float) -> np.float32:
    """Return the largest float32 less than ``high``; rounding must not reach the end itself."""
    end = np.float32(high)
    return end if float(end) < high else np.nextafter(end, np.float32(-np.inf))


# -- stochastic block model ----------------------------------------------------------------------

OUTSIDE = 1 << 31  # steps from here on draw the neighbours outside the block
CENTRES = 1 << 63  # numbers from here on draw the centre of a block
LN2 = 0.6931471805599453
# Irwin-Hall: the sum of four 16-bit numbers has this mean and this standard deviation.
MEAN = 2 * 65535.0
DEVIATION = float(np.sqrt(4 * (65536.0**2 - 1) / 12))

# -- zoos of small graphs ------------------------------------------------------------------------

RANDOM, RMAT = 0, 1
QUADRANTS = thresholds(0.57, 0.19, 0.19)
# An R-MAT graph of 32 nodes may need more distinct edges than R-MAT yields: after this many draws
# per edge the rest is drawn uniformly.
PATIENCE = 64

# -- knowledge graphs ----------------------------------------------------------------------------

_CELLS = 1 << 16
_GOLDEN = 0.6180339887498949


def zipf_quantiles(count: int, skew: float) -> Array:
    """Return the ranks at which a bounded Zipf law's cumulative share is i/65536: (65537,) int64.

    Rank k of ``count`` has a share of about (k + 1)**-skew, by the law's continuous twin.
    """
    share = np.arange(_CELLS + 1) / _CELLS
    if abs(skew - 1) < 1e-9:
        rank = np.exp(share * np.log(count + 1.0))
    else:
        power = 1.0 - skew
        rank = (share * ((count + 1.0) ** power - 1.0) + 1.0) ** (1.0 / power)
    ranks: Array = np.minimum(np.floor(rank - 1.0).astype(np.int64), count - 1)
    ranks[-1] = count
    return ranks


def stride(count: int) -> int:
    """Return the step that spreads ranks over the ring: coprime to ``count``, near its golden cut.

    Without it the most frequent heads would all live in one cluster.
    """
    step = max(1, int(count * _GOLDEN))
    while gcd(step, count) != 1:
        step += 1
    return step


def cluster_start(cluster: Any, entities: int, clusters: int) -> Any:
    """Return the first position of a cluster."""
    return (cluster * entities + clusters - 1) // clusters


# -- keyed shuffle -------------------------------------------------------------------------------

ROUNDS = 6  # of the Feistel network
