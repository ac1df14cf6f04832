"""A node does not start where its configuration asks for security: unprotected would be worse than none."""

from __future__ import annotations

import pytest

from engine.config import interpret, parse
from engine.config.loader import WHY
from engine.config.problems import ProblemKind

PROFILE = '<Security><SecurityProfile Name="p" Cipher="{cipher}" CipherKey="00"/></Security>'
USED = (
    "<Partitioning><NetworkPartitions>"
    '<NetworkPartition Name="n" Address="239.1.1.1" SecurityProfile="p"/>'
    "</NetworkPartitions></Partitioning>"
)
AES, NULL = PROFILE.format(cipher="aes128"), PROFILE.format(cipher="null")
DDSS = "<DDSSecurity><Authentication/></DDSSecurity>"
CASES = [
    ("DDSI2Service", f"<Security>{DDSS}</Security>", "DDSI2Service/Security"),
    ("DDSI2Service", DDSS, "DDSI2Service/DDSSecurity"),
    ("DDSI2Service", AES, "DDSI2Service/Security"),
    ("DDSI2Service", "", ""),
    ("DDSI2EService", f"<Security>{DDSS}</Security>", "DDSI2EService/Security"),
    ("DDSI2EService", DDSS, "DDSI2EService/DDSSecurity"),
    ("DDSI2EService", AES + USED, "NetworkPartition[@SecurityProfile]"),
    ("DDSI2EService", AES.replace("Name=", "name=", 1) + USED, "NetworkPartition[@SecurityProfile]"),
    ("DDSI2EService", USED, "NetworkPartition[@SecurityProfile]"),
    ("DDSI2EService", NULL + USED, ""),
    ("DDSI2EService", AES + USED.replace('"p"', '"null"'), ""),
    ("DDSI2EService", AES, ""),
    ("SNetworkService", '<Security enabled="true"/>', "SNetworkService/Security"),
    ("SNetworkService", "<Security/>", ""),
]


def refused(text: str) -> list[str]:
    found = [each for each in interpret(parse(text.encode(), "f.xml", {})).problems if WHY in each.message]
    assert all(each.kind is ProblemKind.REFUSED_SETTING for each in found)
    return [each.subject for each in found]


def configuration(section: str, content: str, *, enabled: str = "true", domain: str = "") -> str:
    return (
        f"<OpenSplice><Domain><Name>d</Name><Id>3</Id>{domain}"
        f'<Service name="net" enabled="{enabled}"><Command>c</Command></Service>'
        f'<Service name="durability"><Command>durability</Command></Service></Domain>'
        f'<{section} name="net">{content}</{section}>'
        '<DurabilityService name="durability"/></OpenSplice>'
    )


@pytest.mark.parametrize(("section", "content", "subject"), CASES)
def test_what_asks_for_security_is_refused(section: str, content: str, subject: str) -> None:
    found = refused(configuration(section, content))
    assert len(found) == bool(subject)
    assert all(each.endswith(subject) for each in found)
    assert refused(configuration(section, content, enabled="false")) == []


def test_security_of_the_domain_is_refused() -> None:
    found = refused(configuration("DDSI2Service", "", domain=DDSS))
    assert found == ["//OpenSplice/Domain/DDSSecurity"]
