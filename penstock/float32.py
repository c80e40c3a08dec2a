"""Numbers that kernels use in float32: values other than 0 must stay other than 0.

    lr: Annotated[float, Field(gt=0), IN_FLOAT32] = 0.1

Separate from options.py, so that ranks need not import a command line.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from penstock.errors import UsageError

# Float32 holds these with all digits, and small factors, as the 3 of N3, keep them finite.
_LEAST, _MOST = 1.2e-38, 1e38


def _check(value: float, about: ValidationInfo) -> float:
    if value == 0 or _LEAST <= abs(value) <= _MOST:
        return value
    from penstock.options import flag

    large = abs(value) > 1
    name, there = flag(str(about.field_name)), "infinite" if large else "0"
    raise UsageError(
        f"option {name} would be {there} in float32, which kernels use",
        expected=f"a number from {_LEAST:g} to {_MOST:g}",
        got=f"{value:g}",
        remedy=f"Take a {'smaller' if large else 'larger'} one",
    )


IN_FLOAT32 = AfterValidator(_check)
# For a moment of gradients: nearer to 1 becomes 1 in float32, and the moment would never change.
Decay = Annotated[float, Field(ge=0, le=1 - 2**-24), IN_FLOAT32]
