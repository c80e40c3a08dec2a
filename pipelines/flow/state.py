"""The identities of the outputs in a flow's folder, so that unchanged ones are not made again.

<folder>/.flow/<stage>.json      what the output of a stage was made of, and its report
<folder>/.flow/<stage>.started   the same for a run that has begun, and has not ended yet
<folder>/.flow/previous/<stage>  a copy of its output before, while it is replaced: previous.py
<folder>/.flow/digests.json      digests of files outside, by size and time
<folder>/.flow/published.json    keys of published outputs, by stage and destination
<folder>/.flow/publishing.json   which targets are just being changed: publishing/
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.files import remove, save_json
from penstock.output_lock import own_directory
from penstock.pipelines.flow.document import NOT_YET, Flow, StageSpec, without_stages
from penstock.pipelines.flow.previous import NAME as PREVIOUS
from penstock.pipelines.flow.previous import copy_output
from penstock.pipelines.flow.publishing.targets import LocalTarget, read_record
from penstock.pipelines.flow.records import FOLDER, all_runs
from penstock.secrets import masked

# A change in the results of jobs from the same input and options raises this number.
FORMAT = 1
_LARGE = 4 << 20
HIDDEN, _PUBLISHED = ".flow", "published.json"
_ENVIRONMENT = "what options take from the environment changed"


@dataclass(frozen=True)
class Made:
    """The identity of an output: its key is the digest of this."""

    job: str
    options: dict[str, Any]
    inputs: dict[str, str]  # name or path: key of the stage, digest of the file
    version: str

    @property
    def key(self) -> str:
        """The digest by which outputs are known."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def kept(self) -> dict[str, Any]:
        """Return it as a record keeps it: without values from the environment."""
        inputs = {masked(name): one for name, one in self.inputs.items()}
        return asdict(replace(self, options=masked(self.options), inputs=inputs))

    def differences(self, before: dict[str, Any]) -> list[str]:
        """Return what is not as it was, in words."""
        found, now = [], self.kept()
        if before.get("job") != self.job:
            found.append(f"job was {before.get('job')}")
        old, new = before.get("options") or {}, now["options"]
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                found.append(f"option {name}: {_short(old.get(name))} -> {_short(new.get(name))}")
        old, new = before.get("inputs") or {}, now["inputs"]
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                found.append(f"input {name} {_how(old.get(name), new.get(name))}")
        if before.get("version") != self.version:
            found.append(f"made by {before.get('version')}")
        return found


def _how(before: Any, now: str | None) -> str:
    """Return how an input differs: keys of stages are followed by which time they were made."""
    again = isinstance(before, str) and now is not None and before.split()[0] == now.split()[0]
    return "was rebuilt" if again else "changed"


def _short(value: Any) -> str:
    text = "default" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


