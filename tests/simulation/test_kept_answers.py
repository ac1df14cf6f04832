"""What nodes keep instead of finding it in each turn is what they would find."""

from __future__ import annotations

import msgspec
import pytest

from engine.core import mastership
from engine.core.context import Context
from engine.core.election import Decision
from engine.core.messages import NameSpaces, Status
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import DefinitionConflict, Group, NameSpace, Policy
from engine.core.node import DurabilityNode
from engine.core.settings import CoreSettings
from engine.core.states import ServiceState
from engine.runtime.runtime import Runtime
from engine.simulator.campaign import Campaign


def check_kept(runtime: Runtime) -> None:
    context = runtime.core._context
    fellows = context.fellows
    assert list(fellows.all()) == sorted(fellows._fellows.values(), key=lambda fellow: fellow.node)
    assert fellows.heard() == tuple(fellow.node for fellow in fellows.all())
    assert list(fellows.pending()) == [one for one in fellows.all() if not (one.approved or one.conflict)]
    for fellow in fellows.all():
        status = fellow.status
        told = (status.name, status.role, status.expiry_s) if status else (fellow.node[:8], "", 10.0)
        assert (fellow.name, fellow.role, fellow.expiry_s) == told
    for state in context.states.values():
        assert list(context.role_fellows(state)) == context._reports_of(state.name, is_ours=True)
        assert list(context.foreign_fellows(state)) == context._reports_of(state.name, is_ours=False)
    for group in runtime.descriptions:
        states = context.states.values()
        assert runtime.core.name_space_of(group) is next(
            (state for state in states if state.name_space.contains(group)), None
        )
    for data in runtime.spaces.values():
        if not data.has_changed:
            summary, told_up = data.applied.summary(), data.state.roll_up
            assert (summary.count, summary.digest) == (told_up.count, told_up.digest)


@pytest.mark.parametrize("seed", [2, 7, 11])
def test_nothing_that_is_kept_is_outdated(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    turn, message, decide = Runtime.turn, Runtime.message, mastership._decide
    checks = 0

    def checked_turn(runtime: Runtime) -> float:
        nonlocal checks
        due = turn(runtime)
        check_kept(runtime)
        checks += 1
        return due

    def checked_message(runtime: Runtime, topic: str, sender: str, payload: bytes) -> bool:
        needs_turn = message(runtime, topic, sender, payload)
        check_kept(runtime)
        return needs_turn

    def checked_decision(context: Context, state: NameSpaceState, now: float) -> Decision:
        decision = decide(context, state, now)
        state.outline = None
        assert decide(context, state, now) is decision, "on these grounds it must be made again"
        return decision

    monkeypatch.setattr(Runtime, "turn", checked_turn)
    monkeypatch.setattr(Runtime, "message", checked_message)
    monkeypatch.setattr(mastership, "_decide", checked_decision)
    outcome = Campaign(minutes=0.5).run(seed)
    assert not outcome.violation
    assert checks > 100


def make_core() -> DurabilityNode:
    settings = CoreSettings(
        node="m",
        incarnation=1,
        name="m",
        role="r",
        host="h",
        name_spaces=(NameSpace.parse("one", "p.*"),),
        policies=(Policy("*"),),
    )
    return DurabilityNode(settings, 0.0, wall_ns=0)


def test_what_a_fellow_says_counts_at_once() -> None:
    core = make_core()
    context, state = core._context, core.name_spaces[0]
    fellows = context.fellows
    status = Status(1, 1, "a", "r", "h", ServiceState.COMPLETE, 1.0, 10.0, 0)
    taken = fellows.receive(status, "a", 0.0)
    assert taken is not None
    fellow = taken[0]
    fellows.judge(fellow, approved=True)
    assert not context.role_fellows(state)
    report = state.report()
    fellows.receive(NameSpaces(1, 2, (report,)), "a", 0.0)
    assert list(context.role_fellows(state)) == [(fellow, report)]
    fellows.receive(msgspec.structs.replace(status, serial=3, role="other"), "a", 0.0)
    assert not context.role_fellows(state)
    assert list(context.foreign_fellows(state)) == [(fellow, report)]
    fellows.judge(fellow, approved=False)
    assert fellows.pending() == (fellow,)
    fellows.compared(fellow, DefinitionConflict(state.name_space, state.name_space, None))
    assert not fellows.pending()
    fellows.compared(fellow, None)
    assert fellows.pending() == (fellow,)


def test_a_group_outside_all_name_spaces_is_looked_up_again() -> None:
    core = make_core()
    group = Group("q", "T")
    assert core.name_space_of(Group("p", "T")) is core._context.states["one"]
    assert core.name_space_of(group) is None
    core._context.states["two"] = state = NameSpaceState(NameSpace.parse("two", "q.*"), Policy("*"))
    assert core.name_space_of(group) is state
