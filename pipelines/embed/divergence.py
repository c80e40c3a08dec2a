"""What to try where training diverged: which of its options may be the cause."""

from __future__ import annotations

from penstock.options import flag
from penstock.workers.embed.spec import BATCH, Training

# Options that can make a loss or a vector infinite, and beyond what nobody means them to be.
_LARGE = {
    "lr": 10.0,
    "init_scale": 10.0,
    "l2": 10.0,
    "n3": 10.0,
    "margin": 1e3,
    "temperature": 1e3,
}


def another_try(training: Training) -> str:
    """Return what to train with instead: without the option that is far too large, if one is.

    Else with a lower learning rate, and what is in force of all that may be the cause.
    """
    force = training.in_force()
    values = {name: force[name] for name in _LARGE if force[name]}
    absurd = [name for name, value in values.items() if value > _LARGE[name]]
    if absurd:
        return " and ".join(f"a lower {flag(n)} than {values[n]:g}" for n in absurd)
    found = "a lower --lr"
    if not training.penalty[1]:  # N3 is for those that it is a default of
        n3 = "--n3 or " if training.model in ("complex", "distmult") else ""
        found += f", or with a penalty: {n3}--l2"
    values["batch"] = training.batch or BATCH  # whose gradients are summed
    said = [f"{flag(name)} {value:g}" for name, value in values.items() if value]
    return f"{found}; in force are {', '.join(said)}"
