"""The typed settings of one node.

Every class stands for one part of //OpenSplice/Domain or //OpenSplice/DurabilityService; defaults are those
of the documentation. Times are in seconds.
"""

from __future__ import annotations

import dataclasses
import enum

from engine.core.namespaces import Element, NameSpace, Policy


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from.

    A place in a file; the documented default when `file` is empty; with line 0 what `file` says, such as
    `role override`.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One effective setting.

    `path` is its place in the documentation, `value` what it means, `raw` the unexpanded text of the file
    (None for a default). Repeatable elements appear once per occurrence. `ignored` says why a node does not
    follow the value, and is empty where it does.
    """

    path: str
    value: str | int | float | bool
    raw: str | None
    origin: Origin
    ignored: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Ignored:
    """An element or attribute of the file that has no effect on a node; `reason` says why.

    `is_unknown` marks what the schema does not know; it is probably misspelt or misplaced.
    """

    path: str
    reason: str
    origin: Origin
    is_unknown: bool = False


class FailureAction(enum.StrEnum):
    """What happens to a service that fails (//OpenSplice/Domain/Service/FailureAction)."""

    KILL = "kill"
    RESTART = "restart"
    SKIP = "skip"
    SYSTEM_HALT = "systemhalt"


class SchedulingClass(enum.StrEnum):
    """How the operating system is asked to schedule an activity."""

    TIMESHARE = "Timeshare"
    REALTIME = "Realtime"
    DEFAULT = "Default"


class Verbosity(enum.IntEnum):
    """How much is traced; a higher number traces more."""

    NONE = 0
    SEVERE = 1
    WARNING = 2
    INFO = 3
    CONFIG = 4
    FINE = 5
    FINER = 6
    FINEST = 7


class StoreMode(enum.StrEnum):
    """The kind of OpenSplice store that the file asks for; ospltool nodes have one store of their own."""

    XML = "XML"
    KV = "KV"


@dataclasses.dataclass(frozen=True, slots=True)
class Scheduling:
    """Scheduling of one activity; `is_absolute` tells how `priority` is meant, `origin` where it is set."""

    scheduling_class: SchedulingClass
    priority: int
    is_absolute: bool
    origin: Origin = dataclasses.field(default=Origin(), compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Expiry:
    """A lease: it expires after `expiry_s` and is renewed every `expiry_s * update_factor`."""

    expiry_s: float
    update_factor: float

    @property
    def period_s(self) -> float:
        """The time between two renewals."""
        return self.expiry_s * self.update_factor


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceEntry:
    """A service that the domain lists (//OpenSplice/Domain/Service)."""

    name: str
    command: str
    enabled: bool
    failure_action: FailureAction
    scheduling: Scheduling
    origin: Origin


@dataclasses.dataclass(frozen=True, slots=True)
class DomainSettings:
    """//OpenSplice/Domain.

    `lease` is that of this node's own services towards their supervisor; `daemon_heartbeat` is what the
    splice-daemon would send. `role` is as in the file or as overridden by the fleet.
    `report_append` and `report_verbosity` are None where the environment decides.
    """

    name: str
    id: int
    role: str
    lease: Expiry
    daemon_heartbeat: Expiry
    service_terminate_period_s: float
    builtin_topics: bool
    report_append: bool | None
    report_verbosity: str | None
    services: tuple[ServiceEntry, ...]

    def service(self, name: str) -> ServiceEntry | None:
        """The first entry of that name."""
        return next((entry for entry in self.services if entry.name == name), None)


@dataclasses.dataclass(frozen=True, slots=True)
class DurablePolicy:
    """What this node obtains as a durability client (//OpenSplice/Domain/DurablePolicies/Policy)."""

    obtain: str
    cache: bool
    origin: Origin


@dataclasses.dataclass(frozen=True, slots=True)
class ContentFilter:
    """A content filter for durable data (//OpenSplice/Domain/Filters/Filter).

    One with an empty condition, or that applies to nothing, has no effect.
    """

    content: str
    partition_topics: tuple[str, ...]
    origin: Origin

    @property
    def elements(self) -> tuple[Element, ...]:
        """What it applies to; nothing when it has no effect."""
        return () if self.why_ignored else tuple(map(Element.parse, self.partition_topics))

    @property
    def why_ignored(self) -> str:
        """Why it has no effect; empty where it has one."""
        if not self.partition_topics:
            return "it has no PartitionTopic"
        return "" if self.content.strip() else "its condition is empty"


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkSettings:
    """//OpenSplice/DurabilityService/Network, without Alignment and WaitForAttachment.

    The priorities are TRANSPORT_PRIORITY of the writers of protocol messages and of heartbeats.
    """

    transport_priority: int
    heartbeat: Expiry
    heartbeat_priority: int
    heartbeat_scheduling: Scheduling
    initial_discovery_period_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class AlignmentSettings:
    """//OpenSplice/DurabilityService/Network/Alignment (guide 5.3.4).

    `transport_priority` is TRANSPORT_PRIORITY of the writers of sets. `combine_initial_s` holds until this
    node is complete, `combine_operational_s` from then on. With `wait_for_aligner_s` 0 a node without any
    aligner ends; with more it waits.
    """

    time_alignment: bool
    combine_initial_s: float
    combine_operational_s: float
    wait_for_aligner_s: float
    transport_priority: int
    aligner_scheduling: Scheduling
    alignee_scheduling: Scheduling


@dataclasses.dataclass(frozen=True, slots=True)
class WaitForAttachment:
    """…/Network/WaitForAttachment (guide 5.3.2): wait at most `max_wait_count` times 100 ms."""

    max_wait_count: int
    service_names: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PersistentSettings:
    """//OpenSplice/DurabilityService/Persistent.

    A relative `store_directory` is meant from the directory in which the node is started, as in OpenSplice.
    The store is written in sessions of at most `session_time_s`, with `sleep_time_s` between two. After
    `optimize_interval` written samples the file gives free space back (0: never). At most `queue_size`
    samples wait for the disk (0: as many as the node has room for).
    """

    store_directory: str
    session_time_s: float
    sleep_time_s: float
    mode: StoreMode
    optimize_interval: int
    queue_size: int
    scheduling: Scheduling


@dataclasses.dataclass(frozen=True, slots=True)
class EntityNames:
    """Names of the entities of the protocol, and the partition that it uses."""

    publisher: str
    subscriber: str
    partition: str


@dataclasses.dataclass(frozen=True, slots=True)
class WatchdogSettings:
    """//OpenSplice/DurabilityService/Watchdog."""

    deadlock_detection: bool
    scheduling: Scheduling


@dataclasses.dataclass(frozen=True, slots=True)
class TracingSettings:
    """//OpenSplice/DurabilityService/Tracing (guide 5.3.5).

    `output_file` is None when nothing is traced; `stdout` and `stderr` in any case are those streams. A
    relative file is meant from the directory in which the node is started.
    """

    output_file: str | None
    verbosity: Verbosity
    has_timestamps: bool
    absolute_timestamps: bool
    synchronous: bool


@dataclasses.dataclass(frozen=True, slots=True)
class DdsiSettings:
    """What the Cyclone settings are derived from: General and Discovery of the enabled DDSI2 service.

    `is_configured` is false when the file has no such service. `network_interface` is an address, a name, or
    `auto`; `allow_multicast` is `true`, `false` or a list such as `spdp,asm`. Peers are in document order.
    """

    is_configured: bool
    network_interface: str
    allow_multicast: str
    peers: tuple[str, ...]
    generate_builtin_topics: bool


@dataclasses.dataclass(frozen=True, slots=True)
class NameSpaces:
    """//OpenSplice/DurabilityService/NameSpaces (guide 5.2.2, 5.2.3), in document order.

    Name-spaces that hold only built-in topics are set apart in `builtin`: Cyclone DDS distributes that data
    itself, so no ospltool node aligns it. The origins run in parallel to their values; a private policy of a
    deprecated NameSpace has the origin of that NameSpace and stands before all others.
    """

    name_spaces: tuple[NameSpace, ...]
    name_space_origins: tuple[Origin, ...]
    policies: tuple[Policy, ...]
    policy_origins: tuple[Origin, ...]
    builtin: tuple[NameSpace, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Configuration:
    """Everything that a node needs to know before it starts.

    `settings` lists every setting with its origin, and `ignored` what of the file has no effect. `persistent`
    is None when the file has no such element, which means that nothing is stored; `client_durability` is None
    when it is off.
    """

    path: str
    service: str
    domain: DomainSettings
    name_spaces: NameSpaces
    network: NetworkSettings
    alignment: AlignmentSettings
    wait_for_attachment: WaitForAttachment | None
    master_election_wait_s: float
    persistent: PersistentSettings | None
    entity_names: EntityNames
    client_durability: EntityNames | None
    watchdog: WatchdogSettings
    tracing: TracingSettings
    ddsi: DdsiSettings
    durable_policies: tuple[DurablePolicy, ...]
    filters: tuple[ContentFilter, ...]
    settings: tuple[Setting, ...]
    ignored: tuple[Ignored, ...] = ()

    def setting(self, path: str) -> Setting | None:
        """The first setting at a documentation path, such as //OpenSplice/Domain/Role."""
        return next((setting for setting in self.settings if setting.path == path), None)

    def origin_of(self, path: str) -> Origin:
        """Where the first setting at a documentation path is set; the default where it is not."""
        setting = self.setting(path)
        return setting.origin if setting else Origin()
