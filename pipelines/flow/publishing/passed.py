"""Publishing what passed: what a run asks of publishing, in four calls.

publisher = Publisher(flow, state, say=print)
publisher.recover()                    # what an earlier run left half-done
publisher.refuse(running)              # before anything runs
publisher.publish(record, contents)    # once all is well
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.pipelines.flow.document import Flow
from penstock.pipelines.flow.publishing import Item, Publication
from penstock.pipelines.flow.publishing.known import Published
from penstock.pipelines.flow.publishing.owners import (
    is_other_publisher,
    made_by,
    output_problem,
    target_problem,
)
from penstock.pipelines.flow.publishing.targets import LocalTarget, target_of
from penstock.pipelines.flow.records import RunRecord
from penstock.pipelines.flow.report import shown_target
from penstock.pipelines.flow.state import FlowState


class Publisher:
    """What a run asks of publishing.

    replace_targets  publish also over what this flow has not published
    """

    def __init__(
        self,
        flow: Flow,
        state: FlowState,
        *,
        say: Callable[[str], None],
        replace_targets: bool = False,
    ) -> None:
        self._flow, self._state, self._say = flow, state, say
        self._replace = replace_targets
        self._known = Published(flow)
        self._publication = Publication(self._known.journal, self._known.note)
        for name, stage in flow.stages.items():
            for destination in map(flow.destination, stage.publish):
                target = target_of(destination, "")
                if isinstance(target, LocalTarget):  # a URL may be out of reach now, and not then
                    target.check(flow.output(name))

    def recover(self) -> None:
        """Complete or take back what a run was publishing when it was cut off."""
        try:
            if said := self._publication.recover():
                self._say(said)
        except PenstockError as error:
            # A destination that cannot be reached now may be at the end, when it must be.
            self._say(f"{error}; this run tries again when it publishes")

    def refuse(self, running: Sequence[str], *, outputs: bool, targets: bool) -> None:
        """Refuse to replace what this flow has neither made nor published."""
        for name in running if outputs else ():
            if error := output_problem(self._flow, self._state, name):
                raise error
        for name, stage in self._flow.stages.items() if targets and not self._replace else ():
            for destination in map(self._flow.destination, stage.publish):
                if error := target_problem(self._flow, self._state, name, destination, urls=False):
                    raise error

    def publish(self, record: RunRecord, contents: Mapping[str, str]) -> list[dict[str, Any]]:
        """Publish every stage that is to be and is not yet; return what was published."""
        flow, items = self._flow, []
        for name, stage in flow.stages.items():
            for target in stage.publish:
                destination, key = flow.destination(target), contents[name]
                # A URL is checked only when it may be written: it may be out of reach.
                taken = self._replace and is_other_publisher(flow, self._state, destination)
                if taken or self._known.key(name, destination) != key:
                    self._say(f"{name}: publishing to {shown_target(destination)}")
                    items.append(Item(name, key, flow.output(name), destination))
        made = self._publication.publish(
            items, record.name, keep=flow.keep, by=made_by(flow, record.name),
            check=None if self._replace else self._refuse_target,
        )  # fmt: skip
        pairs = zip(items, made, strict=True)
        return [{"stage": one.stage, "to": where, "key": one.key} for one, where in pairs]

    def _refuse_target(self, item: Item) -> None:
        if error := target_problem(
            self._flow, self._state, item.stage, item.destination, urls=True
        ):
            raise error
