"""``recorder import``: sessions of recordings of other software, and of our own archives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.writer import CompressionType

from recorder.perception.calibration import session_calibration
from recorder.perception.poses import find_poses
from recorder.recording.supervisor import driver_registry
from recorder.session.reader import Session
from tests.acceptance.command import (
    assert_nothing_lost,
    assert_sound,
    header,
    here,
)
from tests.drivers.ouster.rig import T0_NS, capture, flat, imu_packet, make_info, ouster_messages
from tests.formats.bags.kit import (
    OLD_DRIVERS,
    SECOND,
    START_NS,
    Sent,
    compressed,
    fox_compressed,
    imu,
    jpeg,
    json_imu,
    raw_image,
    turn,
    write_bag,
    write_mcap,
    write_sqlite,
)
from tests.perception import test_recorded_poses as poses
from tests.perception.test_recorded_calibration import OPTICAL, info, transforms

FRAME_NS, STEP_NS = 50_000_000, 10_000_000


def times(session: Session, stream: str) -> list[int]:
    return list(map(int, session.streams[stream].t_ns))


def jpegs(session: Session, stream: str) -> list[bytes]:
    channel: Any = session.streams[stream].channels["video.avi"]
    return [bytes(channel.encoded(at)) for at in range(len(session.streams[stream]))]


def values(session: Session, stream: str, channel: str) -> Any:
    reader = session.streams[stream].channels[channel]
    return reader.read(0, len(session.streams[stream]))


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No drivers but those that are always installed: others take more topics."""
    monkeypatch.setattr(driver_registry, "available_drivers", lambda: sorted(OLD_DRIVERS))


def drive() -> list[Sent]:
    """A camera with its calibration, two IMUs, an Ouster, and what no driver plays."""
    first = transforms("/tf_static", ("base_link", "camera_optical", (1, 2, 3), OPTICAL))
    sent = [first, info("/front/camera_info"), Sent("/points", "a/msg/Cloud", "cdr", b"", START_NS)]
    for at in range(10):
        sent.append(compressed("/front/image_raw", jpeg(at), START_NS + at * FRAME_NS))
    for at in range(50):
        t_ns, row = START_NS + at * STEP_NS, (at / 7, -9.81, 1e-3 * at)
        sent.append(imu("/imu/data", t_ns, row, row[::-1], turn(at / 20)))
        sent.append(json_imu("/imu2", t_ns + 1, {"acc": list(row), "avel": list(row)}))
    lidar = make_info()
    packets = [imu_packet(T0_NS + n * STEP_NS, n * STEP_NS) for n in range(1, 30)]
    messages = ouster_messages(lidar, flat([*capture(lidar, range(3)), packets]))
    later_ns = START_NS - messages[0].log_ns + SECOND // 10
    sent += [
        Sent(each.topic, each.schema, "cdr", each.data, each.log_ns + later_ns, each.schema_data)
        for each in messages
    ]
    return sorted(sent, key=lambda each: each.log_ns)


