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
from ospltool.check.cyclone import CycloneFaultKind
from ospltool.check.deployment import has_address, has_interface
from ospltool.check.profiles import ProfileFaultKind
from ospltool.check.registry import OSPLTOOL, RuleInput, rule
from ospltool.check.views import FileView
from ospltool.diagnostics.model import Finding, Place, Severity

_cyclone_rule = functools.partial(rule, takes=RuleInput.CYCLONE, targets=OSPLTOOL)


def _found(file: FileView, given: cyclone.Given, path: str, message: str) -> Finding:
    assert file.cyclone is not None
    span = given.value.span if given.value else given.name_span
    return Finding(message, Place.of(file.cyclone.source, span), subject=cyclone.subject(path))


@_cyclone_rule("DUR750", "cyclone-unknown-element", Severity.ERROR, blocks=OSPLTOOL)
def cyclone_unknown_element(file: FileView) -> Iterator[Finding]:
    """A file with settings of Cyclone DDS has an element or attribute that Cyclone DDS does not know there.

    Why: Cyclone DDS refuses the whole file, and no participant can be created: neither a node nor an
        application starts with it.

    Example:
        <General><AllowMultiCasting>false</AllowMultiCasting></General>
    Use instead:
        <General><AllowMulticast>false</AllowMulticast></General>
    OpenSplice: Does not read this file.
    Reference: Cyclone DDS, configuration guide; observed with 11.0.1
    """
    return file.findings(CycloneFaultKind.UNKNOWN)


@_cyclone_rule("DUR751", "cyclone-bad-value", Severity.ERROR, blocks=OSPLTOOL)
def cyclone_bad_value(file: FileView) -> Iterator[Finding]:
    """A setting of Cyclone DDS has a value that it refuses, or a required attribute is missing.

    Why: Cyclone DDS refuses the whole file. Durations have the units ns, us, ms, s, min, hr and day,
        sizes B, kB, KiB, MB, MiB, GB and GiB; upper and lower case matter in units, but not in words.
        Some numbers beyond 32 bits are not refused, but taken for another number.

    Example:
        <LeaseDuration>10 sec</LeaseDuration>
    Use instead:
        <LeaseDuration>10 s</LeaseDuration>
    OpenSplice: Does not read this file.
    Reference: Cyclone DDS, configuration guide; observed with 11.0.1
    """
    return file.findings(CycloneFaultKind.VALUE)


@_cyclone_rule("DUR752", "cyclone-set-twice", Severity.ERROR, blocks=OSPLTOOL)
def cyclone_set_twice(file: FileView) -> Iterator[Finding]:
    """One Domain has the same setting of Cyclone DDS twice.

    Why: Cyclone DDS refuses the whole file: `only 1 instance allowed`. Sections may be repeated, settings
        may not.

    Example:
        <Discovery><Tag>a</Tag><Tag>b</Tag></Discovery>
    Use instead:
        <Discovery><Tag>b</Tag></Discovery>
    OpenSplice: Does not read this file.
    Reference: observed with Cyclone DDS 11.0.1
    """
    return file.findings(CycloneFaultKind.REPEATED)


@_cyclone_rule("DUR753", "cyclone-removed-setting", Severity.ERROR, blocks=OSPLTOOL)
def cyclone_removed_setting(file: FileView) -> Iterator[Finding]:
    """A setting of Cyclone DDS 0.10 is not in version 11, or not in the build that a node uses.

    Why: Cyclone DDS 11.0.1 of a node refuses the whole file. Its build has no TLS, TCP or security.

    Example:
        <Internal><UnicastResponseToSPDPMessages>true</UnicastResponseToSPDPMessages></Internal>
    Use instead:
        Nothing; nodes and applications with different versions need a file each.
    OpenSplice: Does not read this file.
    Reference: observed with Cyclone DDS 0.10.2 and 11.0.1
    """
    return file.findings(CycloneFaultKind.REMOVED)


@_cyclone_rule("DUR754", "cyclone-new-setting", Severity.INFO)
def cyclone_new_setting(file: FileView) -> Iterator[Finding]:
    """A setting of Cyclone DDS 11 is not in version 0.10.

    Why: An application with Cyclone DDS 0.10 refuses the whole file.

    Example:
        <Discovery><Peers AddLocalhost="false"/></Discovery>
    Use instead:
        Nothing, if no application uses Cyclone DDS 0.10; else a file for each version.
    OpenSplice: Does not read this file.
    Reference: observed with Cyclone DDS 0.10.2 and 11.0.1
    """
    return file.findings(CycloneFaultKind.NEW)


