"""One session of a CAN bus, datagrams, positions and raw pictures, through every command."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import can as python_can
import numpy as np
import numpy.typing as npt
import pyarrow.feather as feather
import pytest
import yaml
from mcap.reader import make_reader
from rosbags.rosbag2 import Reader
from rosbags.typesys import get_types_from_msg

from drivers.camera.driver import CameraDriver
from drivers.camera.model import make_camera
from drivers.camera.model_output import make_raw_values
from drivers.camera.raw_pictures import RAW_FORMATS
from drivers.can.simulated import DATABASE, SimulatedBus
from recorder.codecs.raw_pixels import Levels
from recorder.codecs.storage.indexed import IndexedReader
from recorder.common.errors import FormatError
from recorder.config.options import check_options
from recorder.formats.pcap.datagrams import Datagram, read_datagrams
from recorder.formats.vrs import DataBlock, RecordType, VrsReader
from recorder.formats.zarr2.reading import open_store
from recorder.session.playback import Chunk, play
from recorder.session.reader import Session
from tests.acceptance.command import (
    PROJECT,
    Ran,
    assert_nothing_lost,
    assert_sound,
    column,
    here,
    meta,
    replay,
)
from tests.formats.pcap.test_datagrams import ethernet, ipv4, pcap, udp
from tests.formats.ros2.kit import STORE
from tests.recording.writer.vrs_session import stream_of

pytestmark = pytest.mark.campaign(weight=2)

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000_000_000_000
FRAMES = 360  # of a second, with CAN FD
DATAGRAMS, STEP_NS = 400, 2_500_000
LENGTHS = (0, 1, 512, 1206, 9000)
ORIGIN = [-33.9, 151.2, 30.0]
RAW = {"bayer": "SRGGB10P", "thermal": "Y16"}
SIZE = (320, 240)
LEVELS = {"black_level": 64, "white_level": 960}
ARCHIVES = ("mcap", "ncore", "edgefirst", "l5kit", "vrs")


def simulated() -> list[python_can.Message]:
    """A second of the simulated bus as frames of python-can."""
    bus = SimulatedBus({"rate": None, "fd": True, "seed": 0, "scene": "drive"})
    made = bus.frames(0, SECOND_NS + 1_000_000)
    return [
        python_can.Message(
            timestamp=1.7e9 + t_ns / 1e9,
            arbitration_id=number & 0x1FFFFFFF,
            is_extended_id=bool(number & 0x80000000),
            is_fd=bool(flags & 4),
            bitrate_switch=bool(flags & 1),
            data=data[:length].tobytes(),
            channel=0,
            check=True,
        )
        for t_ns, number, length, flags, data in zip(
            made.t_ns, made.id.tolist(), made.length, made.flags, made.data, strict=True
        )
    ]


def write_log(path: Path) -> list[python_can.Message]:
    """A log of the simulated bus as a logger of several channels writes it: not in order."""
    sent = simulated()
    logged = list(sent)
    for k in range(5, FRAMES - 1, 30):
        if logged[k + 1].timestamp > logged[k].timestamp:
            logged[k : k + 2] = logged[k + 1], logged[k]
    writer = python_can.BLFWriter(path)
    for message in logged:
        writer.on_message_received(message)
    writer.stop()
    return sent


def write_capture(path: Path) -> list[bytes]:
    """A capture of a second, to two ports; gives the payloads to port 2368.

    It is merged of two queues: some datagrams lie 2.5 ms before their predecessors.
    """
    records, sent = [b""] * DATAGRAMS, []
    for k in range(DATAGRAMS):
        data = b""
        payload = (k.to_bytes(4, "big") * 3000)[: LENGTHS[k % 5]]
        seconds, rest = divmod(START_NS + k * STEP_NS, SECOND_NS)
        for port, one in ((2368, payload), (8308, b"position")):
            frame = ethernet(ipv4(udp(one, port)))
            data += struct.pack("<IIII", seconds, rest // 1000, len(frame), len(frame)) + frame
        sent.append(payload)
        records[k] = data
    for k in range(3, DATAGRAMS - 1, 40):
        records[k : k + 2] = records[k + 1], records[k]
    path.write_bytes(pcap([]) + b"".join(records))
    return sent


class Drive:
    """A session of two seconds with every archive, and what was in its sources."""

    def __init__(self, folder: Path) -> None:
        self.frames = write_log(folder / "drive.blf")
        self.payloads = write_capture(folder / "drive.pcap")
        pictures = {"driver": "camera", "source": "sim:", "fps": 10}
        sensors: dict[str, dict[str, Any]] = {
            "bus": {"driver": "can", "source": f"file:{folder}/drive.blf", "dbc": str(DATABASE),
                    "signals": ["VehicleMotion.*", "Service.OutsideTemperature"]},
            "front": {"driver": "udp", "source": f"file:{folder}/drive.pcap", "port": 2368},
            "imu": {"driver": "xsens", "source": "sim:", "outputs": ["euler_angles"]},
            "gnss": {"driver": "gnss", "source": "sim:", "origin": ORIGIN},
            "camera": {**pictures, "width": 64, "height": 48},
            **{name: {**pictures, **LEVELS, "width": SIZE[0], "height": SIZE[1],
                      "pixel_format": form} for name, form in RAW.items()},
        }  # fmt: skip
        config = {
            "version": 1, "storage": {"min_free_gb": 0}, "finalize": list(ARCHIVES),
            "record_format": {"streams": ["bus", "front", *RAW]}, "report": True,
            "sensors": {name: {**entry, "pace": "max"} for name, entry in sensors.items()},
        }  # fmt: skip
        (folder / "c.yaml").write_text(yaml.safe_dump(config))
        where = ("--root", folder, "--name", "drive", "--duration", 2, "--format", "json")
        self.ran = here("run", folder / "c.yaml", *where, labels=True)
        self.session = folder / "drive"

    def archive(self, name: str, pattern: str) -> Path:
        (path,) = (self.session / "_archives" / name).rglob(pattern)
        return path

    def notes(self, archive: str) -> set[str]:
        lines = [line for line in self.ran.err if line.startswith(f"{archive}: ")]
        return {line.removeprefix(f"{archive}: ") for line in lines}


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    return Drive(tmp_path_factory.mktemp("drive"))


def payloads(session: Path) -> list[bytes]:
    with Session(session) as opened:
        payload = opened.streams["front"].channels["payload"]
        return [payload.encoded(k) for k in range(len(payload))]


def pixels(session: Path, name: str) -> npt.NDArray[Any]:
    return column(session, name, RAW_FORMATS[RAW[name]].pixels.channel)


def test_the_session_is_whole(drive: Drive) -> None:
    assert drive.ran.code == 0, drive.ran.err
    assert_nothing_lost(drive.session)
    assert_sound(drive.session)
    report = (drive.session / "report.html").read_text()
    assert "-33.9" in report and "151.2" in report  # of the map


def test_frames_are_recorded_as_they_were(drive: Drive) -> None:
    folder = drive.session / "bus"
    numbers = np.fromfile(folder / "id", "<u4")
    lengths, flags = np.fromfile(folder / "len", "u1"), np.fromfile(folder / "flags", "u1")
    data = np.fromfile(folder / "data", "u1").reshape(-1, 64)
    assert len(numbers) == len(drive.frames) == FRAMES
    for k, message in enumerate(drive.frames):
        assert numbers[k] == message.arbitration_id | message.is_extended_id << 31
        assert (lengths[k], flags[k]) == (message.dlc, 5 if message.is_fd else 0)
        assert data[k].tobytes() == bytes(message.data).ljust(64, b"\0")


def test_signals_are_streams_with_units_and_definitions(drive: Drive) -> None:
    with Session(drive.session) as session:
        assert session.sensors()["bus"] == ["bus", "bus_service", "bus_vehicle_motion"]
        motion, bus = session.streams["bus_vehicle_motion"], session.streams["bus"]
        numbers = bus.channels["id"].read(0, FRAMES)
        assert motion.t_ns.tolist() == bus.t_ns[numbers == 200].tolist()
        assert motion.meta["speed"]["desc"] == "Speed [m/s]"
        speed = motion.channels["speed"].read(0, len(motion))
        assert len(session.streams["bus_service"]) == 5, "the pages without the signal are left out"
    raw = [message.data for message in drive.frames if message.arbitration_id == 200]
    assert speed.tolist() == [int.from_bytes(data[:2], "little") * 0.01 for data in raw]
    about = json.loads((drive.session / "bus_vehicle_motion" / "signals.json").read_text())
    assert (about["message"], about["id"], about["extended"]) == ("VehicleMotion", 200, False)
    assert about["signals"]["yaw_rate"]["scale"] == 0.0001


def test_datagrams_are_recorded_as_they_were(drive: Drive) -> None:
    assert payloads(drive.session) == drive.payloads
    folder = drive.session / "front"
    assert (folder / "payload").read_bytes() == b"".join(drive.payloads)
    rows = np.fromfile(folder / "payload_i", "<u8").reshape(-1, 2)
    assert rows[:, 1].tolist() == [len(p) for p in drive.payloads]
    assert "payload" not in json.loads((folder / "meta.json").read_text())
    with Session(drive.session) as session:
        stream = session.streams["front"]
        assert session.start_ns is not None
        assert (stream.t_ns - session.start_ns).tolist() == [k * STEP_NS for k in range(DATAGRAMS)]
        sample = stream.sample(3, ["source", "source_port", "port", "payload"])
        chunks = [item for item in play(session, ["front"]) if isinstance(item, Chunk)]
    assert bytes(sample["source"]) == bytes(10) + b"\xff\xff\x0a\0\0\5"
    assert (int(sample["source_port"]), int(sample["port"])) == (40000, 2368)
    assert sample["payload"].tobytes() == drive.payloads[3].ljust(65535, b"\0")
    assert {len(chunk.t_ns) for chunk in chunks} == {4}  # played many at a time: of 8 ms
    assert [p for chunk in chunks for p in chunk.data["payload"]] == drive.payloads


def test_every_value_of_a_raw_picture_is_recorded(drive: Drive) -> None:
    for name, form in RAW.items():
        known = RAW_FORMATS[form].pixels
        entry = meta(drive.session, name)[known.channel]
        assert (entry["format"], entry["shape"]) == ("raw", [SIZE[1], SIZE[0]])
        values = pixels(drive.session, name)
        assert len(values) == 20
        camera = make_camera(name, check_options(CameraDriver.options, {}), SIZE, 10.0)
        levels = Levels.from_settings(known, LEVELS)
        for index in (0, 9, 19):
            drawn = make_raw_values(camera.frame(index), levels)
            np.testing.assert_array_equal(values[index], drawn)


def test_the_examples_of_the_documents_read_the_payloads(drive: Drive) -> None:
    text = (PROJECT / "docs/datagrams.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        block = block.replace("sessions/rig-1", str(drive.session))
        for first, third in (('["front"][0]', '["front"][3]'), ("-1, 2)[0]", "-1, 2)[3]")):
            block = block.replace(first, third)
        names: dict[str, Any] = {}
        exec(block, names)  # noqa: S102  our own documents
        assert names["first"] == drive.payloads[3] and len(names["first"]) == LENGTHS[3]


def test_a_session_is_a_source(drive: Drive, tmp_path: Path) -> None:
    drivers = {"bus": "can", "front": "udp", "bayer": "camera"}
    ran = replay(drive.session, drivers, tmp_path)
    assert (ran.code, ran.complaints) == (0, []), ran.err
    again = tmp_path / "again"
    assert_sound(again)
    for name in ("bus/id", "bus/data", "bus_vehicle_motion/speed", "front/payload"):
        assert (again / name).read_bytes() == (drive.session / name).read_bytes()
    with Session(drive.session) as first, Session(again) as second:
        settings = first.declared["bayer"].settings
        assert second.declared["bayer"].settings == settings
        assert settings["pixel_format"] == RAW["bayer"]
    channel = RAW_FORMATS[RAW["bayer"]].pixels.channel
    assert meta(again, "bayer")[channel] == meta(drive.session, "bayer")[channel]
    np.testing.assert_array_equal(pixels(again, "bayer"), pixels(drive.session, "bayer"))


def test_a_clip_of_it(drive: Drive, tmp_path: Path) -> None:
    ran = here("clip", drive.session, "--from", "0.25", "--until", "0.5", "--out", tmp_path)
    assert (ran.code, ran.err) == (0, [])
    (clip,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert_sound(clip)
    assert payloads(clip) == drive.payloads[100:200]
    with Session(drive.session) as whole, Session(clip) as part:
        assert whole.start_ns is not None
        since = (whole.streams["bus"].t_ns - whole.start_ns) / 1e9
        inside = (since >= 0.25) & (since < 0.5)
        stamps = part.streams["bus"].t_ns.tolist()
        assert stamps == whole.streams["bus"].t_ns[inside].tolist()
        assert len(part.streams["bus_vehicle_motion"]) == 25


def test_signals_are_exported_as_a_table(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    ran = here("export", drive.session, "bus_vehicle_motion", "--to", "csv", "--out", path)
    assert ran.code == 0
    lines = path.read_text().splitlines()
    assert len(lines) == 101 and "speed" in lines[0] and "yaw_rate" in lines[0]


def export(session: Path, path: Path, *part: str) -> tuple[Ran, list[Datagram]]:
    ran = here("export", session, "front", "--to", "pcap", "--out", path, *part)
    with path.open("rb") as file:
        return ran, list(read_datagrams(file))


def test_datagrams_are_exported_as_a_capture(drive: Drive, tmp_path: Path) -> None:
    ran, got = export(drive.session, tmp_path / "whole.pcap")
    assert (ran.code, ran.err) == (0, [])
    assert f"front: {DATAGRAMS} samples" in ran.out
    assert [d.payload for d in got] == drive.payloads
    assert {(d.source, d.source_port, d.destination, d.port) for d in got} == {
        (b"\x0a\0\0\5", 40000, b"\x0a\0\0\1", 2368)
    }
    with Session(drive.session) as session:
        assert [d.t_ns for d in got] == session.streams["front"].t_ns.tolist()
    part = ("--from", "0.1", "--until", "0.2", "--every", "7")
    ran, got = export(drive.session, tmp_path / "part.pcap", *part)
    assert ran.code == 0
    assert [d.payload for d in got] == drive.payloads[40:80:7]


def test_only_datagrams_are_a_capture(drive: Drive, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "a.pcap")
    for words, said in (
        (("imu", "--to", "pcap"), "imu: cannot be exported as pcap; fits: csv, npz"),
        (("front", "--to", "pcap", "--channels", "port"), "--channels: is for csv, npz"),
        (("front", "--to", "png"), "front: cannot be exported as png; fits: csv, npz, pcap"),
    ):
        ran = here("export", drive.session, *words, *out)
        assert ran.code == 2 and said in ran.err[0]
    table = tmp_path / "a.csv"
    ran = here("export", drive.session, "front", "--to", "csv", "--out", table)
    assert ran.code == 0 and len(table.read_text().splitlines()) == DATAGRAMS + 1
    assert "left out: payload" in ran.out


def test_damaged_datagrams_are_left_out_of_a_capture(drive: Drive, tmp_path: Path) -> None:
    session = tmp_path / "drive"
    shutil.copytree(drive.session, session, ignore=shutil.ignore_patterns("_archives"))
    data = session / "front" / "payload"
    data.write_bytes(data.read_bytes()[:-1])
    ran, got = export(session, tmp_path / "a.pcap")
    assert ran.code == 3
    assert [d.payload for d in got] == drive.payloads[:-1]
    assert here("validate", session).code == 1


def test_datagrams_that_cannot_be_read_are_left_out_one_by_one(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = IndexedReader.encoded_range

    def damaged(reader: IndexedReader, start: int, stop: int) -> list[bytes]:
        if start <= 7 < stop:
            raise FormatError("sample 7: is damaged")
        return whole(reader, start, stop)

    monkeypatch.setattr(IndexedReader, "encoded_range", damaged)
    ran, got = export(drive.session, tmp_path / "a.pcap")
    assert ran.code == 3
    assert [d.payload for d in got] == drive.payloads[:7] + drive.payloads[8:]
    assert "sample 7: is damaged" in ran.err[0] and len(ran.err) == 1


def test_mcap_has_frames_signals_and_packets(drive: Drive) -> None:
    with drive.archive("mcap", "*.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None and summary.statistics is not None
        counts = {
            channel.topic: (
                channel.message_encoding,
                summary.schemas[channel.schema_id].name,
                summary.statistics.channel_message_counts[channel.id],
            )
            for channel in summary.channels.values()
        }
        messages = {
            topic: [(m.log_time, m.sequence, m.data) for _, _, m in reader.iter_messages(topic)]
            for topic in ("/bus_vehicle_motion", "/front/packets")
        }
    assert counts["/bus/frames"] == ("cdr", "can_msgs/msg/Frame", 310)
    assert counts["/bus/frames_fd"] == ("cdr", "ros2_socketcan_msgs/msg/FdFrame", 50)
    assert counts["/front/packets"] == ("cdr", "udp_msgs/msg/UdpPacket", DATAGRAMS)
    assert not {"/bus", "/front", "/front/samples"} & counts.keys()
    assert drive.notes("mcap") >= {
        "bus: no message has the channels flags", "front: no message has the channels port"
    }  # fmt: skip
    with Session(drive.session) as session:
        motion = session.streams["bus_vehicle_motion"]
        speed = motion.channels["speed"].read(0, len(motion)).tolist()
        stamps, arrivals = motion.t_ns.tolist(), session.streams["front"].t_ns.tolist()
    signals = [
        (t_ns, json.loads(data)["speed"]) for t_ns, _, data in messages["/bus_vehicle_motion"]
    ]
    assert signals == list(zip(stamps, speed, strict=True))
    packets = messages["/front/packets"]
    assert [(t_ns, k) for t_ns, k, _ in packets] == list(zip(arrivals, range(400), strict=True))
    assert all(data.endswith(p) for (_, _, data), p in zip(packets, drive.payloads, strict=True))


@pytest.fixture(scope="module")
def bag(drive: Drive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive in the profile of ROS 2."""
    out = tmp_path_factory.mktemp("bag")
    to = ("--to", "mcap", "--option", "mcap.profile=ros2", "--out", out)
    ran = here("finalize", drive.session, *to)
    assert ran.code == 0, ran.err
    (path,) = {path.parent for path in out.rglob("metadata.yaml")}
    return path


