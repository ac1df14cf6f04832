"""Giving data to late joiners: the whole set once, and afterwards what merges bring (guide 5.4.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.expressions import intersection, matches
from engine.core.messages import ReaderKey

if TYPE_CHECKING:
    from engine.core.namespaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample
    from engine.runtime.ports import Delivered
    from engine.runtime.runtime import Runtime
    from engine.runtime.sets import Difference


class Serving:
    """The readers' side of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def reader_keys(self, participant: str, topic: str, partitions: tuple[str, ...]) -> list[ReaderKey]:
        """What must be served to a reader, by name-space: those that its partitions and topic touch."""
        wanted = partitions or ("",)
        return [
            ReaderKey(participant, topic, wanted, state.name)
            for state in self._runtime.core.name_spaces
            if any(
                matches(element.topic, topic)
                and any(intersection(element.partition, partition) is not None for partition in wanted)
                for element in state.name_space.elements
            )
        ]

    def seen(self, reader: ReaderKey, host: str) -> None:
        """A durable reader appeared in a process on `host`."""
        now = self._runtime.clock.monotonic()
        self._runtime.core.reader_seen(reader, host, now)
        if host == self._runtime.settings.host:
            self._runtime.core.wanted(reader.name_space, now)

    def gone(self, reader: ReaderKey) -> None:
        """The last durable reader of its kind in a process went away."""
        self._runtime.core.reader_gone(reader)

    def deliver(self, reader: ReaderKey) -> None:
        """Give a reader the complete set."""
        working = self._runtime.spaces[reader.name_space].working
        groups = [
            (self._runtime.descriptions[group], list(group_set.samples()))
            for group, group_set in sorted(working.groups.items())
            if group_set.count and self._reads(reader, group)
        ]
        self._send(reader, groups, whole=True)

    def show(self, name_space: str, difference: Difference) -> None:
        """Give the readers in this node's charge what a merge brought."""
        for reader in self._runtime.core.in_charge_of(name_space):
            groups = [
                (self._runtime.descriptions[group], samples)
                for group, samples in sorted(difference.items(), key=lambda item: item[0])
                if self._reads(reader, group)
            ]
            if groups:
                self._send(reader, groups, whole=False)

    def _reads(self, reader: ReaderKey, group: Group) -> bool:
        return group.topic == reader.topic and any(
            matches(partition, group.partition) for partition in reader.partitions
        )

    def _send(
        self, reader: ReaderKey, groups: list[tuple[GroupDescription, list[Sample]]], *, whole: bool
    ) -> None:
        count = sum(len(samples) for _, samples in groups)
        self._runtime.tracer.event(
            "deliver.started", group=_text(reader), reader=reader.participant, samples=count
        )
        self._runtime.wire.deliver(reader, groups, whole=whole)

    def delivered(self, reader: ReaderKey, result: Delivered, *, whole: bool) -> None:
        """The answer to `Wire.deliver`."""
        runtime = self._runtime
        runtime.counters["delivered"] += result.samples
        group = _text(reader)
        for text in result.refused:
            runtime.counters["refused"] += 1
            runtime.tracer.event("group.qos-mismatch", group=group, endpoint=reader.participant, cause=text)
        if result.problem:
            reason = f"{result.problem}; trying again"
            runtime.tracer.event("deliver.waiting", reader=reader.participant, group=group, reason=reason)
            if result.samples:  # what arrived before will arrive again
                runtime.counters["repeated"] += result.samples
                runtime.tracer.event(
                    "deliver.repeated", count=result.samples, group=group, process=reader.participant
                )
        else:
            runtime.tracer.event(
                "deliver.finished",
                group=group,
                reader=reader.participant,
                samples=result.samples,
                elapsed_ns=result.elapsed_ns,
            )
        now = runtime.clock.monotonic()
        if whole:
            runtime.core.delivered(reader, now, done=not result.problem)
        elif result.problem:
            runtime.core.serve_again(reader, now)


def _text(reader: ReaderKey) -> str:
    return f"{','.join(reader.partitions)}.{reader.topic}"
