"""The readers of files that others give, and of texts and messages that come from elsewhere."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from recorder.bus.control.requests import parse_request
from recorder.bus.wire import decode, encode
from recorder.codecs.storage.avi import scan_avi
from recorder.common.errors import FormatError, ProtocolError
from recorder.config.expressions import compile_expression
from recorder.fleet.store.manifest import VERSION, Manifest
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.contents import find_content
from recorder.formats.mcap.reader import McapReader
from recorder.formats.ros2.codec import decode_message
from recorder.formats.vrs import VrsReader
from recorder.perception.calibration import read_calibration
from recorder.session.journal.frames import MARKER, decode_frames, encode_frame
from tests.codecs import avi_kit
from tests.config.configs import load
from tests.formats.bags.kit import START_NS, imu, turn
from tests.formats.bags.test_sqlite import write_db3
from tests.formats.mcap.build import write_file as write_mcap
from tests.formats.ros2.kit import NAMES
from tests.formats.vrs.kit import write_file as write_vrs
from tests.fuzz.targets import Prepared, target
from tests.session.journal.test_journal import RECORDS
from tests.viewers.live.staging import picture

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SENSOR = b"  camera: {driver: camera, source: 'sim:', width: 640, lens: {n: 2}, overlays: []}\n"
ZEROS = (bytes(8), b"\xff" * 8, b"\x00\x00\x00\x80")


def by_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def feed(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return feed


@target("sqlite", *ZEROS, b"SQLite format 3\0")
def sqlite(folder: Path) -> Iterator[Prepared]:
    def read(path: Path) -> None:
        with Bag(path) as bag:
            for _ in bag.messages(bag.topics):
                pass

    write_db3(folder / "a.db3", 40)
    yield [(folder / "a.db3").read_bytes()], by_file(folder / "b.db3", read)


@target("mcap", *ZEROS, b"\x89MCAP0\r\n")
def mcap(folder: Path) -> Iterator[Prepared]:
    def read(path: Path) -> None:
        with McapReader(path) as found:
            for _ in found.messages():
                pass
            list(found.attachments())

    samples = []
    for number, finish in enumerate((True, False)):
        path = folder / f"{number}.mcap"
        write_mcap(path, 20, chunk_bytes=2048, finish=finish)
        samples.append(path.read_bytes())
    yield samples, by_file(folder / "b.mcap", read)


@target("bag", *ZEROS, b"\x89MCAP0\r\n", b"sensor_msgs/msg/Imu", b"foxglove.RawImage")
def bag(folder: Path) -> Iterator[Prepared]:
    """As a source of a recording: topics, schemas, and messages decoded."""
    from tests.formats.bags.kit import write_mcap as write_bag

    def read(path: Path) -> None:
        with Bag(path) as found:
            contents = {}
            for name, topic in found.topics.items():
                try:
                    contents[name] = find_content(topic)
                except FormatError:
                    continue
            for message in found.messages(contents):
                try:
                    contents[message.topic].decode(message.data)
                except FormatError:
                    continue

    sent = [imu("/i", START_NS + k, (1, 2, 3), (4, 5, 6), turn(1.0)) for k in range(5)]
    write_bag(folder / "a.mcap", sent)
    yield [(folder / "a.mcap").read_bytes()], by_file(folder / "b.mcap", read)


@target("ros2-messages", *ZEROS)
def ros2_messages(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        for name in NAMES:
            with contextlib.suppress(FormatError):
                decode_message(name, data)

    yield [imu("/i", START_NS, (1, 2, 3), (4, 5, 6), turn(1.0)).data, bytes(400)], feed


@target("vrs", *ZEROS)
def vrs(folder: Path) -> Iterator[Prepared]:
    def read(path: Path) -> None:
        with VrsReader(path) as found:
            for record in found.records():
                found.read(record)

    samples = []
    for steps, finish in ((2, True), (2, False)):
        samples.append(write_vrs(folder / f"{finish}.vrs", steps, finish).read_bytes())
    yield samples, by_file(folder / "b.vrs", read)


@target("avi", *ZEROS, b"RIFF", b"LIST", b"00dc", b"ix00", b"indx")
def avi(folder: Path) -> Iterator[Prepared]:
    samples = []
    for finish in (True, False):
        path = folder / f"{finish}.avi"
        avi_kit.write(path, avi_kit.JPEGS[:8], finish)
        samples.append(path.read_bytes())
    yield samples, by_file(folder / "b.avi", scan_avi)


@target("journal", *ZEROS, MARKER, b'{"k":"commit"}\n')
def journal(_: Path) -> Iterator[Prepared]:
    previous, frames = b"", b""
    for kind, content in RECORDS:
        frame = encode_frame(kind, content, previous)
        previous, frames = frame[-16:], frames + frame
    yield [frames, frames[:300]], lambda data: list(decode_frames(data))


@target("config", b"*a", b"&a ", b"!!python/object:x ", b"1e999", b"  ", b": {", b"\x00", b"- ")
def config(folder: Path) -> Iterator[Prepared]:
    samples = [b"version: 1\nsensors:\n" + SENSOR, (CONFIGS / "vehicle.yaml").read_bytes()]
    yield samples, lambda data: load(folder, data)


@target("calibration", b".nan", b"1e999", b"  ", b": {", b"[]", b"null", b"- ")
def calibration(folder: Path) -> Iterator[Prepared]:
    yield (
        [(CONFIGS / "demo_calibration.yaml").read_bytes()],
        by_file(folder / "calibration.yaml", read_calibration),
    )


@target("expression", b"(", b"[", b"**", b"9" * 30, b"__class__", b"lambda:", b" not ", b"'\\x")
def expression(_: Path) -> Iterator[Prepared]:
    samples = [b"imu.acc[0] > 3 and not gnss.fix == 3", b"max(abs(imu.gyr[2]), 1) * -2 <= 1e3"]
    yield samples, lambda data: compile_expression(data.decode("utf-8", "replace"))


@target("request", b'"', b"[" * 50, b"\\ud800", b"1e999", b"null", b'"../../x"')
def request(_: Path) -> Iterator[Prepared]:
    samples = [
        b'{"op":"start","name":"a","meta":{"driver":"me"}}',
        b'{"op":"mark","text":"x","keep":[10,20]}',
        b'{"op":"status"}',
        b'{"op":"keep","session":"a","release":true}',
    ]
    yield samples, parse_request


@target("manifest", b'"../x"', b"-1", b"null", b"[", b"1e999", b'"/etc/passwd"')
def manifest(_: Path) -> Iterator[Prepared]:
    entry = {"path": "a/b.bin", "size": 4, "sha256": "0" * 64}
    whole = {
        "kind": "session", "name": "drive", "folder": "drive-1", "files": [entry],
        "about": {"start_ns": 1}, "version": VERSION,
    }  # fmt: skip
    samples = [json.dumps(whole).encode()]
    Manifest.decode(samples[0], "store")
    yield samples, lambda data: Manifest.decode(data, "store")


@target("wire", *ZEROS, b"\xc1", b"\xdd\xff\xff\xff\xff")
def wire(_: Path) -> Iterator[Prepared]:
    frames = [bytes(frame) for frame in encode(picture(3))]
    lengths = [len(frame) for frame in frames]

    def feed(data: bytes) -> None:
        """Cut where the right message is cut; what is over is a frame more."""
        cut, at = [], 0
        for length in lengths:
            cut.append(data[at : at + length])
            at += length
        with contextlib.suppress(ProtocolError):
            decode([data])
        decode([*cut, data[at:]] if len(data) > at else cut)

    rng = random.Random(1)
    yield [b"".join(frames), b"".join(frames) + rng.randbytes(40)], feed
