"""A CAN bus from a log to a session, and from there to archives and to other software."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import can as python_can
import numpy as np
import pytest
from mcap.reader import make_reader
from rosbags.rosbag2 import Reader
from rosbags.typesys import get_types_from_msg

from drivers.can.simulated import DATABASE, SimulatedBus
from recorder.formats.vrs import RecordType, VrsReader
from recorder.formats.zarr2.reading import open_store
from recorder.session.reader import Session
from tests.acceptance.command import assert_nothing_lost, assert_sound, here, write_config
from tests.formats.ros2.kit import STORE

SECOND_NS = 1_000_000_000
COUNT = 360  # frames of a second, with CAN FD


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


class Drive:
    """A session with the bus of a log, and what was in the log."""

    def __init__(self, folder: Path) -> None:
        self.sent = simulated()
        writer = python_can.BLFWriter(folder / "drive.blf")
        logged = list(self.sent)
        for k in range(5, COUNT - 1, 30):  # as a logger of several channels writes them
            if logged[k + 1].timestamp > logged[k].timestamp:
                logged[k : k + 2] = logged[k + 1], logged[k]
        for message in logged:
            writer.on_message_received(message)
        writer.stop()
        chosen = "[VehicleMotion.*, Service.OutsideTemperature]"
        sensors = f"""
            bus: {{driver: can, source: "file:{folder}/drive.blf", dbc: "{DATABASE}",
                signals: {chosen}, pace: max}}
            camera: {{driver: camera, source: "sim:", width: 64, height: 48, fps: 10, pace: max}}
        """
        config = write_config(folder / "config.yaml", sensors)
        config.write_text(config.read_text() + "record_format: {streams: [bus]}\n")
        self.ran = here(
            "run", config, "--root", folder, "--name", "drive", "--duration", 2, labels=True
        )
        self.session = folder / "drive"


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    return Drive(tmp_path_factory.mktemp("can"))


def test_it_is_recorded_as_it_was(drive: Drive) -> None:
    assert (drive.ran.code, drive.ran.complaints) == (0, [])
    assert_nothing_lost(drive.session)
    assert_sound(drive.session)
    folder = drive.session / "bus"
    numbers = np.fromfile(folder / "id", "<u4")
    lengths, flags = np.fromfile(folder / "len", "u1"), np.fromfile(folder / "flags", "u1")
    data = np.fromfile(folder / "data", "u1").reshape(-1, 64)
    assert len(numbers) == len(drive.sent) == COUNT
    for k, message in enumerate(drive.sent):
        assert numbers[k] == message.arbitration_id | message.is_extended_id << 31
        assert (lengths[k], flags[k]) == (message.dlc, 5 if message.is_fd else 0)
        assert data[k].tobytes() == bytes(message.data).ljust(64, b"\0")


def test_signals_are_streams_with_units_and_definitions(drive: Drive) -> None:
    with Session(drive.session) as session:
        assert session.sensors()["bus"] == ["bus", "bus_service", "bus_vehicle_motion"]
        motion, bus = session.streams["bus_vehicle_motion"], session.streams["bus"]
        numbers = bus.channels["id"].read(0, COUNT)
        assert motion.t_ns.tolist() == bus.t_ns[numbers == 200].tolist()
        assert motion.meta["speed"]["desc"] == "Speed [m/s]"
        speed = motion.channels["speed"].read(0, len(motion))
        assert len(session.streams["bus_service"]) == 5, "the pages without the signal are left out"
    raw = [message.data for message in drive.sent if message.arbitration_id == 200]
    assert speed.tolist() == [int.from_bytes(data[:2], "little") * 0.01 for data in raw]
    about = json.loads((drive.session / "bus_vehicle_motion" / "signals.json").read_text())
    assert (about["message"], about["id"], about["extended"]) == ("VehicleMotion", 200, False)
    assert about["signals"]["yaw_rate"]["scale"] == 0.0001


def test_a_session_is_played_again(drive: Drive, tmp_path: Path) -> None:
    entry = f'bus: {{driver: can, source: "session:{drive.session}", pace: max}}'
    config = write_config(tmp_path / "config.yaml", entry)
    ran = here("run", config, "--root", tmp_path, "--name", "again")
    assert (ran.code, ran.complaints) == (0, [])
    assert_sound(tmp_path / "again")
    for name in ("bus/id", "bus/data", "bus_vehicle_motion/speed"):
        assert (tmp_path / "again" / name).read_bytes() == (drive.session / name).read_bytes()


def test_a_clip_of_it(drive: Drive, tmp_path: Path) -> None:
    ran = here("clip", drive.session, "--from", "0.25", "--until", "0.5", "--out", tmp_path)
    assert (ran.code, ran.err) == (0, [])
    (clip,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert_sound(clip)
    with Session(drive.session) as whole, Session(clip) as part:
        assert whole.start_ns is not None
        since = (whole.streams["bus"].t_ns - whole.start_ns) / 1e9
        inside = (since >= 0.25) & (since < 0.5)
        stamps = part.streams["bus"].t_ns.tolist()
        assert stamps == whole.streams["bus"].t_ns[inside].tolist()
        assert len(part.streams["bus_vehicle_motion"]) == 25


def test_it_is_exported_as_a_table(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    ran = here("export", drive.session, "bus_vehicle_motion", "--to", "csv", "--out", path)
    assert ran.code == 0
    lines = path.read_text().splitlines()
    assert len(lines) == 101 and "speed" in lines[0] and "yaw_rate" in lines[0]


def finalize(drive: Drive, tmp_path: Path, archive: str, *more: object) -> Any:
    out = tmp_path / archive
    ran = here("finalize", drive.session, "--to", archive, "--out", out, "--format", "json", *more)
    assert ran.code == 0, ran.err
    return ran.result


def noted(result: Any) -> set[str]:
    return {
        text for text in json.dumps(result).split('"') if text.startswith("bus") and ": " in text
    }


def test_mcap_has_frames_and_signals(drive: Drive, tmp_path: Path) -> None:
    result = finalize(drive, tmp_path, "mcap")
    (path,) = tmp_path.rglob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None and summary.statistics is not None
        counts = {
            channel.topic: (
                summary.schemas[channel.schema_id].name,
                summary.statistics.channel_message_counts[channel.id],
            )
            for channel in summary.channels.values()
        }
        signals = [
            (m.log_time, json.loads(m.data))
            for _, _, m in reader.iter_messages("/bus_vehicle_motion")
        ]
    assert counts["/bus/frames"] == ("can_msgs/msg/Frame", 310)
    assert counts["/bus/frames_fd"] == ("ros2_socketcan_msgs/msg/FdFrame", 50)
    assert "/bus" not in counts
    assert noted(result) == {"bus: no message has the channels flags"}
    with Session(drive.session) as session:
        motion = session.streams["bus_vehicle_motion"]
        speed = motion.channels["speed"].read(0, len(motion)).tolist()
        stamps = motion.t_ns.tolist()
    assert [(t_ns, values["speed"]) for t_ns, values in signals] == list(
        zip(stamps, speed, strict=True)
    )


def test_frames_of_an_archive_are_imported(drive: Drive, tmp_path: Path) -> None:
    """Classic frames and those of CAN FD are sensors of their own; only `flags` is not kept."""
    finalize(drive, tmp_path, "mcap")
    (path,) = tmp_path.rglob("*.mcap")
    topics = ("--topics", "bus=/bus/frames,fd=/bus/frames_fd")
    ran = here("import", path, "--root", tmp_path / "in", *topics)
    assert (ran.code, ran.complaints) == (0, []), ran.err
    (session,) = (tmp_path / "in").iterdir()
    assert_sound(session)
    recorded = drive.session / "bus"
    ids = np.fromfile(recorded / "id", "<u4")
    data = np.fromfile(recorded / "data", "u1").reshape(-1, 64)
    is_fd = np.fromfile(recorded / "flags", "u1") & 4 != 0
    for name, chosen, width in (("bus", ~is_fd, 8), ("fd", is_fd, 64)):
        assert np.array_equal(np.fromfile(session / name / "id", "<u4"), ids[chosen])
        got = np.fromfile(session / name / "data", "u1").reshape(-1, width)
        assert np.array_equal(got, data[chosen][:, :width])


def test_rosbags_reads_the_frames(drive: Drive, tmp_path: Path) -> None:
    """By the definitions of can_msgs and ros2_socketcan_msgs, which rosbags does not have."""
    finalize(drive, tmp_path, "mcap", "--option", "mcap.profile=ros2")
    head = "std_msgs/Header header\nuint32 id\n"
    kinds = {
        "can_msgs/msg/Frame": head
        + "bool is_rtr\nbool is_extended\nbool is_error\nuint8 dlc\nuint8[8] data\n",
        "ros2_socketcan_msgs/msg/FdFrame": head
        + "bool is_extended\nbool is_error\nuint8 len\nuint8[<=64] data\n",
    }
    for name, text in kinds.items():
        STORE.register(get_types_from_msg(text, name))
    (bag,) = {path.parent for path in tmp_path.rglob("metadata.yaml")}
    with Reader(bag) as reader:
        topics = [c for c in reader.connections if c.topic.startswith("/bus/frames")]
        assert {c.msgtype for c in topics} == kinds.keys()
        got: list[Any] = [
            STORE.deserialize_cdr(data, connection.msgtype)
            for connection, _, data in reader.messages(topics)
        ]
    rows = {
        (m.id, m.is_extended, m.data.tobytes()[: getattr(m, "dlc", None) or getattr(m, "len", 0)])
        for m in got
    }
    sent = {(m.arbitration_id, m.is_extended_id, bytes(m.data)) for m in drive.sent}
    assert len(got) == COUNT and rows == sent
    assert {m.header.frame_id for m in got} == {"bus"}


def test_vrs_has_the_frames(drive: Drive, tmp_path: Path) -> None:
    finalize(drive, tmp_path, "vrs")
    (path,) = tmp_path.rglob("*.vrs")
    for file in (path, drive.session / "session.vrs"):
        with VrsReader(file) as vrs:
            tags = {str(stream): found.tags for stream, found in vrs.streams.items()}
            (stream,) = (name for name, known in tags.items() if "bus" in known.values())
            got = [record.blocks()[0] for record in vrs.records(stream, RecordType.DATA)]
        assert [row["id"] & 0x1FFFFFFF for row in got] == [  # type: ignore[index]
            message.arbitration_id for message in drive.sent
        ]


def test_ncore_has_it_beside_the_poses(drive: Drive, tmp_path: Path) -> None:
    result = finalize(drive, tmp_path, "ncore")
    assert not any("left out" in text for text in noted(result))
    keys: dict[str, bytes] = {}
    for path in tmp_path.rglob("*.itar"):
        store = open_store(path)
        keys |= {key: store[key] for key in store if "generic_data" in key}
    place = "poses/default/generic_data"
    shapes = {
        name: json.loads(keys[f"{place}/{name}/.zarray"])["shape"]
        for name in ("bus.t_ns", "bus.id", "bus.data", "bus_vehicle_motion.speed")
    }
    assert shapes == {
        "bus.t_ns": [COUNT],
        "bus.id": [COUNT],
        "bus.data": [COUNT, 64],
        "bus_vehicle_motion.speed": [100],
    }


@pytest.mark.parametrize("archive", ["edgefirst", "l5kit"])
def test_other_archives_leave_it_out_and_say_so(drive: Drive, tmp_path: Path, archive: str) -> None:
    notes = noted(finalize(drive, tmp_path, archive))
    assert {
        "bus: has frames of a CAN bus: left out",
        "bus_service: has signals of a CAN bus: left out",
        "bus_vehicle_motion: has signals of a CAN bus: left out",
    } <= notes
