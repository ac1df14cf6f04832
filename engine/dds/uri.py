"""Cyclone DDS settings as XML text."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

# Deliveries are short and have one reader: frequent requests for acknowledgements cost little, and the
# default period (100 ms) is longer than most deliveries.
_QUICK_HEARTBEAT = '<HeartbeatInterval min="2ms" minsched="2ms" max="100ms">5ms</HeartbeatInterval>'

# With the defaults of Cyclone DDS a sample of 16 MB comes ten times more slowly, on loopback, too: its
# fragments of 1,344 bytes overflow the socket's buffer, and lost ones are sent again one by one. Messages of
# up to 65500 bytes with 16000-byte fragments doubled the measured rate on Ethernet frames. Without the
# settings for sending again, deliveries to late joiners stall.
_MESSAGES: Final = (
    "<MaxMessageSize>65500B</MaxMessageSize><MaxRexmitMessageSize>65500B</MaxRexmitMessageSize>"
    "<FragmentSize>16000B</FragmentSize>"
)
_SENDING_AGAIN: Final = "<NackDelay>10ms</NackDelay><MaxQueuedRexmitBytes>2MB</MaxQueuedRexmitBytes>"
# Chosen as a maximum: Cyclone DDS accepts what the kernel grants (net.core.rmem_max). Less loses packets of
# a burst, which are resent.
DEFAULT_RECEIVE_BUFFER_BYTES: Final = 4 << 20

# DDSI-RTPS has ports for about 120 participants in the 250 of a domain (9.6.1); with the 9 of older
# versions, 7 of 16 processes found no index.
DEFAULT_MAX_PARTICIPANT_INDEX = 120
"""Limit for the processes of a machine that unicast discovery finds, applications included."""

_MAX_FILE_BYTES: Final = 1 << 20
"""A larger file is none of settings; it is not read into memory."""
_SHOWN: Final = 60
"""Characters of settings that a message shows."""
_TAG_OR_TEXT: Final = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|</[^>]*>"
    r"|<(?P<name>[^\s/>!?]+)(?:\"[^\"]*\"|'[^']*'|[^>\"'])*?(?P<is_empty>/)?>|[^<]+",
    re.DOTALL,
)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_SECURITY: Final = re.compile(r"<Security\b", re.IGNORECASE)
_TAG: Final = re.compile(r"<Tag\s*>(?P<tag>.*?)</Tag\s*>", re.DOTALL | re.IGNORECASE)


# The default of Cyclone DDS for SPDPInterval.
ANNOUNCED_S: Final = 30.0
"""Longest time between two announcements of a participant where SPDPInterval does not say otherwise."""
_ANNOUNCED: Final = re.compile(
    r"<SPDPInterval>\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>m?s)\s*<", re.IGNORECASE
)


def announcement_period_s(uri: str) -> float:
    """Return the longest time between two announcements of a participant with these settings, in seconds."""
    found = [
        float(each["number"]) / (1000 if each["unit"].lower() == "ms" else 1)
        for each in _ANNOUNCED.finditer(settings_text(uri))
    ]
    return max(found, default=ANNOUNCED_S)


def cyclone_uri(
    *,
    interfaces: Iterable[str] = ("lo",),
    multicast: str = "false",
    peers: Iterable[str] = ("localhost",),
    max_auto_participant_index: int = DEFAULT_MAX_PARTICIPANT_INDEX,
    lease_s: float = 2.0,
    spdp_interval_ms: int = 500,
    receive_buffer_bytes: int = DEFAULT_RECEIVE_BUFFER_BYTES,
    tag: str = "",
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Return the settings of a node: CYCLONEDDS_URI if it is set, otherwise from the parameters.

    Where CYCLONEDDS_URI says nothing about sizes of messages and buffers, they are as without it.

    Args:
        interfaces: names or IP addresses of network interfaces; loopback by default.
        multicast: `false`, `true`, `spdp` or another value of General/AllowMulticast.
        peers: addresses that are asked for participants where multicast does not reach them.
        max_auto_participant_index: the number of participants per address that unicast discovery pings.
        lease_s: others count this participant as lost after this silence.
        spdp_interval_ms: period of announcements. With Cyclone's default, unicast peers need 25 s to meet
            again after a cut; with 500 ms, less than one second.
        receive_buffer_bytes: wanted socket receive buffer. It is set as a maximum: a kernel that allows
            less gives less, while a minimum would make the participant fail.
        tag: only participants with equal domain tags meet; empty is Cyclone's default tag.
        environment: environment variables, with CYCLONEDDS_URI.
    """
    given = environment.get("CYCLONEDDS_URI", "").strip()
    if given:
        return _transport(settings_text(given)) + given
    return _document(
        interfaces=interfaces,
        multicast=multicast,
        discovery=(
            "<ParticipantIndex>auto</ParticipantIndex>"
            f"<MaxAutoParticipantIndex>{int(max_auto_participant_index)}</MaxAutoParticipantIndex>"
            f"{_peers(peers)}"
            f"<LeaseDuration>{round(lease_s * 1000)}ms</LeaseDuration>"
            f"<SPDPInterval>{int(spdp_interval_ms)}ms</SPDPInterval>"
            f"{_tag(tag)}"
        ),
        receive_buffer_bytes=receive_buffer_bytes,
    )


