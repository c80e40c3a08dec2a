"""What one examination of a machine found: facts from a probe, and the judgement about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "absent", "warning", "broken"]


@dataclass(frozen=True)
class Answer:
    """What came of a probe's process.

    facts    what it found; empty where it failed
    failure  how it failed: the error it raised, the signal that ended it, or its time-out
    seconds  how long it took
    """

    facts: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Finding:
    """One thing that a machine has or lacks.

    state   ok; absent: not there, and nobody asked for it; warning: it works, and not as well as
            it could; broken: it was asked for or is installed, and does not work
    remedy  the command, or the step, that mends it
    """

    subject: str
    state: State
    text: str
    remedy: str | None = None
