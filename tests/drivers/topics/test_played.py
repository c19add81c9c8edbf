"""Topics of recordings of other software, whose messages ``rosbags`` serialized."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import Writer as BagWriter

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.runner import make_driver
from drivers.topics.driver import TopicsDriver
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ConfigError, SourceError
from recorder.formats.recorded_topic import RecordedTopic, find_topic
from tests.drivers.kit.recorded_drives import MS
from tests.formats.bags.kit import START_NS, STORE, Sent, cdr, header, write_bag, write_mcap
from tests.support.devices import causes, losses, play_out

CHAT = "std_msgs/msg/String"
STATUS = "diagnostic_msgs/msg/DiagnosticStatus"


def chat(number: int, topic: str = "/chat", log_ns: int | None = None) -> Sent:
    log_ns = START_NS + number * 10 * MS if log_ns is None else log_ns
    return cdr(topic, CHAT, log_ns, data=f"message {number}" * (number % 7))


def odometry(number: int) -> Sent:
    """A message of a type that no driver knows."""
    types = STORE.types
    vector, turn = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Quaternion"]
    moved = types["geometry_msgs/msg/Transform"](vector(number, 0.0, 0.0), turn(0.0, 0, 0, 1))
    log_ns = START_NS + number * 10 * MS + 3
    stamped = types["geometry_msgs/msg/TransformStamped"]
    made = stamped(header(log_ns, "odom"), "base_link", moved)
    return cdr("/tf", "tf2_msgs/msg/TFMessage", log_ns, transforms=[made])


def entry(path: Path | str, pace: str = "max", **options: Any) -> dict[str, Any]:
    return {"name": "ros", "scheme": "bag", "address": str(path), "options": options, "pace": pace}


def make(path: Path | str, pace: str = "max", **options: Any) -> TopicsDriver:
    driver = make_driver(TopicsDriver, entry(path, pace, **options))
    assert isinstance(driver, TopicsDriver)
    return driver


def streams_of(driver: TopicsDriver) -> dict[str, StreamSpec]:
    specs = {spec.name: spec for spec in driver.open()}
    driver.close()
    return specs


def messages(items: Iterable[Item]) -> dict[str, list[tuple[int, bytes, int, int]]]:
    """By stream: stamp, bytes, number and time of publication of each message."""
    found: dict[str, list[tuple[int, bytes, int, int]]] = {}
    for item in items:
        if isinstance(item, Sample):
            columns = (item.t_ns, item.data["message"], item.data["number"], item.data["t_source"])
            rows = zip(*columns, strict=True)
            found.setdefault(item.stream, []).extend(
                (int(t), d, int(n), int(s)) for t, d, n, s in rows
            )
    return found


def sent_as(sent: Iterable[Sent]) -> list[tuple[int, bytes, int, int]]:
    """The same of what `write_mcap` writes."""
    return [(each.log_ns, each.data, n, each.log_ns + 7) for n, each in enumerate(sent)]


@pytest.mark.parametrize("pace", ["max", "realtime"])
def test_each_topic_is_a_stream_of_its_messages_byte_for_byte(tmp_path: Path, pace: str) -> None:
    sent = [each for k in range(300) for each in (chat(k), odometry(k))]
    driver = make(write_mcap(tmp_path / "a.mcap", sent), pace)
    items, error = play_out(driver)
    assert error is None and losses(items) == []
    rows = sent_as(sent)
    assert messages(items) == {"ros_chat": rows[::2], "ros_tf": rows[1::2]}
    ends = [int(item.t_ns[0]) for item in items if isinstance(item, Sample)]
    assert ends == sorted(ends)


def test_topic_json_has_the_topics_type_and_definition(tmp_path: Path) -> None:
    sent = [
        chat(0),
        Sent("/blob", "other.Blob", "protobuf", b"\x08\x01", START_NS, b"\x0a\xff\xfe"),
    ]
    specs = streams_of(make(write_mcap(tmp_path / "a.mcap", sent)))
    assert sorted(specs) == ["ros_blob", "ros_chat"]
    assert find_topic(specs["ros_chat"]) == RecordedTopic(
        "/chat", CHAT, "cdr", "ros2msg", b"(the definition)"
    )
    blob = find_topic(specs["ros_blob"])
    assert blob == RecordedTopic("/blob", "other.Blob", "protobuf", "protobuf", b"\x0a\xff\xfe")
    assert json.loads(specs["ros_chat"].files["topic.json"])["definition"] == "(the definition)"
    assert specs["ros_chat"].sporadic and specs["ros_chat"].finite


def test_a_bag_that_rosbags_writes_gives_what_rosbags_reads(tmp_path: Path) -> None:
    sent = [each for k in range(50) for each in (chat(k), odometry(k))]
    with BagWriter(tmp_path / "bag") as writer:
        connections = {
            topic: writer.add_connection(topic, kind, typestore=STORE)
            for topic, kind in {each.topic: each.schema for each in sent}.items()
        }
        for each in sent:
            writer.write(connections[each.topic], each.log_ns, each.data)
    driver = make(tmp_path / "bag")
    found = messages(play_out(driver)[0])
    specs = streams_of(driver)
    with AnyReader([tmp_path / "bag"]) as reader:
        for connection in reader.connections:
            stream = f"ros_{connection.topic.strip('/')}"
            read = [(t, bytes(data)) for _, t, data in reader.messages([connection])]
            assert [(t, data) for t, data, _, _ in found[stream]] == read
            about = find_topic(specs[stream])
            assert about is not None and about.type_name == connection.msgtype


@pytest.mark.parametrize("hashed", ["RIHS01_00", "", None, 5])
def test_the_hash_of_a_type_is_that_of_the_bag(tmp_path: Path, hashed: object) -> None:
    about = {"name": "/chat", "type": CHAT, "type_description_hash": hashed}
    listed = [{"topic_metadata": about, "message_count": 1}, {"topic_metadata": 5}, None]
    bag = write_bag(tmp_path / "bag", [[chat(1)]], topics_with_message_count=listed)
    topic = find_topic(streams_of(make(bag))["ros_chat"])
    assert topic is not None and topic.type_hash == ("RIHS01_00" if hashed == "RIHS01_00" else "")


@pytest.mark.parametrize(
    ("topics", "exclude", "found"),
    [
        (["**"], [], "a_front_points a_front_raw b chat"),
        (["/a/**"], [], "a_front_points a_front_raw"),
        (["/a/*"], [], ""),
        (["/a/*/raw", "chat"], [], "a_front_raw chat"),
        (["**"], ["/a/**", "/b"], "chat"),
        (["/*"], [], "b chat"),
        (["**/raw"], [], "a_front_raw"),
        (["/a/front/p*s"], [], "a_front_points"),
    ],
)
def test_patterns_choose_topics(
    tmp_path: Path, topics: list[str], exclude: list[str], found: str
) -> None:
    names = ("/a/front/points", "/a/front/raw", "/b", "/chat")
    path = write_mcap(tmp_path / "a.mcap", [chat(1, name) for name in names])
    driver = make(path, topics=topics, exclude=exclude)
    if not found:
        with pytest.raises(SourceError, match="has no topic to record; its topics: /a/front/po"):
            driver.open()
        return
    assert sorted(streams_of(driver)) == [f"ros_{name}" for name in found.split()]


def test_a_topic_behind_the_hash_is_the_only_one(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", [chat(1, "/a"), chat(2, "/b")])
    assert sorted(streams_of(make(f"{path}#/b"))) == ["ros_b"]
    assert sorted(streams_of(make(f"{path}#b"))) == ["ros_b"]
    with pytest.raises(SourceError, match=r"ros: bag:.*#/c: has no topic '/c'; its topics: /a, /b"):
        make(f"{path}#/c").open()


def test_a_topic_that_is_asked_for_by_its_name_must_be_there(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", [chat(1, "/a")])
    with pytest.raises(SourceError, match="has no topic '/missing'; its topics: /a"):
        make(path, topics=["/a", "/missing"]).open()
    assert sorted(streams_of(make(path, topics=["/a", "/missing/**"]))) == ["ros_a"]


def test_services_and_actions_are_named_and_not_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("/add/_service_event", "/drive/_action/feedback", "/drive/_action/status", "/chat")
    driver = make(write_mcap(tmp_path / "a.mcap", [chat(1, name) for name in names]))
    assert sorted(streams_of(driver)) == ["ros_chat"]
    (warning,) = driver.warnings
    assert warning == (
        "services and actions are not recorded: /add/_service_event, /drive/_action/feedback, "
        "/drive/_action/status"
    )
    assert warning in capsys.readouterr().err


def test_names_of_streams_are_unique_and_never_too_long(tmp_path: Path) -> None:
    names = ("/a/b", "/a_b", "/A_B", "/" + "long" * 30, "/" + "long" * 30 + "/b", "/\u00fc")
    specs = streams_of(make(write_mcap(tmp_path / "a.mcap", [chat(1, name) for name in names])))
    assert len(specs) == len(names) and {"ros_a_b", "ros_topic"} <= specs.keys()
    found = {about.name for spec in specs.values() if (about := find_topic(spec)) is not None}
    assert found == set(names)
    assert specs.keys() == streams_of(make(tmp_path / "a.mcap")).keys()


def test_max_rate_thins_a_topic_and_says_by_how_many(tmp_path: Path) -> None:
    sent = [each for k in range(100) for each in (chat(k), odometry(k))]
    driver = make(write_mcap(tmp_path / "a.mcap", sent), max_rate={"/t*": 10, "**": 50.0})
    items, _ = play_out(driver)
    found = messages(items)
    assert [t for t, *_ in found["ros_tf"]] == [sent[k].log_ns for k in range(1, 200, 20)]
    assert len(found["ros_chat"]) == 50
    states = {item.stream: item.values for item in items if isinstance(item, State)}
    assert states == {
        "ros_tf": {"skipped_by_max_rate": 90},
        "ros_chat": {"skipped_by_max_rate": 50},
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_rate": {"/tf": 0}}, "ros.max_rate./tf: 0 is no rate in Hz above 0"),
        ({"max_rate": {"/tf": "fast"}}, "ros.max_rate./tf: 'fast' is no rate in Hz above 0"),
        ({"topics": ["/tf", ""]}, r"ros.topics\[1\]: '' is no topic"),
        ({"exclude": ["/a b"]}, r"ros.exclude\[0\]: '/a b' is no topic"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make("any.mcap", **options)


def test_messages_that_cannot_be_read_and_files_that_end_early_are_losses(tmp_path: Path) -> None:
    sent = [each for k in range(400) for each in (chat(k), odometry(k))]
    path = write_mcap(tmp_path / "a.mcap", sent, chunk_size=2000, finish=False)
    items, error = play_out(make(path))
    assert error is None
    found = messages(items)
    whole = sum(map(len, found.values()))
    assert 500 < whole < 800
    rows = sent_as(sent)[:whole]
    assert found == {"ros_chat": rows[::2], "ros_tf": rows[1::2]}
    cut = [item for item in items if isinstance(item, Lost)]
    assert [(lost.stream, lost.cause, lost.count) for lost in cut] == [
        ("ros_chat", "truncated", None),
        ("ros_tf", "truncated", None),
    ]


def test_a_damaged_chunk_is_a_counted_loss(tmp_path: Path) -> None:
    sent = [chat(k, log_ns=START_NS + k * 10 * MS) for k in range(400)]
    path = write_mcap(tmp_path / "a.mcap", sent, chunk_size=4000)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(data)
    items, _ = play_out(make(path))
    lost = losses(items)
    assert sum(each.count or 0 for each in lost) + len(messages(items)["ros_chat"]) == 400
    assert {cause for cause, _ in causes(items)} <= {"corrupt"}


def test_a_message_that_is_larger_than_a_batch_goes_alone(tmp_path: Path) -> None:
    big = [
        Sent("/raw", "a/msg/B", "cdr", bytes([k]) * 3_000_000, START_NS + k * MS) for k in range(3)
    ]
    items, _ = play_out(make(write_mcap(tmp_path / "a.mcap", big)))
    samples = [item for item in items if isinstance(item, Sample)]
    assert [item.count for item in samples] == [1, 1, 1]
    assert [item.data["message"][0] for item in samples] == [each.data for each in big]


def test_empty_messages_are_messages(tmp_path: Path) -> None:
    sent = [Sent("/e", "std_msgs/msg/Empty", "cdr", b"", START_NS + k * MS) for k in range(3)]
    items, _ = play_out(make(write_mcap(tmp_path / "a.mcap", sent)))
    assert [data for _, data, *_ in messages(items)["ros_e"]] == [b"", b"", b""]


def test_sensors_of_one_recording_count_from_the_same_time(tmp_path: Path) -> None:
    """Also from a topic that only this driver plays."""
    path = write_mcap(tmp_path / "a.mcap", [odometry(0), *(chat(k) for k in range(5, 9))])
    driver = make(path, topics=["/chat"])
    driver.open()
    assert driver.origin_ns == START_NS + 3
    driver.close()


@pytest.mark.parametrize("data", [b"", b"\x89MCAP0\r\n", b"garbage" * 100])
def test_a_file_that_is_no_recording_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"ros: bag:.*a\.mcap"):
        make(path).open()


def test_a_description_of_a_topic_survives(tmp_path: Path) -> None:
    about = RecordedTopic(
        "/a", "b/msg/C", "cdr", "ros2msg", b"int8 a # \xc3\xa9", "RIHS01_00", {"q": "1"}
    )
    assert RecordedTopic.parse(about.to_json()) == about
    for text in ("", "5", "[]", "{}", '{"topic": 1}', about.to_json()[:-2]):
        with pytest.raises(Exception, match=r"topic\.json"):
            RecordedTopic.parse(text)


def test_numbers_and_times_fit_their_channels() -> None:
    from drivers.topics.stream import Messages

    held = Messages()
    held.put(1, b"x", 2**32 - 1, 0, -5)
    held.put(2, b"y", 0, 3, 2**63)
    sample = held.take("s")
    assert np.asarray(sample.data["t_source"]).tolist() == [0, 2**63]
    assert not held
