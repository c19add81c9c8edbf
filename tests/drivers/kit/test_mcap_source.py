"""``mcap:PATH[#TOPIC]``: recordings of other software, played by the camera and the IMU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.writer import CompressionType
from scipy.spatial.transform import Rotation

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, Item, Lost, Sample
from drivers.kit.mcap_rows import inertial_values
from drivers.kit.runner import make_driver
from drivers.mmwave.driver import MmwaveDriver
from drivers.xsens.driver import XsensDriver
from recorder.common.errors import ConfigError, SourceError
from recorder.config.driver_schema import DriverSchema
from recorder.config.loading import load_config
from recorder.formats.bags import timing
from recorder.formats.bags.messages import Inertial
from tests.campaigns import Selector
from tests.formats.bags.kit import (
    HEIGHT,
    SECOND,
    START_NS,
    WIDTH,
    Sent,
    cdr,
    compressed,
    fox_compressed,
    header,
    imu,
    jpeg,
    json_imu,
    picture,
    png,
    raw_image,
    turn,
    write_bag,
    write_mcap,
)
from tests.support import devices
from tests.support.devices import (
    causes,
    column,
    device_times,
    losses,
    opened,
    play,
    streaming,
    times,
)

FRAME_NS, STEP_NS = 50_000_000, 10_000_000


def drive() -> list[Sent]:
    """Two cameras and two IMUs, half a second."""
    sent = []
    for at in range(10):
        t_ns = START_NS + at * FRAME_NS
        sent.append(compressed("/front/image_raw/compressed", jpeg(at), t_ns + 5_000_000))
        sent.append(fox_compressed("/rear/image", jpeg(at + 50), t_ns + 20_000_000))
    for at in range(50):
        t_ns = START_NS + at * STEP_NS
        acc, avel = (at / 7, -9.81, 1e-3 * at), (0.1 * at, 0.2, -0.3)
        sent.append(imu("/imu/data", t_ns, acc, avel, turn(at / 10)))
        values = {"acc": [at / 8, 0.0, 9.5], "avel": [1.0, None, at / 16], "t_dev": at * STEP_NS}
        sent.append(json_imu("/imu2", t_ns + 1, values))
    return sorted(sent, key=lambda each: each.log_ns)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mcap(tmp_path_factory.mktemp("mcap") / "some#drive.mcap", drive())


def open_(kind: type[Driver], path: Path, topic: str = "", name: str = "s", **more: Any) -> Driver:
    address = f"{path}#{topic}" if topic else str(path)
    pace = more.pop("pace", "max")
    entry = {"name": name, "scheme": "mcap", "address": address, "options": more, "pace": pace}
    return make_driver(kind, entry)


def samples(items: list[Item]) -> list[Sample]:
    assert all(isinstance(item, Sample) for item in items)
    return devices.samples(items)


def stamps(items: list[Item]) -> list[int]:
    return list(times(samples(items)).tolist())


def test_jpegs_of_ros_go_on_byte_for_byte_with_their_stamps(path: Path) -> None:
    driver = open_(CameraDriver, path, "/front/image_raw/compressed")
    spec, items = play(driver)
    assert spec.channels[0].shape == (HEIGHT, WIDTH, 3) and spec.channels[0].format == "mjpg"
    assert (spec.rate_hz, spec.device_clock, spec.finite) == (20.0, False, True)
    assert [item.data["video.avi"] for item in samples(items)] == [[jpeg(at)] for at in range(10)]
    assert stamps(items) == [START_NS + 2_000_000 + at * FRAME_NS for at in range(10)]
    # The IMU's first stamp, 1 ms before the first log time: of the whole recording.
    assert driver.origin_ns == START_NS - 1_000_000
    assert spec.settings["mcap_stamps"] == "header" and spec.settings["passed_through"]
    assert spec.settings["mcap_frame"] == "camera_optical"


def test_jpegs_of_foxglove_go_on_byte_for_byte(path: Path) -> None:
    driver = open_(CameraDriver, path, "rear/image")
    _, items = play(driver)
    assert [i.data["video.avi"] for i in samples(items)] == [[jpeg(at + 50)] for at in range(10)]
    assert stamps(items) == [START_NS + 20_000_000 + at * FRAME_NS for at in range(10)]
    assert driver.origin_ns == START_NS - 1_000_000


def test_an_imu_of_ros_keeps_its_values(path: Path) -> None:
    spec, items = play(open_(XsensDriver, path, "/imu/data"))
    assert [channel.name for channel in spec.channels] == ["acc", "avel", "rot", "quat"]
    assert (spec.rate_hz, spec.device_clock) == (100.0, False)
    at = np.arange(50)
    wanted = np.stack([at / 7, np.full(50, -9.81), 1e-3 * at], 1).astype("<f4")
    assert np.array_equal(column(items, "acc"), wanted)
    assert np.allclose(column(items, "rot")[:, 2], (at / 10 + np.pi) % (2 * np.pi) - np.pi)
    assert column(items, "quat")[:, 0] == pytest.approx(np.cos(at / 20))
    assert stamps(items) == [START_NS - 1_000_000 + n * STEP_NS for n in range(50)]


def test_an_imu_of_this_recorder_keeps_its_values_and_device_times(path: Path) -> None:
    spec, items = play(open_(XsensDriver, path, "/imu2"))
    assert [channel.name for channel in spec.channels] == ["acc", "avel", "rot"]
    assert spec.device_clock
    at = np.arange(50)
    assert np.array_equal(column(items, "acc")[:, 0], (at / 8).astype("<f4"))
    assert np.isnan(column(items, "avel")[:, 1]).all() and np.isnan(column(items, "rot")).all()
    assert device_times(items).tolist() == (at * STEP_NS).tolist()
    assert stamps(items) == [START_NS + 1 + n * STEP_NS for n in range(50)]


def test_batches_follow_the_pace(path: Path) -> None:
    _, fast = play(open_(XsensDriver, path, "/imu/data"))
    _, real = play(open_(XsensDriver, path, "/imu/data", pace="realtime"))
    assert (len(fast), len(real)) == (1, 50)
    assert stamps(fast) == stamps(real)


@pytest.mark.parametrize("compression", list(CompressionType))
def test_every_compression_is_read(tmp_path: Path, compression: CompressionType) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive(), compression=compression, chunk_size=2000)
    _, items = play(open_(CameraDriver, path, "/rear/image"))
    assert len(samples(items)) == 10


def test_a_source_opens_again_from_its_beginning(path: Path) -> None:
    with streaming(open_(CameraDriver, path, "/rear/image")) as (driver, first):
        driver.read()
        assert list(driver.open()) == [first]
        item = driver.read()
        assert isinstance(item, Sample) and item.data["video.avi"] == [jpeg(50)]


@pytest.mark.parametrize("profile", ["foxglove", "ros2"])
def test_losses_that_this_recorder_counted_are_losses_again(tmp_path: Path, profile: str) -> None:
    sent = [imu("/imu/data", START_NS + at * STEP_NS, (at, 0, 0), (0, 0, 0)) for at in range(9)]
    counted = {"type": "lost", "stream": "imu", "cause": "overrun", "count": 3, "estimate": None}
    unknown = {**counted, "cause": "driver", "count": None, "estimate": 8}
    for place, loss in ((3, counted), (5, unknown), (6, {**counted, "stream": "imu2"})):
        sent.append(loss_message(loss, START_NS + place * STEP_NS + 1, profile))
    sent.append(loss_message("nothing", START_NS + 7 * STEP_NS + 1, profile))
    sent.sort(key=lambda each: each.log_ns)
    _, items = play(open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent)))
    lost = losses(items)
    assert [(each.cause, each.count, each.estimate) for each in lost] == [
        ("recorded", 3, None),
        ("recorded", None, 8),
        ("recorded", None, None),
    ]
    assert lost[0].detail == {"recorded_cause": "overrun"}
    assert [each.t_ns for each in lost] == [START_NS + n * STEP_NS + 1 for n in (3, 5, 7)]
    assert [type(item) for item in items[:4]] == [Sample, Lost, Sample, Lost]
    assert sum(item.count for item in items if isinstance(item, Sample)) == 9


def loss_message(loss: Any, log_ns: int, profile: str) -> Sent:
    topic, text = "/recorder/losses", json.dumps(loss)
    if profile == "ros2":
        return cdr(topic, "std_msgs/msg/String", log_ns, data=text)
    return Sent(topic, "recorder.Loss", "json", text.encode(), log_ns, b"{}")


def test_a_topic_is_chosen_by_the_sensors_name(path: Path) -> None:
    spec, _ = play(open_(CameraDriver, path, name="rear"))
    assert spec.settings["mcap_topic"] == "/rear/image"


@pytest.mark.parametrize(
    ("kind", "topic", "text"),
    [
        (CameraDriver, "", "select a topic, as in #/front/image_raw/compressed; its topics with"),
        (CameraDriver, "/imu2", "topic '/imu2': holds imu; its topics with pictures: /front/"),
        (CameraDriver, "/none", "has no topic '/none'; its topics with pictures: /front/"),
        (XsensDriver, "/rear/image", "topic '/rear/image': holds pictures; its topics with imu"),
    ],
)
def test_a_wrong_topic_is_an_error_that_names_the_topics(
    path: Path, kind: type[Driver], topic: str, text: str
) -> None:
    with pytest.raises(SourceError) as caught:
        open_(kind, path, topic).open()
    assert text in str(caught.value) and str(path) in str(caught.value)


def test_other_drivers_have_no_such_source(path: Path) -> None:
    with pytest.raises(ConfigError, match="no source 'mcap'"):
        open_(MmwaveDriver, path)


def test_pictures_that_are_not_jpegs_are_given_as_pixels(tmp_path: Path) -> None:
    sent = [compressed("/c", png(at), START_NS + at, form="png") for at in range(3)]
    spec, items = play(open_(CameraDriver, write_mcap(tmp_path / "a.mcap", sent), quality=70))
    assert spec.settings["jpeg_quality"] == 70 and not spec.settings["passed_through"]
    for at, item in enumerate(samples(items)):
        assert np.array_equal(item.data["video.avi"], picture(at)[None])


def grey(at: int) -> Any:
    return picture(at)[..., 0]


YUYV = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 2), np.uint8)
BAYER = np.random.default_rng(2).integers(0, 256, (HEIGHT, WIDTH), np.uint8)


@pytest.mark.parametrize(
    ("encoding", "pixels", "wanted"),
    [
        ("bgr8", picture(1), picture(1)),
        ("8UC3", picture(1), picture(1)),
        ("rgb8", picture(1)[..., ::-1], picture(1)),
        ("bgra8", np.dstack([picture(2), grey(2)]), picture(2)),
        ("rgba8", np.dstack([picture(2)[..., ::-1], grey(2)]), picture(2)),
        ("mono8", grey(3), np.dstack([grey(3)] * 3)),
        ("mono16", grey(3).astype("<u2") << 8 | 255, np.dstack([grey(3)] * 3)),
        ("bgr16", picture(4).astype("<u2") << 8, picture(4)),
        ("yuv422_yuy2", YUYV, cv2.cvtColor(YUYV, cv2.COLOR_YUV2BGR_YUY2)),
        ("yuv422", YUYV[..., ::-1], cv2.cvtColor(YUYV, cv2.COLOR_YUV2BGR_YUY2)),
        ("bayer_rggb8", BAYER, cv2.cvtColor(BAYER, cv2.COLOR_BayerBG2BGR)),
        ("bayer_gbrg8", BAYER, cv2.cvtColor(BAYER, cv2.COLOR_BayerGR2BGR)),
    ],
)
@pytest.mark.parametrize("pad", [0, 8])
def test_raw_pictures_of_ros(
    tmp_path: Path, encoding: str, pixels: Any, wanted: Any, pad: int
) -> None:
    sent = raw_image("/c", encoding, pixels, START_NS, pad=pad)
    _, (item,) = play(open_(CameraDriver, write_mcap(tmp_path / "a.mcap", [sent])))
    assert isinstance(item, Sample) and np.array_equal(item.data["video.avi"], wanted[None])


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (raw_image("/c", "16UC1", grey(0).astype("<u2"), START_NS), "encoding '16UC1'"),
        (compressed("/c", png(0), START_NS, form="16UC1; compressedDepth png"), "a depth image"),
        (compressed("/c", b"\xff\xd8nothing", START_NS), "without a frame header"),
        (compressed("/c", b"", START_NS), "0 bytes of 'jpeg' that do not decode"),
        (Sent("/c", "sensor_msgs/msg/Image", "cdr", b"\0\1\0\0", START_NS), "numbers"),
        (Sent("/c", "foxglove.CompressedImage", "json", b"{}", START_NS), "in protobuf only"),
        (Sent("/c", "sensor_msgs/CompressedImage", "ros1", b"", START_NS), "of ROS 1 are not"),
        (Sent("/c", "x/msg/Odd", "cdr", b"", START_NS), "no driver plays 'x/msg/Odd' ('cdr')"),
    ],
)
def test_a_topic_without_a_picture_says_why(tmp_path: Path, sent: Sent, text: str) -> None:
    path = write_mcap(tmp_path / "a.mcap", [sent])
    with pytest.raises(SourceError) as caught:
        open_(CameraDriver, path, "/c").open()
    assert text in str(caught.value)


def image(encoding: str, **changes: Any) -> Sent:
    """A ``sensor_msgs/msg/Image`` of 4 x 2 pixels whose numbers do not fit."""
    fields = {"height": 2, "width": 4, "step": 4, "is_bigendian": 0, "encoding": encoding}
    data = np.zeros(changes.pop("size", 8), np.uint8)
    kind, fields = "sensor_msgs/msg/Image", fields | changes
    return cdr("/c", kind, START_NS, header=header(START_NS, "c"), data=data, **fields)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (image("mono8", step=3), "8 bytes in rows of 3 for 4 x 2 pixels of mono8"),
        (image("rgb8"), "8 bytes in rows of 4 for 4 x 2 pixels of rgb8"),
        (image("mono8", size=7), "7 bytes in rows of 4 for"),
        (image("mono8", step=2**32 - 1, height=2**32 - 1), "a picture of 4 x 4294967295 pixels"),
        (image("mono8", width=0), "a picture of 0 x 2 pixels"),
        (image("mono8", step=2**32 - 1), "8 bytes in rows of 4294967295"),
        (image("yuyv", width=1), "yuyv with an odd width of 1 pixels"),
        (image("bayer_rggb8", height=1), "bayer_rggb8 of 4 x 1 pixels"),
    ],
)
def test_raw_pictures_whose_numbers_do_not_fit(tmp_path: Path, sent: Sent, text: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_(CameraDriver, write_mcap(tmp_path / "a.mcap", [sent])).open()
    assert text in str(caught.value)


def test_the_last_row_may_lack_its_padding(tmp_path: Path) -> None:
    sent = image("mono8", step=6, size=10)
    _, (item,) = play(open_(CameraDriver, write_mcap(tmp_path / "a.mcap", [sent])))
    assert isinstance(item, Sample) and item.data["video.avi"].shape == (1, 2, 4, 3)  # type: ignore[union-attr]


def test_big_endian_pictures(tmp_path: Path) -> None:
    values = (np.arange(8).reshape(2, 4) << 9).astype(">u2")
    rows = np.frombuffer(values.tobytes(), np.uint8)
    fields = {"height": 2, "width": 4, "step": 8, "is_bigendian": 1, "encoding": "mono16"}
    kind = "sensor_msgs/msg/Image"
    sent = cdr("/c", kind, START_NS, header=header(START_NS, "c"), data=rows, **fields)
    _, (item,) = play(open_(CameraDriver, write_mcap(tmp_path / "a.mcap", [sent])))
    assert isinstance(item, Sample)
    pixels: Any = item.data["video.avi"]
    assert pixels[0, ..., 0].tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]


@given(st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: sum(x * x for x in q) > 0.01))
def test_angles_are_those_of_scipy(quat: tuple[float, float, float, float]) -> None:
    w, x, y, z = quat
    rotation = Rotation.from_quat([x, y, z, w])
    message = Inertial(0, "", (0, 0, 0), (0, 0, 0), quat)
    roll, pitch, yaw = inertial_values(message)["rot"]
    assert abs(pitch) <= np.pi / 2
    again = Rotation.from_euler("ZYX", [yaw, pitch, roll])
    # Near the poles of the angles the arc sine loses half of the digits.
    assert (rotation * again.inv()).magnitude() < 1e-6


def test_a_quaternion_without_length_has_no_angles() -> None:
    for quat in ((0.0, 0.0, 0.0, 0.0), (np.inf, 0.0, 0.0, 0.0), (np.nan, 0.0, 0.0, 1.0)):
        message = Inertial(0, "", (0, 0, 0), (0, 0, 0), quat)
        assert np.isnan(inertial_values(message)["rot"]).all()


def test_messages_that_do_not_decode_are_losses(tmp_path: Path) -> None:
    sent = [compressed("/c", jpeg(at), START_NS + at * FRAME_NS) for at in range(4)]
    sent[1] = compressed("/c", b"not a picture", sent[1].log_ns)
    cut = sent[3]
    sent[3] = Sent(cut.topic, cut.schema, "cdr", cut.data[:-9], cut.log_ns)
    _, items = play(open_(CameraDriver, write_mcap(tmp_path / "a.mcap", sent)))
    kinds = [type(item) for item in items]
    assert kinds == [Sample, Lost, Sample, Lost]
    lost = losses(items)
    assert causes(items) == [("corrupt", 1)] * 2
    assert "that do not decode" in lost[0].detail["reason"]
    assert lost[1].detail["log_ns"] == cut.log_ns


def test_an_imus_message_that_does_not_decode_is_a_loss_in_its_place(tmp_path: Path) -> None:
    sent = [imu("/imu", START_NS + at * STEP_NS, (at, 0, 0), (0, 0, 0)) for at in range(5)]
    sent[2] = Sent("/imu", sent[2].schema, "cdr", sent[2].data[:-4], sent[2].log_ns)
    _, items = play(open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent)))
    assert [type(item) for item in items] == [Sample, Lost, Sample]
    assert [getattr(item, "count", None) for item in items] == [2, 1, 2]


def test_stamps_of_another_clock_are_the_devices_time(tmp_path: Path) -> None:
    tai = 37 * SECOND
    sent = [
        compressed("/c", jpeg(at), START_NS + at * FRAME_NS, START_NS + at * FRAME_NS + tai)
        for at in range(3)
    ]
    spec, items = play(driver := open_(CameraDriver, write_mcap(tmp_path / "a.mcap", sent)))
    assert spec.settings["mcap_stamps"] == "log time" and spec.device_clock
    assert stamps(items) == [START_NS + at * FRAME_NS for at in range(3)]
    assert [int(i.t_dev_ns[0]) for i in samples(items)] == [s + tai for s in stamps(items)]  # type: ignore[index]
    assert driver.origin_ns == START_NS


def test_messages_without_stamps_have_their_log_times(tmp_path: Path) -> None:
    sent = [imu("/imu", START_NS + at * STEP_NS, (1, 2, 3), (0, 0, 0), None, 0) for at in range(3)]
    spec, items = play(open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent)))
    assert stamps(items) == [START_NS + at * STEP_NS for at in range(3)]
    assert not spec.device_clock
    assert np.isnan(column(items, "quat")).all() and np.isnan(column(items, "rot")).all()


def test_values_that_the_first_messages_lack_are_not_dropped(tmp_path: Path) -> None:
    """The stream is declared by the first messages, and the orientation comes later."""
    quat = turn(0.5)
    sent = [
        imu("/imu", START_NS + at * STEP_NS, (1, 2, 3), (0, 0, 0), None if at < 60 else quat)
        for at in range(61)
    ]
    _, items = play(open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent)))
    assert column(items, "quat")[60] == pytest.approx(quat)
    assert np.isnan(column(items, "quat")[:60]).all()


def test_a_bag_of_several_files_is_one_recording(tmp_path: Path) -> None:
    sent = drive()
    folder = write_bag(tmp_path / "bag", [sent[:40], sent[40:80], sent[80:]])
    whole = write_mcap(tmp_path / "a.mcap", sent)
    for kind, topic in ((CameraDriver, "/rear/image"), (XsensDriver, "/imu/data")):
        one, other = open_(kind, folder, topic), open_(kind, whole, topic)
        assert stamps(play(one)[1]) == stamps(play(other)[1])
        assert one.origin_ns == other.origin_ns


def test_a_file_whose_recorder_was_killed_plays_as_far_as_it_is_whole(tmp_path: Path) -> None:
    sent = [compressed("/c", jpeg(at), START_NS + at * FRAME_NS) for at in range(30)]
    path = write_mcap(tmp_path / "a.mcap", sent, chunk_size=20_000, finish=False)
    _, items = play(open_(CameraDriver, path))
    *pictures, end = items
    assert 5 < len(pictures) < 30
    assert [i.data["video.avi"] for i in samples(pictures)] == [
        [jpeg(at)] for at in range(len(pictures))
    ]
    assert isinstance(end, Lost) and (end.cause, end.count) == ("truncated", None)
    assert end.t_ns == stamps(pictures)[-1]


def test_an_interval_of_loss_lies_where_a_file_was_cut(tmp_path: Path) -> None:
    sent = [imu("/imu", START_NS + n * STEP_NS, (n, 0, 0), (0, 0, 0)) for n in range(60)]
    bag = write_bag(tmp_path / "bag", [sent[:50], sent[50:]], chunk_size=1000)
    first = bag / "bag_0.mcap"
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    _, items = play(open_(XsensDriver, bag))
    before, lost, behind = items
    assert isinstance(before, Sample) and isinstance(lost, Lost) and isinstance(behind, Sample)
    assert 9 < before.count < 49 and behind.count == 10
    assert (lost.cause, lost.count, lost.t_ns) == ("truncated", None, int(before.t_ns[-1]))
    assert lost.detail["reason"].startswith("bag_0.mcap: ")


def test_time_0_is_no_time_unless_the_recording_begins_there(tmp_path: Path) -> None:
    zero = [imu("/imu", 0, (n, 0, 0), (0, 0, 0), None, 0) for n in range(2)]
    later = [imu("/imu", n * STEP_NS, (n, 0, 0), (0, 0, 0), None, n * STEP_NS) for n in (2, 3)]
    driver = open_(XsensDriver, write_mcap(tmp_path / "a.mcap", [*zero, *later]))
    _, items = play(driver)
    assert stamps(items) == [0, 0, 2 * STEP_NS, 3 * STEP_NS] and driver.origin_ns == 0
    day = imu("/imu", START_NS, (2, 0, 0), (0, 0, 0))
    true = imu("/imu", 0, (3, 0, 0), (0, 0, 0), None, START_NS + 5)  # no log time, but a stamp
    driver = open_(XsensDriver, write_mcap(tmp_path / "b.mcap", [*zero, true, day]))
    _, items = play(driver)
    lost = losses(items)
    assert [(each.cause, each.count, each.t_ns) for each in lost] == [
        ("time", 1, START_NS - 1_000_000)
    ] * 2
    assert "has no time" in lost[0].detail["reason"]
    (samples,) = [item for item in items if isinstance(item, Sample)]
    assert samples.t_ns.tolist() == [START_NS - 1_000_000, START_NS + 5]
    assert driver.origin_ns == START_NS - 1_000_000


def test_a_stamp_that_cannot_be_true_is_replaced_by_the_log_time(tmp_path: Path) -> None:
    sent = [imu("/imu", START_NS + n * STEP_NS, (n, 0, 0), (0, 0, 0)) for n in range(9)]
    for n, stamp_ns in ((0, 0), (3, START_NS + 3600 * SECOND), (6, 5)):
        log_ns = START_NS + n * STEP_NS
        sent[n] = imu("/imu", log_ns, (n, 0, 0), (0, 0, 0), None, stamp_ns)
    driver = open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent))
    spec, items = play(driver)
    assert spec.settings["mcap_stamps"] == "header" and not spec.device_clock
    assert driver.replaced_stamps == 2  # the first message has no stamp
    assert column(items, "acc")[:, 0].tolist() == list(range(9))
    early = [START_NS + n * STEP_NS - 1_000_000 * (n not in (0, 3, 6)) for n in range(9)]
    assert stamps(items) == early


def test_a_message_that_is_too_late_for_the_buffer_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_BUFFER_BYTES", 20_000)
    stamped = [START_NS + n * FRAME_NS for n in range(40)]
    order = [n for n in range(40) if n != 2] + [2]
    sent = [
        compressed("/c", jpeg(n), START_NS + at * FRAME_NS, stamped[n])
        for at, n in enumerate(order)
    ]
    _, items = play(open_(CameraDriver, write_mcap(tmp_path / "a.mcap", sent)))
    shown = [item.data["video.avi"] for item in samples(items)]
    place = shown.index([jpeg(2)])
    assert shown[:place] + shown[place + 1 :] == [[jpeg(n)] for n in order[:-1]]
    assert 20 < place < 39  # before what still waits
    times = stamps(items)
    assert times.pop(place) == times[place - 1]
    assert times == [stamped[n] for n in order[:-1]]


def test_a_devices_own_clock_does_not_step_with_the_recorders(tmp_path: Path) -> None:
    sent = []
    for n in range(60):
        t_ns = START_NS + n * STEP_NS
        log_ns = t_ns + 7_000_000 - (SECOND // 2 if n >= 30 else 0)
        sent.append(imu("/imu", log_ns, (n, 0, 0), (0, 0, 0), stamp_ns=t_ns))
    driver = open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent))
    _, items = play(driver)
    assert [step_ns for step_ns, _ in driver.clock_steps] == [-SECOND // 2]
    assert stamps(items) == [START_NS + n * STEP_NS for n in range(60)]


@pytest.mark.parametrize("back_ms", [80, 135, 5000])
def test_stamps_that_are_set_back_although_the_log_is_not(tmp_path: Path, back_ms: int) -> None:
    """A sensor whose own clock was set back: its order is that of the file."""
    sent = []
    for n in range(1200):
        t_ns = START_NS + n * STEP_NS
        stamp_ns = t_ns - 2_000_000 - (back_ms * 1_000_000 if n >= 600 else 0)
        sent.append(imu("/imu", t_ns, (n, 0, 0), (0, 0, 0), stamp_ns=stamp_ns))
    driver = open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent))
    _, items = play(driver)
    assert column(items, "acc")[:, 0].tolist() == list(range(1200))
    assert stamps(items) == [START_NS - 2_000_000 + n * STEP_NS for n in range(1200)]
    assert driver.clock_steps == []
    assert [(s, ns) for s, ns, _ in driver.stream_steps] == [("s", -back_ms * 1_000_000)]


@pytest.mark.parametrize("late", [1, 5, 60])
def test_a_part_of_a_topic_that_is_published_late_is_sorted(tmp_path: Path, late: int) -> None:
    order = [*range(100), *range(100 + late, 100 + 2 * late), *range(100, 100 + late)]
    order += range(100 + 2 * late, 400)
    sent = [
        imu("/imu", START_NS + at * STEP_NS, (n, 0, 0), (0, 0, 0), None, START_NS + n * STEP_NS)
        for at, n in enumerate(order)
    ]
    driver = open_(XsensDriver, write_mcap(tmp_path / "a.mcap", sent))
    _, items = play(driver)
    assert column(items, "acc")[:, 0].tolist() == list(range(400))
    assert stamps(items) == [START_NS + n * STEP_NS for n in range(400)]
    assert driver.stream_steps == []


def test_the_messages_of_a_damaged_chunk_are_counted_and_hide_no_others(tmp_path: Path) -> None:
    sent = [compressed("/c", jpeg(at), START_NS + at * FRAME_NS) for at in range(30)]
    none = CompressionType.NONE
    path = write_mcap(tmp_path / "a.mcap", sent, chunk_size=3000, compression=none)
    content = bytearray(path.read_bytes())
    content[content.index(jpeg(20)) + 30] ^= 1
    path.write_bytes(content)
    _, items = play(open_(CameraDriver, path))
    (lost,) = losses(items)
    assert lost.cause == "corrupt" and lost.count is not None
    assert f"{path}: byte " in lost.detail["reason"] and "a wrong CRC" in lost.detail["reason"]
    before = items.index(lost)
    after = before + lost.count
    assert before <= 20 < after
    wanted = [jpeg(at) for at in range(30) if not before <= at < after]
    items.remove(lost)
    assert [item.data["video.avi"] for item in samples(items)] == [[data] for data in wanted]
    assert stamps(items)[before:] == [
        START_NS - 3_000_000 + at * FRAME_NS for at in range(after, 30)
    ]


def test_a_file_that_cannot_be_read_any_more_is_one_error(tmp_path: Path) -> None:
    parts = [
        [compressed("/c", jpeg(at), START_NS + (at + 100 * part) * SECOND) for at in range(3)]
        for part in range(2)
    ]
    folder = write_bag(tmp_path / "bag", parts)
    with opened(open_(CameraDriver, folder)) as driver:
        (folder / "bag_1.mcap").unlink()
        for at in range(3):
            item = driver.read()
            assert isinstance(item, Sample) and item.data["video.avi"] == [jpeg(at)]
        for _ in range(2):
            with pytest.raises(SourceError, match=r"bag_1\.mcap: cannot be read: No such file"):
                driver.read()


def test_a_recording_with_any_damage_plays_or_is_one_error(
    tmp_path: Path, select: Selector
) -> None:
    none = CompressionType.NONE
    whole = write_mcap(tmp_path / "a.mcap", drive()[:40], compression=none, chunk_size=4000)
    content, rng = whole.read_bytes(), np.random.default_rng(5)
    path = tmp_path / "b.mcap"
    outcomes = set()
    for number in select(range(150), 24):
        damaged = bytearray(content)
        if number % 3 == 0:
            del damaged[int(rng.integers(len(content))) :]
        for at in rng.integers(0, len(damaged), number % 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        for kind, topic in ((CameraDriver, "/rear/image"), (XsensDriver, "/imu2")):
            driver = open_(kind, path, topic)
            try:
                play(driver)
                outcomes.add("played")
            except SourceError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                outcomes.add("error")
            finally:
                driver.close()
    assert outcomes == {"played", "error"}


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"\x89MCAP0\r\n"])
def test_what_is_no_recording_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        open_(CameraDriver, path).open()
    assert str(path) in str(caught.value)


def test_a_recording_without_messages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no topic with pictures"):
        open_(CameraDriver, write_mcap(tmp_path / "a.mcap", [])).open()


def test_a_topic_may_be_longer_than_a_file_name(tmp_path: Path) -> None:
    topic = "/" + "x" * 5000
    path = write_mcap(tmp_path / "a.mcap", [compressed(topic, jpeg(0), START_NS)])
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nsensors:\n  cam: {{driver: camera, source: 'mcap:{path}#{topic}'}}\n"
    )
    kind: type[Driver] = CameraDriver
    assert (
        load_config(config, lambda name: DriverSchema.of(name, kind)).sensors[0].address
        == f"{path}#{topic}"
    )
    driver = open_(CameraDriver, path, topic)
    assert driver.open()[0].settings["mcap_topic"] == topic
    driver.close()


def test_values_beyond_f4_become_infinite(tmp_path: Path) -> None:
    sent = imu("/imu", START_NS, (1e300, -1e300, 1e-300), (0, 0, 0))
    _, items = play(open_(XsensDriver, write_mcap(tmp_path / "a.mcap", [sent])))
    assert column(items, "acc").tolist() == [[np.inf, -np.inf, 0.0]]


def test_a_single_message_has_no_rate(tmp_path: Path) -> None:
    message = compressed("/c", jpeg(0), START_NS)
    spec, items = play(open_(CameraDriver, write_mcap(tmp_path / "a.mcap", [message])))
    assert spec.rate_hz is None and len(items) == 1


def test_a_picture_without_a_definition_is_of_no_kind(tmp_path: Path) -> None:
    text = cdr("/t", "std_msgs/msg/String", START_NS, data="x")
    with pytest.raises(SourceError, match="has no topic with imu"):
        open_(XsensDriver, write_mcap(tmp_path / "a.mcap", [text])).open()