@pytest.mark.parametrize("profile", ["foxglove", pytest.param("ros2", marks=pytest.mark.campaign)])
def test_streams_of_an_archive_in_mcap_are_imported(
    drive: Drive, bag: Path, tmp_path: Path, profile: str
) -> None:
    """Classic frames and those of CAN FD are sensors of their own; only `flags` is not kept."""
    path = bag if profile == "ros2" else drive.archive("mcap", "*.mcap")
    topics = {"bus": "/bus/frames", "fd": "/bus/frames_fd", "imu": "/imu/data"}
    if profile == "foxglove":
        topics |= {"imu": "/imu", "gnss": "/gnss"}
    else:
        topics["camera"] = "/camera/image/compressed"
    chosen = ",".join(f"{name}={topic}" for name, topic in topics.items())
    ran = here("import", path, "--root", tmp_path, "--name", "in", "--topics", chosen)
    assert (ran.code, ran.complaints) == (0, []), ran.err
    assert_sound(tmp_path / "in")
    ids, data = (column(drive.session, "bus", name) for name in ("id", "data"))
    is_fd = column(drive.session, "bus", "flags") & 4 != 0
    for name, kind, width in (("bus", ~is_fd, 8), ("fd", is_fd, 64)):
        assert np.array_equal(column(tmp_path / "in", name, "id"), ids[kind])
        got = column(tmp_path / "in", name, "data").reshape(-1, width)
        assert np.array_equal(got, data[kind][:, :width])
    channels = {"imu": ["acc", "avel"]}
    if profile == "foxglove":
        channels["imu"] += ["rot", "t_dev"]
        channels["gnss"] = ["pos", "vel", "cov", "fix", "sats", "quality", "utc", "t_dev"]
    for stream, names in channels.items():
        for name in names:
            given, kept = (column(path, stream, name) for path in (tmp_path / "in", drive.session))
            assert np.array_equal(given, kept), (stream, name)
    turned = column(tmp_path / "in", "imu", "rot")
    assert np.allclose(turned, column(drive.session, "imu", "rot"), atol=1e-6)
    with Session(drive.session) as before, Session(tmp_path / "in") as after:
        for stream in topics.keys() & before.streams.keys() - {"bus"}:
            assert np.array_equal(after.streams[stream].t_ns, before.streams[stream].t_ns)
        if profile == "ros2":
            made, recorded = (
                [bytes(channel.encoded(k)) for k in range(20)]
                for channel in (s.streams["camera"].channels["video.avi"] for s in (after, before))
            )
            assert made == recorded


