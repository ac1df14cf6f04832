from __future__ import annotations

import dataclasses
import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.supervisor.policy import (
    EXIT_CONFIGURATION,
    EXIT_DIED,
    EXIT_ENDED,
    FINAL,
    RESTART_LIMIT,
    RESTART_WINDOW_S,
    START_GRACE_S,
    STOOD_STILL_S,
    Action,
    NodePhase,
    SupervisionPolicy,
    SupervisionRules,
    SupervisorAction,
)

EXPIRY_S = 10.0
TERMINATE_S = 8.0


def watch(action: Action) -> SupervisionPolicy:
    made = SupervisionPolicy(SupervisionRules(EXPIRY_S, TERMINATE_S, action))
    assert made.begin(0.0) == [SupervisorAction.START]
    return made


def phase_of(node: SupervisionPolicy) -> NodePhase:
    return node.phase


def has_run(node: SupervisionPolicy) -> bool:
    return node.has_run


def running(action: Action) -> SupervisionPolicy:
    made = watch(action)
    made.renewed(1.0, "DISCOVER_FELLOWS_GROUPS")
    assert made.phase is NodePhase.RUNNING
    return made


def test_a_node_is_starting_until_it_leaves_init() -> None:
    node = watch(Action.SKIP)
    node.renewed(1.0, "INIT")
    node.renewed(2.0, "")
    assert (phase_of(node), has_run(node)) == (NodePhase.STARTING, False)
    node.renewed(3.0, "COMPLETE")
    assert (phase_of(node), has_run(node)) == (NodePhase.RUNNING, True)
    node.exited(4.0, EXIT_CONFIGURATION)
    assert (phase_of(node), has_run(node)) == (NodePhase.DIED, True)


@pytest.mark.parametrize("first", [START_GRACE_S, EXPIRY_S + 1.0], ids=["starting", "running"])
def test_a_supervisor_that_stood_still_waits_for_the_lease_again(first: float) -> None:
    node = watch(Action.KILL) if first == START_GRACE_S else running(Action.KILL)
    late = first + STOOD_STILL_S + 0.1
    assert node.timer(late) == []
    assert node.next_timer() == late + EXPIRY_S
    node.renewed(late + 1.0, "COMPLETE")
    assert node.timer(late + 1.0 + EXPIRY_S) == [SupervisorAction.KILL]


def test_the_first_renewal_may_take_longer_than_the_lease() -> None:
    node = watch(Action.KILL)
    assert node.next_timer() == START_GRACE_S
    assert node.timer(START_GRACE_S - 0.1) == []
    assert node.timer(START_GRACE_S) == [SupervisorAction.KILL]


def test_every_renewal_moves_the_end_of_the_lease() -> None:
    node = running(Action.KILL)
    for now in (5.0, 14.0, 23.0):
        assert node.timer(now) == []
        node.renewed(now, "COMPLETE")
        assert node.next_timer() == now + EXPIRY_S


@pytest.mark.parametrize(
    ("action", "commands", "phase"),
    [
        (Action.SKIP, [], NodePhase.RUNNING),
        (Action.KILL, [SupervisorAction.KILL], NodePhase.KILLING),
        (Action.RESTART, [SupervisorAction.KILL], NodePhase.KILLING),
        (Action.SYSTEM_HALT, [SupervisorAction.TERMINATE], NodePhase.STOPPING),
    ],
)
def test_a_lease_that_expires_has_the_configured_consequence(
    action: Action, commands: list[SupervisorAction], phase: NodePhase
) -> None:
    for cause, told in ("", ""), ("watch did not proceed", ": watch did not proceed"):
        node = running(action)
        assert node.timer(1.0 + EXPIRY_S, functools.partial(str, cause)) == commands
        assert node.phase is phase
        assert node.reason == f"the node did not renew its lease within 10 s{told}"


