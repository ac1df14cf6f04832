"""The readers and writers of applications by topic and process, and the newest values of a topic."""

from __future__ import annotations

import collections
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from engine.dataset.groups import DurabilityKind, meets

PREFIX: Final = 24
"""Digits of a GUID that all endpoints of a participant have in common."""


PARTICIPANT: Final = "000001c1"
"""The entity id of a participant, at the end of its GUID (DDSI-RTPS 2.5, 9.3.1.2)."""


class Application(NamedTuple):
    """A process with readers or writers; of one that announces neither host nor process, the participant."""

    key: str
    """What tells it apart: host and process id, or the GUID of the participant."""
    name: str = ""
    """Name of its first participant; empty if not announced."""
    pid: int = 0
    """Process id; 0 if not announced."""
    host: str = ""
    """Host name; empty if not announced."""
    is_watch: bool = False
    """Whether it is this process, which reads a topic to show its values."""

    @classmethod
    def announced(cls, name: str, pid: int, host: str, participant: str) -> Application:
        """Return the process of a participant.

        Args:
            name: of the participant; empty if not announced.
            pid: its process id; 0 if not announced.
            host: its host name; empty if not announced.
            participant: its GUID.
        """
        is_watch = (pid, host) == (os.getpid(), socket.gethostname())
        return cls(f"{host}/{pid}" if pid else participant, name, pid, host, is_watch)

    @property
    def title(self) -> str:
        """Its name for people."""
        if not self.pid:
            return self.name or f"participant {self.key[:PREFIX]}"
        return f"{self.name or 'process'} {self.pid}"

    @property
    def place(self) -> str:
        """Its name and its host."""
        return f"{self.title} on {self.host}" if self.host else self.title


class ApplicationEndpoint(NamedTuple):
    """A reader or writer of an application, as discovery announces it."""

    guid: str
    """32 hexadecimal digits."""
    participant: str
    """GUID of its participant."""
    application: Application
    is_writer: bool
    topic: str
    partitions: tuple[str, ...]
    """Names or expressions; empty for the default partition."""
    type_name: str
    durability: DurabilityKind
    reliable: bool

    @property
    def is_durable(self) -> bool:
        """Whether it offers or asks for what services keep."""
        return self.durability >= DurabilityKind.TRANSIENT

    @property
    def partition(self) -> str:
        """Its partitions, separated by commas."""
        return ",".join(self.partitions)

    def is_in(self, partition: str) -> bool:
        """Return whether it is in a partition, which may be an expression."""
        return any(one == partition or meets(one, partition) for one in self.partitions or ("",))


class Applications:
    """All readers and writers of applications, by topic; `is_known` says whether this watch sees them.

    A recording and a simulation do not have them: there they are known by what nodes report.
    """

    def __init__(self, endpoints: Iterable[ApplicationEndpoint] = (), *, is_known: bool = False) -> None:
        self.is_known = is_known
        self.by_topic: dict[str, list[ApplicationEndpoint]] = {}
        self.by_participant: dict[str, Application] = {}
        self.hosts: Mapping[str, collections.Counter[bool]] = {}
        hosts = collections.defaultdict[str, collections.Counter[bool]](collections.Counter)
        for one in endpoints:
            self.by_topic.setdefault(one.topic, []).append(one)
            self.by_participant.setdefault(one.participant, one.application)
            if not one.application.is_watch:
                hosts[one.application.host][one.is_writer] += 1
        self.hosts = dict(hosts)

    def application(self, participants: Sequence[str]) -> Application:
        """Return the process of participants; where it is not known, the first of them stands for it."""
        found = (self.by_participant[one] for one in participants if one in self.by_participant)
        return next(found, Application(participants[0]))

    def place(self, endpoint: str) -> str:
        """Return the process of a participant, or of an endpoint of one; empty where it is not known.

        `endpoint` is a GUID, or several with commas between.
        """
        known = self.by_participant
        found = (known.get(one[:PREFIX] + PARTICIPANT) for one in endpoint.split(","))
        return next((one.place for one in found if one is not None), "")


class InstanceValue(NamedTuple):
    """The newest sample of an instance."""

    key: str
    """What tells the instance apart, as text."""
    fields: Mapping[str, Any]
    """Its fields; of a disposed instance the key fields."""
    keys: tuple[str, ...]
    """The names of the key fields."""
    is_alive: bool
    source_time_ns: int
    samples: int
    """Samples of it that this watch received."""
    changed_ns: int
    """When its value changed last while it was watched; 0 for never."""
    partition: str = ""
