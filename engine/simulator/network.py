"""The network of a simulated cluster: links between hosts, and participants that find and lose each other.

It stands for what a node can tell of Cyclone DDS on a real network:

- A link is one direction between two hosts. What is sent while it is cut waits and comes when it is back, in
  order for each topic; nothing that was sent between two participants that know each other gets lost.
- A participant that is silent for longer than its lease is forgotten by every node that does not hear it,
  each on its own: one-sided views are normal. What was on its way between the two is lost then. When both
  hear each other again, they match again, and state topics are sent once more (TRANSIENT_LOCAL).
- Two nodes are *attached* when each has matched the other and knows that the other has, as in
  `engine.dds.channel`: each tells whom it has matched.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from engine.simulator.options import NetworkPlan
from engine.simulator.schedule import Schedule

ATTACHMENT: Final = "d_attachment"
# A UDP datagram to another process of a host takes some tens of microseconds; any number below a heartbeat
# would do.
LOOPBACK_S: Final = 0.0001
"""Delay between processes of one host."""
# Chosen: below it each match is an event of its own, as that finds more orders.
CROWD: Final = 50
"""Number of participants above which events of one participant within `GATHER_S` are combined."""
GATHER_S: Final = 0.02
"""A real node publishes several changes of its matches together as well."""
# Cyclone DDS resends after its next heartbeat, 0.1 s by default, which may be lost, too.
LONG_LOSS_S: Final = 0.3
"""Limit for the pause before a lost datagram is resent."""


class Discovered(Protocol):
    """An application's process, as nodes find and lose it."""

    def discovered_by(self, node: Any) -> None:
        """Tell the `SimulatedNode` what the process has."""

    def lost_by(self, node: Any) -> None:
        """Tell the `SimulatedNode` that the process is gone."""


class Handler(Protocol):
    """The behaviour of a node's participant. All calls come from the schedule, one at a time."""

    def receive(self, sender: SimulatedParticipant, topic: str, item: object) -> None:
        """Take in an item that `sender` sent."""

    def appeared(self, peer: SimulatedParticipant) -> None:
        """Take in a discovered participant."""

    def vanished(self, peer: SimulatedParticipant) -> None:
        """Take in that a participant left, or was silent for longer than its lease."""

    def attached(self, peer: SimulatedParticipant) -> None:
        """Take in that both sides have matched, and know it."""

    def detached(self, peer: SimulatedParticipant) -> None:
        """Take in that one side has lost the other."""


class SimulatedParticipant(msgspec.Struct, eq=False):
    """A participant of the simulated domain: one run of a node's process, or of an application's.

    Attributes:
        id: unique in the whole simulation; the next run of a node has another one.
        name: name of the node or application, the same in all its runs.
        host: name of its host; links are cut between hosts.
        handler: takes what arrives and what discovery finds; None for an application, to which nobody sends.
        application: what nodes discover in it; None for a node.
        node: id of the node; empty for an application.
        is_alive: False once the process has ended.
        is_frozen: True while the process is stopped (as by SIGSTOP).
        silent_since: when it ended or was stopped, in seconds of the schedule; None while it runs.
        matched: participants that it has discovered and not lost, in the order of discovery.
        reports: last report of each discovered node about the participants which that node has discovered.
        attached: participants of `matched` that have discovered it too, and have told it so.
        states: last item sent on each state topic, which participants discovered later receive.
        overwrite: removes from the items that a cut link holds back those that the writer's history has
            overwritten since; None if the writers keep every sample that was not acknowledged.
        heard_leaving: participants that have heard it end in order; others only find that it is silent.
    """

    id: str
    name: str
    host: str
    handler: Handler | None
    node: str = ""
    application: Discovered | None = None
    is_alive: bool = True
    is_frozen: bool = False
    silent_since: float | None = None
    matched: dict[SimulatedParticipant, None] = msgspec.field(default_factory=dict)
    reports: dict[SimulatedParticipant, frozenset[SimulatedParticipant]] = msgspec.field(default_factory=dict)
    attached: dict[SimulatedParticipant, None] = msgspec.field(default_factory=dict)
    states: dict[str, object] = msgspec.field(default_factory=dict)
    overwrite: Callable[[list[tuple[str, object]]], None] | None = None
    heard_leaving: set[SimulatedParticipant] = msgspec.field(default_factory=set)