class FlowState:
    """The records of a flow's folder."""

    def __init__(self, flow: Flow) -> None:
        self.flow, self.folder = flow, flow.folder / HIDDEN
        self._digests: dict[str, list[Any]] | None = None

    def made_of(self, stage: StageSpec, keys: dict[str, str]) -> Made:
        """Return the identity of a stage's output, given the keys of the stages before it."""
        inputs = {}
        for one in stage.inputs:
            if one.stage is None:
                inputs[one.path] = self.digest(one.path)
            else:
                inputs[f"{one.stage}/{one.path}".rstrip("/")] = keys[one.stage]
        for name in (*stage.uses, *stage.after):
            inputs[name] = keys[name]
        for path in _files_named(stage, self.flow):
            inputs.setdefault(path, self.digest(path))
        if stage.python is not None:
            module = self.flow.home / f"{stage.python.partition(':')[0].replace('.', '/')}.py"
            if module.is_file():
                inputs[module.name] = self.digest(str(module))
        job = stage.title
        version = f"penstock {__version__}, format {FORMAT}"
        return Made(job, json.loads(json.dumps(stage.options, default=str)), inputs, version)

    def digest(self, path: str) -> str:
        """Return the identity of the content of a file or folder outside of the flow.

        Files are read once, and again if size or time differ; in a folder, or a pattern, every file
        counts. For a URL, fsspec's information counts.
        """
        if "://" in path:
            return _remote(path)
        files = _matched(path)
        if not files:
            return "absent"
        whole = hashlib.sha256()
        for file in files:
            whole.update(
                f"{os.path.relpath(file, self.flow.home)}\0{self._of_file(file)}\n".encode()
            )
        return whole.hexdigest()

    def _of_file(self, file: Path) -> str:
        found = file.stat()
        name, stamp = str(masked(str(file))), [found.st_size, found.st_mtime_ns, found.st_ino]
        if self._digests is None:
            self._digests = read_record(self.folder / "digests.json") or {}
        known = self._digests.get(name)
        if known is not None and known[:3] == stamp:
            return str(known[3])
        made = hashlib.sha256()
        with file.open("rb") as opened:
            while block := opened.read(_LARGE):
                made.update(block)
        self._digests[name] = [*stamp, made.hexdigest()]
        return made.hexdigest()

    def save_digests(self) -> None:
        """Keep the digests that were computed for the next run."""
        if self._digests is not None and self.folder.is_dir():
            save_json(self.folder / "digests.json", self._digests)

    @property
    def journal(self) -> Path:
        """The file that exists while something is published."""
        return self.folder / "publishing.json"

    def record(self, stage: str) -> dict[str, Any] | None:
        """Return what the output of a stage was made of, or None."""
        return read_record(self.folder / f"{stage}.json")

    def identity(self, stage: str, key: str) -> str:
        """Return what distinguishes an output from others of the same identity, for dependent
        outputs.

        A stage that was rebuilt, by --force or because its output was missing, may have come out
        different: what depends on it, and what was published of it, is of the one before.
        """
        record = self.record(stage)
        if record is None or record.get("key") != key or not record.get("turn"):
            return key
        return f"{key} {record['turn']}"

    def interrupted(self, stage: str) -> dict[str, Any] | None:
        """Return what a run has begun to make and not ended, or None."""
        return read_record(self.folder / f"{stage}.started")

    def why(self, stage: StageSpec, made: Made) -> str | None:
        """Return why a stage must run; None: its output exists, and its inputs are unchanged."""
        record = self.record(stage.name)
        if record is None:
            if self.interrupted(stage.name):
                return "its last run failed or was cut off"
            return "no output yet"
        if record.get("key") != made.key:
            return "; ".join(made.differences(record.get("made") or {})) or _ENVIRONMENT
        if not self._there(stage, record):
            return "its output was changed or removed"
        return None

    def begin(
        self,
        stage: str,
        made: Made,
        process: dict[str, Any],
        by: dict[str, Any] | None = None,
    ) -> None:
        """Note that a stage runs: its record is removed until it succeeds.

        by     who runs it: owners.py
        """
        own_directory(self.folder)
        body = {"key": made.key, **process, "by": by}
        save_json(self.folder / f"{stage}.started", body)
        (self.folder / f"{stage}.json").unlink(missing_ok=True)

    def end(
        self,
        stage: StageSpec,
        made: Made,
        report: Any,
        seconds: float,
        by: dict[str, Any] | None = None,
    ) -> None:
        """Note that the output of a stage is whole."""
        body = {
            "key": made.key,
            "turn": secrets.token_hex(8),
            "made": made.kept(),
            "report": masked(report),
            "by": by,
            "seconds": seconds,
            "stamp": _stamp(self.flow.output(stage.name), whole=not _in_place(stage)),
        }
        save_json(self.folder / f"{stage.name}.json", body)
        (self.folder / f"{stage.name}.started").unlink(missing_ok=True)
        remove(self.folder / PREVIOUS / stage.name)

    def keep_previous(self, stage: StageSpec) -> Path | None:
        """Return a copy of the output that a stage had before it is made again; None: it had none.

        A stage that failed or was cut off begins with the same copy again.
        """
        copy, record = self.folder / PREVIOUS / stage.name, self.record(stage.name)
        if record is not None and self._there(stage, record):
            copy_output(self.flow.output(stage.name), copy)
        return copy if copy.exists() else None

    def published(self, stage: str, destination: str) -> str | None:
        """Return the key of the output published to a destination, if it still exists."""
        key = (read_record(self.folder / _PUBLISHED) or {}).get(
            f"{stage} {self._near(destination)}"
        )
        if "://" not in destination:
            record = LocalTarget(destination).publisher() or {"key": key}
            if not Path(destination).exists() or record.get("key") != key:  # another flow's
                return None
        return key

    def published_keys(self, destination: str) -> set[str]:
        """Return the keys of all that this flow is known to have published to a destination."""
        near = self._near(destination)
        known = (read_record(self.folder / _PUBLISHED) or {}).items()
        found = {key for name, key in known if self._near(name.partition(" ")[2]) == near}
        found |= {key for one, key in self._published_by_runs() if one == near}
        return {key for key in found if isinstance(key, str)}

    def note_published(self, stage: str, destination: str, key: str | None) -> None:
        """Note what was published to a destination."""
        path = self.folder / _PUBLISHED
        save_json(path, (read_record(path) or {}) | {f"{stage} {self._near(destination)}": key})

    def is_own_destination(self, destination: str) -> bool:
        """Return whether this flow has published to a destination before, from whichever stage.

        The records of runs have it too, if the flow's folder changes every day.
        """
        known = [one.partition(" ")[2] for one in read_record(self.folder / _PUBLISHED) or {}]
        begun = (read_record(self.journal) or {}).get("entries")
        # The journal's name for a destination, since its first version.
        known += [str(one.get("destination")) for one in begun or [] if isinstance(one, dict)]
        near = self._near(destination)
        return near in map(self._near, known) or near in dict(self._published_by_runs())

    def _published_by_runs(self) -> list[tuple[str, Any]]:
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

    def _there(self, stage: StageSpec, record: dict[str, Any]) -> bool:
        now = _stamp(self.flow.output(stage.name), whole=not _in_place(stage))
        before = record.get("stamp") or {}
        return all(now.get(name) == size for name, size in before.items())


