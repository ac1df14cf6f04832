"""The parts of an answer to a request for historical data, checked and encoded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from engine.core.name_spaces import Group, Interest
from engine.core.states import Phase
from engine.dataset.sample import DATA
from engine.dataset.sample_rows import SampleRows
from engine.dds.client_protocol import extensions
from engine.dds.client_protocol.encoding import encode_link
from engine.dds.client_protocol.messages import (
    MAJOR_VERSION,
    UNLIMITED,
    ByteOrder,
    Completeness,
    ErrorCode,
    GroupState,
    HistoryLimits,
    Link,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.core.name_space_state import NameSpaceState
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample_rows import Samples
    from engine.dds.client_protocol.messages import HistoryRequest
    from engine.runtime.runtime import Runtime


class ClientView:
    """A client's view of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def name_spaces(self, interest: Interest) -> list[NameSpaceState]:
        """Return the name-spaces that the interest touches."""
        return [state for state in self._runtime.core.name_spaces if interest.touches(state.name_space)]

    def is_responsible(self, state: NameSpaceState) -> bool:
        """Tell whether this node answers unaddressed requests for a name-space: its master does."""
        return state.is_master(self._runtime.settings.node)

    def want(self, state: NameSpaceState, interest: Interest) -> None:
        """Request data for a client that a Lazy alignee may not keep yet."""
        self._runtime.shared.want(state.name, interest.elements)

    def groups(
        self, states: list[NameSpaceState], interest: Interest
    ) -> Iterator[tuple[GroupDescription, SampleRows]]:
        """Return the current samples of the groups of an interest."""
        for state in states:
            data = self._runtime.spaces[state.name]
            for group, group_set in sorted(data.working.groups.items()):
                description = self._runtime.descriptions.get(group)
                if description is not None and interest.wants(group):
                    yield description, group_set.samples()

    def unexpired(self, description: GroupDescription, samples: Samples) -> Samples:
        """Return the samples that may still be given; see `LateJoinerDelivery.unexpired`."""
        if not description.qos.lifespans:
            return samples
        return self._runtime.late_joiners.unexpired(description, SampleRows.of(samples))

    def completeness(self, state: NameSpaceState, group: Group) -> Completeness:
        """Return the completeness of a group; a group of which a part may be missing is incomplete."""
        if state.phase is Phase.DISCOVER or not state.keeps(group):
            return Completeness.UNKNOWN
        return Completeness.COMPLETE if state.has_group(group) else Completeness.INCOMPLETE

    def filtered(self, groups: list[GroupState]) -> list[int]:
        """Return the places of the groups of which a content filter of this node withholds samples."""
        gated = {(group.partition, group.topic) for group in self._runtime.shared.gates}
        return [place for place, one in enumerate(groups) if (one.partition, one.topic) in gated]

    def counts(self, groups: list[GroupState]) -> list[int]:
        """Return the number of samples of each group that this node keeps."""
        kept = {
            (group.partition, group.topic): group_set.count
            for data in self._runtime.spaces.values()
            for group, group_set in data.working.groups.items()
        }
        return [kept.get((one.partition, one.topic), 0) for one in groups]

    def floors(self, groups: list[GroupState]) -> list[int | None]:
        """Return the source time up to which each group was deleted; None for a group that is not kept."""
        floors = {
            (group.partition, group.topic): group_set.floor_ns
            for data in self._runtime.spaces.values()
            for group, group_set in data.working.groups.items()
        }
        return [floors.get((one.partition, one.topic)) for one in groups]

    def fellows(self) -> list[tuple[str, str]]:
        """Return ids and names of the nodes that this node hears."""
        return [(fellow.node, fellow.name) for fellow in self._runtime.core.fellows]

    def away(self) -> list[str]:
        """Return the names of the nodes that this node has heard in this run, and does not hear now."""
        here = {fellow.name for fellow in self._runtime.core.fellows} | {self._runtime.settings.name}
        return sorted({fellow.name for fellow in self._runtime.core.away} - here)

    def group_states(self, states: list[NameSpaceState], interest: Interest | None) -> list[GroupState]:
        """Return the completeness of the groups of an interest; of all groups with None."""
        told = [
            (group, self.completeness(state, group))
            for state in states
            for group in self._runtime.spaces[state.name].working.groups
        ]
        told += [  # the node keeps nothing of a group whose content filter does not fit
            (group, Completeness.INCOMPLETE)
            for group in self._runtime.shared.refused
            if self._runtime.core.name_space_of(group) in states
        ]
        found = {
            GroupState(group.partition, group.topic, completeness)
            for group, completeness in told
            if interest is None or interest.wants(group)
        }
        return sorted(found, key=lambda one: (one.partition, one.topic))


Groups = Sequence[tuple["GroupDescription", "Samples"]]

MAX_LIVING: Final = 10_000
"""Limit for the living writers that an answer names, and for the lost ones."""
_ENCAPSULATIONS: Final = {
    ByteOrder.ANY: (b"\x00\x00", b"\x00\x01"),
    ByteOrder.BIG_ENDIAN: (b"\x00\x00",),
    ByteOrder.LITTLE_ENDIAN: (b"\x00\x01",),
}
"""Encapsulations for which the protocol has a name: plain CDR of XCDR1."""