def _transport(given: str) -> str:
    """Return settings to put before the user's, for what these do not mention; empty if they mention all."""
    messages = _unless_given(given, _MESSAGES, "MaxMessageSize", "MaxRexmitMessageSize", "FragmentSize")
    buffer = _unless_given(
        given,
        _receive_buffer(DEFAULT_RECEIVE_BUFFER_BYTES),
        "SocketReceiveBufferSize",
        "MinimumSocketReceive",
    )
    again = _unless_given(given, _SENDING_AGAIN, "NackDelay", "MaxQueuedRexmitBytes")
    general = f"<General>{messages}</General>" if messages else ""
    internal = f"<Internal>{buffer}{again}</Internal>" if buffer or again else ""
    if not general and not internal:
        return ""
    return f'<CycloneDDS><Domain Id="any">{general}{internal}</Domain></CycloneDDS>,'


def _unless_given(given: str, ours: str, *names: str) -> str:
    return "" if any(f"<{name}" in given for name in names) else ours


def _receive_buffer(most_bytes: int) -> str:
    return f'<SocketReceiveBufferSize max="{most_bytes}B"/>'


def parts_of(uri: str) -> list[str]:
    """Return the parts of a CYCLONEDDS_URI in order: XML, which begins with `<`, and names of files."""
    return [part for _, part in placed_parts_of(uri)]


def placed_parts_of(uri: str) -> list[tuple[int, str]]:
    """Return the parts of a CYCLONEDDS_URI like `parts_of`, each with the characters before it."""
    parts, rest = [], uri.lstrip(", \t\r\n")
    while rest:
        end = _end_of_xml(rest)[0] if rest.startswith("<") else (rest + ",").index(",")
        parts.append((len(uri) - len(rest), rest[:end].strip()))
        rest = rest[end:].lstrip(", \t\r\n")
    return parts


def with_named_end_tags(uri: str) -> str:
    """Return a CYCLONEDDS_URI in which each `</>` has the name of the element that it ends."""
    is_open: list[str] = []

    def named(found: re.Match[str]) -> str:
        if found[0].startswith("</"):
            name = is_open.pop() if is_open else ""
            return found[0] if found[0][2:-1].strip() else f"</{name}>"
        if found["name"] and not found["is_empty"]:
            is_open.append(found["name"])
        return found[0]

    return _TAG_OR_TEXT.sub(named, uri)


def _end_of_xml(text: str) -> tuple[int, list[tuple[str, int]]]:
    """Return where the first element of a text ends, and the elements that are open there with their places.

    Like Cyclone DDS it takes `</>` for any end tag. What cannot be read belongs to the element.
    """
    is_open: list[tuple[str, int]] = []
    at = 0
    while found := _TAG_OR_TEXT.match(text, at):
        at = found.end()
        if found[0].startswith("</"):
            del is_open[-1:]
        elif found["name"] and not found["is_empty"]:
            is_open.append((found["name"], found.start()))
        if not is_open and (found["name"] or found[0].startswith("</")):
            return at, []
    return len(text), is_open


def settings_text(uri: str) -> str:
    """Return the XML of a CYCLONEDDS_URI, a list of files and XML fragments, without comments.

    It skips unreadable files: Cyclone DDS refuses them with its own message.
    """
    texts = []
    for part in parts_of(uri):
        # Cyclone DDS itself names a file that it cannot read, when it uses the settings.
        with contextlib.suppress(OSError):
            texts.append(part if part.startswith("<") else _content_of(part))
    return _COMMENT.sub("", "".join(texts))


def _content_of(file: str) -> str:
    with Path(file.removeprefix("file://")).open("rb") as opened:
        return opened.read(_MAX_FILE_BYTES).decode("utf-8", "replace")