def test_a_ros_2_bag_becomes_a_session_with_its_own_times(tmp_path: Path) -> None:
    sent = drive()
    bag = write_bag(tmp_path / "drive 1", [sent[:70], sent[70:]])
    ran = here("import", bag, "--root", tmp_path, "--format", "json")
    assert (ran.code, ran.complaints) == (0, [])
    session = tmp_path / "drive_1"
    assert Path(ran.result["session"]) == session
    assert {t: v["sensor"] for t, v in ran.result["topics"].items()} == {
        "/front/image_raw": "front", "/imu/data": "imu", "/imu2": "imu2",
        "/ouster/lidar_packets": "ouster",
    }  # fmt: skip
    assert ran.result["left_out"] == {"/points": "no driver plays 'a/msg/Cloud' ('cdr')"}
    assert ran.result["drops"] == "unknown" and ran.result["calibrated"]
    assert_nothing_lost(session)
    assert_sound(session)
    with Session(session) as opened:
        # The camera's first stamp, which is 3 ms before the recording's first log time.
        assert opened.start_ns == START_NS - 3_000_000 == ran.result["start_ns"]
        assert times(opened, "front") == [START_NS - 3_000_000 + n * FRAME_NS for n in range(10)]
        assert times(opened, "imu") == [START_NS - 1_000_000 + n * STEP_NS for n in range(50)]
        assert times(opened, "imu2") == [START_NS + 1 + n * STEP_NS for n in range(50)]
        assert jpegs(opened, "front") == [jpeg(at) for at in range(10)]
        wanted = np.array([(at / 7, -9.81, 1e-3 * at) for at in range(50)], np.float32)
        assert np.array_equal(values(opened, "imu", "acc"), wanted)
        assert np.array_equal(values(opened, "imu2", "avel"), wanted)
        packets = [s.log_ns for s in sent if s.topic == "/ouster/lidar_packets"]
        assert times(opened, "ouster") == packets[7::8]  # of eight packets in a sweep, the last
        assert len(opened.streams["ouster_imu"]) == 29
        last_ns = max(stream.t_ns[-1] for stream in opened.streams.values())
        assert opened.end_ns == last_ns  # however long the import took
    assert (session / "calibration.yaml").is_file()
    assert header(session)["metadata"]["imported"]["topics"]["front"] == "/front/image_raw"


@pytest.mark.campaign
def test_selected_topics_of_a_damaged_recording(tmp_path: Path) -> None:
    sent = [compressed("/c", jpeg(at), START_NS + at * FRAME_NS) for at in range(30)]
    sent[3] = compressed("/c", b"not a picture", sent[3].log_ns)
    sent[4:4] = [fox_compressed("/other", jpeg(0), sent[4].log_ns)]
    path = write_mcap(tmp_path / "a.mcap", sent, chunk_size=20_000, finish=False)
    where = ("--root", tmp_path, "--topics", "cam=/c", "--name", "s")
    ran = here("import", path, *where, "--format", "json")
    assert ran.code == 3
    stream = ran.result["streams"]["cam"]
    assert (stream["lost"], stream["unknown_losses"]) == ({"corrupt": 1}, 1)
    with Session(tmp_path / "s") as opened:
        assert 5 < stream["samples"] == len(times(opened, "cam")) < 29
        assert times(opened, "cam")[3] == START_NS - 3_000_000 + 4 * FRAME_NS
    assert ran.result["left_out"] == {"/other": "was not selected"}
    assert_sound(tmp_path / "s")
    ran = here("import", path, *where)
    assert ran.code == 2 and "a session of that name exists" in ran.err[-1]


def test_what_cannot_be_imported_is_one_error(tmp_path: Path) -> None:
    root = ("--root", tmp_path / "sessions")
    (tmp_path / "text.mcap").write_text("nothing of the kind")
    points = Sent("/points", "a/msg/Cloud", "cdr", b"", START_NS)
    empty = compressed("/c", b"", START_NS)
    path = write_mcap(tmp_path / "a.mcap", [points, empty])
    sent = [imu("/imu", START_NS, (0, 0, 0), (0, 0, 0))]
    damaged = write_mcap(tmp_path / "damaged.mcap", sent, compression=CompressionType.NONE)
    content = bytearray(damaged.read_bytes())
    at = content.index(b"sensor_msgs/msg/Imu")
    content[at] ^= 0xFF  # in the only chunk; and the end of the file is missing
    damaged.write_bytes(content[:-60])
    for arguments, text in (
        ((tmp_path / "none.mcap",), "none.mcap: cannot be read: No such file or directory"),
        ((tmp_path / "text.mcap",), "text.mcap"),
        ((tmp_path / "none",), "none"),
        ((path,), "has no topic to import"),
        ((damaged,), "has no topic to import: byte 33: a chunk with a wrong CRC; the last "),
        ((path, "--topics", "/x"), "has no topic '/x'; those to import: /c"),
        ((path, "--topics", "/c"), "topic /c: "),
        ((path, "--topics", "=/c"), "is not of the form TOPIC or NAME=TOPIC"),
        ((path, "--name", "a/b"), "is a path"),
    ):
        ran = here("import", *arguments, *root)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert text in "\n".join(ran.err) and "Traceback" not in "\n".join(ran.err), arguments
    assert not (tmp_path / "sessions").exists()
    reasons = "\n".join(here("import", path, *root).err)
    assert "/points: no driver plays 'a/msg/Cloud'" in reasons and "/c: " in reasons


