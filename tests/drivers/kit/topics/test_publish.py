"""Publication of a replay's topics: what the middleware takes, and what is counted and named."""

from __future__ import annotations

import io

import pytest

from drivers.kit.topics.publish import open_publishers, open_topics, publish
from recorder.bus.offered_topics import HEAD, Offer, OfferedTopic, Published
from recorder.common.errors import DeviceError, SourceError
from recorder.formats.ros2.definitions import CAN_FRAME, definition

STRING = "std_msgs/msg/String"


class FakePublishers:
    """Takes all topics but one, and all messages but one."""

    def __init__(self, refused: str = "", bad: bytes = b"?") -> None:
        self.refused, self.bad = refused, bad
        self.opened: list[OfferedTopic] = []
        self.published: list[tuple[str, bytes]] = []

    def open(self, topic: OfferedTopic) -> None:
        if topic.name == self.refused:
            raise DeviceError(f"{topic.name}: install the package")
        self.opened.append(topic)

    def has_subscriber(self, name: str) -> bool:
        return True

    def publish(self, name: str, data: bytes) -> None:
        if data == self.bad:
            raise DeviceError(f"{name}: not published: too large")
        self.published.append((name, data))

    def close(self) -> None:
        pass


def put(*messages: tuple[int, bytes]) -> bytes:
    return b"".join(HEAD.pack(place, len(data)) + data for place, data in messages)


def test_messages_are_published_or_counted() -> None:
    publishers = FakePublishers(refused="/c")
    offer = Offer([OfferedTopic(name, STRING, "RIHS01_0") for name in ("/a", "/b", "/c")])
    refused = open_topics(publishers, offer)
    assert refused == {"/c": "/c: install the package"}
    source = put((0, b"x"), (1, b"?"), (2, b"z"), (0, b""), (1, b"y" * 100_000), (2, b"z"))
    result = publish(publishers, ["/a", "/b", "/c"], io.BytesIO(source), refused)
    assert publishers.published == [("/a", b"x"), ("/a", b""), ("/b", b"y" * 100_000)]
    assert result == Published(
        {"/a": 2, "/b": 1},
        {"/b": 1, "/c": 2},
        {"/b": "/b: not published: too large", "/c": "/c: install the package"},
    )


@pytest.mark.parametrize("cut", [1, HEAD.size + 2])
def test_a_message_that_is_cut_is_not_published(cut: int) -> None:
    publishers = FakePublishers()
    whole = put((0, b"whole"))
    source = io.BytesIO(whole + put((0, b"half"))[:cut])
    assert publish(publishers, ["/a"], source, {}).published == {"/a": 1}
    assert publishers.published == [("/a", b"whole")]


def test_the_hash_of_a_type_is_that_of_its_definition() -> None:
    publishers = FakePublishers()
    text = definition(CAN_FRAME).decode()
    topics = [
        OfferedTopic("/a", CAN_FRAME, definition=text),
        OfferedTopic("/b", CAN_FRAME, "RIHS01_known", text),
        OfferedTopic("/c", "a/msg/B"),
        OfferedTopic("/d", "a/msg/B", definition="no\ndefinition at all ="),
    ]
    refused = open_topics(publishers, Offer(topics))
    assert [each.type_hash for each in publishers.opened] == [
        "RIHS01_0cdc7d15657573ee6ff151e5cc1943888301e370d957e2c077a154f4755fd976",
        "RIHS01_known",
        "",
    ]
    assert refused == {"/d": "a/msg/B: the definition cannot be read"}


@pytest.mark.parametrize(
    "source", ["ros2:233", "ros2:a", "zenoh:tcp/10.0.0.1:7447", "zenoh:tcp/10.0.0.1:7447/300"]
)
def test_a_place_without_a_domain_is_refused(source: str) -> None:
    with pytest.raises(SourceError, match="domain"):
        open_publishers(source)
