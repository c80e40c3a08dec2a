"""The options of ``penstock doctor``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.options import options


@options
class DoctorOptions:
    """How a machine is examined."""

    timeout: Annotated[float, Field(gt=0, le=600)] | None = None
    """seconds for each probe [default: 20 to 90, by probe]"""
    bandwidth: bool = True
    """measure the disk, which takes up to two seconds"""
