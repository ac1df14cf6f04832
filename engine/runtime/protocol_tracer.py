"""Trace lines on messages and sets on their way (deployment guide 5.5), at FINER and FINEST.

A reader of the traces of two nodes can follow a request by its number (`source`), from `align.request` on
the alignee over `align.answering` and `align.group-sent` on the aligner to `align.group-received`,
`merge.injected` and `align.completed` on the alignee. Fields of disabled trace lines are not computed.
"""

from __future__ import annotations

from typing import Final

from engine.core.events import AligneeRequest
from engine.core.fellows import Fellow
from engine.core.messages import DeleteData, Message, NameSpaceReport, NameSpaces, Status
from engine.core.states import ServiceState
from engine.dataset.dataset import DataSet
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
from engine.runtime.incoming import IncomingStream
from engine.runtime.shared_state import SharedState


class ProtocolTracer:
    """The part of a runtime that traces messages and streams."""

    def __init__(self, shared: SharedState) -> None:
        self._core = shared.core
        self._tracer = shared.tracer
        self._event = shared.tracer.event

    # Messages.

    def receives(self, message: Message, sender: str) -> None:
        """Trace a message of a fellow before the core takes it."""
        if isinstance(message, Status):
            if self._tracer.wants("fellow.heartbeat"):
                self._heartbeat(message, sender, self._core.fellow(sender))
        elif isinstance(message, DeleteData):
            expression = f"{message.partition}.{message.topic}"
            self._event("delete.received", expression=expression, origin=self._core.name_of(sender))
        elif isinstance(message, NameSpaces) and self._tracer.wants("namespace.received"):
            self._name_spaces(message, sender, self._core.fellow(sender))

    def _heartbeat(self, status: Status, sender: str, known: Fellow | None) -> None:
        self._event("fellow.heartbeat", fellow=status.name, state=status.state, sequence=status.serial)
        before = known.status if known is not None and known.incarnation == status.incarnation else None
        if before is None or before.state != status.state:
            self._event("fellow.state", fellow=status.name, state=status.state)

    def _name_spaces(self, message: NameSpaces, sender: str, known: Fellow | None) -> None:
        fellow = self._core.name_of(sender)
        role = known.role if known is not None else ""
        for report in message.reports:
            before = known.report(report.name) if known is not None else None
            if report != before:
                self._report(report, before, fellow, role)
        count = len(message.reports)
        self._event("namespace.received-all", count=count, total=count, fellow=fellow)

    def _report(
        self, report: NameSpaceReport, before: NameSpaceReport | None, fellow: str, role: str
    ) -> None:
        following, name = report.following, report.name
        self._event(
            "namespace.received",
            namespace=name,
            fellow=fellow,
            master=self._core.name_of(following.node) if following else None,
            confirmed=following is not None,
            role=role,
            merge_state=report.lineage,
            quality_ns=max(0, report.quality_ns),
            priority=report.master_priority,
        )
        if before is None and not (report.aligner and report.master_priority):
            reason = "its masterPriority is 0" if report.aligner else "it is not an aligner"
            self._event("election.rejected", fellow=fellow, namespace=name, reason=reason)
        vote = report.vote
        if vote is not None and vote.choice and vote != (before.vote if before is not None else None):
            choice = self._core.name_of(vote.choice)
            self._event(
                "election.fellow-proposes", fellow=fellow, master=choice, namespace=name, epoch=vote.counter
            )
        ours = next((state for state in self._core.name_spaces if state.name == name), None)
        if ours is None or ours.following is None or following is None or following == ours.following:
            return
        if before is None or before.following != following:
            self._event("conflict.master", namespace=name, fellow=fellow, conflict=following)

    def sends(self, message: Message) -> None:
        """Trace an outgoing message."""
        if isinstance(message, NameSpaces):
            self._event("namespace.sent", count=len(message.reports), fellow="*")

    # Sets.

    def answering(
        self, name_space: str, targets: tuple[AligneeRequest, ...], held: DataSet, answer: str, count: int
    ) -> None:
        """Trace a stream that answers requests; `answer` describes it, `count` is its number of samples."""
        for target in targets:
            fellow = self._core.name_of(target.node)
            self._event(
                "align.answering",
                source=target.request,
                purpose=target.purpose,
                fellow=fellow,
                group=name_space,
                answer=answer,
                samples=count,
            )
            if self._tracer.wants("align.group-sent"):
                for group, group_set in sorted(held.groups.items()):
                    self._event(
                        "align.group-sent",
                        group=group,
                        samples=group_set.count,
                        fellow=fellow,
                        source=target.request,
                    )

    def arrives(self, incoming: IncomingStream) -> None:
        """Trace a batch of a wanted stream."""
        if not self._tracer.wants("align.progress"):
            return
        name, fellow = incoming.begin.name_space, self._core.name_of(incoming.begin.aligner)
        self._event("align.progress", expected=incoming.begin.count, received=incoming.samples, group=name)
        if incoming.is_whole:
            self._event(
                "align.link", fellow=fellow, group=name, samples=incoming.samples, bytes=incoming.bytes
            )

    def is_stray(self, incoming: IncomingStream) -> None:
        """Trace a batch of a stream that no request waits for."""
        self._event(
            "align.stray-link",
            group=incoming.begin.name_space,
            fellow=self._core.name_of(incoming.begin.aligner),
            source=incoming.target.request,
        )

    def injects(self, incoming: IncomingStream) -> None:
        """Trace a whole set, or a whole difference, that is put in place."""
        if not self._tracer.wants("merge.injected"):
            return
        fellow, source = self._core.name_of(incoming.begin.aligner), incoming.target.request
        for group, group_set in sorted(incoming.data.groups.items()):
            statuses = [sample.status for sample in group_set.samples()]
            self._event(
                "align.group-received", group=group, samples=len(statuses), fellow=fellow, source=source
            )
            self._event("merge.applying", policy=incoming.target.purpose, group=group)
            self._event(
                "merge.injected",
                group=group,
                total=len(statuses),
                writes=statuses.count(DATA),
                disposes=statuses.count(DISPOSE),
                write_disposes=statuses.count(DATA | DISPOSE),
                unregisters=sum(bool(status & UNREGISTER) for status in statuses),
            )


