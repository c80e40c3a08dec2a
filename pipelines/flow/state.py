"""The identities of the outputs in a flow's folder, so that unchanged ones are not made again.

<folder>/.flow/<stage>.json      what its output is made of, and once it is whole its content, the
                                 sizes of its files and the report of its job
<folder>/.flow/previous/<stage>  a copy of its output before, while it is replaced: previous.py
<folder>/.flow/digests.json      digests of files, by size and time
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.documents import read_record
from penstock.errors import OutputExists, PenstockError
from penstock.files import remove, save_json, sha256_of, shown_files
from penstock.output_lock import own_directory
from penstock.pipelines.flow.document import HIDDEN, NOT_YET, Flow, StageSpec, without_stages
from penstock.pipelines.flow.previous import NAME as PREVIOUS
from penstock.pipelines.flow.previous import copy_output
from penstock.pipelines.flow.records import RunRecord
from penstock.secrets import masked

_ABSENT = "absent"
_LAST = ("made", "by", "seconds", "rebuilt")  # of a whole output, kept while it is made again
_ENVIRONMENT = "what options take from the environment changed"
# Keys of a manifest that do not describe its content.
_NOT_CONTENT = ("report", "identity", "made", "seconds")


@dataclass(frozen=True)
class Made:
    """The identity of an output: its key is the digest of this."""

    job: str
    options: dict[str, Any]
    inputs: dict[str, str]  # name or path: digest of the content
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

    def differences(self, before: Mapping[str, Any]) -> list[str]:
        """Return what is not as it was, in words."""
        found, now = [], self.kept()
        if before.get("job") != self.job:
            found.append(f"job was {before.get('job')}")
        old, new = before.get("options", {}), now["options"]
        found += [
            f"option {name}: {_short(old.get(name))} -> {_short(new.get(name))}"
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ]
        old, new = before.get("inputs", {}), now["inputs"]
        found += [
            f"input {name} {'changed' if name in old else 'is new'}"
            for name in sorted(new)
            if old.get(name) != new[name]
        ]
        found += [f"input {name} is not read any more" for name in sorted({*old} - {*new})]
        if before.get("version") != self.version:
            found.append(f"made by {before.get('version')}")
        return found


def _short(value: Any) -> str:
    text = "default" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


class FlowState:
    """The records of a flow's folder."""

    def __init__(self, flow: Flow) -> None:
        self.flow, self.folder = flow, flow.state
        self._digests: dict[str, list[Any]] | None = None

    def made_of(self, stage: StageSpec, contents: Mapping[str, str]) -> Made:
        """Return the identity of a stage's output, given the contents of those before it."""
        inputs = {}
        for one in stage.inputs:
            if one.stage is None:
                inputs[one.path] = self.digest(one.path)
            else:
                inputs[f"{one.stage}/{one.path}".rstrip("/")] = contents[one.stage]
        for name in (*stage.uses, *stage.keys.after):
            inputs[name] = contents[name]
        for path in _files_named(stage, self.flow):
            if path not in inputs and (content := self.digest(path)) != _ABSENT:
                inputs[path] = content
        if stage.keys.python is not None:
            inputs |= _code(self.flow.home, stage.keys.python.partition(":")[0])
        options = json.loads(json.dumps(stage.options, default=str))
        return Made(stage.title, options, inputs, _version(stage))

    def content(self, stage: str, made: Made) -> str:
        """Return what the output of a stage counts as, for those that read it.

        What was made again and came out the same rebuilds nothing. Of a stage whose output is not
        made or not whole, or that makes none of its own, its identity.
        """
        record = self.record(stage)
        whole = is_whole(record) and record.get("key") == made.key
        return str(record["content"]) if whole else made.key

    def digest(self, path: str) -> str:
        """Return the identity of the content of a file or folder outside of the flow.

        Files are read once, and again if size or time differ; in a folder, or a pattern, every file
        counts. For a URL, fsspec's information counts.
        """
        path = path.removeprefix("file://").removeprefix("local://")
        if "://" in path:
            return _remote(path)
        files = matched(path)
        if not files:
            return _ABSENT
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
            self._digests = read_record(self.folder / "digests.json")
        known = self._digests.get(name)
        if known is not None and known[:3] == stamp:
            return str(known[3])
        self._digests[name] = [*stamp, sha256_of(file)]
        return str(self._digests[name][3])

    def save_digests(self) -> None:
        """Keep the digests that were computed for the next run."""
        if self._digests is not None and self.folder.is_dir():
            save_json(self.folder / "digests.json", self._digests)

    def record(self, stage: str) -> dict[str, Any]:
        """Return what is known of the output of a stage, whole or begun; nothing if it is empty."""
        return read_record(self.folder / f"{stage}.json")

    def decide(
        self, stage: StageSpec, contents: dict[str, str], *, force: bool
    ) -> tuple[Made, str | None]:
        """Return the identity of a stage's output, and why the stage must run; None: it need not.

        contents  of the stages before it, to which that of this one is added
        """
        made = self.made_of(stage, contents)
        contents[stage.name] = self.content(stage.name, made)
        return made, self._why(stage, made) or ("--force" if force else None)

    def _why(self, stage: StageSpec, made: Made) -> str | None:
        record = self.record(stage.name)
        if not record:
            return "no output yet"
        if not is_whole(record):
            return "its last run failed or was cut off"
        if record.get("key") != made.key:
            return "; ".join(made.differences(record["made"])) or _ENVIRONMENT
        return None if self._there(stage, record) else "its output was changed or removed"

    def begin(
        self, stage: StageSpec, made: Made, by: dict[str, Any], *, based: bool = False
    ) -> bool:
        """Note that a stage runs; return whether what was cut off of the same can be resumed.

        by     who runs it
        based  whether it starts from its previous output
        """
        own_directory(self.folder)
        before, last = self.record(stage.name), self._last(stage)
        kept = {name: last[name] for name in _LAST if name in last}
        body = {"key": made.key, "based": based, "by": by, "last": kept}
        save_json(self.folder / f"{stage.name}.json", body)
        same = (before.get("key"), before.get("based", False)) == (made.key, based)
        return same and not is_whole(before)

    def end(
        self,
        stage: StageSpec,
        made: Made,
        report: Any,
        seconds: float,
        by: dict[str, Any],
        *,
        based: bool = False,
    ) -> dict[str, Any]:
        """Note that the output of a stage is whole; return its last run without a base.

        based  whether this run had one
        """
        own, output = stage.own, self.flow.output(stage.name)
        rebuilt = {"run": by.get("run"), "seconds": round(seconds, 3), "runs_since": 0}
        if based:
            rebuilt = self._rebuilt(stage)
            rebuilt["runs_since"] += 1
        body = {
            "key": made.key,
            "content": self._content(output) if own else made.key,
            "made": made.kept(),
            "report": masked(report),
            "by": by,
            "seconds": seconds,
            "rebuilt": rebuilt,
            "stamp": _stamp(output, whole=own),
        }
        save_json(self.folder / f"{stage.name}.json", body)
        if not self.flow.incremental:
            remove(self.folder / PREVIOUS / stage.name)
        return rebuilt

    def _last(self, stage: StageSpec) -> dict[str, Any]:
        """Return what is known of the last whole output of a stage."""
        record = self.record(stage.name)
        last: dict[str, Any] = record if is_whole(record) else record.get("last", {})
        return last

    def _rebuilt(self, stage: StageSpec) -> dict[str, Any]:
        last = self._last(stage)
        first = {"run": last.get("by", {}).get("run"), "seconds": last.get("seconds")}
        return {"runs_since": 0, **first, **last.get("rebuilt", {})}

    def why_whole(self, stage: StageSpec, *, force: bool) -> str | None:
        """Return why an incremental stage starts without its previous output; None: it does not."""
        last, every = self._last(stage), self.flow.keys.rebuild_every
        if not last:
            return "no output yet"
        if force:
            return "--force"
        if every is not None and self._rebuilt(stage)["runs_since"] + 1 >= every:
            return f"rebuild_every {every}"
        now = Made(stage.title, last["made"]["options"], last["made"]["inputs"], _version(stage))
        return "; ".join(now.differences(last["made"])) or None

    def _content(self, output: Path) -> str:
        """Return the digest of an output: of what its manifest lists, or else of its files."""
        for path in output.glob("*.json") if output.is_dir() else ():
            body = read_record(path)
            if isinstance(body.get("files"), dict) and "identity" in body:
                known = {name: one for name, one in body.items() if name not in _NOT_CONTENT}
                return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
        return self.digest(str(output))

    def keep_previous(self, stage: StageSpec) -> Path | None:
        """Return a copy of the output that a stage had before it is made again; None: it had none.

        A stage that failed or was cut off begins with the same copy again.
        """
        if stage.in_place:  # within the copy of what its input was
            written, source = self.flow.written(stage.name), stage.inputs[0].stage
            if written is None or source is None:
                return None
            copy = self.folder / PREVIOUS / source
            copy /= written.relative_to(self.flow.output(source))
            return copy if copy.exists() else None
        copy, record = self.folder / PREVIOUS / stage.name, self.record(stage.name)
        if is_whole(record) and self._there(stage, record):
            copy_output(self.flow.output(stage.name), copy)
        return copy if copy.exists() else None

    def forget_previous(self) -> None:
        """Remove the copies of previous outputs, which jobs have compared with those of now."""
        remove(self.folder / PREVIOUS)

    def refuse_output(self, stage: StageSpec) -> None:
        """Raise OutputExists if a stage would replace what this flow has not made."""
        if stage.in_place and stage.inputs[0].stage is not None:
            return  # a part of another stage's output
        output, record = self.flow.written(stage.name), self.record(stage.name)
        if output is None or not output.exists():
            return
        if record:
            maker = record["by"]["flow"]
            if maker == self.flow.name:
                return
            problem = f"which the flow {maker} made"
        elif output.is_dir() and not any(output.iterdir()):
            return
        else:
            problem = "where something exists that this flow did not make"
        raise OutputExists(
            f"stage {stage.name} would write {output}, {problem}",
            expected="nothing, an empty folder, or what this flow has made there",
            remedy="Move it away, or give this flow another folder:, or the stage another name; "
            "or give --replace-outputs, with which the stage may replace it",
        )

    def _there(self, stage: StageSpec, record: dict[str, Any]) -> bool:
        return is_there(self.flow.output(stage.name), record)


