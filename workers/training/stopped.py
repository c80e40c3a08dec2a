"""Why a training run ended: returned by ranks, and written to run.json and ``--json``."""

from __future__ import annotations

from enum import StrEnum


class Stopped(StrEnum):
    """Why a training run ended."""

    EPOCHS = "epochs"
    PATIENCE = "patience"
    NAN = "nan"  # the loss or the trained values are not finite