@pytest.mark.parametrize(
    ("action", "phase", "exit_code"),
    [
        (Action.KILL, NodePhase.DIED, EXIT_DIED),
        (Action.RESTART, NodePhase.RESTARTING, EXIT_ENDED),
        (Action.SYSTEM_HALT, NodePhase.DIED, EXIT_DIED),
    ],
)
def test_after_an_expired_lease_the_exit_completes_the_action(
    action: Action, phase: NodePhase, exit_code: int
) -> None:
    node = running(action)
    node.timer(11.0)
    node.exited(12.0, -9)
    assert (node.phase, node.exit_code) == (phase, exit_code)


def test_a_skipped_node_may_come_back() -> None:
    node = running(Action.SKIP)
    node.timer(11.0)
    assert (node.is_unresponsive, node.next_timer()) == (True, None)
    node.renewed(50.0, "COMPLETE")
    assert (node.is_unresponsive, node.next_timer()) == (False, 60.0)
    assert (node.reason, node.failure) == ("", "the node did not renew its lease within 10 s")


def test_a_restarted_node_that_runs_again_has_no_reason_but_a_past() -> None:
    node = running(Action.RESTART)
    assert (node.failure, node.failures) == ("", 0)
    node.exited(2.0, -9)
    assert "killed by signal 9" in node.reason
    node.timer(node.next_timer() or 0)
    assert (node.phase, "killed by signal 9" in node.reason) == (NodePhase.STARTING, True)
    node.renewed(4.0, "DISCOVER_FELLOWS_GROUPS")
    assert (node.phase, node.reason) == (NodePhase.RUNNING, "")
    assert (node.failure, node.failures) == ("the node ended unexpectedly (killed by signal 9)", 1)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize(
    ("exit_code", "phase", "supervisor_exit"),
    [(0, NodePhase.ENDED, EXIT_ENDED), (EXIT_CONFIGURATION, NodePhase.DIED, EXIT_CONFIGURATION)],
)
def test_an_orderly_end_and_a_bad_configuration_are_never_restarted(
    action: Action, exit_code: int, phase: NodePhase, supervisor_exit: int
) -> None:
    node = running(action)
    assert node.exited(2.0, exit_code) == [SupervisorAction.END]
    assert (node.phase, node.exit_code) == (phase, supervisor_exit)


@pytest.mark.parametrize("action", [Action.SKIP, Action.KILL, Action.SYSTEM_HALT])
def test_a_crash_ends_the_supervisor_unless_it_restarts(action: Action) -> None:
    node = running(action)
    assert node.exited(2.0, -11) == [SupervisorAction.END]
    assert (node.phase, node.exit_code) == (NodePhase.DIED, EXIT_DIED)
    assert "killed by signal 11" in node.reason


def test_restarts_are_delayed_and_bounded() -> None:
    node = running(Action.RESTART)
    now, delays = 2.0, []
    for _ in range(RESTART_LIMIT):
        assert node.exited(now, 1) == []
        due = node.next_timer()
        assert due is not None
        delays.append(due - now)
        now = due
        assert node.timer(now) == [SupervisorAction.START]
    assert delays == sorted(delays)
    assert delays[-1] <= 4.0
    assert node.exited(now, 1) == [SupervisorAction.END]
    assert node.phase is NodePhase.DIED
    assert node.restarts == RESTART_LIMIT


def test_restarts_long_ago_do_not_count() -> None:
    node = running(Action.RESTART)
    now = 2.0
    for _ in range(3 * RESTART_LIMIT):
        now += RESTART_WINDOW_S / RESTART_LIMIT + 1
        assert node.exited(now, 1) == []
        now = node.next_timer() or 0
        assert node.timer(now) == [SupervisorAction.START]
        node.renewed(now, "COMPLETE")


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize(("is_permanent", "exit_code"), [(True, EXIT_CONFIGURATION), (False, EXIT_DIED)])
def test_a_program_that_cannot_be_started_is_tried_again_only_if_that_may_help(
    action: Action, is_permanent: bool, exit_code: int
) -> None:
    node = watch(action)
    restarts = action is Action.RESTART and not is_permanent
    assert node.start_failed(0.1, "no such file", is_permanent=is_permanent) == (
        [] if restarts else [SupervisorAction.END]
    )
    assert node.reason == "the node could not be started: no such file"
    assert node.exit_code == (EXIT_ENDED if restarts else exit_code)


