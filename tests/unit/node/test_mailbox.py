"""What other threads post is carried out by the owner, in order, and batches wait for room."""

from __future__ import annotations

import threading

import pytest

from engine.capture import shell
from engine.capture.shell import Mailbox, ignore


def test_what_waits_is_carried_out_in_order_and_what_comes_meanwhile_waits() -> None:
    box, done = Mailbox(), list[int]()

    def first() -> None:
        done.append(1)
        box.post(lambda: done.append(3))

    box.post(first)
    box.post(lambda: done.append(2))
    box.wait(1.0)
    box.carry_out()
    assert done == [1, 2]
    box.carry_out()
    assert done == [1, 2, 3]


def test_an_owner_that_waits_is_woken_by_another_thread() -> None:
    box = Mailbox()
    thread = threading.Thread(target=box.wake)
    thread.start()
    box.wait(60.0)
    box.carry_out()
    thread.join()
    box.wait(0.0)


def test_a_task_that_fails_comes_through_and_those_behind_it_stay() -> None:
    box, done = Mailbox(), list[int]()

    def fail() -> None:
        raise ValueError("broken")

    box.post(fail)
    box.post(lambda: done.append(1))
    with pytest.raises(ValueError, match="broken"):
        box.carry_out()
    box.carry_out()
    assert done == [1]


def test_batches_wait_for_room_until_the_owner_has_taken_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MAX_WAITING", 2)
    box, handled = Mailbox(), list[int]()
    box.post_batch(ignore, [0])
    box.post_batch(handled.extend, [1])
    thread = threading.Thread(target=box.post_batch, args=(handled.extend, [2]))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    box.carry_out()
    thread.join()
    box.carry_out()
    assert handled == [1, 2]