# There is one in practice: a copied machine. The bound is for a forger.
MAX_TOLD: Final = 100
"""Runs of other processes with this node's id that are traced."""
_ENDING = (ServiceState.TERMINATING, ServiceState.TERMINATED)


class SharedIdentity:
    """Reports processes that send messages in the name of this node, as after copying its store.

    A process that ends may still send when the next one on its store has started; it says that it ends.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._tracer = shared.tracer
        self._traced_lives: set[tuple[int, int]] = set()

    def heard(self, message: Message) -> str:
        """Take a message of another participant that has this node's id; heartbeats show that it lives.

        Returns:
            Why this node must end; empty if the other one must. The one that is complete stays, else the one
            of the later run: both decide this by the same two heartbeats.
        """
        if not isinstance(message, Status) or message.state in _ENDING:
            return ""
        settings = self._shared.settings
        if (message.incarnation, message.life) not in self._traced_lives and len(
            self._traced_lives
        ) < MAX_TOLD:
            self._traced_lives.add((message.incarnation, message.life))
            self._tracer.event("identity.shared", fellow=message.name, host=message.host)
        own = (self._shared.core.state is ServiceState.COMPLETE, settings.incarnation, settings.life)
        theirs = (message.state is ServiceState.COMPLETE, message.incarnation, message.life)
        if not message.life or own >= theirs:
            self._shared.core.double_heard(message.life)
            return ""
        return (
            f"node {message.name} on {message.host} is running with the id of this node, so the store of one "
            "is a copy of that of the other. Stop the node that has the copy, remove its store directory and "
            "start it again: it gets an id of its own and takes its data from its fellows"
        )

    def ended(self) -> None:
        """Note that the last participant that had this node's id is gone."""
        if self._traced_lives:
            self._traced_lives.clear()
            self._tracer.event("identity.unique")
