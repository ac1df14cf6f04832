"""The typed settings of one node.

Each class is one part of //OpenSplice/Domain or //OpenSplice/DurabilityService. An annotation of a field says
where it is in the file; type, default, range and unit of that place, and what a node does with it, are in
`opensplice.tsv`. A second path is that of the setting whose value is the default. `SettingsReader.part` reads
what is declared so; the loader reads the rest. Times are in seconds.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Final

import msgspec

from engine.core.name_spaces import Element, NameSpace, Policy
from engine.core.settings import MAX_SAMPLE_BYTES

MAX_DOMAIN_ID: Final = 230
"""Highest domain id for which DDSI has ports; the schema of OpenSplice allows more."""

SERVICE: Final = "Domain/Service/Scheduling"
HEARTBEAT: Final = "DurabilityService/Network/Heartbeat/Scheduling"
ALIGNER: Final = "DurabilityService/Network/Alignment/AlignerScheduling"
ALIGNEE: Final = "DurabilityService/Network/Alignment/AligneeScheduling"
PERSISTENT: Final = "DurabilityService/Persistent/Scheduling"
WATCHDOG: Final = "DurabilityService/Watchdog/Scheduling"
"""Where the scheduling of the process of a node is, and that of its activities."""


class SettingOrigin(msgspec.Struct, frozen=True):
    """Origin of a value.

    It is a place in a file; the documented default if `file` is empty; with line 0 the words in `file`, such
    as `role override`.
    """

    file: str = ""
    line: int = 0
    column: int = 0

    @property
    def is_default(self) -> bool:
        """Whether the file does not set the value."""
        return not self.file

    def __str__(self) -> str:
        if not self.file:
            return "default"
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Setting(msgspec.Struct, frozen=True):
    """One effective setting.

    `path` is its documentation path, `value` the effective value, `raw` the unexpanded text of the file (None
    for a default). Repeatable elements appear once per occurrence. `ignored` is the reason why a node does
    not follow the value; empty if it does.
    """

    path: str
    value: str | int | float | bool
    raw: str | None
    origin: SettingOrigin
    ignored: str = ""


class Ignored(msgspec.Struct, frozen=True):
    """An element or attribute of the file without effect on a node, for the given `reason`.

    `is_unknown` marks one that is not in the schema; it is probably misspelt or misplaced.
    """

    path: str
    reason: str
    origin: SettingOrigin
    is_unknown: bool = False


class FailureAction(enum.StrEnum):
    """Action after the failure of a service (//OpenSplice/Domain/Service/FailureAction)."""

    KILL = "kill"
    RESTART = "restart"
    SKIP = "skip"
    SYSTEM_HALT = "systemhalt"


class SchedulingClass(enum.StrEnum):
    """Scheduling class of an activity."""

    TIMESHARE = "Timeshare"
    REALTIME = "Realtime"
    DEFAULT = "Default"


class Verbosity(enum.IntEnum):
    """Verbosity of the trace; a higher number traces more."""

    NONE = 0
    SEVERE = 1
    WARNING = 2
    INFO = 3
    CONFIG = 4
    FINE = 5
    FINER = 6
    FINEST = 7


class StoreMode(enum.StrEnum):
    """Kind of OpenSplice store; ospltool nodes have only their own kind."""

    XML = "XML"
    KV = "KV"


@dataclasses.dataclass(frozen=True, slots=True)
class Scheduling:
    """Scheduling of one activity; `is_absolute` is the kind of `priority`, `origin` its place."""

    scheduling_class: SchedulingClass
    priority: int
    is_absolute: bool
    origin: SettingOrigin = dataclasses.field(default=SettingOrigin(), compare=False)


class Expiry(msgspec.Struct, frozen=True):
    """A lease: it expires after `expiry_s` and is renewed every `expiry_s * update_factor`."""

    expiry_s: float
    update_factor: float

    @property
    def period_s(self) -> float:
        """The time between two renewals."""
        return self.expiry_s * self.update_factor


class ServiceEntry(msgspec.Struct, frozen=True):
    """A service that the domain lists (//OpenSplice/Domain/Service)."""

    name: Annotated[str, "Domain/Service@name"]
    command: Annotated[str, "Domain/Service/Command"]
    enabled: Annotated[bool, "Domain/Service@enabled"]
    failure_action: Annotated[FailureAction, "Domain/Service/FailureAction"]
    scheduling: Annotated[Scheduling, SERVICE]
    origin: SettingOrigin


class DomainSettings(msgspec.Struct, frozen=True):
    """//OpenSplice/Domain."""

    name: Annotated[str, "Domain/Name"]
    """Name of the domain."""
    id: Annotated[int, "Domain/Id"]
    """Domain id, 0 to 230."""
    role: Annotated[str, "Domain/Role"]
    """Role, from the file or overridden by the fleet."""
    lease: Annotated[Expiry, "Domain/Lease/ExpiryTime"]
    """Lease of the node towards its supervisor."""
    daemon_heartbeat: Annotated[Expiry, "Domain/Daemon/Heartbeat/ExpiryTime"]
    """Lease of the splice-daemon, which ospltool does not have."""
    service_terminate_period_s: Annotated[float, "Domain/ServiceTerminatePeriod"]
    """Time for an orderly end."""
    builtin_topics: Annotated[bool, "Domain/BuiltinTopics@enabled"]
    """BuiltinTopics enabled."""
    report_append: Annotated[bool | None, "Domain/Report@append"]
    """Whether reports append to existing logs; None lets the environment decide."""
    report_verbosity: Annotated[str | None, "Domain/Report@verbosity"]
    """Least type of reports; None lets the environment decide."""
    services: tuple[ServiceEntry, ...]
    """The listed services."""
    secret: Annotated[str, "Domain/DomainSecret"] = ""
    """Path of the file with the secret of the domain; empty for none."""

    def service(self, name: str) -> ServiceEntry | None:
        """Return the first entry of that name."""
        return next((entry for entry in self.services if entry.name == name), None)


class DurablePolicy(msgspec.Struct, frozen=True):
    """Data that this node obtains as a durability client (//OpenSplice/Domain/DurablePolicies/Policy)."""

    obtain: Annotated[str, "Domain/DurablePolicies/Policy@obtain"]
    cache: Annotated[bool, "Domain/DurablePolicies/Policy@cache"]
    origin: SettingOrigin


class ContentFilterSettings(msgspec.Struct, frozen=True):
    """A content filter for durable data (//OpenSplice/Domain/Filters/Filter).

    A filter with an empty condition, or without topics, has no effect.
    """

    content: str
    partition_topics: tuple[str, ...]
    origin: SettingOrigin

    @property
    def elements(self) -> tuple[Element, ...]:
        """Partitions and topics to which it applies; empty if it has no effect."""
        return () if self.why_ignored else tuple(map(Element.parse, self.partition_topics))

    @property
    def why_ignored(self) -> str:
        """Reason why it has no effect; empty if it has one."""
        if not self.partition_topics:
            return "it has no PartitionTopic"
        return "" if self.content.strip() else "its condition is empty"


class NetworkSettings(msgspec.Struct, frozen=True):
    """//OpenSplice/DurabilityService/Network, without Alignment and WaitForAttachment.

    The priorities are TRANSPORT_PRIORITY of the writers of protocol messages and of heartbeats.
    """

    transport_priority: Annotated[int, "DurabilityService/Network@transport_priority"]
    heartbeat: Annotated[Expiry, "DurabilityService/Network/Heartbeat/ExpiryTime"]
    heartbeat_priority: Annotated[
        int,
        "DurabilityService/Network/Heartbeat@transport_priority",
        "DurabilityService/Network@transport_priority",
    ]
    heartbeat_scheduling: Annotated[Scheduling, HEARTBEAT]
    initial_discovery_period_s: Annotated[float, "DurabilityService/Network/InitialDiscoveryPeriod"]


class AlignmentSettings(msgspec.Struct, frozen=True):
    """//OpenSplice/DurabilityService/Network/Alignment (guide 5.3.4).

    `transport_priority` is TRANSPORT_PRIORITY of the writers of sets. `combine_initial_s` holds until this
    node is complete, `combine_operational_s` from then on. With `wait_for_aligner_s` 0 a node without any
    aligner ends; with more it waits.
    """

    time_alignment: Annotated[bool, "DurabilityService/Network/Alignment/TimeAlignment"]
    combine_initial_s: Annotated[float, "DurabilityService/Network/Alignment/RequestCombinePeriod/Initial"]
    combine_operational_s: Annotated[
        float, "DurabilityService/Network/Alignment/RequestCombinePeriod/Operational"
    ]
    wait_for_aligner_s: Annotated[float, "DurabilityService/Network/Alignment/TimeToWaitForAligner"]
    transport_priority: Annotated[
        int,
        "DurabilityService/Network/Alignment@transport_priority",
        "DurabilityService/Network@transport_priority",
    ]
    aligner_scheduling: Annotated[Scheduling, ALIGNER]
    alignee_scheduling: Annotated[Scheduling, ALIGNEE]


class WaitForAttachment(msgspec.Struct, frozen=True):
    """…/Network/WaitForAttachment (guide 5.3.2): wait at most `max_wait_count` times 100 ms."""

    max_wait_count: Annotated[int, "DurabilityService/Network/WaitForAttachment@maxWaitCount"]
    service_names: tuple[str, ...]


class PersistentSettings(msgspec.Struct, frozen=True):
    """//OpenSplice/DurabilityService/Persistent.

    A relative `store_directory` starts from the directory in which the node is started, as in OpenSplice. The
    store is written in sessions of at most `session_time_s`, with `sleep_time_s` between two. After
    `optimize_interval` written samples the file frees space (0: never). At most `queue_size` samples wait for
    the disk (0: the default of the node).
    """

    store_directory: Annotated[str, "DurabilityService/Persistent/StoreDirectory"]
    session_time_s: Annotated[float, "DurabilityService/Persistent/StoreSessionTime"]
    sleep_time_s: Annotated[float, "DurabilityService/Persistent/StoreSleepTime"]
    mode: Annotated[StoreMode, "DurabilityService/Persistent/StoreMode"]
    optimize_interval: Annotated[int, "DurabilityService/Persistent/StoreOptimizeInterval"]
    queue_size: Annotated[int, "DurabilityService/Persistent/QueueSize"]
    scheduling: Annotated[Scheduling, PERSISTENT]


class EntityNames(msgspec.Struct, frozen=True):
    """Names of the entities of the protocol, and its partition."""

    publisher: str
    subscriber: str
    partition: str


class WatchdogSettings(msgspec.Struct, frozen=True):
    """//OpenSplice/DurabilityService/Watchdog."""

    deadlock_detection: Annotated[bool, "DurabilityService/Watchdog@deadlockDetection"]
    scheduling: Annotated[Scheduling, WATCHDOG]


class TracingSettings(msgspec.Struct, frozen=True):
    """//OpenSplice/DurabilityService/Tracing (guide 5.3.5).

    `output_file` is None if nothing is traced; `stdout` and `stderr` in any case are those streams. A
    relative file starts from the directory in which the node is started.
    """

    output_file: Annotated[str | None, "DurabilityService/Tracing/OutputFile"]
    verbosity: Annotated[Verbosity, "DurabilityService/Tracing/Verbosity"]
    has_timestamps: Annotated[bool, "DurabilityService/Tracing/Timestamps"]
    absolute_timestamps: Annotated[bool, "DurabilityService/Tracing/Timestamps@absolute"]
    synchronous: Annotated[bool, "DurabilityService/Tracing@synchronous"]


class DdsiSettings(msgspec.Struct, frozen=True):
    """General and Discovery of the enabled DDSI2 service, which determine the Cyclone settings.

    `is_configured` is false if the file has no such service. `network_interface` is an address, a name, or
    `auto`; `allow_multicast` is `true`, `false` or a list such as `spdp,asm`. Peers are in document order.
    `max_sample_bytes` is the largest payload that the node captures (Internal/MaxSampleSize).
    """

    is_configured: bool
    network_interface: Annotated[str, "DDSI2Service/General/NetworkInterfaceAddress"]
    allow_multicast: Annotated[str, "DDSI2Service/General/AllowMulticast"]
    peers: tuple[str, ...]
    generate_builtin_topics: Annotated[bool, "DDSI2Service/Discovery/GenerateBuiltinTopics"]
    max_sample_bytes: int = MAX_SAMPLE_BYTES


class NameSpaceSettings(msgspec.Struct, frozen=True):
    """//OpenSplice/DurabilityService/NameSpaces (guide 5.2.2, 5.2.3), in document order.

    Name-spaces with only built-in topics are in `builtin`: Cyclone DDS distributes that data itself, so no
    ospltool node aligns it. The origins are parallel to the name-spaces; private policies of deprecated
    NameSpaces precede all others.
    """

    name_spaces: tuple[NameSpace, ...]
    name_space_origins: tuple[SettingOrigin, ...]
    policies: tuple[Policy, ...]
    builtin: tuple[NameSpace, ...] = ()


class Configuration(msgspec.Struct, frozen=True):
    """The complete settings of one node."""

    path: str
    """The file, as given."""
    service: str
    """Name of the DurabilityService element."""
    domain: DomainSettings
    """//OpenSplice/Domain."""
    name_spaces: NameSpaceSettings
    """Name-spaces and policies."""
    network: NetworkSettings
    """Heartbeats and discovery."""
    alignment: AlignmentSettings
    """Alignment between nodes."""
    wait_for_attachment: WaitForAttachment | None
    """Wait for network services; None without it."""
    master_election_wait_s: float
    """MasterElection/WaitTime."""
    persistent: PersistentSettings | None
    """The store; None if nothing is stored."""
    entity_names: EntityNames
    """Names of the protocol's entities."""
    client_durability: EntityNames | None
    """Names of the entities for durability clients; None if it is off."""
    watchdog: WatchdogSettings
    """The deadlock watch."""
    tracing: TracingSettings
    """The trace."""
    ddsi: DdsiSettings
    """The parts of the DDSI2 service that determine Cyclone settings."""
    durable_policies: tuple[DurablePolicy, ...]
    """Data obtained as a durability client."""
    filters: tuple[ContentFilterSettings, ...]
    """Content filters."""
    settings: tuple[Setting, ...]
    """All settings with their origins."""
    ignored: tuple[Ignored, ...] = ()
    """Parts of the file without effect."""

    def setting(self, path: str) -> Setting | None:
        """Return the first setting at a documentation path, such as //OpenSplice/Domain/Role."""
        return next((setting for setting in self.settings if setting.path == path), None)

    def origin_of(self, path: str) -> SettingOrigin:
        """Return the origin of the first setting at a documentation path; the default if it is not set."""
        setting = self.setting(path)
        return setting.origin if setting else SettingOrigin()
