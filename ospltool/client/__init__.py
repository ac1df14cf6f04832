"""What applications import to use durability services, beyond what an ordinary reader gets from them.

It needs `cyclonedds` and nothing else of this product. See docs/client.md.
"""

from __future__ import annotations

from engine.dds.client_protocol.messages import Completeness, ErrorCode
from ospltool.client.client import DurabilityClient, GroupCompleteness, StoredAt, Written
from ospltool.client.content import ContentFilter
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
    NoPersistenceService,
    NoService,
    NotResponsible,
    NotStored,
    PreconditionNotMet,
    ReaderNotKnown,
    RequestRefused,
    TooManyClients,
    UnsupportedQos,
)
from ospltool.client.reader import DurableReader
from ospltool.client.samples import HistorySelection, InstanceState, ReceivedSample

__all__ = [
    "Closed",
    "Completeness",
    "ContentFilter",
    "DurabilityClient",
    "DurabilityError",
    "DurabilityTimeout",
    "DurableReader",
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
    "NoPersistenceService",
    "NoService",
    "NotResponsible",
    "NotStored",
    "PreconditionNotMet",
    "ReaderNotKnown",
    "ReceivedSample",
    "RequestRefused",
    "StoredAt",
    "TooManyClients",
    "UnsupportedQos",
    "Written",
]
