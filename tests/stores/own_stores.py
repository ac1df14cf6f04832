"""Stores of our own nodes, made up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import Sample
from engine.node.disk import open_store

NAME_SPACE = "stock"


def described(partition: str, topic: str = "T", depth: int = 0) -> GroupDescription:
    """A group of a type that nobody can decode."""
    type_ = TypeDescription("Type", b"information", b"mapping" * 20, keyed=True)
    return GroupDescription(
        Group(partition, topic, type_.type_id), type_, GroupQos(DurabilityKind.PERSISTENT, depth)
    )


def write_ours(directory: Path, groups: Mapping[GroupDescription, Collection[Sample]]) -> Path:
    """The store of a node that has ended, with one complete set."""
    store = open_store(directory, "n1")
    writer = store.begin_set(NAME_SPACE)
    for description, samples in groups.items():
        writer.add(description, sorted(samples))
    store.commit_complete(writer)
    store.close()
    return directory