def test_rosbags_reads_the_archive_in_the_profile_of_ros(drive: Drive, bag: Path) -> None:
    """By the definitions of three packages which rosbags does not have."""
    head = "std_msgs/Header header\n"
    kinds = {
        "can_msgs/msg/Frame": head + "uint32 id\nbool is_rtr\nbool is_extended\nbool is_error\n"
        "uint8 dlc\nuint8[8] data\n",
        "ros2_socketcan_msgs/msg/FdFrame": head + "uint32 id\nbool is_extended\nbool is_error\n"
        "uint8 len\nuint8[<=64] data\n",
        "udp_msgs/msg/UdpPacket": head + "string address\nuint16 src_port\nuint8[] data\n",
    }
    for name, text in kinds.items():
        STORE.register(get_types_from_msg(text, name))
    with Reader(bag) as reader:
        topics = [c for c in reader.connections if c.msgtype in kinds]
        got: dict[str, list[Any]] = {kind: [] for kind in kinds}
        for connection, _, data in reader.messages(topics):
            got[connection.msgtype].append(STORE.deserialize_cdr(data, connection.msgtype))
    classic, fd, packets = got.values()
    rows = {(m.id, m.is_extended, m.data.tobytes()[: m.dlc]) for m in classic}
    rows |= {(m.id, m.is_extended, m.data.tobytes()[: m.len]) for m in fd}
    sent = {(m.arbitration_id, m.is_extended_id, bytes(m.data)) for m in drive.frames}
    assert len(classic) + len(fd) == FRAMES and rows == sent
    assert {m.header.frame_id for m in [*classic, *fd]} == {"bus"}
    assert [m.data.tobytes() for m in packets] == drive.payloads
    ends = {(m.header.frame_id, m.address, m.src_port) for m in packets}
    assert ends == {("front", "10.0.0.5", 40000)}


