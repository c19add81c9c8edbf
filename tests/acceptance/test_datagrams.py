"""Datagrams from a capture to a session, and from there to a capture and to archives."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader
from rosbags.rosbag2 import Reader
from rosbags.typesys import get_types_from_msg

from recorder.codecs.storage.indexed import IndexedReader
from recorder.common.errors import FormatError
from recorder.formats.pcap.datagrams import Datagram, read_datagrams
from recorder.formats.vrs import RecordType, VrsReader
from recorder.session.playback import Chunk, play
from recorder.session.reader import Session
from tests.acceptance.command import assert_nothing_lost, assert_sound, here, write_config
from tests.formats.pcap.test_datagrams import ethernet, ipv4, pcap, udp
from tests.formats.ros2.kit import STORE

COUNT, STEP_NS = 400, 2_500_000
LENGTHS = (0, 1, 512, 1206, 9000)
START_NS = 1_700_000_000_000_000_000


def write_drive(path: Path) -> list[bytes]:
    """A capture of a second, to two ports; gives the payloads to port 2368.

    It is merged of two queues: some datagrams lie 2.5 ms before their predecessors.
    """
    records, sent = [b""] * COUNT, []
    for k in range(COUNT):
        data = b""
        payload = (k.to_bytes(4, "big") * 3000)[: LENGTHS[k % 5]]
        seconds, rest = divmod(START_NS + k * STEP_NS, 1_000_000_000)
        for port, one in ((2368, payload), (8308, b"position")):
            frame = ethernet(ipv4(udp(one, port)))
            data += struct.pack("<IIII", seconds, rest // 1000, len(frame), len(frame)) + frame
        sent.append(payload)
        records[k] = data
    for k in range(3, COUNT - 1, 40):
        records[k : k + 2] = records[k + 1], records[k]
    path.write_bytes(pcap([]) + b"".join(records))
    return sent


class Drive:
    """A session with the datagrams, and what they were."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent = write_drive(folder / "drive.pcap")
        sensors = f"""
            front: {{driver: udp, source: "file:{folder}/drive.pcap", port: 2368, pace: max}}
            imu: {{driver: xsens, source: "sim:", pace: max}}
            camera: {{driver: camera, source: "sim:", width: 64, height: 48, fps: 10, pace: max}}
        """
        config = write_config(folder / "config.yaml", sensors)
        config.write_text(config.read_text() + "record_format: {streams: [front]}\n")
        self.ran = here("run", config, "--root", folder, "--name", "drive", "--duration", 1)
        self.session = folder / "drive"

    def payloads(self, session: Path | None = None) -> list[bytes]:
        with Session(session or self.session) as opened:
            payload = opened.streams["front"].channels["payload"]
            return [payload.encoded(k) for k in range(len(payload))]


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    return Drive(tmp_path_factory.mktemp("datagrams"))