@pytest.mark.campaign(weight=3)
def test_raw_pictures_are_imported_where_the_compressed_ones_cannot_be_read(
    tmp_path: Path,
) -> None:
    pixels = np.full((24, 32, 3), 99, np.uint8)
    sent: list[Sent] = [info("/c/camera_info", "other")]
    for at in range(3):
        t_ns = START_NS + at * FRAME_NS
        sent.append(raw_image("/c/image_raw", "bgr8", pixels, t_ns))
        sent.append(compressed("/c/image_raw/compressed", b"\xff\x0a no codec", t_ns, form="jxl"))
    path = write_mcap(tmp_path / "a.mcap", sent)
    ran = here("import", path, "--root", tmp_path, "--format", "json")
    assert (ran.code, ran.complaints) == (0, [])
    assert ran.result["topics"] == {
        "/c/image_raw": {"sensor": "c", "driver": "camera", "messages": 3}
    }
    assert "'jxl' that do not decode" in ran.result["left_out"]["/c/image_raw/compressed"]
    note = "c: no camera model: /c/camera_info is of the frame 'other', the pictures of 'c'"
    assert ran.result["notes"] == [note] and not ran.result["calibrated"]
    assert_nothing_lost(tmp_path / "a")
    with Session(tmp_path / "a") as opened:
        assert times(opened, "c") == [START_NS + at * FRAME_NS for at in range(3)]


@pytest.mark.campaign(weight=3)
def test_late_messages_pauses_and_messages_without_a_time(tmp_path: Path) -> None:
    """As recorders of others write them: overlapping files, snapshots, simulated time at 0."""
    hour_ns, ms = 3600 * SECOND, 1_000_000
    order = [0, 1, 5, 2, 3, 4, 6, 7, 8]  # picture 5 was published before 2, 3 and 4
    pictures = [
        compressed("/cam", jpeg(k), START_NS + n * FRAME_NS + 5 * ms, START_NS + k * FRAME_NS)
        for n, k in enumerate(order)
    ]
    pictures.append(compressed("/cam", jpeg(9), START_NS + hour_ns, START_NS + hour_ns))
    inertial = [
        imu("/imu", t_ns, (n, 0, 0), (0, 0, 0), stamp_ns=t_ns - 150 * ms * (n == 0))
        for n, t_ns in enumerate(
            [*range(START_NS, START_NS + 90 * ms, 10 * ms), START_NS + hour_ns]
        )
    ]
    static = transforms("/tf_static", ("base_link", "camera_optical", (1, 2, 3), OPTICAL))
    untimed = compressed("/cam", jpeg(10), 0, 0)
    first = [replace(static, log_ns=0), untimed, *pictures, *inertial[:3], *inertial[5:7]]
    bag = write_bag(tmp_path / "bag", [first, [*inertial[3:5], *inertial[7:]]])
    ran = here("import", bag, "--root", tmp_path, "--name", "s", "--format", "json")
    assert ran.result["faults"] == []
    assert ran.result["streams"]["cam"]["lost"] == {"time": 1}
    assert ran.result["streams"]["imu"]["lost"] == {}
    with Session(tmp_path / "s") as opened:
        assert opened.start_ns == START_NS - 150 * ms  # a stamp in the second topic
        wanted = [START_NS + n * FRAME_NS for n in range(9)]
        assert times(opened, "cam") == [*wanted, START_NS + hour_ns]
        assert jpegs(opened, "cam") == [jpeg(at) for at in range(10)]
        assert times(opened, "imu")[1:] == [each.log_ns for each in inertial[1:]]
        assert values(opened, "imu", "acc")[:, 0].tolist() == list(range(10))
    assert_sound(tmp_path / "s")


