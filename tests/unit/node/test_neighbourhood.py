"""Fellows attach and detach; channel and discovery tell of it, each in its own order and time."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.capture.neighbourhood import ASK_AGAIN_S, Neighbourhood
from engine.capture.unkept import UnkeptReason
from engine.core.name_spaces import Group
from engine.dataset.groups import KEEP_ALL, DurabilityKind, GroupQos, TypeDescription
from engine.dds.channel import PeerAttached, PeerDetached
from engine.dds.discovery import (
    Change,
    EndpointGone,
    EndpointSeen,
    ParticipantGone,
    ParticipantSeen,
    TopicSeen,
)
from engine.dds.participant import Tag, TagRole
from engine.dds.qos import EndpointQos, incompatibilities
from engine.dds.topics import untyped
from engine.dds.typeinfo import TypeRef

NODE, PROCESS = b"n" * 16, b"p" * 16

Told: TypeAlias = Change | PeerAttached | PeerDetached

SEEN = ParticipantSeen(PROCESS, Tag(TagRole.NODE, NODE), ("127.0.0.1:7410",), "host", 1, "", is_own=False)
GONE = ParticipantGone(PROCESS)
ATTACHED = PeerAttached(PROCESS)
DETACHED = PeerDetached(PROCESS)


def check_attached(told: list[Told], *, expected: bool) -> None:
    """What the node was told last, batch by batch; attaching and detaching alternate."""
    neighbourhood = Neighbourhood()
    found = [each for change in told for each in neighbourhood.apply([change]).fellows]
    assert all((node, participant) == (NODE.hex(), PROCESS) for node, participant, _ in found)
    states = [attached for _, _, attached in found]
    assert states == [index % 2 == 0 for index in range(len(states))]
    assert (states[-1] if states else False) is expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([SEEN, ATTACHED], True, id="discovery first"),
        pytest.param([ATTACHED, SEEN], True, id="channel first"),
        pytest.param([SEEN, ATTACHED, DETACHED, GONE], False, id="left"),
        pytest.param([SEEN, ATTACHED, GONE, DETACHED], False, id="left, discovery first"),
        pytest.param([SEEN, ATTACHED, GONE], False, id="lost"),
        pytest.param([SEEN, ATTACHED, GONE, SEEN], True, id="lost and found, overlooked by the channel"),
        pytest.param([SEEN, ATTACHED, DETACHED, ATTACHED, GONE, SEEN], True, id="channel ahead of discovery"),
        pytest.param([SEEN, ATTACHED, GONE, SEEN, DETACHED, ATTACHED], True, id="channel behind discovery"),
        pytest.param([SEEN, GONE, ATTACHED], False, id="gone before it attached"),
    ],
)
def test_a_fellow_ends_attached_whatever_is_told_first(told: list[Told], expected: bool) -> None:
    check_attached(told, expected=expected)


@given(st.integers(0, 4), st.booleans(), st.data())
def test_every_interleaving_of_the_two_sources_ends_alike(
    losses: int, is_there: bool, data: st.DataObject
) -> None:
    """The channel may overlook any of the losses, if the process was found again."""
    discovery: list[Told] = [SEEN]
    channel: list[Told] = [ATTACHED]
    for _ in range(losses):
        discovery += [GONE, SEEN]
        if data.draw(st.booleans(), label="noticed by the channel"):
            channel += [DETACHED, ATTACHED]
    if not is_there:
        discovery.append(GONE)
        channel.append(DETACHED)
    told: list[Told] = []
    while discovery or channel:
        turn = data.draw(st.booleans()) if discovery and channel else bool(discovery)
        told.append((discovery if turn else channel).pop(0))
    check_attached(told, expected=is_there)


APPLICATION = ParticipantSeen(b"a" * 16, None, ("127.0.0.1:7420",), "host", 2, "", is_own=False)
TYPE = cast("TypeRef", object())
DESCRIPTION = TypeDescription("ships::Observation", b"information", b"mapping", keyed=True)
GROUP = Group("ships", "Observations", DESCRIPTION.type_id)


def endpoint(guid: bytes, *, is_writer: bool) -> EndpointSeen:
    qos = EndpointQos(durability=DurabilityKind.TRANSIENT, partitions=("ships",))
    return EndpointSeen(guid, APPLICATION.guid, is_writer, "Observations", DESCRIPTION.name, TYPE, qos)


def test_the_deepest_history_that_present_readers_ask_for_is_known() -> None:
    """By group; a writer asks for nothing, and a reader that has gone asks no more."""
    neighbourhood, ships, boats = (
        Neighbourhood(),
        Group("ships", "Observations"),
        Group("boats", "Observations"),
    )
    neighbourhood.apply([APPLICATION, endpoint(b"1" * 16, is_writer=True)])
    assert neighbourhood.asked(ships) == 1

    def reads(guid: bytes, depth: int, partition: str) -> None:
        qos = EndpointQos(durability=DurabilityKind.TRANSIENT, history_depth=depth, partitions=(partition,))
        seen = msgspec.structs.replace(endpoint(guid, is_writer=False), endpoint_qos=qos)
        neighbourhood.apply([seen])

    reads(b"2" * 16, 5, "s*")
    reads(b"3" * 16, 3, "ships")
    reads(b"4" * 16, 2, "boats")
    assert (neighbourhood.asked(ships), neighbourhood.asked(boats)) == (5, 2)
    reads(b"4" * 16, KEEP_ALL, "boats")
    neighbourhood.apply([EndpointGone(b"2" * 16)])
    assert (neighbourhood.asked(ships), neighbourhood.asked(boats)) == (3, KEEP_ALL)


@pytest.mark.parametrize("is_known", [False, True], ids=["first of its type", "of a known type"])
def test_what_a_writer_wrote_that_came_and_went_between_two_looks_is_routed(is_known: bool) -> None:
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION])
    if is_known:
        neighbourhood.apply([endpoint(b"1" * 16, is_writer=True)])
        neighbourhood.resolved(TYPE, DESCRIPTION)
    gone = b"2" * 16
    found = neighbourhood.apply(
        [endpoint(gone, is_writer=True), EndpointGone(gone), ParticipantGone(b"a" * 16)]
    )
    if not is_known:
        assert [each.guid for each in found.unresolved] == [gone]
        found = neighbourhood.resolved(TYPE, DESCRIPTION)
    assert neighbourhood.routes[gone] == (GROUP,)
    assert found.writers == [(gone, (GROUP,)), (gone, ())]


FEDERATION = "6921d070-0000-0081-0000-0001000001c1", "6921d070-0000-007d-0000-0001000001c1"
"""Participants of ddsi2 and of the durability service, as a real federation announced them."""


def guid_of(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def readers_served(participant: str, *tells: tuple[str, str, DurabilityKind, tuple[str, ...]]) -> int:
    """Of how many readers of a participant the node takes charge in the end.

    Args:
        participant: whose readers of topic `Observations` count.
        tells: endpoints in the order in which they are discovered, each in a look of its own: participant,
            topic, durability, partitions.
    """
    neighbourhood = Neighbourhood()
    count = 0
    for number, (owner, topic, durability, partitions) in enumerate(tells):
        qos = EndpointQos(durability=durability, partitions=partitions)
        seen = msgspec.structs.replace(APPLICATION, guid=guid_of(owner))
        guid = guid_of(owner)[:12] + number.to_bytes(4)
        reader = EndpointSeen(guid, seen.guid, False, topic, DESCRIPTION.name, TYPE, qos)
        found = neighbourhood.apply([seen, reader])
        for sign, readers in ((1, found.readers_seen), (-1, found.readers_gone)):
            wanted = msgspec.structs.replace(APPLICATION, guid=guid_of(participant)).process
            count += sign * sum(each.process == wanted for each in readers)
    return count


CYCLONE, FAST = "0110b0d4-9c8e-7e86-d9ff-831e000001c1", "010f3c5a-1234-0000-0000-0000000001c1"
UNLUCKY = "01104a4b-0000-0081-0000-0001000001c1", "01104a4b-0000-007d-0000-0001000001c1"
VOLATILE, TRANSIENT = DurabilityKind.VOLATILE, DurabilityKind.TRANSIENT


@pytest.mark.parametrize(
    ("participant", "tells", "expected"),
    [
        pytest.param(CYCLONE, [(CYCLONE, "Observations", TRANSIENT, ("ships",))], 1, id="an application"),
        pytest.param(FAST, [(FAST, "Observations", TRANSIENT, ("ships",))], 1, id="one of another vendor"),
        pytest.param(
            FEDERATION[0],
            [(FEDERATION[0], "Observations", TRANSIENT, ("ships",))],
            0,
            id="group reader of ddsi2",
        ),
        pytest.param(
            CYCLONE,
            [
                (CYCLONE, "d_nameSpaces", VOLATILE, ("durabilityPartition",)),
                (CYCLONE, "Observations", TRANSIENT, ("ships",)),
            ],
            0,
            id="a service of another make",
        ),
        pytest.param(
            CYCLONE,
            [
                (CYCLONE, "Observations", TRANSIENT, ("ships",)),
                (CYCLONE, "d_historicalDataRequest", VOLATILE, ("durabilityPartition",)),
            ],
            0,
            id="a service that is recognised late",
        ),
        pytest.param(
            UNLUCKY[0],
            [
                (UNLUCKY[0], "Observations", TRANSIENT, ("ships",)),
                (UNLUCKY[1], "d_status", VOLATILE, ("durabilityPartition",)),
            ],
            0,
            id="a federation whose system id looks like a vendor's",
        ),
        pytest.param(
            CYCLONE,
            [
                (FEDERATION[1], "d_status", VOLATILE, ("durabilityPartition",)),
                (CYCLONE, "Observations", TRANSIENT, ("ships",)),
            ],
            1,
            id="an application beside a federation",
        ),
        pytest.param(
            CYCLONE, [(CYCLONE, "Observations", TRANSIENT, ("__BUILT-IN PARTITION__",))], 0, id="built-in"
        ),
        pytest.param(
            CYCLONE,
            [(CYCLONE, "Observations", TRANSIENT, ("ships", "__BUILT-IN PARTITION__"))],
            1,
            id="built-in and another",
        ),
    ],
)
def test_history_goes_to_applications_only(
    participant: str, tells: list[tuple[str, str, DurabilityKind, tuple[str, ...]]], expected: int
) -> None:
    assert readers_served(participant, *tells) == expected


@pytest.mark.parametrize(
    ("told", "seen", "gone"),
    [
        pytest.param("+", 1, 0, id="came"),
        pytest.param("+-", 0, 0, id="came and went"),
        pytest.param("+|-", 0, 1, id="went"),
        pytest.param("+|-+", 1, 1, id="came back"),
        pytest.param("+|-+-", 0, 1, id="came back and went"),
    ],
)
def test_a_reader_is_served_if_it_is_there_in_the_end(told: str, seen: int, gone: int) -> None:
    """What is between two looks is one batch; only the last counts."""
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION])
    guid = b"3" * 16
    signs: dict[str, Told] = {"+": endpoint(guid, is_writer=False), "-": EndpointGone(guid)}
    for batch in told.split("|"):
        found = neighbourhood.apply([signs[sign] for sign in batch])
    assert (len(found.readers_seen), len(found.readers_gone)) == (seen, gone)


BELOW, ABOVE = DurabilityKind.TRANSIENT, DurabilityKind.PERSISTENT


@pytest.mark.parametrize(
    ("change", "is_dead"),
    [
        pytest.param({"pid": 8}, True, id="another process"),
        pytest.param({"guid": b"b" * 16}, True, id="the same in a container that was started again"),
        pytest.param({"pid": 8, "addresses": ("127.0.0.1:7412",)}, False, id="another address"),
        pytest.param({"pid": 8, "addresses": ()}, False, id="no address"),
        pytest.param({}, False, id="another participant of the process"),
    ],
)
def test_a_process_whose_addresses_another_one_has_gets_nothing_more(
    change: dict[str, Any], is_dead: bool
) -> None:
    """Its lease ran for ten seconds more, and its successor got its history, too."""
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION, endpoint(b"3" * 16, is_writer=False)])
    guid = APPLICATION.guid[:15] + b"z"
    found = neighbourhood.apply([msgspec.structs.replace(APPLICATION, **{"guid": guid, **change})])
    dead = [APPLICATION.process] if is_dead else []
    assert (found.processes_gone, [each.process for each in found.readers_gone]) == (dead, dead)
    found = neighbourhood.apply([EndpointGone(b"3" * 16), ParticipantGone(APPLICATION.guid)])
    assert len(found.readers_gone) == (not is_dead)


def test_participants_of_one_port_are_one_process_until_the_last_of_them_has_gone() -> None:
    neighbourhood = Neighbourhood()
    second = msgspec.structs.replace(APPLICATION, guid=APPLICATION.guid[:15] + b"z")
    guids = b"3" * 16, b"4" * 16
    readers = [
        msgspec.structs.replace(endpoint(guid, is_writer=False), participant=owner.guid)
        for guid, owner in zip(guids, (APPLICATION, second), strict=True)
    ]
    found = neighbourhood.apply([APPLICATION, second, *readers])
    (reader,) = found.readers_seen
    assert [(guid, is_further) for _, guid, is_further in found.ends_seen] == [
        (guids[0], False),
        (guids[1], True),
    ]
    found = neighbourhood.apply([EndpointGone(guids[0]), ParticipantGone(APPLICATION.guid)])
    assert (found.ends_gone, found.readers_gone, found.processes_gone) == ([(reader, guids[0])], [], [])
    found = neighbourhood.apply([EndpointGone(guids[1]), ParticipantGone(second.guid)])
    assert (found.readers_gone, found.processes_gone) == ([reader], [second.process])


def test_which_participants_are_one_process() -> None:
    """The port tells domain instances apart; other vendors do not name the process of a participant."""
    near = msgspec.structs.replace(APPLICATION, guid=APPLICATION.guid[:4] + b"n" * 12)
    assert near.process == APPLICATION.process
    changes: tuple[dict[str, Any], ...] = (
        {"pid": 8},
        {"hostname": "other"},
        {"addresses": ("127.0.0.1:7422",)},
        {"guid": b"b" * 16},
    )
    for change in changes:
        assert msgspec.structs.replace(near, **change).process != APPLICATION.process, change
    others = [msgspec.structs.replace(one, hostname="", pid=0) for one in (near, APPLICATION)]
    assert [one.process for one in others] == [one.guid for one in others]
    elsewhere = msgspec.structs.replace(APPLICATION, addresses=("10.0.0.1:7420", "127.0.0.1:7420"))
    assert elsewhere.process == APPLICATION.process, "observers may know different addresses of it"


def check_told(told: list[TopicSeen | EndpointSeen]) -> tuple[GroupQos, set[bytes], list[bytes]]:
    """A group's QoS in the end, the writers that its tap refuses then, and those told as refused."""
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION])
    kept: GroupQos | None = None
    news = []
    for each in told:
        if isinstance(each, TopicSeen):
            found = neighbourhood.topics_seen([each])
        else:
            unresolved = neighbourhood.apply([each]).unresolved
            found = neighbourhood.resolved(TYPE, DESCRIPTION) if unresolved else neighbourhood.apply([each])
        for description in found.groups:
            kept = description.qos if kept is None else kept.raised_by(description.qos)
        if kept is not None:
            request = EndpointQos(durability=kept.requested)
            for offer in neighbourhood.offers("Observations", DESCRIPTION.type_id):
                refused = incompatibilities(offer.endpoint.endpoint_qos, request)
                if refused and neighbourhood.refuse(offer, UnkeptReason.QOS, str(refused)) is not None:
                    news.append(offer.endpoint.guid)
    assert kept is not None
    return kept, {guid for guid, groups in neighbourhood.routes.items() if not groups}, news


