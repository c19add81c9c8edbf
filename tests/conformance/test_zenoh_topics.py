"""Live topics over Zenoh against publishers of two other libraries, and a router."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from drivers.kit.topics.account import JOINING, TRANSPORT, VANISHED
from drivers.kit.topics.middleware import ArrivalQueue
from drivers.kit.topics.zenoh import ZenohMiddleware, parse_token
from recorder.common.errors import DeviceError, SourceError
from tests.conformance.topics import Listener, Talker

zenoh = pytest.importorskip("zenoh", reason="needs the extra zenoh")
pytestmark = pytest.mark.conformance

LIBRARIES = ("sdk", "pamoja")
DOMAIN = 7
RUNS = 60


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def open_router(port: int) -> Any:
    config = zenoh.Config()
    config.insert_json5("mode", '"router"')
    config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{port}"]')
    config.insert_json5("scouting/multicast/enabled", "false")
    return zenoh.open(config)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Port of a router."""
    port = free_port()
    router = open_router(port)
    yield port
    router.close()


@pytest.fixture
def talker(port: int) -> Iterator[Talker]:
    talker = Talker("zenoh_talker.py", DOMAIN, port)
    yield talker
    talker.end()


def listen(locator: str, *names: str, domain: int | None = DOMAIN) -> Listener:
    queue = ArrivalQueue(64_000_000)
    topic = names[0] if domain is None else ""
    return Listener(ZenohMiddleware(locator, domain, queue, topic), queue, names)


@pytest.fixture
def listener(port: int) -> Iterator[Listener]:
    listener = listen(f"tcp/127.0.0.1:{port}", "/chat/a")
    yield listener
    listener.close()


def wait_for_topic(listener: Listener, name: str = "/chat/a") -> None:
    listener.until(f"{name} is subscribed", lambda: listener.reception.topic(name) is not None)


