"""DUR77x: QoS profiles in XML, which applications read with a QosProvider."""

from __future__ import annotations

from collections.abc import Iterator

from ospltool.check import profiles
from ospltool.check.findings import Finding
from ospltool.check.profiles import ProfileFaultKind
from ospltool.check.registry import OSPLTOOL, RuleInput, rule
from ospltool.check.views import FileView
from ospltool.diagnostics.model import Place, Severity


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