def test_vrs_has_them_all(drive: Drive) -> None:
    """The recorded file, and the archive."""
    for file in (drive.session / "session.vrs", drive.archive("vrs", "*.vrs")):
        with VrsReader(file) as vrs:
            records: dict[str, list[Any]] = {
                name: [r.blocks() for r in vrs.records(stream_of(vrs, name), RecordType.DATA)]
                for name in ("bus", "front", *RAW)
            }
            assert [layout["id"] & 0x1FFFFFFF for layout, *_ in records["bus"]] == [
                message.arbitration_id for message in drive.frames
            ]
            assert {layout["port"] for layout, *_ in records["front"]} == {2368}
            assert [bytes(block.data) for _, block in records["front"]] == drive.payloads
            for name in RAW:
                values = [
                    block.array()
                    for blocks in records[name]
                    for block in blocks
                    if isinstance(block, DataBlock)
                ]
                np.testing.assert_array_equal(values, pixels(drive.session, name))


def read_poses(archive: Path) -> Any:
    (path,) = archive.glob("*.json")
    (store,) = json.loads(path.read_text())["component_stores"]
    return store["components"]["poses"]["default"]["generic_meta_data"]


def test_ncore_has_the_frames_beside_the_poses(drive: Drive) -> None:
    notes = drive.notes("ncore")
    assert "front: unsupported kind of stream: left out" in notes
    assert not any(note.startswith("bus") and "left out" in note for note in notes)
    for name, how in (("bayer", "demosaiced"), ("thermal", "monochrome")):
        told = [n for n in notes if n.startswith(f"{name}: pictures have the sensor's values")]
        assert len(told) == 1 and how in told[0]
    keys: dict[str, bytes] = {}
    for path in (drive.session / "_archives/ncore").rglob("*.itar"):
        store = open_store(path)
        keys |= {key: store[key] for key in store if "generic_data" in key}
    place = "poses/default/generic_data"
    shapes = {
        name: json.loads(keys[f"{place}/{name}/.zarray"])["shape"]
        for name in ("bus.t_ns", "bus.id", "bus.data", "bus_vehicle_motion.speed")
    }
    assert shapes == {
        "bus.t_ns": [FRAMES],
        "bus.id": [FRAMES],
        "bus.data": [FRAMES, 64],
        "bus_vehicle_motion.speed": [100],
    }


