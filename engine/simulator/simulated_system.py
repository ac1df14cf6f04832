"""A whole system, as the parts that watch or disturb a run see it: checkers, faults, wires."""

from __future__ import annotations

from typing import Protocol

from engine.core.messages import ReaderKey
from engine.core.name_spaces import Group
from engine.dataset.captured import CapturedSample
from engine.dataset.sample import Sample
from engine.simulator.applications import RandomWriter, Reader, Writer
from engine.simulator.run_record import ShortLog, Statistics
from engine.simulator.simulated_node import SimulatedNode, Surroundings
from engine.simulator.write_ledger import WriteLedger


class SimulatedSystem(Surroundings, Protocol):
    """The nodes and applications of one run, and what is known of it.

    Attributes:
        readers: living reader processes by participant.
        all_readers: those, and the ones that have ended.
        by_guid: writing processes, also those that have ended, by the GUIDs of their writers.
    """

    nodes: list[SimulatedNode]
    writers: list[RandomWriter]
    by_guid: dict[bytes, Writer]
    readers: dict[str, Reader]
    all_readers: list[Reader]
    statistics: Statistics
    ledger: WriteLedger
    log: ShortLog

    def up(self) -> list[SimulatedNode]:
        """Return the nodes that are up."""

    def name_of(self, node_id: str) -> str:
        """Return the name of a node."""

    def start_writer(self) -> None:
        """Start another process that writes at random."""

    def written_s(self, group: Group, sample: Sample | CapturedSample) -> float:
        """Return the true time at which a sample was written, independent of its timestamp."""

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Take in a flipped bit of a sample on a node's disk."""

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], samples: int) -> None:
        """Take in that a node begins to send a set to fellows."""

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """Take in that a node begins to serve a late joiner. It gets the whole set, or a difference."""