@given(
    st.lists(st.sampled_from([BELOW, ABOVE]), min_size=1, max_size=4),
    st.lists(st.sampled_from(DurabilityKind), max_size=4),
    st.data(),
)
def test_which_writers_a_tap_refuses_does_not_depend_on_what_is_heard_of_first(
    offered: list[DurabilityKind], topics: list[DurabilityKind], data: st.DataObject
) -> None:
    """Each of them is told as refused once."""
    writers = {
        bytes([number]) * 16: msgspec.structs.replace(
            endpoint(bytes([number]) * 16, is_writer=True),
            endpoint_qos=EndpointQos(durability=durability, partitions=("ships",)),
        )
        for number, durability in enumerate(offered)
    }
    told: list[TopicSeen | EndpointSeen] = [
        TopicSeen("Observations", DESCRIPTION.name, EndpointQos(durability=durability))
        for durability in topics
    ]
    told += writers.values()
    kept, refused, news = check_told(data.draw(st.permutations(told)))
    asked = max((one for one in topics if one >= BELOW), default=DurabilityKind.VOLATILE)
    expected = {guid for guid, writer in writers.items() if writer.durability < asked}
    assert kept.requested is asked
    assert kept.durability >= asked
    assert refused == expected
    assert sorted(news) == sorted(expected)