class Answers:
    """Makes the messages that answer requests.

    Args:
        server: the node id.
        held: the node's data.
        living: returns the living writers of an interest.
        disposing: returns its lost writers with autodispose.
    """

    def __init__(
        self,
        server: bytes,
        held: ClientView,
        living: Callable[[Interest], Iterable[bytes]],
        disposing: Callable[[Interest], Iterable[bytes]],
    ) -> None:
        self._server = server
        self._living = living
        self._disposing = disposing
        self._held = held

    def interest(self, request: HistoryRequest) -> Interest:
        """Return the groups that a request is about."""
        return Interest(request.topic, request.partitions)

    def refusal(self, request: HistoryRequest) -> ErrorCode:
        """Return the fault of a request, checked in OpenSplice's order; OK for none."""
        start, end = request.start, request.end
        bounded = not (start.is_open or end.is_open)
        checks = (
            (request.version == MAJOR_VERSION, ErrorCode.INCOMPATIBLE_VERSION),
            (bool(request.topic), ErrorCode.NO_TOPIC),
            (start.is_sound, ErrorCode.INVALID_START_TIME),
            (end.is_sound, ErrorCode.INVALID_END_TIME),
            (not bounded or start.ns <= end.ns, ErrorCode.INVALID_TIME_RANGE),
            (request.format in set(ByteOrder), ErrorCode.INVALID_SERIALIZATION),
            (bool(request.partitions), ErrorCode.NO_PARTITIONS),
            (request.max_samples >= UNLIMITED, ErrorCode.INVALID_MAX_SAMPLES),
            (request.max_instances >= UNLIMITED, ErrorCode.INVALID_MAX_INSTANCES),
            (
                request.max_samples_per_instance >= UNLIMITED,
                ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE,
            ),
            # A node does not evaluate SQL conditions; it refuses them, because it would send too much.
            (not request.sql_filter, ErrorCode.INVALID),
        )
        return next((code for holds, code in checks if not holds), ErrorCode.OK)

    def why_not(self, states: list[NameSpaceState]) -> ErrorCode:
        """Return the reason why this node does not answer."""
        if not states:
            return ErrorCode.GROUP_NOT_FOUND
        if any(state.following is None for state in states):
            return ErrorCode.NO_MASTER_SELECTED
        if not any(state.policy.aligner for state in states):
            return ErrorCode.SERVER_IS_NOT_ALIGNER
        return ErrorCode.NOT_RESPONSIBLE

    def error(self, request: HistoryRequest, error: ErrorCode) -> list[bytes]:
        """Make an answer without data."""
        link = Link(0, Completeness.UNKNOWN, error)
        states = self._held.name_spaces(self.interest(request))
        return [encode_link(self._server, request.request, link, self._addition(request, states, []))]

    def messages(
        self, request: HistoryRequest, groups: Groups, states: list[NameSpaceState] | None = None
    ) -> Iterator[bytes]:
        """Make samples and link.

        Args:
            request: the request to answer.
            groups: the groups and their samples.
            states: the name-spaces that the answer is about, None for an update.
        """
        groups = [(one, self._held.unexpired(one, samples)) for one, samples in groups]
        touched = self._held.name_spaces(self.interest(request)) if states is not None else []
        elements = self.interest(request).elements
        complete = all(state.has_all(elements) for state in states or ())
        addition = self._addition(request, touched, states)
        return self._make(request, groups, addition, complete=complete)

    def _make(
        self, request: HistoryRequest, groups: Groups, addition: dict[str, bytes], *, complete: bool
    ) -> Iterator[bytes]:
        """Make the messages, on the thread that writes; it uses no data of the node's thread."""
        ours = extensions.NAME in request.extensions
        count = left_out = 0
        for description, samples in _select(request, groups):
            encoder = extensions.SampleEncoder(
                self._server, request.request, description.group, description.qos, ours=ours
            )
            earlier: dict[bytes, bytes] = {}
            for sample in samples:
                if sample.status & DATA:
                    if not ours and sample.payload[:2] not in _ENCAPSULATIONS[ByteOrder(request.format)]:
                        left_out += 1
                        continue
                    earlier[sample.key] = sample.payload[4:]
                yield encoder.encode(sample, earlier.get(sample.key, b""))
                count += 1
        whole = complete and not left_out
        error = ErrorCode.INVALID_SERIALIZATION if left_out else ErrorCode.OK
        link = Link(count, Completeness.COMPLETE if whole else Completeness.INCOMPLETE, error)
        yield encode_link(self._server, request.request, link, addition)

    def _addition(
        self,
        request: HistoryRequest,
        touched: Iterable[NameSpaceState],
        covered: list[NameSpaceState] | None,
    ) -> dict[str, bytes]:
        if extensions.NAME not in request.extensions:
            return {}
        interest = self.interest(request)
        elements = interest.elements
        return extensions.pack(
            living=[writer.hex() for writer in itertools.islice(self._living(interest), MAX_LIVING)],
            disposing=[writer.hex() for writer in itertools.islice(self._disposing(interest), MAX_LIVING)],
            update=covered is None,
            name_spaces={state.name: state.has_all(elements) for state in touched},
            covers=[state.name for state in covered or () if state.has_all(elements)],
            parts=[state.name for state in covered or () if state.has_part_of(elements)],
        )


def _select(request: HistoryRequest, groups: Groups) -> Groups:
    """Select the samples within the limits; `max_samples` and `max_instances` count all groups together."""
    each = (extensions.unpack(request.extensions) or {}).get("each")
    limits = HistoryLimits(
        start_ns=HistoryLimits().start_ns if request.start.is_open else request.start.ns,
        end_ns=HistoryLimits().end_ns if request.end.is_open else request.end.ns,
        max_samples=request.max_samples,
        max_instances=request.max_instances,
        max_samples_per_instance=each
        if isinstance(each, int) and each >= 0
        else request.max_samples_per_instance,
    )
    if limits == HistoryLimits(start_ns=0):
        return groups
    objects = [(group, list(samples)) for group, samples in groups]
    selected = {id(one) for one in limits.select([one for _, samples in objects for one in samples])}
    return [(group, [one for one in samples if id(one) in selected]) for group, samples in objects]
