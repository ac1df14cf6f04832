from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.groups import DurabilityKind
from engine.dds import cdr
from engine.dds.participant import Tag, TagRole
from engine.dds.qos import EndpointQos, incompatibilities
from engine.dds.uri import cyclone_uri, directed_uri, incomplete_part, parts_of, private_uri

NAMES = st.binary(min_size=1, max_size=cdr.MAX_NAME_BYTES).filter(lambda name: 0 not in name)


@given(NAMES, st.binary(max_size=300))
def test_what_is_packed_is_unpacked(name: bytes, payload: bytes) -> None:
    assert cdr.unpack_named(cdr.pack_named(name, payload)) == (name, payload)
    assert cdr.unpack_bytes(cdr.pack_bytes(payload)) == payload
    assert len(cdr.pack_named(name, payload)) % 4 == len(cdr.pack_bytes(payload)) % 4 == 0


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: cdr.HEADER + rest))
def test_any_bytes_are_unpacked_or_malformed(noise: bytes) -> None:
    for unpack in (cdr.unpack_named, cdr.unpack_bytes):
        with contextlib.suppress(cdr.Malformed):
            unpack(noise)


@given(NAMES, st.binary(max_size=40), st.data())
def test_what_is_cut_off_is_malformed(name: bytes, payload: bytes, data: st.DataObject) -> None:
    whole = cdr.pack_named(name, payload)
    end = len(whole) - (-len(payload) % 4)
    with pytest.raises(cdr.Malformed):
        cdr.unpack_named(whole[: data.draw(st.integers(0, end - 1))])


@given(st.sampled_from(TagRole), st.binary(min_size=16, max_size=16), st.integers(0, 9999))
def test_a_tag_is_read_back(role: TagRole, node_id: bytes, version: int) -> None:
    tag = Tag(role, node_id, version)
    assert Tag.decode(tag.encode()) == (None if role is TagRole.TOOL else tag), "a tool is an application"


@pytest.mark.parametrize(
    "text", [b"", b"durable_support", b"ospltool-node/1:abc", b"ospltool-x/1:" + b"0" * 32]
)
def test_foreign_user_data_is_no_tag(text: bytes) -> None:
    assert Tag.decode(text) is None


def test_a_node_id_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Tag(TagRole.NODE, b"short").encode()


OFFER = EndpointQos(representations=(0,))


@pytest.mark.parametrize(
    ("offered", "requested", "policy"),
    [
        ({}, {}, ""),
        ({"reliable": False}, {"reliable": True}, "RELIABILITY: offered BEST_EFFORT, requested RELIABLE"),
        ({"reliable": True}, {"reliable": False}, ""),
        (
            {"durability": DurabilityKind.VOLATILE},
            {"durability": DurabilityKind.TRANSIENT},
            "DURABILITY: offered VOLATILE, requested TRANSIENT",
        ),
        ({"durability": DurabilityKind.PERSISTENT}, {"durability": DurabilityKind.TRANSIENT}, ""),
        ({"exclusive": True}, {}, "OWNERSHIP: offered EXCLUSIVE, requested SHARED"),
        ({}, {"by_source_timestamp": True}, "DESTINATION_ORDER: offered BY_RECEPTION_TIMESTAMP"),
        ({"by_source_timestamp": True}, {}, ""),
        ({}, {"deadline_ns": 5}, "DEADLINE: offered infinite, requested 5 ns"),
        ({"deadline_ns": 4}, {"deadline_ns": 5}, ""),
        ({"latency_budget_ns": 6}, {"latency_budget_ns": 5}, "LATENCY_BUDGET"),
        ({}, {"liveliness_lease_ns": 9}, "LIVELINESS: offered AUTOMATIC lease infinite, requested"),
        ({}, {"liveliness": 2}, "LIVELINESS"),
        ({}, {"presentation": 1, "ordered": True}, "PRESENTATION: offered INSTANCE, requested TOPIC ordered"),
        ({}, {"representations": (2,)}, "DATA_REPRESENTATION: offered XCDR1, requested XCDR2"),
        ({"representations": (2, 0)}, {"representations": (0, 2)}, ""),
    ],
)
def test_incompatible_policies_are_named_with_both_values(
    offered: dict[str, object], requested: dict[str, object], policy: str
) -> None:
    found = incompatibilities(
        msgspec.structs.replace(OFFER, **offered),
        msgspec.structs.replace(OFFER, **requested),
    )
    assert len(found) == bool(policy)
    assert policy in "".join(found)


