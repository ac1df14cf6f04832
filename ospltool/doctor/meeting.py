"""The writers and readers with a common partition, found without comparing every pair."""

from __future__ import annotations

from collections.abc import Iterable

from engine.core import expressions
from ospltool.doctor.picture import Endpoint

Endpoints = dict[str, Endpoint]
"""By GUID."""


def meeting(writers: Iterable[Endpoint], readers: Iterable[Endpoint]) -> tuple[Endpoints, Endpoints]:
    """Return the writers that meet a reader, and the readers that meet a writer.

    Two expressions do not match each other (DDS 1.4, 2.2.3.13 PARTITION).
    """
    by_writer, by_reader = _by_partition(writers), _by_partition(readers)
    literal, wild = _divided(by_reader)
    met_writers: Endpoints = {}
    met_readers: Endpoints = {}
    for name, those in by_writer.items():
        if expressions.is_literal(name):
            others = [each for each in wild if expressions.matches(each, name)]
            others += [name] if name in by_reader else []
        else:
            others = [each for each in literal if expressions.matches(name, each)]
        if others:
            met_writers.update((each.guid, each) for each in those)
        for other in others:
            met_readers.update((each.guid, each) for each in by_reader[other])
    return met_writers, met_readers


def _by_partition(endpoints: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        for name in endpoint.partitions or ("",):
            found.setdefault(name, []).append(endpoint)
    return found


def _divided(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Separate names from expressions."""
    every = list(names)
    return (
        [name for name in every if expressions.is_literal(name)],
        [name for name in every if not expressions.is_literal(name)],
    )
