"""What a flow has published, and where: ``.flow/published.json``, and the records of its runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.files import save_json
from penstock.pipelines.flow.publishing.targets import LocalTarget, read_record
from penstock.pipelines.flow.records import FOLDER, all_runs
from penstock.secrets import masked

if TYPE_CHECKING:
    from penstock.pipelines.flow.document import Flow


class Published:
    """The keys of published outputs, by stage and destination.

    journal  the file that exists while something is published
    """

    def __init__(self, flow: Flow) -> None:
        self.flow, self._path = flow, flow.state / "published.json"
        self.journal = flow.state / "publishing.json"

    def key(self, stage: str, destination: str) -> str | None:
        """Return the key of the output published to a destination, if it still exists."""
        key = (read_record(self._path) or {}).get(f"{stage} {self._near(destination)}")
        if "://" not in destination:
            record = LocalTarget(destination).publisher() or {"key": key}
            if not Path(destination).exists() or record.get("key") != key:  # another flow's
                return None
        return key

    def keys(self, destination: str) -> set[str]:
        """Return the keys of all that this flow is known to have published to a destination."""
        near = self._near(destination)
        known = (read_record(self._path) or {}).items()
        found = {key for name, key in known if self._near(name.partition(" ")[2]) == near}
        found |= {key for one, key in self._by_runs() if one == near}
        return {key for key in found if isinstance(key, str)}

    def note(self, stage: str, destination: str, key: str | None) -> None:
        """Note what was published to a destination."""
        save_json(
            self._path,
            (read_record(self._path) or {}) | {f"{stage} {self._near(destination)}": key},
        )

    def owns(self, destination: str) -> bool:
        """Return whether this flow has published to a destination before, from whichever stage.

        The records of runs have it too, if the flow's folder changes every day.
        """
        known = [one.partition(" ")[2] for one in read_record(self._path) or {}]
        begun = (read_record(self.journal) or {}).get("entries")
        # The journal's name for a destination, since its first version.
        known += [str(one.get("destination")) for one in begun or [] if isinstance(one, dict)]
        near = self._near(destination)
        return near in map(self._near, known) or near in dict(self._by_runs())

    def _by_runs(self) -> list[tuple[str, Any]]:
        """Return destinations and keys that the records of runs name."""
        found = []
        for run in all_runs(self.flow.home / FOLDER, self.flow.name):
            home = Path(str(run.body.get("file"))).parent  # elsewhere, if all of it was moved
            listed = run.body.get("published")
            for one in listed if isinstance(listed, list) else []:
                to = str(one.get("to")) if isinstance(one, dict) else ""
                destination = to.removesuffix(f"/{run.name}") if "://" in to else _near(to, home)
                found.append((destination, one.get("key") if isinstance(one, dict) else None))
        return found

    def _near(self, destination: str) -> str:
        return _near(destination, self.flow.home)


def _near(destination: str, home: Path) -> str:
    """Return how records name a destination: within the flow's own folder, which may be moved."""
    if "://" in destination:
        return str(masked(destination.rstrip("/")))
    path = Path(os.path.normpath(home / destination))
    return str(masked(str(path.relative_to(home) if path.is_relative_to(home) else path)))