def test_ncore_places_the_world_on_earth_by_the_receiver(drive: Drive, tmp_path: Path) -> None:
    """The world's own trajectory fits the receiver's positions within their errors."""
    known = read_poses(drive.session / "_archives/ncore")["world_global"]
    assert known["positions"] == "gnss" and 0 < known["residual_m"] < 5
    where = ("--to", "ncore", "--option", "ncore.poses=gnss", "--out", tmp_path)
    ran = here("finalize", drive.session, *where)
    assert ran.code == 0, ran.err
    trajectory = read_poses(tmp_path / "ncore")["trajectory"]
    assert trajectory["source"] == "positions of gnss, orientation of imu"
    assert trajectory["poses"] > 150


def test_edgefirst_has_the_place_of_every_picture(drive: Drive) -> None:
    places = feather.read_table(drive.archive("edgefirst", "*.arrow"))["location"].to_pylist()
    assert len(places) >= 20
    for latitude, longitude in places:
        assert (latitude, longitude) == pytest.approx(ORIGIN[:2], abs=0.01)
    assert len({tuple(place) for place in places}) > 10  # the vehicle moves


@pytest.mark.parametrize("archive", ["edgefirst", "l5kit"])
def test_archives_for_pictures_leave_the_others_out_and_say_so(drive: Drive, archive: str) -> None:
    assert drive.notes(archive) >= {
        "bus: has frames of a CAN bus: left out",
        "bus_service: has signals of a CAN bus: left out",
        "bus_vehicle_motion: has signals of a CAN bus: left out",
        "front: has datagrams: left out",
    }