def test_a_topic_of_another_type_or_name_asks_nothing() -> None:
    writer = endpoint(b"1" * 16, is_writer=True)
    qos = EndpointQos(durability=ABOVE)
    others = [TopicSeen("Others", DESCRIPTION.name, qos), TopicSeen("Observations", "ships::Other", qos)]
    kept, refused, _ = check_told([writer, *others])
    assert kept.requested is DurabilityKind.VOLATILE
    assert not refused
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION])
    neighbourhood.apply([writer])
    assert neighbourhood.resolved(TYPE, DESCRIPTION).groups
    assert neighbourhood.topics_seen(others).groups == []


def test_of_topics_that_ask_for_the_same_durability_the_first_one_counts() -> None:
    first, second = (
        TopicSeen(
            "Observations", DESCRIPTION.name, EndpointQos(durability=ABOVE, service_history_depth=depth)
        )
        for depth in (3, 5)
    )
    kept, _, _ = check_told([first, second, endpoint(b"1" * 16, is_writer=True)])
    assert kept.history_depth == 3


def test_a_writer_that_is_gone_offers_nothing() -> None:
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION, endpoint(b"1" * 16, is_writer=True)])
    neighbourhood.resolved(TYPE, DESCRIPTION)
    assert len(neighbourhood.offers("Observations", DESCRIPTION.type_id)) == 1
    neighbourhood.apply([EndpointGone(b"1" * 16)])
    assert neighbourhood.offers("Observations", DESCRIPTION.type_id) == []