def test_the_examples_of_the_documents_read_the_payloads(drive: Drive) -> None:
    text = (Path(__file__).parents[2] / "docs/datagrams.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        block = block.replace("sessions/rig-1", str(drive.session))
        for first, third in (('["front"][0]', '["front"][3]'), ("-1, 2)[0]", "-1, 2)[3]")):
            block = block.replace(first, third)
        names: dict[str, Any] = {}
        exec(block, names)  # noqa: S102  our own documents
        assert names["first"] == drive.sent[3] and len(names["first"]) == LENGTHS[3]


def exported(path: Path) -> list[Datagram]:
    with path.open("rb") as file:
        return list(read_datagrams(file))


def test_they_are_recorded_as_they_were(drive: Drive) -> None:
    assert (drive.ran.code, drive.ran.complaints) == (0, [])
    assert_nothing_lost(drive.session)
    assert_sound(drive.session)
    assert drive.payloads() == drive.sent
    folder = drive.session / "front"
    assert (folder / "payload").read_bytes() == b"".join(drive.sent)
    rows = np.fromfile(folder / "payload_i", "<u8").reshape(-1, 2)
    assert rows[:, 1].tolist() == [len(p) for p in drive.sent]
    assert "payload" not in json.loads((folder / "meta.json").read_text())
    with Session(drive.session) as session:
        stream = session.streams["front"]
        assert session.start_ns is not None
        assert (stream.t_ns - session.start_ns).tolist() == [k * STEP_NS for k in range(COUNT)]
        sample = stream.sample(3, ["source", "source_port", "port", "payload"])
    assert bytes(sample["source"]) == bytes(10) + b"\xff\xff\x0a\0\0\5"
    assert (int(sample["source_port"]), int(sample["port"])) == (40000, 2368)
    assert sample["payload"].tobytes() == drive.sent[3].ljust(65535, b"\0")


def test_they_are_exported_as_a_capture(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "front.pcap"
    ran = here("export", drive.session, "front", "--to", "pcap", "--out", path)
    assert (ran.code, ran.err) == (0, [])
    assert f"front: {COUNT} samples" in ran.out
    got = exported(path)
    assert [d.payload for d in got] == drive.sent
    assert {(d.source, d.source_port, d.destination, d.port) for d in got} == {
        (b"\x0a\0\0\5", 40000, b"\x0a\0\0\1", 2368)
    }
    with Session(drive.session) as session:
        assert [d.t_ns for d in got] == session.streams["front"].t_ns.tolist()


def test_a_part_of_them_is_exported(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "front.pcap"
    part = ("--from", "0.1", "--until", "0.2", "--every", "7")
    ran = here("export", drive.session, "front", "--to", "pcap", "--out", path, *part)
    assert ran.code == 0
    assert [d.payload for d in exported(path)] == drive.sent[40:80:7]


def test_only_datagrams_are_a_capture(drive: Drive, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "a.pcap")
    ran = here("export", drive.session, "imu", "--to", "pcap", *out)
    assert ran.code == 2
    assert ran.err == ["recorder export: imu: cannot be exported as pcap; fits: csv, npz"]
    ran = here("export", drive.session, "front", "--to", "pcap", "--channels", "port", *out)
    assert ran.code == 2 and "--channels: is for csv, npz" in ran.err[0]
    ran = here("export", drive.session, "front", "--to", "png", *out)
    assert ran.err[0].endswith("cannot be exported as png; fits: csv, npz, pcap")
    table = tmp_path / "a.csv"
    ran = here("export", drive.session, "front", "--to", "csv", "--out", table)
    assert ran.code == 0 and len(table.read_text().splitlines()) == COUNT + 1
    assert "left out: payload" in ran.out


def test_damaged_datagrams_are_left_out_of_a_capture(drive: Drive, tmp_path: Path) -> None:
    session, path = tmp_path / "drive", tmp_path / "a.pcap"
    shutil.copytree(drive.session, session)
    data = session / "front" / "payload"
    data.write_bytes(data.read_bytes()[:-1])
    ran = here("export", session, "front", "--to", "pcap", "--out", path)
    assert ran.code == 3
    assert [d.payload for d in exported(path)] == drive.sent[:-1]
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
    path = tmp_path / "a.pcap"
    ran = here("export", drive.session, "front", "--to", "pcap", "--out", path)
    assert ran.code == 3
    assert [d.payload for d in exported(path)] == drive.sent[:7] + drive.sent[8:]
    assert "sample 7: is damaged" in ran.err[0] and len(ran.err) == 1


def test_they_are_played_many_at_a_time(drive: Drive) -> None:
    with Session(drive.session) as session:
        chunks = [item for item in play(session, ["front"]) if isinstance(item, Chunk)]
    assert {len(chunk.t_ns) for chunk in chunks} == {4}  # of 8 ms
    assert [p for chunk in chunks for p in chunk.data["payload"]] == drive.sent


def test_a_session_is_played_again(drive: Drive, tmp_path: Path) -> None:
    source = f"session:{drive.session}"
    config = write_config(
        tmp_path / "config.yaml", f'front: {{driver: udp, source: "{source}", pace: max}}'
    )
    ran = here("run", config, "--root", tmp_path, "--name", "again")
    assert (ran.code, ran.complaints) == (0, [])
    assert drive.payloads(tmp_path / "again") == drive.sent
    assert_sound(tmp_path / "again")


def test_a_clip_of_them(drive: Drive, tmp_path: Path) -> None:
    cut = ("--from", "0.25", "--until", "0.5")
    ran = here("clip", drive.session, *cut, "--out", tmp_path)
    assert (ran.code, ran.err) == (0, [])
    (clip,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert drive.payloads(clip) == drive.sent[100:200]
    assert_sound(clip)


def finalize(drive: Drive, tmp_path: Path, archive: str, *more: object) -> Any:
    out = tmp_path / archive
    ran = here("finalize", drive.session, "--to", archive, "--out", out, "--format", "json", *more)
    assert ran.code == 0, ran.err
    return ran.result


def noted(result: Any) -> list[str]:
    return [text for text in json.dumps(result).split('"') if text.startswith("front: ")]


def test_mcap_has_their_packets(drive: Drive, tmp_path: Path) -> None:
    result = finalize(drive, tmp_path, "mcap")
    (path,) = tmp_path.rglob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None
        kinds = {
            channel.topic: (channel.message_encoding, summary.schemas[channel.schema_id].name)
            for channel in summary.channels.values()
        }
        got = [
            (m.log_time, m.sequence, m.data) for _, _, m in reader.iter_messages("/front/packets")
        ]
    assert kinds["/front/packets"] == ("cdr", "udp_msgs/msg/UdpPacket")
    assert not {"/front", "/front/samples"} & kinds.keys()
    assert noted(result) == ["front: no message has the channels port"]
    with Session(drive.session) as session:
        stamps = session.streams["front"].t_ns.tolist()
    assert [t_ns for t_ns, _, _ in got] == stamps
    assert [number for _, number, _ in got] == list(range(COUNT))
    assert all(data.endswith(p) for (_, _, data), p in zip(got, drive.sent, strict=True))


def test_rosbags_reads_them(drive: Drive, tmp_path: Path) -> None:
    """By the definition in ROS's package udp_msgs, which rosbags does not have."""
    finalize(drive, tmp_path, "mcap", "--option", "mcap.profile=ros2")
    text = "std_msgs/Header header\nstring address\nuint16 src_port\nuint8[] data\n"
    STORE.register(get_types_from_msg(text, "udp_msgs/msg/UdpPacket"))
    (bag,) = {path.parent for path in tmp_path.rglob("metadata.yaml")}
    with Reader(bag) as reader:
        topic = [c for c in reader.connections if c.topic == "/front/packets"]
        got: list[Any] = [
            STORE.deserialize_cdr(data, connection.msgtype)
            for connection, _, data in reader.messages(topic)
        ]
    assert [m.data.tobytes() for m in got] == drive.sent
    ends = {(m.header.frame_id, m.address, m.src_port) for m in got}
    assert ends == {("front", "10.0.0.5", 40000)}


def test_vrs_has_their_payloads(drive: Drive, tmp_path: Path) -> None:
    finalize(drive, tmp_path, "vrs")
    (path,) = tmp_path.rglob("*.vrs")
    for file in (path, drive.session / "session.vrs"):
        with VrsReader(file) as vrs:
            tags = {str(stream): found.tags for stream, found in vrs.streams.items()}
            (stream,) = (name for name, known in tags.items() if "front" in known.values())
            got = []
            for record in vrs.records(stream, RecordType.DATA):
                layout, *blocks = record.blocks()
                assert layout["port"] == 2368  # type: ignore[index]
                got.append(bytes(blocks[0].data))  # type: ignore[union-attr]
        assert got == drive.sent


@pytest.mark.parametrize(
    ("archive", "note"),
    [
        ("ncore", "front: unsupported kind of stream: left out"),
        ("edgefirst", "front: has datagrams: left out"),
        ("l5kit", "front: has datagrams: left out"),
    ],
)
def test_other_archives_leave_them_out_and_say_so(
    drive: Drive, tmp_path: Path, archive: str, note: str
) -> None:
    assert note in noted(finalize(drive, tmp_path, archive))
