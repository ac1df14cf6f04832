"""Roles and policies drawn for the nodes of a run, within valid configurations."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.core.name_spaces import Alignee, Durability, MergeRule, MergeType, Policy

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

ROLES: Final = ("Harbour", "Bridge")
TWO_ROLES: Final = 0.25
"""Chance that a system has two roles."""
PLAIN_MERGE: Final = 0.5
"""Chance that all nodes merge, within their role and with the other."""
UNUSUAL: Final = 0.35
"""Chance that one node's policy differs from the others'."""


def draw_roles(rng: random.Random, count: int) -> list[str]:
    """Draw the role of each node; every role has a node."""
    if count < 2 or rng.random() >= TWO_ROLES:
        return [ROLES[0]] * count
    border = rng.randint(1, count - 1)
    return [ROLES[number >= border] for number in range(count)]


def draw_policies(rng: random.Random, roles: Sequence[str], names: Sequence[str]) -> list[tuple[Policy, ...]]:
    """Draw the policies of each node, one for each name-space.

    Within a role all nodes have the same merge policies, and one may be master, as it must be.
    """
    plain = rng.random() < PLAIN_MERGE
    rules = {
        (role, name): _rules(rng, role, set(roles), plain=plain)
        for role in sorted(set(roles))
        for name in names
    }
    priorities = [
        priority or 1 if _is_last_of_role(roles, number) else priority
        for number, priority in enumerate(_priorities(rng, len(roles)))
    ]
    found = [
        tuple(
            Policy(
                name,
                durability=Durability.PERSISTENT,
                master_priority=priority,
                merges=rules[role, name],
            )
            for name in names
        )
        for role, priority in zip(roles, priorities, strict=True)
    ]
    if len(roles) > 1 and rng.random() < UNUSUAL:
        _make_unusual(rng, roles, found)
    return found


def _is_last_of_role(roles: Sequence[str], number: int) -> bool:
    return roles[number] not in roles[number + 1 :]


def _rules(rng: random.Random, role: str, roles: set[str], *, plain: bool) -> tuple[MergeRule, ...]:
    if plain:
        return (MergeRule(MergeType.MERGE, "*"),)
    own = MergeRule(rng.choice(list(MergeType)), role)
    others = (MergeRule(rng.choice(list(MergeType)), other) for other in sorted(roles - {role}))
    return (own, *others)


def _make_unusual(rng: random.Random, roles: Sequence[str], found: list[tuple[Policy, ...]]) -> None:
    """Change the policies of one node whose role has another that may be master."""
    candidates = [
        number
        for number, role in enumerate(roles)
        if any(
            other == role and policies[0].may_be_master and number != index
            for index, (other, policies) in enumerate(zip(roles, found, strict=True))
        )
    ]
    if not candidates:
        return
    number = rng.choice(candidates)
    change = rng.choice(
        (
            {"aligner": False},
            {"master_priority": 0},
            {"alignee": Alignee.LAZY, "master_priority": 0},
            {"alignee": Alignee.ON_REQUEST, "aligner": False},
            {"durability": Durability.TRANSIENT},
            {"delayed_alignment": True},
        )
    )
    found[number] = tuple(dataclasses.replace(policy, **change) for policy in found[number])


def _priorities(rng: random.Random, count: int) -> list[int]:
    kind = rng.choice(("legacy", "equal", "different", "any"))
    if kind == "legacy":
        return [255] * count
    if kind == "equal":
        return [100] * count
    if kind == "different":
        return rng.sample(range(1, 255), count)
    return [rng.choice((0, 50, 100)) for _ in range(count - 1)] + [100]