def given_up(*writers: EndpointSeen) -> Neighbourhood:
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION, *writers])
    for reference in dict.fromkeys(writer.type for writer in writers):
        assert reference is not None
        neighbourhood.resolved(reference, None, "nobody answers")
    return neighbourhood


def test_a_type_that_is_found_late_brings_all_of_its_writers_back() -> None:
    """Those that were given up, and a new one that made the node ask."""
    first, second = (endpoint(guid * 16, is_writer=True) for guid in (b"1", b"2"))
    neighbourhood = given_up(first)
    assert [one.why for one in neighbourhood.unkept] == [UnkeptReason.TYPE_UNKNOWN]
    assert neighbourhood.routes[first.guid] == ()
    assert neighbourhood.apply([second]).unresolved == [second]
    found = neighbourhood.resolved(TYPE, DESCRIPTION)
    assert [offer.endpoint for offer in found.offers] == [first, second]
    assert neighbourhood.routes[first.guid] == (GROUP,)
    assert not list(neighbourhood.unkept)
    kept = [(one.writer, one.why) for one in neighbourhood.unkept.take_kept()]
    assert kept == [(first.guid.hex(), UnkeptReason.TYPE_UNKNOWN)]  # the second one was only waited for
    assert neighbourhood.unkept.take_kept() == []
    assert neighbourhood.to_ask_again(0.0) is None