def test_a_clock_that_was_set_back_is_reported_once(tmp_path: Path) -> None:
    def clock(t_ns: int) -> int:
        return START_NS + t_ns - (SECOND // 10 if t_ns >= SECOND // 5 else 0)

    sent = [(n * STEP_NS, imu("/imu", clock(n * STEP_NS), (n, 0, 0), (0, 0, 0))) for n in range(40)]
    for n in range(10):
        t_ns = n * 4 * STEP_NS + 5
        sent.append((t_ns, compressed("/cam", jpeg(n), clock(t_ns))))
    sent.append((400_000_000, imu("/imu", clock(400_000_000), (40, 0, 0), (0, 0, 0))))
    sent.append((400_000_001, imu("/imu", clock(400_000_001), (41, 0, 0), (0, 0, 0), None, 7)))
    sent.append((400_000_001, imu("/imu", clock(400_000_001), (42, 0, 0), (0, 0, 0), None, 7)))
    messages = [each for _, each in sorted(sent, key=lambda each: each[0])]
    ran = here("import", write_mcap(tmp_path / "a.mcap", messages), "--root", tmp_path,
               "--name", "s", "--format", "json")  # fmt: skip
    (fault,) = ran.result["faults"]
    assert ran.code == 3 and "a.mcap: the clock of the recording was set back by 0.100 s" in fault
    with Session(tmp_path / "s") as opened:
        assert values(opened, "imu", "acc")[:, 0].tolist() == list(range(43))
        found = np.array(times(opened, "imu")[:41]) - times(opened, "imu")[0]
        assert found.tolist() == [n * STEP_NS for n in range(41)]
        pictures = np.array(times(opened, "cam"))
        assert (pictures - pictures[0]).tolist() == [n * 4 * STEP_NS for n in range(10)]
        of_time = [event for event in opened.events() if event["type"] == "time"]
        steps = [event for event in of_time if event["cause"] == "step"]
        assert [(e["stream"], e["step_ns"]) for e in steps] == [(None, -SECOND // 10)]
        (replaced,) = [event for event in of_time if event["cause"] == "replaced"]
        assert (replaced["stream"], replaced["count"]) == ("imu", 2)
        # Two messages at one time: the stamp of the second is moved, and that is counted.
        moved = [event for event in of_time if event["cause"] == "moved"]
        assert [(e["stream"], e["count"]) for e in moved] == [("imu", 1)]
    assert_sound(tmp_path / "s")


@pytest.mark.parametrize("write", [write_mcap, write_sqlite])
@pytest.mark.campaign
def test_transforms_of_a_driving_vehicle_become_mounts_and_poses(
    tmp_path: Path, write: Callable[[Path, list[Sent]], Path]
) -> None:
    pictures = [compressed("/c/image_raw", jpeg(n), START_NS + n * FRAME_NS) for n in range(40)]
    mount = ("base_link", "camera_optical", (1, 2, 3), OPTICAL)
    sent = [*pictures, *poses.drive(), poses.tf("/tf_static", START_NS, mount)]
    path = write(tmp_path / "drive_0.bag", sorted(sent, key=lambda each: each.log_ns))
    ran = here("import", path, "--root", tmp_path, "--name", "s", "--format", "json")
    assert (ran.code, ran.complaints) == (0, [])
    assert ran.result["poses"] == "96 poses of 'base_link' in 'map', from /tf"
    assert ran.result["calibrated"]
    assert_sound(tmp_path / "s")
    with Session(tmp_path / "s", virtual=True) as opened:
        source = find_poses(opened, session_calibration(tmp_path / "s"))
        assert source.describe() == {"source": "sensor _pose", "measured": True}
        (block,) = source.blocks()
        assert np.array_equal(block[0], START_NS + np.arange(2, 98) * 20_000_000)
        assert np.abs(block[1] - poses.truth(block[0])).max() < 1e-7
        assert times(opened, "c")[0] == START_NS - 3_000_000
