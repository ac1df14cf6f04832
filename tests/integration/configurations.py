"""Configurations for tests, in the language of OpenSplice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr


@dataclasses.dataclass(frozen=True)
class Space:
    """A name-space with its policy. Elements are `partition` or `partition.topic`."""

    name: str = "stock"
    elements: tuple[str, ...] = ("stock*",)
    durability: str = "Persistent"
    aligner: bool = True
    alignee: str = "Initial"
    priority: int = 100
    merge: tuple[tuple[str, str], ...] = (("Merge", "*"),)
    more: str = ""
    """Further attributes of the Policy."""

    def xml(self) -> str:
        tag = {True: "PartitionTopic", False: "Partition"}
        elements = "".join(
            f"<{tag['.' in element]}>{escape(element)}</{tag['.' in element]}>" for element in self.elements
        )
        merges = "".join(f'<Merge type="{kind}" scope="{scope}"/>' for kind, scope in self.merge)
        return f"<NameSpace name={quoteattr(self.name)}>{elements}</NameSpace>{self._policy(merges)}"

    def _policy(self, merges: str) -> str:
        return (
            f'<Policy nameSpace={quoteattr(self.name)} durability="{self.durability}"'
            f' aligner="{str(self.aligner).lower()}" alignee="{self.alignee}"'
            f' masterPriority="{self.priority}" {self.more}>{merges}</Policy>'
        )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What tests vary of a node. Without `store` its data live in memory only."""

    spaces: tuple[Space, ...] = (Space(),)
    role: str = "Depot"
    discovery_s: float = 0.5
    expiry_s: float = 2.0
    store: bool = True
    terminate_s: float = 10.0
    combine_s: float = 0.01
    failure_action: str = "kill"
    filters: tuple[tuple[str, str], ...] = ()
    """Condition and PartitionTopic of each content filter."""
    clients: bool = False
    """It serves durability clients."""
    secret: str = ""
    """Path of the file with the secret of the domain."""
    network: str = ""
    """A DDSI2Service element; without one, and without CYCLONEDDS_URI, nodes use loopback."""

    def with_priority(self, priority: int) -> Settings:
        spaces = tuple(dataclasses.replace(space, priority=priority) for space in self.spaces)
        return dataclasses.replace(self, spaces=spaces)


def node_xml(name: str, domain: int, home: Path, settings: Settings) -> str:
    """The configuration of one node; it keeps its store and its trace in `home`."""
    store = f"<Persistent><StoreDirectory>{escape(str(home / 'store'))}</StoreDirectory></Persistent>"
    filters = "".join(
        f"<Filter content={quoteattr(content)}><PartitionTopic>{escape(topic)}</PartitionTopic></Filter>"
        for content, topic in settings.filters
    )
    return f"""<OpenSplice>
  <Domain>
    <Name>{escape(name)}</Name>
    <Id>{domain}</Id>
    <Role>{escape(settings.role)}</Role>
    <ServiceTerminatePeriod>{settings.terminate_s}</ServiceTerminatePeriod>
    <Service name="durability">
      <Command>durability</Command>
      <FailureAction>{settings.failure_action}</FailureAction>
    </Service>
    {f"<Filters>{filters}</Filters>" if filters else ""}
    {f"<DomainSecret>{escape(settings.secret)}</DomainSecret>" if settings.secret else ""}
  </Domain>
  <DurabilityService name="durability">
    <Network>
      <Heartbeat><ExpiryTime update_factor="0.125">{settings.expiry_s}</ExpiryTime></Heartbeat>
      <InitialDiscoveryPeriod>{settings.discovery_s}</InitialDiscoveryPeriod>
      <Alignment><RequestCombinePeriod><Operational>{settings.combine_s}</Operational></RequestCombinePeriod></Alignment>
      <WaitForAttachment maxWaitCount="100"><ServiceName>ddsi2</ServiceName></WaitForAttachment>
    </Network>
    {store if settings.store else ""}
    <NameSpaces>{"".join(space.xml() for space in settings.spaces)}</NameSpaces>
    <Tracing>
      <OutputFile>{escape(str(home / "trace.log"))}</OutputFile>
      <Timestamps absolute="true">true</Timestamps>
      <Verbosity>FINEST</Verbosity>
    </Tracing>
    {'<ClientDurability enabled="true"/>' if settings.clients else ""}
  </DurabilityService>
  {settings.network}
</OpenSplice>
"""