def record_of(run: RunRecord, stage: str) -> dict[str, Any]:
    """Return what is known of the output of a run's stage; nothing if a later run has made it."""
    known = read_record(Path(run.body.get("folder", "")) / HIDDEN / f"{stage}.json")
    return known if known.get("key") == run.stages[stage].get("key", "") else {}


def is_there(output: Path, record: dict[str, Any]) -> bool:
    """Return whether an output has the files of its record, which is whole."""
    stamp = record["stamp"]
    now = _stamp(output, whole=any(stamp.values()))
    return all(now.get(name) == size for name, size in stamp.items())


def is_whole(record: dict[str, Any]) -> bool:
    """Return whether a record is of an output that is whole."""
    return isinstance(record.get("stamp"), dict)


def _version(stage: StageSpec) -> str:
    """Return what made an output: penstock, and the version of a job's results."""
    job = "" if stage.job is None else f", {stage.job.name} {stage.job.version}"
    return f"penstock {__version__}{job}"


def _code(home: Path, module: str) -> dict[str, str]:
    """Return the digest of a module next to the flow: of its code, not of its comments."""
    base = home / module.replace(".", "/")
    for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
        if file.is_file():
            text = file.read_bytes()
            with contextlib.suppress(SyntaxError, ValueError):
                text = ast.dump(ast.parse(text)).encode()
            return {file.name: hashlib.sha256(text).hexdigest()}
    return {}


