"""A configuration without any finding, and what rules say about variations of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pytest

from engine.config import ConfigError, interpret, parse
from ospltool.check.registry import EVERYWHERE, RuleInput
from ospltool.check.rule_book import all_rules
from ospltool.check.runner import Choice, Examined, run
from ospltool.check.views import FileView, FleetView, NodeView
from ospltool.diagnostics.model import Finding, Report, Target

CLEAN = """<?xml version="1.0" encoding="UTF-8"?>
<OpenSplice>
  <Domain>
    <Name>clean</Name>
    <Id>3</Id>
    <Role>Harbour</Role>
    <ServiceTerminatePeriod>10.0</ServiceTerminatePeriod>
    <Daemon><Heartbeat><ExpiryTime update_factor="0.25">4.0</ExpiryTime></Heartbeat></Daemon>
    <Service name="ddsi2"><Command>ddsi2</Command></Service>
    <Service name="durability">
      <Command>durability</Command>
      <FailureAction>restart</FailureAction>
    </Service>
  </Domain>
  <DDSI2Service name="ddsi2">
    <General><NetworkInterfaceAddress>127.0.0.1</NetworkInterfaceAddress></General>
    <Discovery><SPDPInterval>2s</SPDPInterval></Discovery>
  </DDSI2Service>
  <DurabilityService name="durability">
    <Network>
      <Heartbeat><ExpiryTime update_factor="0.25">4.0</ExpiryTime></Heartbeat>
      <InitialDiscoveryPeriod>3.0</InitialDiscoveryPeriod>
      <WaitForAttachment maxWaitCount="100"><ServiceName>ddsi2</ServiceName></WaitForAttachment>
    </Network>
    <Persistent>
      <StoreDirectory>/var/lib/durability/n1</StoreDirectory>
      <StoreMode>KV</StoreMode>
    </Persistent>
    <NameSpaces>
      <NameSpace name="ships"><Partition>ship*</Partition></NameSpace>
      <Policy nameSpace="ships" durability="Persistent" aligner="true" alignee="Initial" masterPriority="100">
        <Merge type="Merge" scope="*"/>
      </Policy>
    </NameSpaces>
    <Tracing>
      <OutputFile>/var/log/durability-n1.log</OutputFile>
      <Verbosity>INFO</Verbosity>
    </Tracing>
  </DurabilityService>
</OpenSplice>
"""


class Varied(Protocol):
    """Makes a file of CLEAN by replacing pieces of it."""

    def __call__(self, *changes: tuple[str, str]) -> str: ...


@pytest.fixture(scope="session")
def clean() -> str:
    """The configuration without any finding."""
    return CLEAN


@pytest.fixture(scope="session")
def varied() -> Varied:
    """CLEAN with pieces replaced; every piece must be there."""

    def vary(*changes: tuple[str, str]) -> str:
        text = CLEAN
        for old, new in changes:
            assert old in text, f"{old!r} is not in the clean configuration"
            text = text.replace(old, new)
        return text

    return vary


def view_of(
    text: str | bytes,
    *,
    name: str = "",
    path: str = "f.xml",
    environ: Mapping[str, str] | None = None,
    role: str | None = None,
) -> NodeView | FileView:
    data = text.encode() if isinstance(text, str) else text
    try:
        document = parse(data, path, environ or {})
        return NodeView(name, document, interpret(document, role=role), environ or {})
    except ConfigError as error:
        return FileView(path, None, error.problems, name)


def examined(*views: NodeView | FileView, fleet: bool = False) -> Examined:
    nodes = tuple(each for each in views if isinstance(each, NodeView))
    files = tuple(each for each in views if isinstance(each, FileView))
    return Examined(FleetView(nodes), fleet, files, tuple(each.path for each in views), ())


class Checked(Protocol):
    """Runs rules over one file."""

    def __call__(
        self,
        text: str | bytes,
        *,
        environ: Mapping[str, str] | None = None,
        codes: Sequence[str] | None = None,
        targets: frozenset[Target] = EVERYWHERE,
    ) -> Report: ...


@pytest.fixture(scope="session")
def checked() -> Checked:
    """All findings of one file, or those of some rules."""

    def check(
        text: str | bytes,
        *,
        environ: Mapping[str, str] | None = None,
        codes: Sequence[str] | None = None,
        targets: frozenset[Target] = EVERYWHERE,
    ) -> Report:
        chosen = Choice(frozenset(codes) if codes else None, targets)
        return run([examined(view_of(text, environ=environ))], chosen)

    return check


@pytest.fixture(scope="session")
def checked_fleet() -> Callable[..., Report]:
    """All findings of several files as nodes n1, n2, … of one deployment."""

    def check(*texts: str, codes: Sequence[str] | None = None) -> Report:
        views = [view_of(text, name=f"n{at}", path=f"n{at}.xml") for at, text in enumerate(texts, 1)]
        return run([examined(*views, fleet=True)], Choice(codes=frozenset(codes) if codes else None))

    return check


def underlined(found: Finding) -> str:
    """The text that a finding underlines."""
    assert found.place.source is not None
    assert found.place.span is not None
    return found.place.source.text(found.place.span)


@pytest.fixture(scope="session")
def check_case(checked: Checked) -> Callable[[str, str, str], None]:
    """A bad file breaks the rule where it is marked with « », a good one does not."""

    def check(code: str, bad: str, good: str) -> None:
        marked = bad.partition("«")[2].partition("»")[0]
        bad = bad.replace("«", "").replace("»", "")
        targets = all_rules()[code].targets
        found = checked(bad, codes=[code], targets=targets).diagnostics
        assert found, f"{code} does not find anything"
        assert {each.code for each in found} == {code}
        if marked:
            assert underlined(found[0]) == marked
        assert not checked(good, codes=[code], targets=targets).diagnostics
        for each in found:
            assert each.message
            assert each.message.isprintable()
            assert not each.message.endswith(".")

    return check


@pytest.fixture(scope="session")
def rule_codes() -> Callable[[RuleInput], list[str]]:
    """The codes of all rules of a scope."""

    def codes(input_: RuleInput) -> list[str]:
        return [code for code, each in all_rules().items() if each.takes is input_]

    return codes