def test_a_writer_that_ended_before_its_type_was_given_up_is_reported_and_not_shown() -> None:
    writer = endpoint(b"1" * 16, is_writer=True)
    neighbourhood = Neighbourhood()
    neighbourhood.apply([APPLICATION, writer])
    neighbourhood.apply([EndpointGone(writer.guid)])
    found = neighbourhood.resolved(TYPE, None, "nobody answers")
    assert [(one.writer, one.why) for one in found.unkept] == [(writer.guid.hex(), UnkeptReason.TYPE_UNKNOWN)]
    assert not list(neighbourhood.unkept)
    assert neighbourhood.to_ask_again(0.0) is None


@pytest.mark.parametrize("is_gone", [False, True], ids=["living", "ended"])
@pytest.mark.parametrize(
    "answer", [None, msgspec.structs.replace(DESCRIPTION, keyed=False)], ids=["mute", "typed"]
)
def test_a_writer_without_key_is_kept_at_once(answer: TypeDescription | None, is_gone: bool) -> None:
    """Whether or not somebody answers for its type, which only shows what it wrote."""
    writer = endpoint(b"1" * 15 + bytes([3]), is_writer=True)
    group = Group("ships", "Observations", untyped(DESCRIPTION.name).type_id)
    neighbourhood = Neighbourhood()
    found = neighbourhood.apply([APPLICATION, writer])
    assert found.unresolved == [writer]
    assert [each.group for each in found.groups] == [group]
    assert neighbourhood.routes[writer.guid] == (group,)
    neighbourhood.apply([EndpointGone(writer.guid)] if is_gone else [])
    found = neighbourhood.resolved(TYPE, answer, "nobody answers")
    assert [each.type for each in found.groups] == ([answer] if answer and not is_gone else [])
    assert [*found.unkept, *neighbourhood.unkept, *neighbourhood.unkept.take_kept()] == []
    assert neighbourhood.routes[writer.guid] == (group,)
    assert bool(neighbourhood.living(group)) is not is_gone
    assert neighbourhood.to_ask_again(0.0) is None
    other = msgspec.structs.replace(writer, guid=b"2" * 15 + bytes([3]))
    found = neighbourhood.apply([other])
    assert found.unresolved == ([] if answer else [other])
    assert [each.group for each in found.groups] == [group]


def test_types_that_were_given_up_are_asked_for_in_turn() -> None:
    """One every few seconds; a failure is not reported again, and a writer that is gone asks for nothing."""
    other = cast("TypeRef", object())
    first = endpoint(b"1" * 16, is_writer=True)
    second = msgspec.structs.replace(endpoint(b"2" * 16, is_writer=True), topic="Other", type=other)
    neighbourhood = given_up(first, second)
    asked = []
    for number in range(4):
        asked.append(neighbourhood.to_ask_again(number * ASK_AGAIN_S))
        assert neighbourhood.to_ask_again((number + 0.9) * ASK_AGAIN_S) is None
    assert asked == [first, second, first, second]
    assert neighbourhood.resolved(TYPE, None, "nobody answers").unkept == []
    neighbourhood.apply([EndpointGone(first.guid)])
    assert [neighbourhood.to_ask_again(number * ASK_AGAIN_S) for number in (4, 5)] == [second, second]
    assert neighbourhood.resolved(TYPE, DESCRIPTION).offers == []
