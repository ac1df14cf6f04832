"""The library with which applications use durability services beyond ordinary readers and writers.

It needs `cyclonedds`, and none of the services or tools. See docs/client.md.
"""

from __future__ import annotations

from engine.dataset.instance_states import InstanceState, ViewState
from engine.dds.client_protocol.messages import Completeness, ErrorCode
from engine.dds.client_protocol.naming import SampleName
from ospltool.client.client import Deletion, DurabilityClient, GroupCompleteness, wait_until_kept
from ospltool.client.durable import DurableWriter
from ospltool.client.errors import (
    Closed,
    DurabilityError,
    DurabilityTimeout,
    GroupNotFound,
    IncompatibleVersion,
    InvalidFilter,
    InvalidLimit,
    InvalidSubscription,
    InvalidTimeRange,
    JournalError,
    JournalInUse,
    JournalMismatch,
    MissingSamples,
    NoPersistenceService,
    NoService,
    NotResponsible,
    NotStored,
    OnlyParts,
    OutdatedService,
    PreconditionNotMet,
    ReaderNotKnown,
    Reason,
    RequestRefused,
    SecretMismatch,
    TooManyClients,
    UnsupportedQos,
    UnsupportedService,
    WriterFull,
)
from ospltool.client.journal import Recovery
from ospltool.client.ledger import DurableCounters
from ospltool.client.reader import DurableReader
from ospltool.client.samples import ContentFilter, HistorySelection, ReceivedSample
from ospltool.client.surveys import StoredAt, Written

__all__ = [
    "Closed",
    "Completeness",
    "ContentFilter",
    "Deletion",
    "DurabilityClient",
    "DurabilityError",
    "DurabilityTimeout",
    "DurableCounters",
    "DurableReader",
    "DurableWriter",
    "ErrorCode",
    "GroupCompleteness",
    "GroupNotFound",
    "HistorySelection",
    "IncompatibleVersion",
    "InstanceState",
    "InvalidFilter",
    "InvalidLimit",
    "InvalidSubscription",
    "InvalidTimeRange",
    "JournalError",
    "JournalInUse",
    "JournalMismatch",
    "MissingSamples",
    "NoPersistenceService",
    "NoService",
    "NotResponsible",
    "NotStored",
    "OnlyParts",
    "OutdatedService",
    "PreconditionNotMet",
    "ReaderNotKnown",
    "Reason",
    "ReceivedSample",
    "Recovery",
    "RequestRefused",
    "SampleName",
    "SecretMismatch",
    "StoredAt",
    "TooManyClients",
    "UnsupportedQos",
    "UnsupportedService",
    "ViewState",
    "WriterFull",
    "Written",
    "wait_until_kept",
]