def _near(destination: str, home: Path) -> str:
    """Return how records name a destination: within the flow's own folder, which may be moved."""
    if "://" in destination:
        return str(masked(destination.rstrip("/")))
    path = Path(os.path.normpath(home / destination))
    return str(masked(str(path.relative_to(home) if path.is_relative_to(home) else path)))


def _in_place(stage: StageSpec) -> bool:
    return stage.command is not None and (stage.command.in_place or not stage.command.writes)


def _stamp(output: Path, *, whole: bool) -> dict[str, Any]:
    """Return names and sizes of an output's files; of an output that another stage may add to, only
    names.

    Partitions are made inside of a graph, and a run's evaluation inside of the run.
    """
    if output.is_file():
        return {".": output.stat().st_size}
    found = {}
    for folder, inner, names in os.walk(output):
        inner[:] = sorted(one for one in inner if not one.startswith("."))
        for name in names:
            if not name.startswith("."):
                path = Path(folder, name)
                found[str(path.relative_to(output))] = path.stat().st_size if whole else 0
    return found


def _files_named(stage: StageSpec, flow: Flow) -> list[str]:
    """Return the files outside that a stage's options name: absolute, as they were checked."""
    if stage.command is None:
        return []
    found = []
    with contextlib.chdir(flow.home):
        for made in stage.command.arguments(without_stages(stage.options)).values():
            for value in getattr(made, "__dict__", {"": made}).values():
                for one in value if isinstance(value, tuple | list) else (value,):
                    if isinstance(one, Path) or (isinstance(one, str) and one.startswith("/")):
                        path = Path(one)
                        if path.exists() and NOT_YET not in str(path):
                            found.append(str(path))
    return sorted(set(found))


def _matched(path: str) -> list[Path]:
    import glob

    found = Path(path)
    named = [found]
    if not found.exists():
        named = [Path(one) for one in glob.glob(path, recursive=True)]  # noqa: PTH207
    files: list[Path] = []
    for one in named:
        if one.is_dir():
            files += [p for p in one.rglob("*") if p.is_file() and not _hidden(p, one)]
        else:
            files.append(one)
    return sorted(files)


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _remote(url: str) -> str:
    import fsspec

    try:
        system, inside = fsspec.url_to_fs(url)
        found = [system.info(one) for one in sorted(system.glob(inside) or [inside])]
    except (OSError, ValueError, ImportError):
        return f"unknown at {time.time()}"  # so that what reads it runs
    known = [{k: str(one.get(k)) for k in ("name", "size", "mtime", "ETag", "LastModified")}
             for one in found]  # fmt: skip
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()