class _Pipe:
    """The items under way from one participant to another."""

    __slots__ = ("generation", "held", "last", "receiver", "sender")

    def __init__(self, sender: SimulatedParticipant, receiver: SimulatedParticipant) -> None:
        self.sender = sender
        self.receiver = receiver
        self.generation = 0
        self.held: list[tuple[str, object]] = []
        self.last: dict[str, float] = {}

    def forget(self) -> None:
        """Drop the items under way, because one side has lost the other."""
        self.generation += 1
        self.held.clear()
        self.last.clear()


class Network:
    """All links and participants.

    Attributes:
        loss, duplication, delay_mean_s: as planned, until a fault changes them.
        carried: items that arrived.
        backbone: the hosts that have nodes.
        disturbed_s: when anything between those hosts, or a process on them, changed last.
    """

    def __init__(
        self, schedule: Schedule, plan: NetworkPlan, rng: random.Random, backbone: frozenset[str]
    ) -> None:
        self._schedule = schedule
        self._plan = plan
        self._rng = rng
        self.loss = plan.loss
        self.duplication = plan.duplication
        self.delay_mean_s = plan.delay_mean_s
        self.participants: list[SimulatedParticipant] = []
        self.carried = 0
        self.backbone = backbone
        self.disturbed_s = 0.0
        self._cut: dict[tuple[str, str], float] = {}
        self._walls: set[tuple[str, str]] = set()
        self._pipes: dict[tuple[SimulatedParticipant, SimulatedParticipant], _Pipe] = {}
        self._gathering: set[SimulatedParticipant] = set()

    # Participants.

    def join(self, participant: SimulatedParticipant) -> None:
        """Add a process that started."""
        self.participants.append(participant)
        for other in list(self.participants):
            self._meet(participant, other)

    def leave(self, participant: SimulatedParticipant) -> None:
        """Remove a process that ends in order: participants that it reaches know at once."""
        self.kill(participant)
        for other in self.participants:
            if participant in other.matched and not self._is_cut(participant, other):
                self._schedule.after(self._delay(participant, other), self._leave, other, participant)

    def _leave(self, other: SimulatedParticipant, participant: SimulatedParticipant) -> None:
        participant.heard_leaving.add(other)
        self._unmatch(other, participant)

    def kill(self, participant: SimulatedParticipant) -> None:
        """Remove a process that dies silently."""
        participant.is_alive = False
        self.participants.remove(participant)  # first, so that it does not watch itself
        self._fall_silent(participant)

    def freeze(self, participant: SimulatedParticipant) -> None:
        """Stop a process."""
        self.disturb()
        participant.is_frozen = True
        self._fall_silent(participant)

    def thaw(self, participant: SimulatedParticipant) -> None:
        """Continue a stopped process, which does not notice the lost time."""
        self.disturb()
        participant.is_frozen = False
        participant.silent_since = None
        for pipe in list(self._pipes.values()):
            if participant in (pipe.receiver, pipe.sender):
                self._release(pipe)
        for other in list(self.participants):
            self._meet(participant, other)
        for other in list(participant.matched):
            if self._silent_since(other, participant) is not None:
                self._watch(participant, other)

    def _fall_silent(self, participant: SimulatedParticipant) -> None:
        participant.silent_since = self._schedule.now
        for other in self.participants:
            if participant in other.matched:
                self._watch(other, participant)

    # Links.

    def cut(self, source: str, target: str) -> bool:
        """Cut the link from one host to another; return False if it was cut before."""
        if source == target or (source, target) in self._cut:
            return False
        self._cut[source, target] = self._schedule.now
        self.disturb(source, target)
        for participant in self.participants:
            if participant.host == target:
                for other in participant.matched:
                    if other.host == source:
                        self._watch(participant, other)
        return True

    def wall(self, one: str, other: str) -> None:
        """Separate two hosts for ever."""
        for link in ((one, other), (other, one)):
            self.cut(*link)
            self._walls.add(link)

    def restore(self, source: str, target: str) -> bool:
        """Restore a link; return False if it was not cut, or if there is a wall."""
        if (source, target) in self._walls or self._cut.pop((source, target), None) is None:
            return False
        self.disturb(source, target)
        for pipe in list(self._pipes.values()):
            if pipe.sender.host == source and pipe.receiver.host == target:
                self._release(pipe)
        for participant in list(self.participants):
            if participant.host == source:
                for other in list(self.participants):
                    if other.host == target:
                        self._meet(participant, other)
        return True

    def cuts(self) -> list[tuple[str, str]]:
        """Return the cut links, the oldest cut first, without walls."""
        return [link for link in self._cut if link not in self._walls]

    def disturb(self, *hosts: str) -> None:
        """Note a change between these hosts, or of all the network, for `disturbed_s`."""
        if self.backbone.issuperset(hosts):
            self.disturbed_s = self._schedule.now

    def is_calm(self) -> bool:
        """Tell whether all links between nodes work as planned."""
        return (
            (self.loss, self.duplication, self.delay_mean_s)
            == (self._plan.loss, self._plan.duplication, self._plan.delay_mean_s)
            and not any(self.backbone.issuperset(link) for link in self._cut)
        )  # fmt: skip

    def reaches(self, source: str, target: str) -> bool:
        """Tell whether a datagram gets from one host to another."""
        return (source, target) not in self._cut

    def _is_cut(self, source: SimulatedParticipant, target: SimulatedParticipant) -> bool:
        return (source.host, target.host) in self._cut

    @property
    def is_crowd(self) -> bool:
        """Whether what concerns few of the nodes is carried to these only, because there are more than 50."""
        return len(self.participants) > CROWD

    # What is sent.

    def broadcast(
        self,
        sender: SimulatedParticipant,
        topic: str,
        item: object,
        *,
        is_state: bool,
        to: tuple[str, ...] = (),
    ) -> None:
        """Send an item to all nodes that the sender has matched; the last state also reaches later ones.

        In a crowd, an item for the nodes with the ids `to` is carried only to these: the others ignore it.
        """
        if is_state:
            sender.states[topic] = item
        is_for_all = not to or not self.is_crowd
        for other in sender.matched:
            if other.node and (is_for_all or other.node in to):
                self.send(sender, other, topic, item)

    def send(
        self, sender: SimulatedParticipant, receiver: SimulatedParticipant, topic: str, item: object
    ) -> bool:
        """Send an item to one participant; return False if the two do not know each other."""
        if receiver not in sender.matched or sender not in receiver.matched:
            return False
        pipe = self._pipe(sender, receiver)
        self._launch(pipe, topic, item)
        if self.duplication and self._rng.random() < self.duplication:
            self._launch(pipe, topic, item)
        return True

    def _pipe(self, sender: SimulatedParticipant, receiver: SimulatedParticipant) -> _Pipe:
        pipe = self._pipes.get((sender, receiver))
        if pipe is None:
            pipe = self._pipes[sender, receiver] = _Pipe(sender, receiver)
        return pipe

    def _launch(self, pipe: _Pipe, topic: str, item: object) -> None:
        when = self._schedule.now + self._delay(pipe.sender, pipe.receiver)
        # One topic of one sender arrives in order; different topics may overtake.
        pipe.last[topic] = when = max(when, pipe.last.get(topic, 0.0))
        self._schedule.at(when, self._arrive, pipe, pipe.generation, topic, item)

    def _delay(self, sender: SimulatedParticipant, receiver: SimulatedParticipant) -> float:
        if sender.host == receiver.host:
            return LOOPBACK_S
        rng = self._rng
        delay = self._plan.delay_min_s + rng.expovariate(1.0) * self.delay_mean_s
        while self.loss and rng.random() < self.loss:
            delay += rng.uniform(0.01, LONG_LOSS_S)
        return delay

    def _arrive(self, pipe: _Pipe, generation: int, topic: str, item: object) -> None:
        receiver = pipe.receiver
        if generation != pipe.generation or not receiver.is_alive:
            return
        if receiver.is_frozen or (self._cut and self._is_cut(pipe.sender, receiver)):
            pipe.held.append((topic, item))
            if pipe.sender.overwrite:
                pipe.sender.overwrite(pipe.held)
            return
        self.carried += 1
        if topic == ATTACHMENT:
            assert isinstance(item, frozenset)
            receiver.reports[pipe.sender] = item
            self._update_attachment(receiver, pipe.sender)
        elif receiver.handler is not None:
            receiver.handler.receive(pipe.sender, topic, item)

    def _release(self, pipe: _Pipe) -> None:
        if pipe.receiver.is_frozen or self._is_cut(pipe.sender, pipe.receiver):
            return
        if not pipe.sender.is_alive:
            pipe.held.clear()  # a dead sender cannot resend it
        held, pipe.held = pipe.held, []
        for topic, item in held:
            self._launch(pipe, topic, item)

    # Discovery.

    def _meet(self, one: SimulatedParticipant, other: SimulatedParticipant) -> None:
        """Plan the match of two participants that can reach each other now."""
        if one is other or not (one.node or other.node):
            return
        delay = self._rng.uniform(0.01, self._plan.discovery_s)
        for participant, peer in ((one, other), (other, one)):
            if peer not in participant.matched:
                skew = self._rng.uniform(0.0, 0.05)
                self._schedule.after(delay + skew, self._match, participant, peer)

    def _match(self, participant: SimulatedParticipant, peer: SimulatedParticipant) -> None:
        if peer in participant.matched or not (participant.is_alive and peer.is_alive):
            return
        if (
            participant.is_frozen
            or peer.is_frozen
            or self._is_cut(participant, peer)
            or self._is_cut(peer, participant)
        ):
            return
        participant.matched[peer] = None
        self._pipe(participant, peer).forget()
        self._pipe(peer, participant).forget()
        if participant.handler is not None:
            participant.handler.appeared(peer)
        if participant.node and peer.node:
            self._publish_matches(participant)
        if participant in peer.matched:
            for sender, receiver in ((peer, participant), (participant, peer)):
                if receiver.node:
                    for topic, item in sender.states.items():
                        self.send(sender, receiver, topic, item)
        self._update_attachment(participant, peer)

    def _unmatch(self, participant: SimulatedParticipant, peer: SimulatedParticipant) -> None:
        if peer not in participant.matched:
            return
        del participant.matched[peer]
        participant.reports.pop(peer, None)
        self._pipe(participant, peer).forget()
        self._pipe(peer, participant).forget()
        if not peer.is_alive:
            self._pipes.pop((participant, peer), None)
            self._pipes.pop((peer, participant), None)
        if not participant.is_alive:
            return
        self._update_attachment(participant, peer)
        if participant.handler is not None:
            participant.handler.vanished(peer)
        if participant.node and peer.node:
            self._publish_matches(participant)

    def _publish_matches(self, participant: SimulatedParticipant) -> None:
        """Publish the matches of a node; in a crowd several changes together, like a real node."""
        if len(self.participants) <= CROWD:
            self._send_matches(participant)
        elif participant not in self._gathering:
            self._gathering.add(participant)
            self._schedule.after(GATHER_S, self._send_matches, participant)

    def _send_matches(self, participant: SimulatedParticipant) -> None:
        """Publish the matches of a node.

        A peer looks only for itself in them. So in a crowd, they are carried only to new ones: otherwise
        these messages would be most of the start of a large system.
        """
        self._gathering.discard(participant)
        before = participant.states.get(ATTACHMENT) if self.is_crowd else None
        known = before if isinstance(before, frozenset) else frozenset()
        nodes = [other for other in participant.matched if other.node]  # in the order of discovery
        participant.states[ATTACHMENT] = report = frozenset(nodes)
        for other in nodes:
            if other not in known:
                self.send(participant, other, ATTACHMENT, report)

    def _update_attachment(self, participant: SimulatedParticipant, peer: SimulatedParticipant) -> None:
        if participant.handler is None:
            return
        attached = peer in participant.matched and participant in participant.reports.get(peer, ())
        if attached and peer not in participant.attached:
            participant.attached[peer] = None
            participant.handler.attached(peer)
        elif not attached and peer in participant.attached:
            del participant.attached[peer]
            participant.handler.detached(peer)

    # Leases.

    def _silent_since(self, peer: SimulatedParticipant, participant: SimulatedParticipant) -> float | None:
        """Return since when `participant` has not heard `peer`; None while it does."""
        cut = self._cut.get((peer.host, participant.host))
        if cut is None or peer.silent_since is None:
            return cut if peer.silent_since is None else peer.silent_since
        return min(cut, peer.silent_since)

    def _watch(self, participant: SimulatedParticipant, peer: SimulatedParticipant) -> None:
        """Check at its end whether the lease of `peer` has expired for `participant`."""
        since = self._silent_since(peer, participant)
        assert since is not None
        unheard = self._rng.uniform(0.0, self._plan.announce_s)
        self._schedule.at(since + self._plan.lease_s - unheard, self._expire, participant, peer)

    def _expire(self, participant: SimulatedParticipant, peer: SimulatedParticipant) -> None:
        since = self._silent_since(peer, participant)
        if since is None or participant.is_frozen or not participant.is_alive:
            return
        if self._schedule.now >= since + self._plan.lease_s - self._plan.announce_s:
            self._unmatch(participant, peer)
        else:  # the link was cut when the peer died, and has come back
            self._schedule.at(since + self._plan.lease_s, self._expire, participant, peer)