@pytest.mark.parametrize("action", list(Action))
def test_a_stop_gives_the_node_its_time_and_then_ends_it(action: Action) -> None:
    node = running(action)
    assert node.stop(20.0, "stopped by SIGTERM") == [SupervisorAction.TERMINATE]
    assert node.stop(21.0, "stopped by SIGINT") == []
    assert node.next_timer() == 20.0 + TERMINATE_S
    assert node.renewed(22.0, "TERMINATING") == []
    assert node.timer(20.0 + TERMINATE_S) == [SupervisorAction.KILL]
    assert node.exited(29.0, -9) == [SupervisorAction.END]
    assert (node.phase, node.exit_code) == (NodePhase.ENDED, EXIT_DIED)
    assert "within 8 s" in node.reason


def test_a_node_that_obeys_ends_in_order() -> None:
    node = running(Action.RESTART)
    node.stop(20.0, "stopped by SIGTERM")
    assert node.exited(21.0, 0) == [SupervisorAction.END]
    assert (node.phase, node.exit_code, node.reason) == (NodePhase.ENDED, EXIT_ENDED, "stopped by SIGTERM")


def test_a_stop_while_waiting_for_a_restart_ends_at_once() -> None:
    node = running(Action.RESTART)
    node.exited(2.0, 1)
    assert node.stop(2.1, "stopped by SIGTERM") == [SupervisorAction.END]
    assert node.phase is NodePhase.ENDED


@dataclasses.dataclass
class Model:
    """The world as the commands make it."""

    has_node: bool = False
    told_at: float | None = None
    ended: bool = False


@given(
    st.sampled_from(list(Action)),
    st.lists(
        st.tuples(
            st.floats(0, 40, allow_nan=False),
            st.sampled_from(["renew", "init", "exit0", "exit1", "exit2", "killed", "stop", "timer"]),
        ),
        max_size=60,
    ),
)
def test_no_order_of_events_breaks_the_rules(action: Action, steps: list[tuple[float, str]]) -> None:
    node, world, now = SupervisionPolicy(SupervisionRules(EXPIRY_S, TERMINATE_S, action)), Model(), 0.0
    starts: list[float] = []

    def obey(commands: list[SupervisorAction]) -> None:
        for command in commands:
            assert not world.ended
            match command:
                case SupervisorAction.START:
                    assert not world.has_node
                    world.has_node = True
                    starts.append(now)
                case SupervisorAction.TERMINATE:
                    assert world.has_node
                    world.told_at = now
                case SupervisorAction.KILL:
                    assert world.has_node
                    assert world.told_at is None or now >= world.told_at + TERMINATE_S
                case SupervisorAction.END:
                    assert not world.has_node
                    world.ended = True

    obey(node.begin(now))
    for pause, step in steps:
        now += pause
        exit_codes = {"exit0": 0, "exit1": 1, "exit2": 2, "killed": -9}
        if step in ("renew", "init") and world.has_node:
            obey(node.renewed(now, "COMPLETE" if step == "renew" else "INIT"))
        elif step in exit_codes and world.has_node:
            world.has_node = False
            obey(node.exited(now, exit_codes[step]))
        elif step == "stop":
            obey(node.stop(now, "stop"))
        elif step == "timer":
            obey(node.timer(now))
        assert world.ended == (node.phase in FINAL)
        if world.ended:
            assert node.next_timer() is None
        else:
            assert world.has_node or node.phase is NodePhase.RESTARTING
    for start in starts[1:]:
        assert sum(start <= other < start + RESTART_WINDOW_S for other in starts[1:]) <= RESTART_LIMIT + 1
