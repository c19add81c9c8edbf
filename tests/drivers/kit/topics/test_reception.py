"""Reception of topics: what is received, and what is known to be missing, in order."""

from __future__ import annotations

import random

import pytest

from drivers.kit.topics.account import JOINING, TRANSPORT, VANISHED
from drivers.kit.topics.middleware import Arrival, Publisher
from drivers.kit.topics.reception import DEPTH, OVERFLOW, Loss, PublishersChanged
from recorder.common.errors import DeviceError
from tests.drivers.kit.topics.fake_middleware import Bench, Event
from tests.support.waiting import wait_until

P, Q = Publisher(b"p", "/n"), Publisher(b"q", "/m")


def numbers(events: list[Event]) -> list[int | None]:
    return [each.number for each in events if isinstance(each, Arrival)]


def losses(events: list[Event]) -> list[tuple[bytes, str, int, int | None]]:
    return [
        (m.publisher, m.cause, m.first, m.count)
        for m in (each.missing for each in events if isinstance(each, Loss))
    ]


def test_a_gap_is_reported_before_the_message_that_shows_it() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    for number in (7, 8, 11):
        bench.middleware.send(number)
    events = bench.take()
    assert numbers(events) == [7, 8, 11]
    assert losses(events) == [(b"p", TRANSPORT, 9, 2)]
    assert [type(each) for each in events][-2:] == [Loss, Arrival]


@pytest.mark.parametrize(("appeared_s", "count"), [(9.0, 0), (11.0, 6)])
def test_numbers_before_the_first_are_lost_of_a_publisher_that_appeared_later(
    appeared_s: float, count: int
) -> None:
    bench = Bench()
    bench.take(appeared_s)
    bench.middleware.offer(P)
    bench.reception.look()
    bench.middleware.send(7)
    events = bench.take(10)  # however late the driver looks
    assert sum(each[3] or 0 for each in losses(events)) == count
    assert all(each[1] == JOINING for each in losses(events))


def test_a_cache_has_what_its_publisher_sent_before() -> None:
    bench = Bench()
    bench.take(10)
    bench.middleware.offer(Publisher(b"p", has_cache=True))
    bench.reception.look()
    bench.middleware.send(7)
    assert losses(bench.take()) == []
    assert bench.middleware.subscribed == [("/a", DEPTH, True, True)]


def test_a_restarted_publisher_leaves_an_interval_and_counts_from_its_own_first() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    bench.middleware.send(1)
    bench.take()
    bench.middleware.offer(Q)
    bench.middleware.send(3, publisher=b"q")
    events = bench.take(11)
    assert numbers(events) == [3]
    assert (b"p", VANISHED, 2, None) in losses(events)
    assert (b"q", JOINING, 1, 2) in losses(events)
    changed = [each for each in events if isinstance(each, PublishersChanged)]
    assert [each.publishers for each in changed] == [(Q,)]


def test_the_last_messages_of_a_publisher_that_is_gone_are_taken_before_it_is() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    bench.middleware.send(1)
    bench.take()
    del bench.middleware.topics["/a"]
    bench.middleware.send(2)
    assert losses(bench.take(5)) == [(b"p", VANISHED, 3, None)]


def test_a_gap_of_one_that_is_gone_is_counted_also_behind_a_new_publisher() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    bench.middleware.send(1)
    bench.take()
    bench.middleware.offer(Q)
    bench.middleware.send(1, publisher=b"q")
    bench.middleware.send(4)
    assert losses(bench.take(5)) == [(b"p", TRANSPORT, 2, 2), (b"p", VANISHED, 5, None)]


def test_two_publishers_are_counted_apart() -> None:
    bench = Bench()
    bench.middleware.offer(P, Q)
    bench.reception.look()
    for number, publisher in [(1, b"p"), (100, b"q"), (2, b"p"), (102, b"q"), (3, b"p")]:
        bench.middleware.send(number, publisher=publisher)
    events = bench.take()
    assert numbers(events) == [1, 100, 2, 102, 3]
    assert losses(events) == [(b"q", TRANSPORT, 101, 1)]


def test_a_message_that_does_not_fit_is_counted_once() -> None:
    bench = Bench(limit_bytes=1200)
    bench.middleware.offer(P)
    bench.reception.look()
    for number, size in [(1, 700), (2, 700), (3, 10)]:
        bench.middleware.send(number, bytes(size))
    events = bench.take()
    assert numbers(events) == [1, 3]
    assert losses(events) == [(b"p", OVERFLOW, 2, 1)]