@_cyclone_rule("DUR755", "cyclone-deprecated-setting", Severity.WARNING)
def cyclone_deprecated_setting(file: FileView) -> Iterator[Finding]:
    """A setting of Cyclone DDS has moved or is deprecated.

    Why: Cyclone DDS says so at every start, and a later version may refuse the file.

    Example:
        <General><NetworkInterfaceAddress>eth0</NetworkInterfaceAddress></General>
    Use instead:
        <General><Interfaces><NetworkInterface name="eth0"/></Interfaces></General>
    OpenSplice: Does not read this file.
    Reference: observed with Cyclone DDS 11.0.1
    """
    return file.findings(CycloneFaultKind.DEPRECATED)


@_cyclone_rule("DUR756", "cyclone-shortened-name", Severity.INFO)
def cyclone_shortened_name(file: FileView) -> Iterator[Finding]:
    """The name of a setting of Cyclone DDS is shortened, or in other upper and lower case.

    Why: Cyclone DDS takes the beginning of a name for the whole, as long as only one name begins so. A
        version with another setting that begins so refuses the file.

    Example:
        <Discovery><Lease>10 s</Lease></Discovery>
    Use instead:
        <Discovery><LeaseDuration>10 s</LeaseDuration></Discovery>
    OpenSplice: Does not read this file.
    Reference: observed with Cyclone DDS 11.0.1
    """
    return file.findings(CycloneFaultKind.SPELLING)


@_cyclone_rule("DUR757", "cyclone-number-without-unit", Severity.WARNING)
def cyclone_number_without_unit(file: FileView) -> Iterator[Finding]:
    """A duration or size of Cyclone DDS has no unit.

    Why: Cyclone DDS takes a unit that it does not name, warns that this is deprecated, and refuses it in
        some places.

    Example:
        <LeaseDuration>10</LeaseDuration>
    Use instead:
        <LeaseDuration>10 s</LeaseDuration>
    OpenSplice: Does not read this file.
    Reference: observed with Cyclone DDS 11.0.1
    """
    return file.findings(CycloneFaultKind.UNIT)


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
                message, Place.of(file.cyclone.source, domain.tag_span), subject="//CycloneDDS/Domain"
            )
        earlier.setdefault(id_, domain)


@_cyclone_rule("DUR766", "cyclone-contradiction", Severity.ERROR, blocks=OSPLTOOL)
def cyclone_contradiction(file: FileView) -> Iterator[Finding]:
    """Settings of Cyclone DDS exclude each other.

    Why: Each is good by itself, and together Cyclone DDS creates no participant with them: an interface
        without a name or selected twice, `autodetermine` beside a name, old settings beside <Interfaces>,
        watermarks out of order, ports above 65535, a network partition that is not there.

    Example:
        <NetworkInterface autodetermine="true" name="eth0"/>
    Use instead:
        <NetworkInterface name="eth0"/>
    OpenSplice: Does not read this file.
    Reference: observed with Cyclone DDS 11.0.1
    """
    return file.findings(CycloneFaultKind.CONTRADICTION)


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
            yield _found(file, given, path, f"this machine has no {kind} {name!r}")
        elif path.startswith(_INTERFACE):
            other = links.setdefault(address_of(name), name)
            if other != name:
                yield _found(
                    file, given, path, f"on this machine {name!r} is the same interface as {other!r}"
                )


_INTERFACE = "General/Interfaces/NetworkInterface"
_HERE: dict[str, Callable[[str], bool]] = {
    "interface": has_interface,
    "address": has_address,
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
        for key, kind in (("name", "interface"), ("address", "address")):
            if key in own:
                yield f"{_INTERFACE}@{key}", own[key], cyclone.text_of(own[key]), kind
                if key == "name" and "address" in own:
                    break  # which of its addresses is meant
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
            yield _found(file, node, path, "multicast is off, and Discovery/Peers names nobody")
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
        yield _found(file, off[0], paths[0], message)


@_cyclone_rule("DUR762", "cyclone-buffer-not-granted", Severity.WARNING)
def cyclone_buffer_not_granted(file: FileView) -> Iterator[Finding]:
    """The least size of a socket buffer is more than the kernel of this machine grants.

    Why: On this machine no participant can be created with the file. The kernel grants twice the limit of
        net.core.rmem_max for receiving, and of net.core.wmem_max for sending.

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
                yield _found(file, given, path, message)


def _granted(option: int, wanted: int) -> int:
    """Return the size of the buffer that a socket gets which asks for one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, option, min(wanted, (1 << 31) - 1))
        return probe.getsockopt(socket.SOL_SOCKET, option)


@_cyclone_rule("DUR763", "cyclone-log-has-no-directory", Severity.WARNING)
def cyclone_log_has_no_directory(file: FileView) -> Iterator[Finding]:
    """The log of Cyclone DDS is in a directory that this machine does not have.

    Why: On this machine no participant can be created with the file, if Cyclone DDS traces anything. A file
        for captured packets is left out instead.

    Example:
        <Tracing><Verbosity>fine</Verbosity><OutputFile>/var/log/nowhere/cdds.log</OutputFile></Tracing>
    Use instead:
        A directory that is there, in which the process may write
    OpenSplice: Does not read this file.
    Reference: //CycloneDDS/Domain/Tracing/OutputFile
    """
    if file.cyclone is None:
        return
    for path in ("Tracing/OutputFile", "Tracing/PacketCaptureFile"):
        for given in cyclone.settings(file.cyclone, path):
            text = cyclone.text_of(given)
            directory = Path(text).parent
            if text.lower() not in ("", "stdout", "stderr") and not directory.is_dir():
                message = f"this machine has no directory {str(directory)!r}"
                yield _found(file, given, path, message)


