"""Live topics with a middleware that tests publish by: appearance, losses, publishers, absence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from drivers.kit.driver import Item, Lost, NewStream, Sample, State
from drivers.kit.runner import make_driver
from drivers.kit.topics import reception
from drivers.kit.topics import source as source_module
from drivers.kit.topics.middleware import ArrivalQueue, Publisher, TopicError
from drivers.topics import live as live_module
from drivers.topics.driver import TopicsDriver
from recorder.common.errors import DeviceError, SourceError
from recorder.formats.recorded_topic import find_topic
from tests.drivers.kit.topics.fake_middleware import FakeMiddleware
from tests.support.waiting import PATIENCE_S, wait_until

P, Q = Publisher(b"p", "/n", qos="reliable, volatile"), Publisher(b"q", "/m")
NOW_NS = 1_000_000_000_000


class Rig:
    """A driver of live topics, its middleware, and what it has given."""

    def __init__(self, scheme: str = "ros2", address: str = "0", **options: Any) -> None:
        entry = {"name": "ros", "scheme": scheme, "address": address, "options": options}
        driver = make_driver(TopicsDriver, entry)
        assert isinstance(driver, TopicsDriver)
        self.driver = driver
        self.items: list[Item | NewStream] = []

    def read(self, enough: Callable[[], object]) -> None:
        def read() -> object:
            if (item := self.driver.read()) is not None:
                self.items.append(item)
            return enough()

        wait_until(lambda: f"enough of {self.items[-5:]}", read, pause=lambda _: None)

    def read_messages(self, count: int) -> None:
        self.read(lambda: sum(map(len, self.messages().values())) >= count)

    def messages(self) -> dict[str, list[tuple[bytes, int, int]]]:
        """By stream: bytes, number and publisher of each message."""
        found: dict[str, list[tuple[bytes, int, int]]] = {}
        for item in self.items:
            if isinstance(item, Sample):
                names = ("message", "number", "publisher")
                rows = zip(*(item.data[name] for name in names), strict=True)
                found.setdefault(item.stream, []).extend((d, int(n), int(p)) for d, n, p in rows)
        return found

    def states(self, stream: str, key: str) -> list[Any]:
        return [
            item.values[key]
            for item in self.items
            if isinstance(item, State) and item.stream == stream and key in item.values
        ]

    def losses(self) -> list[tuple[str, str, int | None]]:
        return [(i.stream, i.cause, i.count) for i in self.items if isinstance(i, Lost)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMiddleware]:
    made = FakeMiddleware(ArrivalQueue(100_000))

    def open_middleware(_: Any, queue: ArrivalQueue, options: Any) -> FakeMiddleware:
        made.queue, made.joined = queue, made.joined + 1
        return made

    monkeypatch.setattr(source_module, "open_middleware", open_middleware)
    monkeypatch.setattr(live_module, "_SETTLE_S", 0.0)
    monkeypatch.setattr(live_module, "_FIRST_S", PATIENCE_S)
    monkeypatch.setattr(live_module, "_REPORT_NS", 0)
    monkeypatch.setattr(reception, "_DISCOVERY_NS", 1)
    yield made


def send(fake: FakeMiddleware, name: str, *numbers: int, publisher: bytes = b"p") -> None:
    for number in numbers:
        fake.send(number, b"%d" % number, publisher, name=name, t_ns=NOW_NS + number)


def test_topics_that_are_there_are_declared_and_received(fake: FakeMiddleware) -> None:
    fake.offer(P, name="/a")
    fake.offer(Q, name="/b", kind="mine/msg/Type")
    rig = Rig()
    specs = {spec.name: spec for spec in rig.driver.open()}
    assert sorted(specs) == ["ros_a", "ros_b"]
    about = find_topic(specs["ros_b"])
    assert about is not None
    assert (about.name, about.type_name, about.schema_encoding) == (
        "/b",
        "mine/msg/Type",
        "ros2msg",
    )
    assert about.definition == b"text of mine/msg/Type"
    assert yaml.safe_load(about.metadata["offered_qos_profiles"])[0]["durability"] == 2
    send(fake, "/a", 1, 2)
    send(fake, "/b", 1, publisher=b"q")
    rig.read_messages(3)
    assert rig.messages() == {"ros_a": [(b"1", 1, 1), (b"2", 2, 1)], "ros_b": [(b"1", 1, 1)]}


def test_a_topic_that_appears_later_is_declared_before_its_messages(fake: FakeMiddleware) -> None:
    fake.offer(P, name="/a")
    rig = Rig(topics=["/a", "/later/**"])
    (spec,) = rig.driver.open()
    fake.offer(Q, name="/later/x")
    fake.offer(Q, name="/other")
    wait_until("it is received", lambda: "/later/x" in [each[0] for each in fake.subscribed])
    send(fake, "/later/x", 1, 2, publisher=b"q")
    rig.read_messages(2)
    found = [item for item in rig.items if isinstance(item, NewStream)]
    assert [each.spec.name for each in found] == ["ros_later_x"]
    place = rig.items.index(found[0])
    assert not any(
        isinstance(item, (Sample, Lost, State)) and item.stream == "ros_later_x"
        for item in rig.items[:place]
    )
    assert "/other" not in [name for name, *_ in fake.subscribed]
    rig.driver.close()
    assert [each.name for each in rig.driver.open()] == [spec.name, "ros_later_x"]


def test_messages_wait_for_the_definition_of_their_type(
    fake: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.offer(P, name="/a")
    rig = Rig()
    rig.driver.open()
    texts: list[str] = []
    monkeypatch.setattr(fake, "describe_type", lambda _: texts[0] if texts else None)
    monkeypatch.setattr(live_module, "_DESCRIBED_NS", 10**15)
    fake.offer(Q, name="/b")
    send(fake, "/a", 1)
    wait_until("it is received", lambda: len(fake.subscribed) == 2)
    send(fake, "/b", 1, publisher=b"q")
    rig.read_messages(1)
    assert "ros_b" not in rig.messages()
    texts.append("string late")
    rig.read_messages(2)
    (found,) = (item for item in rig.items if isinstance(item, NewStream))
    about = find_topic(found.spec)
    assert about is not None and about.definition == b"string late"


@pytest.mark.parametrize("limit", ["_DESCRIBED_NS", "_HELD_BYTES"])
@pytest.mark.parametrize(
    ("kind", "known"), [("my_robot/msg/State", b""), ("std_msgs/msg/String", b"string data")]
)
def test_a_definition_that_does_not_come_is_not_awaited(
    fake: FakeMiddleware, monkeypatch: pytest.MonkeyPatch, limit: str, kind: str, known: bytes
) -> None:
    monkeypatch.setattr(fake, "describe_type", lambda _: None)
    monkeypatch.setattr(live_module, "_DESCRIBED_NS", 10**15)
    monkeypatch.setattr(live_module, limit, 0)
    fake.offer(P, name="/a", kind=kind)
    (spec,) = Rig().driver.open()
    about = find_topic(spec)
    assert about is not None
    assert about.definition.strip() == known, "rosbags' store knows the types of ROS 2 alone"
    assert about.schema_encoding == ("ros2msg" if known else "")


def test_missing_numbers_are_losses_in_their_place(fake: FakeMiddleware) -> None:
    fake.offer(P, Q, name="/a")
    rig = Rig()
    rig.driver.open()
    send(fake, "/a", 3, 4, 7)
    send(fake, "/a", 1, 2, publisher=b"q")
    rig.read_messages(5)
    assert rig.losses() == [("ros_a", "transport", 2)]
    (lost,) = (item for item in rig.items if isinstance(item, Lost))
    assert lost.detail == {"publisher": b"p".hex(), "first_number": 5}
    numbers = [number for _, number, _ in rig.messages()["ros_a"]]
    assert numbers == [3, 4, 7, 1, 2]
    publishers = {p for _, _, p in rig.messages()["ros_a"]}
    listed = rig.states("ros_a", "publishers")[-1]
    assert {each["publisher"] for each in listed} == publishers == {1, 2}
    assert rig.states("ros_a", "losses") == ["counted"]


def test_without_numbers_losses_are_unknown(fake: FakeMiddleware) -> None:
    fake.counts_losses = False
    fake.offer(P, name="/a")
    rig = Rig()
    rig.driver.open()
    fake.send(None, b"x", b"", name="/a", t_ns=NOW_NS)
    rig.read_messages(1)
    assert rig.messages() == {"ros_a": [(b"x", 0, 0)]}
    assert rig.states("ros_a", "losses")[0].startswith("unknown")


def test_a_full_queue_is_a_counted_loss(fake: FakeMiddleware) -> None:
    fake.offer(P, name="/a")
    rig = Rig(queue_mb=0.1)
    rig.driver.open()
    for number in range(1, 31):
        fake.send(number, bytes(10_000), name="/a", t_ns=NOW_NS + number)
    fake.send(31, b"", name="/a", t_ns=NOW_NS + 31)
    rig.read(lambda: len(rig.messages().get("ros_a", ())) + len(rig.losses()) >= 31)
    assert {(cause, count) for _, cause, count in rig.losses()} == {("overflow", 1)}
    assert len(rig.messages()["ros_a"]) + len(rig.losses()) == 31


def test_max_rate_thins_a_topic_and_counts(fake: FakeMiddleware) -> None:
    fake.offer(P, name="/a")
    rig = Rig(max_rate={"/a": 1.0})
    rig.driver.open()
    send(fake, "/a", *range(1, 6))
    fake.send(6, b"6", name="/a", t_ns=NOW_NS + 2_000_000_000)
    rig.read(lambda: rig.states("ros_a", "skipped_by_max_rate") == [4])
    assert [number for _, number, _ in rig.messages()["ros_a"]] == [1, 6]
    assert rig.losses() == []


def test_an_absent_topic_is_a_state_until_it_appears(fake: FakeMiddleware) -> None:
    fake.offer(P, name="/a")
    rig = Rig(topics=["/a", "/b"])
    rig.driver.open()
    rig.read(lambda: rig.states("ros_a", "absent_topics") == [["/b"]])
    assert rig.states("ros_a", "absent_streams") == [["ros_b"]]
    fake.offer(Q, name="/b")
    rig.read(lambda: rig.states("ros_a", "absent_topics") == [["/b"], []])


def test_without_any_topic_the_device_is_absent(
    fake: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.offer(P, name="/other")
    rig = Rig(topics=["/a"])
    monkeypatch.setattr(live_module, "_FIRST_S", 0.0)
    for _ in range(2):
        with pytest.raises(DeviceError, match="no topic to record is there; topics here: /other"):
            rig.driver.open()
    assert fake.joined == 1, "the connection outlives an attempt"
    monkeypatch.setattr(live_module, "_FIRST_S", PATIENCE_S)
    fake.offer(P, name="/a")
    assert [spec.name for spec in rig.driver.open()] == ["ros_a"]


def test_a_topic_that_is_refused_is_named_and_ends_no_other(
    fake: FakeMiddleware, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.offer(P, name="/a")
    fake.offer(Q, name="/b")
    rig = Rig()
    rig.driver.open()
    discover, refusals = fake.discover, [TopicError("/b", "a policy X is incompatible")]

    def discover_once() -> Any:
        if refusals:
            raise refusals.pop()
        return discover()

    monkeypatch.setattr(fake, "discover", discover_once)
    send(fake, "/a", 1)
    key = "refused_topics"
    rig.read(lambda: rig.states("ros_a", key) == [{"/b": "/b: a policy X is incompatible"}])
    assert rig.messages()["ros_a"] == [(b"1", 1, 1)]
    assert "ros: /b: a policy X is incompatible" in capsys.readouterr().err


def test_a_lost_connection_is_a_lost_device_and_its_streams_stay(
    fake: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.offer(P, name="/a")
    rig = Rig()
    (spec,) = rig.driver.open()
    fake.problem = "the router is gone"
    with pytest.raises(DeviceError, match="the router is gone"):
        rig.read(lambda: False)
    rig.driver.close()
    fake.problem = ""
    fake.offer(Q, name="/b")
    specs = rig.driver.open()
    assert specs[0] == spec and {each.name for each in specs} <= {"ros_a", "ros_b"}
    assert fake.joined == 2
    send(fake, "/a", 8)
    rig.read_messages(1)
    assert rig.messages()["ros_a"] == [(b"8", 8, 1)]


def test_when_all_publishers_are_gone_the_device_is_lost(
    fake: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "_GONE_NS", 0)
    fake.offer(P, name="/a")
    rig = Rig()
    rig.driver.open()
    fake.topics.clear()
    with pytest.raises(DeviceError, match="no topic has a publisher any more"):
        rig.read(lambda: False)


def test_a_topic_behind_the_hash_is_the_only_one(fake: FakeMiddleware) -> None:
    fake.offer(P, name="/a")
    fake.offer(Q, name="/b")
    assert [spec.name for spec in Rig(address="0#/b").driver.open()] == ["ros_b"]


def test_services_are_not_recorded_and_named(
    fake: FakeMiddleware, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.offer(P, name="/a")
    fake.offer(P, name="/add/_service_event")
    rig = Rig()
    assert [spec.name for spec in rig.driver.open()] == ["ros_a"]
    send(fake, "/a", 1)
    rig.read_messages(1)
    rig.read(lambda: rig.states("ros_a", "publishers"))
    said: list[str] = []

    def is_said() -> bool:
        rig.driver.read()
        said.append(capsys.readouterr().err)
        return "services and actions are not recorded: /add/_service_event" in "".join(said)

    wait_until("a warning", is_said)


def test_the_last_message_of_a_transient_local_publisher_is_repeated(fake: FakeMiddleware) -> None:
    kept, other = Publisher(b"p", has_cache=True), Publisher(b"q", has_cache=True)
    fake.offer(kept, other, name="/tf_static")
    fake.offer(Q, name="/chat")
    rig = Rig()
    rig.driver.open()
    assert not rig.driver.repeat(NOW_NS)
    send(fake, "/tf_static", 1, 2)
    send(fake, "/tf_static", 5, publisher=b"q")
    send(fake, "/chat", 1, publisher=b"q")
    rig.read_messages(4)
    (again,) = rig.driver.repeat(NOW_NS + 100)
    assert (again.stream, again.t_ns.tolist()) == ("ros_tf_static", [NOW_NS + 100, NOW_NS + 101])
    assert again.data["message"] == [b"2", b"5"]
    numbers = [again.data[name].tolist() for name in ("number", "publisher")]  # type: ignore[union-attr]
    assert numbers == [[2, 5], [1, 2]]
    (older,) = rig.driver.repeat(NOW_NS + 4)  # the other one came later
    assert older.data["message"] == [b"2"]
    fake.offer(kept, name="/tf_static")
    rig.read(lambda: len(rig.driver.repeat(NOW_NS + 100)[0].t_ns) == 1)


@pytest.mark.parametrize("address", ["", "233", "x", "0/1"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(SourceError, match=rf"ros: ros2:{address}: needs the form ros2:DOMAIN"):
        Rig(address=address).driver.open()