def test_the_environment_decides_the_settings_where_it_is_set() -> None:
    assert cyclone_uri(environment={"CYCLONEDDS_URI": " file:///mine.xml "}).endswith(",file:///mine.xml")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (
            "",
            {
                "MaxMessageSize",
                "MaxRexmitMessageSize",
                "FragmentSize",
                "SocketReceiveBufferSize",
                "NackDelay",
            },
        ),
        ("<General><FragmentSize>1344B</FragmentSize></General>", {"SocketReceiveBufferSize", "NackDelay"}),
        (
            "<Internal><NackDelay>1ms</NackDelay></Internal>",
            {"MaxMessageSize", "MaxRexmitMessageSize", "FragmentSize", "SocketReceiveBufferSize"},
        ),
    ],
)
def test_sizes_of_messages_and_buffers_are_ours_where_the_user_has_none(
    given: str, missing: set[str]
) -> None:
    theirs = f'<CycloneDDS><Domain Id="any">{given}</Domain></CycloneDDS>'
    ours, _, rest = cyclone_uri(environment={"CYCLONEDDS_URI": theirs}).partition(",")
    assert rest == theirs
    named = {one.tag for one in ElementTree.fromstring(ours).iter()}
    named -= {"CycloneDDS", "Domain", "General", "Internal", "MaxQueuedRexmitBytes"}
    assert named == missing


LO = '<General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'


@pytest.mark.parametrize(
    ("given", "parts", "lack"),
    [
        ("<CycloneDDS><Domain>", 1, "<Domain> of line 1, column 13 is not closed"),
        (f"<CycloneDDS>\n <Domain>{LO}", 1, "<Domain> of line 2, column 2 is not closed"),
        ("<CycloneDDS/>, <CycloneDDS><Domain/>", 2, "<CycloneDDS> of line 1, column 1 is not closed"),
        ("<General><AllowMulticast>false", 1, "<AllowMulticast> of line 1, column 10 is not closed"),
        # Cyclone DDS takes </> for any end tag, and any element of a Domain for the root.
        ("<Disc><Tag>a</></>,<Tr><V>config</></>", 2, ""),
        (f"<?xml version='1.0'?><!-- <a> --><CycloneDDS><Domain Id='<'>{LO}</Domain></CycloneDDS>", 1, ""),
        ("<CycloneDDS><Domain/></CycloneDDS><CycloneDDS/>/no,file:///no2", 4, ""),
        ("<CycloneDDS><![CDATA[<a>]]></CycloneDDS>", 1, ""),
        ("EMPTY", 1, "EMPTY:1:1: the file is empty"),
        ("/no.xml", 1, ""),  # Cyclone DDS says it
        ("<CycloneDDS", 1, ""),
    ],
)  # fmt: skip
def test_settings_that_end_too_early_are_named_with_their_place(
    tmp_path: Path, given: str, parts: int, lack: str
) -> None:
    (tmp_path / "e.xml").write_text(" <!-- nothing -->\n")
    given, lack = (text.replace("EMPTY", str(tmp_path / "e.xml")) for text in (given, lack))
    assert len(parts_of(given)) == parts
    assert incomplete_part(given).endswith(lack)
    assert bool(incomplete_part(given)) == bool(lack)


def test_settings_that_say_everything_are_not_touched() -> None:
    given = cyclone_uri(environment={})
    assert cyclone_uri(environment={"CYCLONEDDS_URI": given}) == given


def test_settings_are_well_formed_whatever_the_values_are() -> None:
    odd = 'a"<&>b'
    for text in (
        cyclone_uri(interfaces=(odd, "10.0.0.1"), peers=(odd,), tag=odd, environment={}),
        directed_uri(odd, odd, 3, odd),
        private_uri(),
    ):
        ElementTree.fromstring(text)
    domain = ElementTree.fromstring(cyclone_uri(interfaces=(odd, "10.0.0.1"), peers=(odd,), environment={}))[
        0
    ]
    interfaces = [one.attrib for one in domain.iter("NetworkInterface")]
    assert interfaces == [{"name": odd}, {"address": "10.0.0.1"}]
    assert [one.attrib for one in domain.iter("Peer")] == [{"Address": odd}]


def test_the_default_stays_on_this_machine() -> None:
    domain = ElementTree.fromstring(cyclone_uri(environment={}))[0]
    assert [one.attrib for one in domain.iter("NetworkInterface")] == [{"name": "lo"}]
    assert domain.findtext("General/AllowMulticast") == "false"