@_cyclone_rule("DUR768", "cyclone-library-not-here", Severity.WARNING)
def cyclone_library_not_here(file: FileView) -> Iterator[Finding]:
    """A setting asks for shared memory by a library that this machine does not have.

    Why: On this machine no participant can be created with the file. The package cyclonedds has no such
        library.

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
            yield _found(file, given, path, f"this machine has no library {library!r}")


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


@_cyclone_rule("DUR764", "cyclone-refuses", Severity.ERROR, blocks=OSPLTOOL)
def cyclone_refuses(file: FileView) -> Iterator[Finding]:
    """The installed Cyclone DDS refuses the settings (`check --try`).

    Why: On this machine, as it is now, no participant can be created with the file.

    Example:
        <ExternalNetworkAddress>192.0.2</ExternalNetworkAddress>
    Use instead:
        What the message of Cyclone DDS asks for
    OpenSplice: Does not read this file.
    Reference: Cyclone DDS, configuration guide
    """
    return file.findings(CycloneFaultKind.TRIED)


@_cyclone_rule("DUR765", "cyclone-remarks", Severity.WARNING)
def cyclone_remarks(file: FileView) -> Iterator[Finding]:
    """The installed Cyclone DDS takes the settings, and remarks something (`check --try`).

    Why: A part of the settings has another effect than it says, or none.

    Example:
        <Tracing><PacketCaptureFile>/nowhere/packets</PacketCaptureFile></Tracing>
    Use instead:
        What the message of Cyclone DDS asks for
    OpenSplice: Does not read this file.
    Reference: Cyclone DDS, configuration guide
    """
    return file.findings(CycloneFaultKind.REMARKED)


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
            yield _found(file, node, "General/FragmentSize", text)


@rule("DUR770", "profile-unknown-element", Severity.ERROR, takes=RuleInput.PROFILES, targets=OSPLTOOL)
def profile_unknown_element(file: FileView) -> Iterator[Finding]:
    """A QoS profile has an element or attribute that the QosProvider of Cyclone DDS does not know there.

    Why: The QosProvider refuses the whole file, and the application that asks for a profile gets an
        error. Some policies belong to some entities only: partition to publishers and subscribers,
        lifespan to writers.

    Example:
        <datawriter_qos><histroy><depth>5</depth></histroy></datawriter_qos>
    Use instead:
        <datawriter_qos><history><depth>5</depth></history></datawriter_qos>
    OpenSplice: Has a reader of its own for QoS profiles.
    Reference: Cyclone DDS, QoS Provider; OMG DDS-XML 1.0
    """
    return file.findings(ProfileFaultKind.UNKNOWN)


@rule("DUR771", "profile-bad-value", Severity.ERROR, takes=RuleInput.PROFILES, targets=OSPLTOOL)
def profile_bad_value(file: FileView) -> Iterator[Finding]:
    """A QoS profile has a value that the QosProvider of Cyclone DDS refuses, or lacks one that it needs.

    Why: The QosProvider refuses the whole file. Names of kinds are those of the DDS specification, in
        capitals.

    Example:
        <reliability><kind>RELIABLE</kind></reliability>
    Use instead:
        <reliability><kind>RELIABLE_RELIABILITY_QOS</kind></reliability>
    OpenSplice: Has a reader of its own for QoS profiles.
    Reference: Cyclone DDS, QoS Provider; OMG DDS-XML 1.0
    """
    return file.findings(ProfileFaultKind.VALUE)


@rule("DUR772", "profile-durability", Severity.ERROR, takes=RuleInput.PROFILES, targets=OSPLTOOL)
def profile_durability(file: FileView) -> Iterator[Finding]:
    """A QoS profile asks for transient or persistent data, which the QosProvider of Cyclone DDS 11 refuses.

    Why: It refuses the whole file with `Unsupported value`, although writers and readers may have this
        durability, and a durability service keeps their data.

    Example:
        <durability><kind>PERSISTENT_DURABILITY_QOS</kind></durability>
    Use instead:
        No durability in the profile; the application sets it in the QoS that it got of the profile.
    OpenSplice: Knows all kinds of durability.
    Reference: Cyclone DDS 11.0.1, QoS Provider
    """
    return file.findings(ProfileFaultKind.DURABILITY)


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
            yield Finding(message, Place.of(file.profiles.source, profile.name_span))
