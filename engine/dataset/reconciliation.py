"""Identities of samples, and the difference of two sets told by them, at the cost of the difference.

Each sample of a set has a 64-bit *identity*: its digest and its group, hashed with a salt that is new for
every comparison, so that prepared samples cannot collide. What only one of two sets has is found from
symbols (`engine.dataset.rateless`), or from all identities.

The caller verifies a result by the roots (count and digest) of the sets, because identities may collide and
symbols may come from a damaged peer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from engine.core.name_spaces import Group
from engine.dataset import rateless
from engine.dataset.dataset import weight_of
from engine.dataset.rateless import Difference, Stepwise, Words, compiled
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from engine.dataset.numpy_later import np


def identities(groups: Iterable[tuple[Group, SampleRows]], salt: bytes) -> Stepwise[Words]:
    """Compute the identities of samples, in the given order."""
    parts = []
    for group, samples in groups:
        keyed = hashlib.blake2b(weight_of(group).to_bytes(16), key=salt, digest_size=24).digest()
        keys = np.frombuffer(keyed, dtype="<u8").astype(np.uint64)
        keys[2] |= np.uint64(1)
        for some in samples.split(rateless.STEP):
            parts.append(_hashed(some.digests(), keys))
            yield
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def _hashed(digests: bytes, keys: Words) -> Words:
    """Return the identities of samples with these digests, of one group."""
    halves = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    made = np.empty(len(halves), dtype=np.uint64)
    compiled().rateless_identities(halves.ctypes.data, keys.ctypes.data, len(halves), made.ctypes.data)
    return made


def from_list(data: bytes, count: int) -> Words:
    """Return the identities in a list.

    Raises:
        ValueError: the bytes are not `count` identities.
    """
    if len(data) != 8 * count:
        raise ValueError(f"{len(data)} bytes are not {count} identities")
    return np.frombuffer(data, "<u8").astype(np.uint64)


def samples_at(
    groups: Sequence[tuple[Group, SampleRows]], places: npt.NDArray[np.int64]
) -> Stepwise[dict[Group, list[Sample]]]:
    """Return the samples at these places, which count through all groups as in `identities`."""
    found: dict[Group, list[Sample]] = {}
    begin = 0
    ordered = np.sort(places)
    for group, samples in groups:
        for some in samples.split(rateless.STEP):
            end = begin + len(some)
            here = ordered[np.searchsorted(ordered, begin) : np.searchsorted(ordered, end)]
            if len(here):
                found.setdefault(group, []).extend(some.at((here - begin).tolist()))
                yield
            begin = end
    return found


def compare(ours: Words, theirs: Words) -> Stepwise[Difference]:
    """Compute the difference of two sets from all their identities."""
    ours, theirs = np.sort(ours), np.sort(theirs)
    yield
    only_ours = yield from _missing(ours, theirs)
    only_theirs = yield from _missing(theirs, ours)
    return Difference(only_ours, only_theirs)


def _missing(words: Words, others: Words) -> Stepwise[Words]:
    """Return the words that are not among `others`, each once; both are in order."""
    parts = [np.empty(0, dtype=np.uint64)]
    for begin in range(0, len(words), rateless.STEP):
        some = words[begin : begin + rateless.STEP]
        parts.append(some[~_among(some, others)])
        yield
    missing = np.concatenate(parts)
    is_first = np.ones(len(missing), dtype=np.bool_)
    is_first[1:] = missing[1:] != missing[:-1]
    return missing[is_first]


def _among(words: Words, others: Words) -> npt.NDArray[np.bool_]:
    """Tell for each word whether it is among `others`, which are in order."""
    if not len(others):
        return np.zeros(len(words), dtype=np.bool_)
    places = np.searchsorted(others, words)
    found: npt.NDArray[np.bool_] = others[np.minimum(places, len(others) - 1)] == words
    return found


def absent(words: Words, here: Words) -> Stepwise[Words]:
    """Return those of the words that are not in `here`, in order."""
    wanted = np.unique(words)
    parts = [np.empty(0, dtype=np.uint64)]
    for begin in range(0, len(here), rateless.STEP):
        some = here[begin : begin + rateless.STEP]
        parts.append(some[_among(some, wanted)])
        yield
    return np.setdiff1d(wanted, np.concatenate(parts))


def positions(identities: Words, wanted: Words) -> Stepwise[npt.NDArray[np.int64] | None]:
    """Return the places of the wanted identities; None if one is missing or occurs more than once."""
    ordered = np.unique(wanted)
    parts = [np.empty(0, dtype=np.int64)]
    for begin in range(0, len(identities), rateless.STEP):
        some = identities[begin : begin + rateless.STEP]
        parts.append(np.flatnonzero(_among(some, ordered)) + begin)
        yield
    places = np.concatenate(parts)
    found = identities[places]
    order = np.argsort(found)
    if len(found) != len(ordered) or (found[order] != ordered).any():
        return None
    return places[order][np.searchsorted(ordered, wanted)]
