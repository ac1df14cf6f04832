"""The deliveries that a node shows to consoles."""

from __future__ import annotations

from engine.core.messages import ReaderKey
from engine.node.wire import DELIVERIES_SHOWN, ShownDeliveries
from engine.runtime.monitor import DeliveryView


def delivery(number: int, problem: str = "") -> tuple[ReaderKey, DeliveryView]:
    state = "failed" if problem else "done"
    view = DeliveryView(str(number), "T", "p", state, 0, number, number + 1, problem)
    return ReaderKey(str(number), "T", ("p",), "n"), view


def test_readers_without_their_history_are_shown_while_they_are_there_and_the_number_is_bounded() -> None:
    gone: set[str] = set()
    shown = ShownDeliveries(lambda reader: reader.process not in gone)
    for number in range(3 * DELIVERIES_SHOWN):
        shown.put(*delivery(number, "QoS" if number < 3 else ""))
        if number == DELIVERIES_SHOWN:
            gone.add("1")
    views = shown.views()
    assert len(views) == DELIVERIES_SHOWN
    assert [one.participant for one in views if one.problem] == ["0", "2"], "1 has left"
    gone.add("2")
    assert [one.is_gone for one in shown.views()[:3]] == [False, True, False]
    shown.put(*delivery(0))
    assert not shown.views()[0].problem, "it was served after all"
    for number in range(1_000, 1_000 + 2 * DELIVERIES_SHOWN):
        shown.put(*delivery(number, "QoS"))
    assert len(shown.views()) == DELIVERIES_SHOWN
    assert shown.views()[-1].participant == str(999 + 2 * DELIVERIES_SHOWN)
