"""Live topics against real publishers of rclpy (Kilted, Fast DDS)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from drivers.kit.topics.account import JOINING, TRANSPORT, VANISHED
from drivers.kit.topics.middleware import ArrivalQueue, Topic
from recorder.common.errors import DeviceError
from tests.conformance.topics import Listener, Talker, lossy_network, lossy_network_absence

pytest.importorskip("rclpy", reason="needs the extra ros2")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.filterwarnings("ignore:module 'sre:DeprecationWarning"),  # of lark, which ROS needs
]

from drivers.kit.topics import ros2 as ros2_module  # noqa: E402
from drivers.kit.topics.ros2 import Ros2Middleware  # noqa: E402

IMAGE = "sensor_msgs/msg/CompressedImage"
RUNS = 60
BATCH = 12


@pytest.fixture(scope="module")
def domain(worker_id: str) -> int:
    """A domain of this worker."""
    return 100 + 10 * int("0" + "".join(filter(str.isdigit, worker_id)))


@pytest.fixture
def talker(domain: int) -> Iterator[Talker]:
    talker = Talker("ros2_talker.py", domain)
    yield talker
    talker.end()


def listen(domain: int, *names: str) -> Listener:
    queue = ArrivalQueue(64_000_000)
    return Listener(Ros2Middleware(domain, queue), queue, names)


@pytest.fixture
def listener(domain: int) -> Iterator[Listener]:
    listener = listen(domain, "/a")
    yield listener
    listener.close()


def digest(data: object) -> str:
    assert isinstance(data, bytes)
    return hashlib.sha256(data).hexdigest()


def open_one(talker: Talker, name: str = "p", topic: str = "/a", **more: object) -> None:
    usual = {"kind": IMAGE, "reliable": True, "cached": False}
    talker.open(**{"name": name, "topic": topic, **usual, **more})


def send(talker: Talker, count: int, name: str = "p") -> list[str]:
    (digests,) = talker.send(names=[name], seeds=[7], count=count, pause_s=0.001)
    return list(digests)


def test_payloads_are_equal_bit_for_bit(listener: Listener, talker: Talker) -> None:
    open_one(talker)
    talker.match(name="p")
    sent = send(talker, 100)
    received = listener.wait_for("/a", 100)
    assert [digest(each.data) for each in received] == sent
    assert listener.numbers("/a") == list(range(1, 101))
    assert all(each.source_ns for each in received)
    assert listener.counted("/a") == 0


def test_a_restarted_publisher_is_counted_anew(
    listener: Listener, domain: int, talker: Talker
) -> None:
    listener.settle()
    open_one(talker)
    talker.match(name="p")
    send(talker, 5)
    listener.wait_for("/a", 5)
    talker.close(name="p")
    open_one(talker)
    talker.match(name="p")
    send(talker, 5)
    listener.wait_for("/a", 10)
    listener.until("the first one is gone", lambda: VANISHED in listener.causes("/a"))
    assert listener.numbers("/a") == [1, 2, 3, 4, 5] * 2
    assert len({each.publisher for each in listener.arrivals["/a"]}) == 2
    assert listener.counted("/a") == 0


def test_two_publishers_of_one_topic(listener: Listener, talker: Talker) -> None:
    open_one(talker, "p")
    open_one(talker, "q")
    talker.match(name="p")
    talker.match(name="q")
    talker.send(names=["p", "q"], seeds=[1, 2], count=50, pause_s=0.001)
    received = listener.wait_for("/a", 100)
    for publisher in {each.publisher for each in received}:
        assert listener.numbers("/a", publisher) == list(range(1, 51))


def test_a_type_that_no_package_has(domain: int, talker: Talker) -> None:
    with pytest.raises(ImportError):
        __import__("tf2_msgs")
    listener = listen(domain, "/tf")
    open_one(talker, topic="/tf", kind="tf2_msgs/msg/TFMessage")
    talker.match(name="p")
    sent = send(talker, 20)
    received = listener.wait_for("/tf", 20)
    assert [digest(each.data) for each in received] == sent
    found = listener.reception.topic("/tf")
    assert found is not None and found.type_name == "tf2_msgs/msg/TFMessage"
    listener.close()


def test_a_cache_is_received_by_a_late_subscriber(domain: int, talker: Talker) -> None:
    open_one(talker, cached=True)
    sent = send(talker, 30)
    listener = listen(domain, "/a")
    received = listener.wait_for("/a", 30)
    assert [digest(each.data) for each in received] == sent
    listener.close()


def test_a_deeper_subscription_takes_over_without_a_loss(
    listener: Listener, talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths: list[int] = []
    subscribe, destroy = listener.middleware.subscribe, Ros2Middleware._destroy_replaced
    destroyed: list[int] = []

    def spy(topic: Topic, depth: int) -> None:
        depths.append(depth)
        subscribe(topic, depth)

    def spy_on_the_end(middleware: Ros2Middleware) -> None:
        before = len(middleware._replaced)
        destroy(middleware)
        destroyed.extend([1] * (before - len(middleware._replaced)))

    monkeypatch.setattr(listener.middleware, "subscribe", spy)
    monkeypatch.setattr(Ros2Middleware, "_destroy_replaced", spy_on_the_end)
    open_one(talker)
    talker.match(name="p")
    sent: list[str] = []

    def send_until(what: str, ready: Callable[[], object]) -> None:
        def send_some() -> bool:
            sent.extend(send(talker, 50))
            return bool(ready())

        listener.until(what, send_some)

    send_until("the rate is known", lambda: len(depths) > 1)
    send_until("the earlier subscription is destroyed", lambda: destroyed)
    sent += send(talker, 50)
    received = listener.wait_for("/a", len(sent))
    assert listener.numbers("/a") == list(range(1, len(sent) + 1))
    assert [digest(each.data) for each in received] == sent
    assert listener.causes("/a") == []
    assert depths[1] > 60


def test_a_publisher_that_offers_less_is_received_too(listener: Listener, talker: Talker) -> None:
    open_one(talker, "p")
    talker.match(name="p")
    send(talker, 5)
    listener.wait_for("/a", 5)
    open_one(talker, "q", reliable=False)
    listener.until("both are known", lambda: listener.publishers.get("/a") == 2)
    talker.match(name="q")
    send(talker, 5, "q")
    send(talker, 5, "p")
    listener.wait_for("/a", 15)
    assert sorted(listener.numbers("/a")) == sorted([*range(1, 11), *range(1, 6)])


class Demanding(Ros2Middleware):
    """A middleware that requests more than publishers offer, as if discovery had misled it."""

    claims: Mapping[str, Any]

    def discover(self) -> Mapping[str, Topic]:
        return {
            name: replace(
                topic,
                publishers={k: replace(p, **self.claims) for k, p in topic.publishers.items()},
            )
            for name, topic in super().discover().items()
        }


@pytest.mark.parametrize(
    ("offered", "claims", "policy"),
    [
        ({"reliable": False}, {"is_reliable": True}, "RELIABILITY"),
        ({"cached": False}, {"has_cache": True}, "DURABILITY"),
    ],
)
def test_a_lasting_mismatch_of_policies_is_an_error_that_names_the_policy(
    domain: int,
    talker: Talker,
    monkeypatch: pytest.MonkeyPatch,
    offered: dict[str, Any],
    claims: dict[str, bool],
    policy: str,
) -> None:
    monkeypatch.setattr(ros2_module, "_INCOMPATIBLE_NS", 0)
    monkeypatch.setattr(Demanding, "claims", claims, raising=False)
    queue = ArrivalQueue(64_000_000)
    listener = Listener(Demanding(domain, queue), queue, ["/a"])
    open_one(talker, **offered)
    with pytest.raises(DeviceError, match=f"^/a: a publisher's policy {policy} is incompatible$"):
        listener.until("a message", lambda: bool(listener.arrivals["/a"]))
    listener.close()


def test_what_was_sent_before_joining_is_no_loss_and_later_it_is(
    domain: int, talker: Talker
) -> None:
    open_one(talker)
    send(talker, 10)
    listener = listen(domain, "/a", "/b")
    talker.match(name="p")
    send(talker, 5)
    listener.wait_for("/a", 5)
    assert (listener.numbers("/a"), listener.causes("/a")) == ([11, 12, 13, 14, 15], [])
    listener.settle()
    open_one(talker, "q", topic="/b")
    send(talker, 10, "q")  # nobody is there yet for some of these
    talker.match(name="q")
    send(talker, 5, "q")
    listener.until("the last one", lambda: 15 in listener.numbers("/b"))
    assert len(listener.numbers("/b")) + listener.counted("/b") == 15
    assert set(listener.causes("/b")) <= {JOINING}
    listener.close()


@pytest.mark.skipif(bool(lossy_network_absence()), reason=lossy_network_absence())
def test_recorded_and_counted_are_all_with_dropped_packets(
    domain: int, request: pytest.FixtureRequest
) -> None:
    """Seeded runs: 60, or the part of them that ``--campaign-part`` names."""
    runs = max(1, round(RUNS * request.config.getoption("--campaign-part")))
    base = request.config.getoption("--campaign-seed")
    topics = [f"/run_{index}" for index in range(runs)]
    lost = recorded = 0
    with lossy_network(12.0) as namespace:
        listener = listen(domain + 1, *topics)
        listener.settle()
        talker = Talker("ros2_talker.py", domain + 1, namespace=namespace)
        for begin in range(0, runs, BATCH):
            batch = topics[begin : begin + BATCH]
            seeds = [base + begin + index for index in range(len(batch))]
            count = random.Random(seeds[0]).randrange(40, 160)
            for topic in batch:
                open_one(talker, topic, topic=topic, reliable=False)
            for topic in batch[::2]:  # of the others, the first ones are sent to none
                talker.match(name=topic)
            sent = talker.send(names=batch, seeds=seeds, count=count, pause_s=0.002)
            for topic in batch:
                talker.close(name=topic)
            for topic, digests in zip(batch, sent, strict=True):
                listener.wait_for_end(topic)
                numbers = listener.numbers(topic)
                assert numbers == sorted(set(numbers))
                if numbers:
                    assert len(numbers) + listener.counted(topic) == numbers[-1]
                for each in listener.arrivals[topic]:
                    assert digest(each.data) == digests[(each.number or 0) - 1]
                assert set(listener.causes(topic)) <= {TRANSPORT, JOINING, VANISHED}
                recorded += len(numbers)
                lost += listener.counted(topic)
        talker.end()
        listener.close()
    assert recorded > lost > 0, "packets were dropped, and most were not"
