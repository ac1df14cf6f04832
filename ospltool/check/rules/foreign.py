"""DUR75x to DUR77x: settings of Cyclone DDS itself (CYCLONEDDS_URI), and QoS profiles for a QosProvider."""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.config import Document, XmlElement
from engine.dds.interfaces import address_of
from ospltool.check import cyclone, profiles
from ospltool.check.deployment import has_address, has_interface
from ospltool.check.registry import OSPLTOOL, RuleInput, rule
from ospltool.check.views import FileView
from ospltool.diagnostics.model import Finding, Place, Severity

_cyclone_rule = functools.partial(rule, takes=RuleInput.CYCLONE, targets=OSPLTOOL)


def _found(given: cyclone.Given, path: str, message: str) -> Finding:
    return cyclone.finding("", given.value or given, message, path=path)


@_cyclone_rule("DUR758", "cyclone-several-domains", Severity.INFO)
def cyclone_several_domains(file: FileView) -> Iterator[Finding]:
    """Several Domain elements apply to one domain.

    Why: Cyclone DDS reads all that apply, so what a domain gets does not stand in one place. An element
        without an Id, or with `any`, applies to every domain.

    Example:
        <Domain Id="any">...</Domain><Domain Id="7">...</Domain>
    Use instead:
        One Domain element for each domain, or for all
    OpenSplice: Does not read this file.
    Reference: Cyclone DDS, configuration guide
    """
    if file.cyclone is None:
        return
    earlier: dict[str, XmlElement] = {}
    for domain in cyclone.domains(file.cyclone):
        id_ = next(
            (each.text.strip() for each in domain.attributes if each.name.lower() == "id"), "any"
        ).lower()
        both = next((other for key, other in earlier.items() if id_ == key or "any" in (id_, key)), None)
        if both is not None:
            which = "every domain" if id_ == "any" else f"domain {id_}"
            message = f"this and the element in line {both.line} both apply to {which}"
            yield Finding(
                message, Place.from_span(file.cyclone.source, domain.tag_span), subject="//CycloneDDS/Domain"
            )
        earlier.setdefault(id_, domain)


@_cyclone_rule("DUR759", "cyclone-interface-not-here", Severity.WARNING)
def cyclone_interface_not_here(file: FileView) -> Iterator[Finding]:
    """A setting names an interface or an address that this machine does not have.

    Why: On this machine no participant can be created with the file, unless presence_required is false and
        there is another interface. Where the file is for another machine, this is as it should be.

    Example:
        <Interfaces><NetworkInterface name="eth7"/></Interfaces>
    Use instead:
        A name or an address that `ip address` lists on the machine, or autodetermine="true"
    OpenSplice: Does not read this file.
    Reference: //CycloneDDS/Domain/General/Interfaces/NetworkInterface
    """
    if file.cyclone is None:
        return
    links: dict[str, str] = {}
    for path, given, name, kind in _interfaces(file.cyclone):
        if not _HERE[kind](name):
            yield _found(
                given,
                path,
                f"this machine has no {kind.removesuffix(' of it')} {name!r}",
            )
        elif path.startswith(_INTERFACE) and kind != "address of it":
            other = links.setdefault(address_of(name), name)
            if other != name:
                yield _found(
                    given,
                    path,
                    f"on this machine {name!r} is the same interface as {other!r}",
                )


_INTERFACE = "General/Interfaces/NetworkInterface"
_HERE: dict[str, Callable[[str], bool]] = {
    "interface": has_interface,
    "address": has_address,
    "address of it": has_address,
    "interface and no address": lambda name: has_interface(name) or has_address(name),
}
_LISTS = {
    "General/NetworkInterfaceAddress": ("interface and no address", ("auto",)),
    "General/MulticastRecvNetworkInterfaceAddresses": ("address", ("all", "any", "preferred", "none")),
    "Partitioning/NetworkPartitions/NetworkPartition@Interface": ("interface", ()),
    "Partitioning/NetworkPartitions/NetworkPartition@Address": ("address", ("localhost",)),
}
"""Other settings that name interfaces or addresses, which of them, and the words that are none."""


def _interfaces(document: Document) -> Iterator[tuple[str, cyclone.Given, str, str]]:
    """Yield the interfaces and addresses of this machine that must be there, with the paths of settings."""
    every = [each for each in cyclone.settings(document, _INTERFACE) if isinstance(each, XmlElement)]
    for node in every:
        own = cyclone.attributes_of(node, _INTERFACE)
        needed = own.get("presence_required")
        if needed and cyclone.text_of(needed).lower() == "false" and len(every) > 1:
            continue
        # Beside a name, an address says which one of the interface is meant.
        address = "address of it" if "name" in own else "address"
        for key, kind in (("name", "interface"), ("address", address)):
            if key in own:
                yield f"{_INTERFACE}@{key}", own[key], cyclone.text_of(own[key]), kind
    for path, (kind, words) in _LISTS.items():
        for each in cyclone.settings(document, path):
            for name in map(str.strip, cyclone.text_of(each).split(",")):
                is_group = "NetworkPartition@Address" in path and _is_multicast(name)
                if name and name.lower() not in words and not is_group:
                    yield path, each, name, kind