def test_without_numbers_nothing_is_counted_and_that_is_said() -> None:
    bench = Bench()
    bench.middleware.offer(P, Q)
    bench.reception.look()
    bench.middleware.send(None)
    bench.middleware.send(5, publisher=b"")  # it may be of either
    assert len(numbers(bench.take())) == 2
    assert not bench.reception.is_counted("/a")


def test_an_unnamed_message_is_of_the_only_publisher() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    for number in (1, 3):
        bench.middleware.send(number, publisher=b"")
    assert losses(bench.take()) == [(b"p", TRANSPORT, 2, 1)]
    assert bench.reception.is_counted("/a")


def test_the_weakest_offer_is_requested_also_of_later_publishers() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    bench.middleware.offer(P, Publisher(b"q", is_reliable=False))
    bench.take(2)
    assert bench.middleware.subscribed == [("/a", DEPTH, True, False), ("/a", DEPTH, False, False)]


def test_the_depth_follows_the_rate_and_repeats_are_left_out() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    for number in range(1, 201):
        bench.middleware.send(number, b"")
    bench.take(1)  # 200 in a second: two seconds of them twice
    assert [each[1] for each in bench.middleware.subscribed] == [DEPTH, 800]
    bench.middleware.send(200)
    assert numbers(bench.take()) == []


def hand_over() -> Bench:
    """A reception whose subscription was replaced at 1 s, after the numbers 1 to 200."""
    bench = Bench()
    bench.middleware.offer(P)
    bench.reception.look()
    for number in range(1, 201):
        bench.middleware.send(number, b"")
    bench.take(1)
    assert len(bench.middleware.subscribed) == 2
    return bench


@pytest.mark.parametrize("seed", range(8))
def test_no_message_is_lost_or_doubled_when_a_subscription_replaces_another(seed: int) -> None:
    bench, rng = hand_over(), random.Random(seed)
    older = list(range(201, 260))  # until it is destroyed
    newer = list(range(rng.randrange(201, 230), 300))
    found: list[int | None] = []
    while older or newer:
        one = rng.choice([each for each in (older, newer) if each])
        for _ in range(min(len(one), rng.randrange(1, 12))):
            bench.middleware.send(one.pop(0), t_ns=bench.t_ns)
        events = bench.take(0.001)
        assert losses(events) == []
        found += numbers(events)
    assert found == list(range(201, 300))
    assert bench.reception.is_counted("/a")


@pytest.mark.parametrize("end", ["time", "message", "handover", "publisher"])
def test_a_message_that_is_lost_in_a_handover_is_counted(end: str) -> None:
    bench = hand_over()
    for number in (201, 203, 204):
        bench.middleware.send(number, t_ns=bench.t_ns)
    assert numbers(bench.take()) == [201]
    if end == "time":
        bench.middleware.send(205, t_ns=bench.t_ns + 300_000_000)
    elif end == "message":  # after the handover
        bench.middleware.send(205, t_ns=bench.t_ns + 2_500_000_000)
    elif end == "publisher":
        del bench.middleware.topics["/a"]
    events = bench.take({"handover": 2.1, "publisher": 1}.get(end, 0))
    assert numbers(events) == [203, 204, *([205] if end in ("time", "message") else [])]
    assert losses(events)[0] == (b"p", TRANSPORT, 202, 1)
    assert [type(each) for each in events[:2]] == [Loss, Arrival]


def test_a_depth_that_is_set_stays() -> None:
    bench = Bench(depth=5)
    bench.middleware.offer(P)
    bench.reception.look()
    for number in range(1, 201):
        bench.middleware.send(number, b"")
    bench.take(1)
    assert [each[1] for each in bench.middleware.subscribed] == [5]


def test_a_lost_connection_and_a_refused_topic_are_errors() -> None:
    bench = Bench()
    bench.middleware.offer(P)
    bench.middleware.refusal = "/a: install the package x"
    bench.reception.look()
    assert str(bench.reception.refused["/a"]) == "/a: install the package x"
    bench.middleware.problem = "gone"
    with pytest.raises(DeviceError, match="gone"):
        bench.take(2)


def test_a_topic_is_subscribed_as_soon_as_it_appears() -> None:
    bench = Bench()
    bench.reception.start()
    bench.middleware.offer(P)
    wait_until("the topic is subscribed", lambda: bool(bench.middleware.subscribed))
    bench.reception.close()
    assert bench.middleware.closed == 1


def test_a_message_that_arrives_while_its_topic_is_subscribed_is_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    found: list[Event] = []

    def subscribe(*_: object) -> None:
        bench.middleware.send(1)
        found.extend(bench.take())  # by the driver's thread

    monkeypatch.setattr(bench.middleware, "subscribe", subscribe)
    bench.middleware.offer(P)
    bench.reception._subscribe(bench.middleware.topics["/a"])
    assert numbers(found) == [1]