def incomplete_part(uri: str) -> str:
    """Return what a CYCLONEDDS_URI lacks although Cyclone DDS takes it, with the place; empty for nothing.

    Cyclone DDS takes text that ends before its elements do, and an empty file, for all that was meant.
    Without the rest, a participant may leave the loopback interface.
    """
    for part in parts_of(uri):
        if part.startswith("<"):
            _, is_open = _end_of_xml(part)
            if is_open:
                name, at = is_open[-1]
                line, column = part.count("\n", 0, at) + 1, at - part.rfind("\n", 0, at)
                return f"{part[:_SHOWN]!r} ends, but <{name}> of line {line}, column {column} is not closed"
        else:
            # The same: an unreadable file gets its message from Cyclone DDS.
            with contextlib.suppress(OSError):
                if not _COMMENT.sub("", _content_of(part)).strip():
                    return f"{part}:1:1: the file is empty"
    return ""


def unreadable_file(uri: str) -> str:
    """Return the first file that a CYCLONEDDS_URI names and that cannot be read, with the reason; else ""."""
    for part in parts_of(uri):
        if not part.startswith("<"):
            try:
                _content_of(part)
            except OSError as error:
                return f"{part}: {error.strerror}"
    return ""


def asks_for_security(uri: str) -> bool:
    """Tell whether the settings have DDS Security."""
    return _SECURITY.search(settings_text(uri)) is not None


def domain_tag(uri: str) -> str:
    """Return the domain tag in the settings, the last of several; empty for none."""
    found = _TAG.findall(settings_text(uri))
    return _unescape(found[-1].strip()) if found else ""


def directed_uri(
    address: str,
    interface: str,
    wire_domain: int,
    tag: str = "",
    spdp_interval_ms: int = 200,
    *,
    others: Iterable[str] = (),
) -> str:
    """Return settings of a domain whose participants reach only the target, and `others`.

    With `ParticipantIndex none`, other participants do not find this one at a well-known port; with
    `AddLocalhost=false`, this one does not find them.

    Args:
        address: the target's metatraffic locator, as `host:port`.
        interface: name or address of the interface that reaches it.
        wire_domain: the domain id that the target uses; the local domain id is another, free one.
        tag: domain tag of the target.
        spdp_interval_ms: period of announcements to the target.
        others: further targets.
    """
    return _document(
        interfaces=(interface,),
        multicast="false",
        discovery=(
            "<ParticipantIndex>none</ParticipantIndex>"
            f"<ExternalDomainId>{int(wire_domain)}</ExternalDomainId>"
            f"<SPDPInterval>{int(spdp_interval_ms)}ms</SPDPInterval>"
            f"{_tag(tag)}"
            f'<Peers AddLocalhost="false">{_peer_list((address, *others))}</Peers>'
        ),
        receive_buffer_bytes=1 << 20,
        internal=_QUICK_HEARTBEAT,
    )


def private_uri() -> str:
    """Return settings of a domain that stays in this process.

    Its wire domain id, 231, lies above the ids of applications, 0 to 230.
    """
    return _document(
        interfaces=("lo",),
        multicast="false",
        discovery=(
            "<ParticipantIndex>none</ParticipantIndex><ExternalDomainId>231</ExternalDomainId>"
            '<Peers AddLocalhost="false"/>'
        ),
        receive_buffer_bytes=1 << 16,
    )


def _document(
    *,
    interfaces: Iterable[str],
    multicast: str,
    discovery: str,
    receive_buffer_bytes: int,
    internal: str = "",
) -> str:
    """Return the settings with the parts that all our participants share."""
    return (
        '<CycloneDDS><Domain Id="any"><General><Interfaces>'
        f"{''.join(map(_interface, interfaces))}</Interfaces>"
        f"<AllowMulticast>{_escape(multicast)}</AllowMulticast>"
        f"{_MESSAGES}</General>"
        f"<Discovery>{discovery}</Discovery>"
        f"<Internal>{_receive_buffer(int(receive_buffer_bytes))}"
        f"{_SENDING_AGAIN}"
        f"{internal}</Internal>"
        "</Domain></CycloneDDS>"
    )


def _tag(text: str) -> str:
    return f"<Tag>{_escape(text)}</Tag>" if text else ""


def _interface(text: str) -> str:
    is_address = text[:1].isdigit() or ":" in text
    return f"<NetworkInterface {'address' if is_address else 'name'}={_attribute(text)}/>"


def _peers(addresses: Iterable[str]) -> str:
    text = _peer_list(addresses)
    return f"<Peers>{text}</Peers>" if text else ""


def _peer_list(addresses: Iterable[str]) -> str:
    return "".join(f"<Peer Address={_attribute(address)}/>" for address in addresses)


def _escape(text: str) -> str:  # xml.sax.saxutils imports urllib, ssl and http: 8 ms at each start
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _attribute(text: str) -> str:
    text = _escape(text).replace('"', "&quot;")
    for character, reference in (("\n", "&#10;"), ("\r", "&#13;"), ("\t", "&#9;")):
        text = text.replace(character, reference)
    return f'"{text}"'