def _is_multicast(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_multicast
    except ValueError:
        return False


@_cyclone_rule("DUR760", "cyclone-nobody-to-ask", Severity.WARNING)
def cyclone_nobody_to_ask(file: FileView) -> Iterator[Finding]:
    """Multicast is off, and no peer is named, so that processes of other machines are not found.

    Why: Without multicast Cyclone DDS looks for other processes at the addresses in Discovery/Peers only,
        and on its own machine. A durability node would have no fellows on other machines, and each would
        become a master.

    Example:
        <AllowMulticast>false</AllowMulticast> without <Peers>
    Use instead:
        <AllowMulticast>false</AllowMulticast> with <Peers><Peer Address="192.0.2.7"/></Peers>
    OpenSplice: Does not read this file.
    Reference: //CycloneDDS/Domain/General/AllowMulticast
    """
    if file.cyclone is None or any(cyclone.settings(file.cyclone, "Discovery/Peers/Peer")):
        return
    path = "General/AllowMulticast"
    for node in cyclone.settings(file.cyclone, path):
        if cyclone.text_of(node).lower() == "false":
            yield _found(
                node,
                path,
                "multicast is off, and Discovery/Peers names nobody",
            )
            return
    interfaces = cyclone.settings(file.cyclone, "General/Interfaces/NetworkInterface")
    names = ("multicast", "allow_multicast")
    paths = [f"General/Interfaces/NetworkInterface@{name}" for name in names]
    off = [
        each for each in cyclone.settings(file.cyclone, *paths) if cyclone.text_of(each).lower() == "false"
    ]
    if off and all(any(each in node.attributes for each in off) for node in interfaces
                   if isinstance(node, XmlElement)):  # fmt: skip
        message = "multicast is off on every interface, and Discovery/Peers names nobody"
        yield _found(off[0], paths[0], message)


@_cyclone_rule("DUR762", "cyclone-buffer-not-granted", Severity.WARNING)
def cyclone_buffer_not_granted(file: FileView) -> Iterator[Finding]:
    """The least size of a socket buffer is more than the kernel of this machine grants.

    Why: On this machine no participant can be created with the file, which may be for another machine. The
        kernel grants twice the limit of net.core.rmem_max for receiving, and of net.core.wmem_max for
        sending.

    Example:
        <SocketReceiveBufferSize min="64MB"/>
    Use instead:
        <SocketReceiveBufferSize max="64MB"/>, which is cut to what the kernel grants, or a higher limit
    OpenSplice: Does not read this file.
    Reference: //CycloneDDS/Domain/Internal/SocketReceiveBufferSize[@min]
    """
    if file.cyclone is None:
        return
    for option, path, limit in (
        (socket.SO_RCVBUF, "Internal/SocketReceiveBufferSize@min", "net.core.rmem_max"),
        (socket.SO_SNDBUF, "Internal/SocketSendBufferSize@min", "net.core.wmem_max"),
    ):
        for given in cyclone.settings(file.cyclone, path):
            wanted = cyclone.size_of(given) or 0
            granted = _granted(option, wanted)
            if granted < wanted:
                message = (
                    f"the kernel of this machine grants {granted} of {wanted} bytes at most; see {limit}"
                )
                yield _found(given, path, message)


def _granted(option: int, wanted: int) -> int:
    """Return the size of the buffer that a socket gets which asks for one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, option, min(wanted, (1 << 31) - 1))
        return probe.getsockopt(socket.SOL_SOCKET, option)


@_cyclone_rule("DUR763", "cyclone-log-has-no-directory", Severity.WARNING)
def cyclone_log_has_no_directory(file: FileView) -> Iterator[Finding]:
    """The log of Cyclone DDS is in a directory that this machine does not have, or is a directory.

    Why: On this machine no participant can be created with the file, if Cyclone DDS traces anything. The file
        may be for another machine. A file for captured packets is left out instead.

    Example:
        <Tracing><Verbosity>fine</Verbosity><OutputFile>/var/log/nowhere/cdds.log</OutputFile></Tracing>
    Use instead:
        A file in a directory that is there, in which the process may write
    OpenSplice: Does not read this file.
    Reference: //CycloneDDS/Domain/Tracing/OutputFile
    """
    if file.cyclone is None:
        return
    for path in ("Tracing/OutputFile", "Tracing/PacketCaptureFile"):
        for given in cyclone.settings(file.cyclone, path):
            text = cyclone.text_of(given)
            if text.lower() in ("", "stdout", "stderr"):
                continue
            if not Path(text).parent.is_dir():
                message = f"this machine has no directory {str(Path(text).parent)!r}"
                yield _found(given, path, message)
            elif Path(text).is_dir():
                yield _found(given, path, f"on this machine {text!r} is a directory")


@_cyclone_rule("DUR768", "cyclone-library-not-here", Severity.WARNING)
def cyclone_library_not_here(file: FileView) -> Iterator[Finding]:
    """A setting asks for shared memory by a library that this machine does not have.

    Why: On this machine no participant can be created with the file, which may be for another machine. The
        package cyclonedds has no such library.

    Example:
        <Interfaces><PubSubMessageExchange type="iox"/></Interfaces>
    Use instead:
        Nothing, or the library `psmx_iox` in a directory in which the loader looks (LD_LIBRARY_PATH)
    OpenSplice: Does not read this file.
    Reference: //CycloneDDS/Domain/General/Interfaces/PubSubMessageExchange
    """
    if file.cyclone is None:
        return
    path = "General/Interfaces/PubSubMessageExchange"
    for given in cyclone.settings(file.cyclone, path):
        if isinstance(given, XmlElement) and given.name.lower().startswith("pub"):
            own = cyclone.attributes_of(given, path)
            kind = next((cyclone.text_of(own[name]) for name in ("type", "name") if name in own), "")
            library = cyclone.text_of(own["library"]) if "library" in own else f"psmx_{kind}"
        elif cyclone.text_of(given).lower() == "true":
            library = "psmx_iox"  # what SharedMemory/Enable means since 0.11
        else:
            continue
        if not _has_library(library):
            yield _found(given, path, f"this machine has no library {library!r}")


def _has_library(name: str) -> bool:
    """Whether the loader finds a library, which is not loaded."""
    if "/" in name:
        return Path(name).is_file()
    folders = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
    folders += ["/lib", "/usr/lib", "/usr/local/lib"]
    names = (f"lib{name}.so", name)
    try:
        cache = Path("/etc/ld.so.cache").read_bytes()
    except OSError:
        cache = b""
    return any(
        f"/{each}\0".encode() in cache or Path(folder, each).is_file() for each in names for folder in folders
    )


@_cyclone_rule("DUR761", "cyclone-fragment-above-message", Severity.INFO)
def cyclone_fragment_above_message(file: FileView) -> Iterator[Finding]:
    """Fragments of samples are larger than messages may be.

    Why: A message carries at least one fragment, so messages become larger than MaxMessageSize says.

    Example:
        <MaxMessageSize>1400 B</MaxMessageSize><FragmentSize>8 kB</FragmentSize>
    Use instead:
        <MaxMessageSize>1400 B</MaxMessageSize><FragmentSize>1300 B</FragmentSize>
    OpenSplice: Does not read this file.
    Reference: //CycloneDDS/Domain/General/MaxMessageSize
    """
    if file.cyclone is None:
        return
    sizes = {
        path: [
            (node, size) for node in cyclone.settings(file.cyclone, path) if (size := cyclone.size_of(node))
        ]
        for path in ("General/MaxMessageSize", "General/FragmentSize")
    }
    message, fragment = sizes.values()
    for node, size in fragment:
        if len(message) == len(fragment) == 1 and size > message[0][1]:
            text = (
                f"fragments of {cyclone.text_of(node)} are larger than messages of "
                f"{cyclone.text_of(message[0][0])}"
            )
            yield _found(node, "General/FragmentSize", text)


@rule("DUR773", "profile-of-opensplice", Severity.INFO, takes=RuleInput.PROFILES, targets=OSPLTOOL)
def profile_of_opensplice(file: FileView) -> Iterator[Finding]:
    """A file has QoS profiles in the form of OpenSplice, which the QosProvider of Cyclone DDS does not read.

    Why: OpenSplice has profiles directly in <dds>, Cyclone DDS in a <qos_library>, and refuses any
        others. What is in profiles of OpenSplice is not checked.

    Example:
        <dds><qos_profile name="p">...</qos_profile></dds>
    Use instead:
        <dds><qos_library name="l"><qos_profile name="p">...</qos_profile></qos_library></dds>
    OpenSplice: Reads it.
    Reference: Cyclone DDS, QoS Provider; OMG DDS for lightweight CCM
    """
    if file.profiles is not None:
        for profile in profiles.of_opensplice(file.profiles)[:1]:
            message = (
                "these are QoS profiles of OpenSplice; Cyclone DDS reads profiles in a <qos_library> only"
            )
            yield Finding(message, Place.from_span(file.profiles.source, profile.name_span))