def received(listener: Listener, name: str = "/chat/a") -> list[str]:
    return [bytes(each.data or b"").hex() for each in listener.arrivals[name]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_payloads_are_equal_bit_for_bit_and_gaps_are_counted(
    listener: Listener, talker: Talker, library: str
) -> None:
    talker.open(name="p", topic="/chat/a", library=library)
    wait_for_topic(listener)
    talker.match(name="p")
    sent = talker.send(name="p", count=60, skipped=[20, 21, 40])
    listener.wait_for("/chat/a", 57)
    assert received(listener) == sent
    assert (listener.counted("/chat/a"), set(listener.causes("/chat/a"))) == (3, {TRANSPORT})
    found = listener.reception.topic("/chat/a")
    assert found is not None and found.type_name == "std_msgs/msg/String"
    assert found.type_hash.startswith("RIHS01_")
    (publisher,) = found.publishers
    assert {each.publisher for each in listener.arrivals["/chat/a"]} == {publisher}


def test_a_restarted_publisher_and_two_of_one_topic(listener: Listener, talker: Talker) -> None:
    talker.open(name="p", topic="/chat/a", library="sdk")
    talker.open(name="q", topic="/chat/a", library="pamoja")
    wait_for_topic(listener)
    talker.match(name="p")
    talker.match(name="q")
    listener.until("both", lambda: listener.publishers.get("/chat/a") == 2)
    talker.send(name="q", count=5, skipped=[3])
    talker.send(name="p", count=5)
    listener.wait_for("/chat/a", 9)
    assert listener.counted("/chat/a") == 1
    listener.settle()
    talker.close(name="q")
    listener.until("q is gone", lambda: VANISHED in listener.causes("/chat/a"))
    talker.open(name="q", topic="/chat/a", library="pamoja")
    talker.match(name="q")
    talker.send(name="q", count=5, skipped=[1, 2])
    listener.wait_for("/chat/a", 12)
    causes = listener.causes("/chat/a")
    assert (causes.count(VANISHED), causes.count(JOINING)) == (1, 1)
    assert listener.counted("/chat/a") == 3


def test_a_cache_is_received_by_a_late_subscriber(port: int, talker: Talker) -> None:
    talker.open(name="p", topic="/chat/a", library="pamoja", cached=True)
    sent = talker.send(name="p", count=20)
    listener = listen(f"tcp/127.0.0.1:{port}", "/chat/a")
    listener.wait_for("/chat/a", 20)
    assert received(listener) == sent
    assert listener.counted("/chat/a") == 0
    listener.close()


def test_a_peer_is_received_without_a_router() -> None:
    port = free_port()
    talker = Talker("zenoh_talker.py", DOMAIN, 0, port)
    talker.open(name="p", topic="/chat/a", library="pamoja")
    listener = listen(f"tcp/127.0.0.1:{port}", "/chat/a")
    wait_for_topic(listener)
    talker.match(name="p")
    sent = talker.send(name="p", count=20)
    listener.wait_for("/chat/a", 20)
    assert received(listener) == sent
    talker.end()
    with pytest.raises(DeviceError, match="the connection is lost"):
        listener.until("the peer is gone", lambda: False)
    listener.close()


def test_topics_of_an_edgefirst_device_are_uncounted(port: int, talker: Talker) -> None:
    talker.open(name="p", topic="/camera/info", library="edgefirst")
    listener = listen(f"tcp/127.0.0.1:{port}", "/camera/info", domain=None)
    talker.send(name="p", count=1)
    while listener.reception.topic("/camera/info") is None:
        talker.send(name="p", count=1)
        listener.listen()
    sent = talker.send(name="p", count=20)
    listener.until("the last one", lambda: sent[-1] in received(listener, "/camera/info"))
    assert received(listener, "/camera/info")[-20:] == sent
    assert not listener.reception.is_counted("/camera/info")
    found = listener.reception.topic("/camera/info")
    assert found is not None and found.type_name == "std_msgs/msg/String"
    listener.close()


def test_seeded_runs_add_up(port: int, request: pytest.FixtureRequest, talker: Talker) -> None:
    """Numbers that a publisher did not send are counted: 60 runs, or the part that is named."""
    runs = max(1, round(RUNS * request.config.getoption("--campaign-part")))
    base = request.config.getoption("--campaign-seed")
    names = [f"/run/a{index}" for index in range(runs)]
    listener = listen(f"tcp/127.0.0.1:{port}", *names)
    listener.settle()
    for index, name in enumerate(names):
        rng = random.Random(base + index)
        talker.open(name=name, topic=name, library=rng.choice(LIBRARIES))
        wait_for_topic(listener, name)
        is_matched = rng.random() < 0.7
        if is_matched:  # else its first ones may be sent to no subscriber
            talker.match(name=name)
        count = rng.randrange(5, 60)
        skipped = [number for number in range(1, count) if rng.random() < 0.2]
        sent = talker.send(name=name, count=count, skipped=skipped, pause_s=0.0)
        talker.match(name=name)
        sent += talker.send(name=name, count=1)
        listener.wait_for_number(name, count + 1)
        arrived, lost = received(listener, name), listener.counted(name)
        assert arrived == sent[-len(arrived) :]
        assert len(arrived) + lost == count + 1
        assert not is_matched or lost == len(skipped)
        talker.close(name=name)
    listener.close()


def test_a_router_that_is_not_there_and_a_wrong_locator() -> None:
    with pytest.raises(DeviceError, match="no router and no peer answers"):
        ZenohMiddleware(f"tcp/127.0.0.1:{free_port()}", 0, ArrivalQueue(1000))
    with pytest.raises(SourceError, match="'nonsense' is no locator"):
        ZenohMiddleware("nonsense", 0, ArrivalQueue(1000))


def test_tokens() -> None:
    token = (
        "@ros2_lv/2/aa/0/10/MP/%/%ns/talker/%chat%a/std_msgs::msg::dds_::String_/RIHS01_ab/2:1:1"
    )
    found = parse_token(token)
    assert found is not None
    topic, publisher = found
    assert (topic.name, topic.type_name) == ("/chat/a", "std_msgs/msg/String")
    assert topic.type_hash == "RIHS01_ab"
    assert (publisher.node, publisher.qos) == ("/ns/talker", "best_effort, transient_local")
    assert parse_token(token.replace("MP", "MS")) is None
    assert parse_token("@ros2_lv/2") is None
