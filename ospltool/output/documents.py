"""The data of the JSON documents that commands make of dictionaries, as types.

`docs.json_schemas` names the type of each kind, and publishes its schema. A field that is added breaks no
program that reads the output; one that goes, or has another type, needs another `FORMAT_VERSION`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal, NotRequired, TypedDict

from engine.runtime.monitor import NodeEvent

# Nodes on this machine.


class StartedNode(TypedDict):
    """A node that this user started on this machine."""

    domain_name: str
    domain_id: int
    role: str
    condition: str
    state: str
    state_since_ns: int
    reason: str
    store_problem: str
    in_memory_only: int
    """Samples that are not on disk because the store fails."""
    waits_for: str
    parts: str
    refused: str
    uri: str
    configuration: str
    store: str
    started_ns: int
    changed_ns: int
    restarts: int
    last_failure: str
    last_failure_ns: int
    supervisor_pid: int
    node_pid: int | None
    directory: PurePath


class StoppedNode(TypedDict):
    """How the stop of a node ended."""

    domain_name: str
    configuration: str
    outcome: str


class ConfigurationText(TypedDict):
    """The text of a configuration."""

    path: str
    text: str


class WrittenFiles(TypedDict):
    """The files that a command wrote."""

    files: Sequence[PurePath]


class EffectiveValue(TypedDict):
    """A setting of a node, and where its value comes from."""

    path: str
    value: bool | int | float | str | None
    origin: str
    ignored: str | None
    """Why it has no effect; null if it has one."""


class ConfigurationInfo(TypedDict):
    """What a node with a configuration would use."""

    path: str
    domain_name: str
    domain_id: int
    role: str
    store: str | None
    trace_file: str | None
    name_spaces: Sequence[str]
    settings: Sequence[EffectiveValue]


class Installation(TypedDict):
    """This installation, and the effective settings of a configuration."""

    versions: dict[str, str | None]
    """Null for a package that is not installed."""
    platform: dict[str, str | int | None]
    paths: dict[str, str]
    configuration: ConfigurationInfo


class Variable(TypedDict):
    """An environment variable."""

    variable: str
    value: str
    origin: str
    meaning: str
    refused: str
    """Why a node would not start with it; empty if it would."""


# A running system.


class IncidentData(TypedDict):
    """What is, or was, wrong with a subject."""

    key: str
    code: str
    title: str
    severity: str
    who: str
    since_ns: int
    began_before: bool
    until_ns: int
    """0 while it is open."""
    ended_before: bool
    what: str
    worse: str
    why: str
    effect: str
    next: str
    signs: Sequence[str]
    nodes: Sequence[str]
    name_spaces: Sequence[str]
    origin: str
    times: int
    acknowledged_ns: int
    muted_until_ns: int
    page: str
    first_event: NodeEvent | None
    last_event: NodeEvent | None


class StandingMute(TypedDict):
    """A mute, and the incidents that it hides."""

    code: str
    who: str
    until_ns: int
    hides: Sequence[str]


class EndedMute(TypedDict):
    """A mute that has ended, and why."""

    code: str
    who: str
    ended_ns: int
    why: str


class Copies(TypedDict):
    """The copies of a name-space."""

    name_space: str
    copies: int
    wanted: int
    on_disk: int
    wanted_on_disk: int
    left: int
    held_by: Sequence[str]
    on_disk_of: Sequence[str]
    coming: Sequence[str]
    stopped: Sequence[str]
    lost: Sequence[str]
    sides: Sequence[Sequence[str]]


class HealthData(TypedDict):
    """The verdict on a system, with its incidents."""

    time_ns: int
    verdict: str
    text: str
    why: str
    next: str
    errors: int
    warnings: int
    notices: int
    muted: int
    incidents: Sequence[IncidentData]
    closed: Sequence[IncidentData]
    mutes: Sequence[StandingMute]
    ended_mutes: Sequence[EndedMute]
    redundancy: Sequence[Copies]
    expected_nodes: Sequence[str]


class DomainHealth(HealthData):
    """The health of one domain."""

    domain: str


class AdvertisedFinding(TypedDict):
    """A finding of a rule of `check` on the settings that nodes advertise."""

    code: str
    name: str
    severity: str
    nodes: Sequence[str]
    message: str
    help: str


class EndpointCount(TypedDict):
    """Readers and writers of one kind, counted."""

    seen: int
    not_eventually_consistent: int


class EndpointData(TypedDict):
    """A reader or writer."""

    guid: str
    topic: str
    process: str
    host: str
    type: str
    partitions: Sequence[str]


class DoctorCause(TypedDict):
    """Why readers and writers cannot become consistent."""

    cause: str
    weight: str
    topics: Sequence[str]
    message: str
    advice: str
    nodes: Sequence[str]
    writers: Sequence[EndpointData]
    readers: Sequence[EndpointData]


class Diagnosed(TypedDict):
    """The readers and writers of a domain, examined."""

    eventually_consistent: bool
    findings: Sequence[DoctorCause]
    findings_left_out: int
    participants: int
    nodes: Sequence[str]
    foreign_services: int
    protocol_endpoints: int
    built_in_endpoints: int
    endpoints_left_out: int
    messages_not_understood: int
    writers: EndpointCount
    readers: EndpointCount


class MutedDomain(TypedDict):
    """A mute that was made in a domain."""

    domain: str
    code: str
    who: str
    until_ns: int
    severity: int
    weight: int


class UnmutedDomain(TypedDict):
    """Whether a mute ended in a domain."""

    domain: str
    code: str
    who: str
    ended: bool


class Change(TypedDict, total=False):
    """What became of a row, with --watch and --wait; then the row follows."""

    time_ns: int
    change: Literal["new", "changed", "gone"]


# The rows of `show`: with --columns, only some of these.


class NodeRow(Change, total=False):
    """A node; one that was never heard has node, state and why."""

    node: str
    id: str
    state: str
    since_ns: int
    heard_ns: int
    complete: str
    incomplete: Sequence[str]
    master_of: Sequence[str]
    samples: int
    rate_per_s: float | None
    fellows: str
    disk_bytes: int
    memory_bytes: int
    role: str
    host: str
    pid: int
    version: str
    domain_id: int
    problem: str
    why: str


class FellowRow(Change, total=False):
    """The fellows of a node together, or with the name of a node one of them."""

    node: str
    approved: str
    heartbeat_ns: int
    skew_ns: int | None
    others: Sequence[str]
    name: str
    role: str
    state: str
    communication: str
    problem: str


class NameSpaceRow(Change, total=False):
    """A name-space, or with its name what a node has of it."""

    name_space: str
    master: Sequence[str] | str
    samples: int
    complete: str
    copies: int
    copies_left: int
    on_disk: int
    policy: Sequence[str] | str
    lacking: Sequence[str]
    node: str
    role: str
    phase: str
    is_complete: bool
    is_confirmed: bool
    epoch: str
    priority: int
    merges: Sequence[str]
    digest: str
    why: str


class MasterRow(Change, total=False):
    """A master of a name-space in a role."""

    name_space: str
    role: str
    master: str
    presence: str
    is_confirmed: bool
    since_ns: int
    followers: Sequence[str]
    epoch: str
    why: str


class AlignmentRow(Change, total=False):
    """A running alignment."""

    since_ns: int
    name_space: str
    aligner: str
    alignee: str
    fraction: float | None
    samples: int
    expected: int
    rate_per_s: float | None
    left_s: float | None
    bytes: int


class GroupRow(Change, total=False):
    """A group."""

    group: str
    name_space: str
    nodes: int
    samples: int
    instances: int
    bytes: int
    newest_ns: int
    behind: int | None
    """Samples by which the worst disk is behind; null without a disk."""
    lost: int
    differs: Sequence[str]
    type: str


class ReaderRow(Change, total=False):
    """Late readers that a node serves."""

    topic: str
    state: str
    since_ns: int
    node: str
    samples: int | None
    took: str
    finished_ns: int
    participant: str
    application: str
    problem: str
    why: str


class WriterRow(Change, total=False):
    """A writer whose data is not kept."""

    topic: str
    nodes: Sequence[str]
    code: str
    why: str
    writer: str
    application: str


class TopicRow(Change, total=False):
    """A topic: what the nodes hold of it, and its writers and readers."""

    topic: str
    name_space: Sequence[str]
    nodes: int
    instances: int
    samples: int
    newest_ns: int
    writers: int
    readers: int
    lacking: int
    why: str


class EndpointRow(Change, total=False):
    """A reader or writer of an application, and what becomes of it."""

    kind: str
    topic: str
    application: str
    host: str
    state: str
    nodes: Sequence[str]
    samples: int | None
    since_ns: int
    durability: str
    why: str


class ApplicationRow(EndpointRow, total=False):
    """A process with readers or writers, or with the name of a process one of these."""

    pid: int
    writers: int
    kept: int
    readers: int
    served: int
    lacking: int
    topics: Sequence[str]


class EventRow(Change, total=False):
    """An event of a node."""

    node: str
    tellers: Sequence[str]
    level: str
    event: str
    sentence: str
    text: str


class IncidentRow(EventRow, total=False):
    """An incident, or with the name of one its events."""

    severity: str
    since_ns: int
    until_ns: int
    state: str
    code: str
    who: str
    why: str
    effect: str
    next: str


Summary = TypedDict(
    "Summary",
    {
        "time_ns": int,
        "verdict": str,
        "text": str,
        "why": str,
        "incidents": NotRequired[Sequence[IncidentRow]],
        "nodes": NotRequired[Sequence[NodeRow]],
        "name-spaces": NotRequired[Sequence[NameSpaceRow]],
        "masters": NotRequired[Sequence[MasterRow]],
        "alignment": NotRequired[Sequence[AlignmentRow]],
        "readers": NotRequired[Sequence[ReaderRow]],
        "writers": NotRequired[Sequence[WriterRow]],
        "events": NotRequired[Sequence[EventRow]],
    },
)
"""A whole system: the verdict, and the tables with rows."""


# History and samples.


class WaitedHistory(TypedDict):
    """A history that is complete."""

    topic: str
    partitions: Sequence[str]
    complete: bool
    waited_ns: int
    refused: dict[str, str]


class DeletedGroup(TypedDict):
    """A group on a node that a deletion would find."""

    partition: str
    topic: str
    node: str
    node_id: str
    samples: int | None


class Deletion(TypedDict):
    """What a deletion did, or with --dry-run would find."""

    until_ns: int
    deleted: bool
    topic: NotRequired[str]
    partition: NotRequired[str]
    node: NotRequired[str]
    slow: NotRequired[str]
    """The node whose clock limits it; empty for none."""
    refused: NotRequired[dict[str, str]]
    confirmed: NotRequired[Sequence[str]]
    unconfirmed: NotRequired[Sequence[str]]
    groups: NotRequired[Sequence[DeletedGroup]]
    unanswered: NotRequired[Sequence[str]]


class GroupState(TypedDict):
    """How complete a group is on a node."""

    node: str
    node_id: str
    partition: str
    topic: str
    completeness: str
    samples: int | None
    filtered: bool


class HistoryState(TypedDict):
    """How complete groups are, with the nodes that refuse or do not answer."""

    groups: Sequence[GroupState]
    refused: dict[str, str]
    unanswered: Sequence[str]


class PrintedSample(TypedDict):
    """A sample of `cat`; one from the store of a known node names it."""

    topic: str
    source_time_ns: int
    writer: bytes | None
    """Null for a sample that a node delivered."""
    delivered_by: NotRequired[bytes]
    status: str
    key: bytes
    fields: dict[str, Any]
    type: str
    partitions: Sequence[str]
    node: NotRequired[str]


# Stores.


class StoredGroup(TypedDict):
    """A group in a store."""

    partition: str
    topic: str
    type: str
    key_list: str
    durability: str
    history_depth: int
    cleanup_delay_ns: int
    problem: str


class GroupCounts(TypedDict):
    """What was read of a group in a store."""

    samples: int
    instances: int
    damaged: int
    oldest_ns: int | None
    newest_ns: int | None
    payload_bytes: int
    disposed: int


class CountedGroup(StoredGroup, GroupCounts):
    """A group in a store, with what was read of it."""


class StoredSet(TypedDict):
    """A set in a store."""

    number: int
    name_space: str
    kind: str
    complete: bool | None
    part: bool
    quality_ns: int | None
    mark: str
    samples: int
    damaged: int
    damage: Sequence[str]
    groups: Sequence[CountedGroup]


class StoreInfo(TypedDict):
    """A store, and its sets."""

    path: str
    format: str
    file_bytes: int
    detail: dict[str, str]
    findings: Sequence[str]
    sets: Sequence[StoredSet]


class VerifiedSet(StoredSet):
    """A set, with what a check found besides damage."""

    problems: Sequence[str]


class VerifiedStore(TypedDict):
    """A store that was read as a whole."""

    path: str
    findings: Sequence[str]
    sets: Sequence[VerifiedSet]


class VerifiedStores(TypedDict):
    """Stores that were read as a whole."""

    sound: bool
    stores: Sequence[VerifiedStore]


class StoredSample(TypedDict):
    """A sample in a store, without its content."""

    source_time_ns: int
    writer: bytes
    sequence: str
    status: str
    digest: bytes
    bytes: int


class StoredInstance(StoredGroup):
    """An instance in a store."""

    set: int
    key: bytes
    key_fields: Any
    samples: Sequence[StoredSample]


class StoredInstances(TypedDict):
    """The first instances of a store."""

    instances: Sequence[StoredInstance]
    left_out: int


class WholeSample(StoredGroup, StoredSample):
    """A sample in a store, with its content; fields are null if they cannot be decoded."""

    set: int
    name_space: str
    key: bytes
    fields: Any
    problem: str
    payload: bytes


class ExportedSample(TypedDict):
    """A line of `store export`."""

    set: int
    name_space: str
    partition: str
    topic: str
    type: str
    key: bytes
    source_time_ns: int
    writer: bytes
    sequence: str
    status: str
    digest: bytes
    fields: Any
    problem: str
    payload: bytes


class Export(TypedDict):
    """What an export wrote."""

    output: PurePath
    samples: int
    damaged: int


# Traces and cases.


class TracePlace(TypedDict):
    """A line of a trace."""

    node: str
    file: str
    offset: int
    time_ns: int | None
    text: str


class RecordData(TypedDict):
    """A record of a trace or log."""

    kind: str
    node: str
    file: str
    offset: int
    length: int
    time_ns: int | None
    clock: str
    run: int
    state: str
    thread: str
    level: str
    template: str | None
    event: str | None
    out_of_order: bool
    terminated: bool
    fields: dict[str, Any]
    text: str


class RecordCount(TypedDict):
    """The number of records."""

    records: int


class TraceRule(TypedDict):
    """A rule of `trace anomalies`."""

    rule: str
    looks_for: str
    seen: str
    refuted: str


class TraceExplanation(TypedDict):
    """The meaning of a message."""

    id: str
    event: str | None
    origin: str
    levels: Sequence[str]
    thread: str | None
    sites: Sequence[str]
    pattern: str
    meaning: str | None
    fields: dict[str, str]


class LoadedSource(TypedDict):
    """A file in a case."""

    domain: str
    node: str
    file: str
    format: str
    bytes: int
    records: int
    unparsed_bytes: int
    unmatched: int


class LoadedCase(TypedDict):
    """The files of a case."""

    case: str
    sources: Sequence[LoadedSource]


class ConversationStep(TypedDict):
    """A step of an alignment."""

    step: str
    time_ns: int | None
    node: str
    file: str
    offset: int


class TalkedAlignment(TypedDict):
    """An alignment, as traces show it."""

    number: int
    alignee: str
    alignee_address: str
    aligner: str | None
    aligner_address: str
    source: str
    end: str
    samples_sent: int | None
    samples: int | None
    policy: str | None
    is_equal: bool
    steps: Sequence[ConversationStep]


class Talk(TypedDict):
    """The alignments of a group."""

    group: str
    name_spaces: Sequence[str]
    nodes: Sequence[str]
    alignments: Sequence[TalkedAlignment]
    unknown: Sequence[str]


class ConclusionData(TypedDict):
    """What became of a set."""

    kind: str | None
    text: str
    start_ns: int | None
    end_ns: int | None
    nodes: Sequence[str]
    group: str
    is_harmless: bool
    facts: dict[str, Any]
    evidence: Sequence[TracePlace]


class StoryData(TypedDict):
    """Findings with one cause, by their index."""

    title: str
    start_ns: int | None
    end_ns: int | None
    nodes: Sequence[str]
    findings: Sequence[int]


class RuleFinding(TypedDict):
    """A finding of a rule."""

    rule: str
    title: str
    explanation: str
    nodes: Sequence[str]
    start_ns: int | None
    end_ns: int | None
    facts: dict[str, Any]
    evidence_lines: int
    evidence: Sequence[TracePlace]


class FindingData(RuleFinding):
    """A finding of a rule, with the code of the same trouble."""

    code: str | None
    """A code of `health` for the same trouble."""


class InvestigationData(TypedDict):
    """What went wrong, by traces and stores."""

    verdict: str
    conclusions: Sequence[ConclusionData]
    unknown: Sequence[str]
    stories: Sequence[StoryData]
    findings: Sequence[FindingData]


class DomainInvestigation(InvestigationData):
    """What went wrong in a domain."""

    domain: str


class FleetInvestigation(TypedDict):
    """What went wrong in each domain of a case."""

    domains: Sequence[DomainInvestigation]


class NamedQueryData(TypedDict):
    """A named query."""

    name: str
    about: str
    sql: str


class ColumnData(TypedDict):
    """A column of a table."""

    name: str
    type: str
    about: str


class QueryList(TypedDict):
    """What can be asked of a case."""

    queries: Sequence[NamedQueryData]
    tables: dict[str, Sequence[ColumnData]]


class QueryResult(TypedDict):
    """The answer to a query; its columns are those of the query."""

    columns: Sequence[str]
    rows: Sequence[dict[str, Any]]


class AlertData(TypedDict):
    """Something that is newly wrong."""

    domain: str
    kind: str | None
    rule: str | None
    code: str | None
    set_name: str | None
    nodes: str | None
    title: str | None
    start_ns: int | None
    end_ns: int | None
    story: int | None


class PipelineData(TypedDict):
    """What a run of a plan did."""

    case: str
    records: int | None
    judged: Sequence[str]
    unchanged: int
    alerts: Sequence[AlertData]