def _stamp(output: Path, *, whole: bool) -> dict[str, Any]:
    """Return names and sizes of an output's files; of an output that another stage may add to, only
    names.

    Partitions are made inside of a graph, and a run's evaluation inside of the run.
    """
    files = shown_files(output).items()
    return {name: path.stat().st_size if whole else 0 for name, path in files}


def _files_named(stage: StageSpec, flow: Flow) -> list[str]:
    """Return what may be files outside that a stage's options name: paths, globs and URLs, absolute
    as they were checked; not those of options that do not affect the result, as a scratch folder.
    """
    if stage.job is None:
        return []
    found = []
    with contextlib.chdir(flow.home):
        call = stage.job.checked(without_stages(stage.options))
        for made in filter(None, (call.options, call.run)):
            for name, value in vars(made).items():
                if name in stage.job.passing:
                    continue
                for one in value if isinstance(value, tuple | list) else (value,):
                    text = str(one) if isinstance(one, str | Path) else ""
                    if (text.startswith("/") or "://" in text) and NOT_YET not in text:
                        found.append(text)
    return sorted(set(found))


def matched(path: str) -> list[Path]:
    """Return the files that a path or a pattern means, in a folder all."""
    import glob

    found = Path(path)
    named = [found]
    if not found.exists():
        named = [Path(one) for one in glob.glob(path, recursive=True)]  # noqa: PTH207
    files: list[Path] = []
    for one in named:
        files += shown_files(one).values() if one.is_dir() else [one]
    return sorted(files)


def _remote(url: str) -> str:
    from penstock.pipelines.tables.sources import find_files, stamp_of

    try:
        found = [stamp_of(one) for one in find_files([url])]
    except PenstockError:
        return f"unknown at {time.time()}"  # so that what reads it runs
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()
