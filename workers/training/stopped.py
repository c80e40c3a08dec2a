"""Why a training run ended: what ranks return, and run.json and ``--json`` say."""

from __future__ import annotations

from enum import StrEnum


class Stopped(StrEnum):
    """Why a training run ended."""

    EPOCHS = "epochs"
    PATIENCE = "patience"
    NAN = "nan"  # the loss, or what is trained, is no finite number any more
