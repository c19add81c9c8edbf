"""``recorder import FILE.vrs``: a session with all records, which is packed like a recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from recorder.formats.vrs import Compression, RecordType, VrsReader
from recorder.formats.vrs.headers import RECORD_HEADER_BYTES, RecordHeader
from recorder.session.reader import Session
from recorder.session.vrs.files import map_vrs_streams
from tests.acceptance.command import assert_sound, here
from tests.formats.vrs.foreign import COUNT, START_S, jpeg, raw, write_foreign
from tests.h264 import encode


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file, and the session that it becomes."""
    root = tmp_path_factory.mktemp("import")
    path = write_foreign(root / "other.vrs", Compression.ZSTD)
    ran = here("import", path, "--root", root / "sessions", "--format", "json")
    assert (ran.code, ran.complaints) == (0, []), ran.err
    samples = {name: stream["samples"] for name, stream in ran.result["streams"].items()}
    assert samples["forward_camera"] == COUNT - 3  # those before the keyframe are in the records
    assert samples["vrs_200_1"] == COUNT and ran.result["verdict"] == "PASS"
    return path, root / "sessions" / "other"


def messages(session: Session, stream: str) -> list[bytes]:
    channel: Any = session.streams[stream].channels["message"]
    return [bytes(channel.encoded(at)) for at in range(len(session.streams[stream]))]


def test_every_record_of_every_stream_is_in_the_session(imported: tuple[Path, Path]) -> None:
    path, folder = imported
    assert_sound(folder)
    cut = {"200-1", "214-1", "214-2", "1201-1"}
    with VrsReader(path) as vrs, Session(folder) as session:
        assert session.start_ns == round(START_S * 1e9)
        for stream in vrs.streams:
            found = messages(session, f"vrs_{stream}".replace("-", "_"))
            records = list(vrs.records(stream))
            assert len(found) == len(records)
            for message, record in zip(found, records, strict=True):
                header = RecordHeader.unpack(message)
                assert (header.stream, header.record_type) == (stream, record.record_type)
                assert header.timestamp_s == record.timestamp_s
                whole = record.payload()
                assert header.size == RECORD_HEADER_BYTES + len(whole)
                if str(stream) not in cut or record.record_type != RecordType.DATA:
                    assert message[RECORD_HEADER_BYTES:] == whole


def test_pictures_and_values_survive_a_vrs_file_of_the_session(
    imported: tuple[Path, Path], tmp_path: Path
) -> None:
    _, folder = imported
    assert here("finalize", folder, "--to", "vrs", "--out", tmp_path).code == 0
    with VrsReader(tmp_path / "vrs" / "other.vrs") as vrs, Session(folder) as session:
        names = map_vrs_streams({stream.id: stream.tags for stream in vrs.streams.values()})

        def blocks(stream: str) -> list[list[Any]]:
            found = vrs.records(names[stream], RecordType.DATA)
            return [cast("list[Any]", record.blocks()) for record in found]

        units = encode(COUNT + 2)[5:]
        for stream, wanted in (
            ("rgb_camera_1", [jpeg(at) for at in range(COUNT)]),
            ("rgb_camera_2", [jpeg(at + 50) for at in range(COUNT)]),
            ("camera_slam", [raw(at) for at in range(COUNT)]),
            ("forward_camera", units),
            ("vrs_400_1", messages(session, "vrs_400_1")),
        ):
            assert [row[1].data for row in blocks(stream)] == wanted
        for at, (layout,) in enumerate(blocks("imu_slam")):
            values = np.arange(3, dtype=np.float32) / 3 + at
            np.testing.assert_array_equal(layout["acc"], values)
            np.testing.assert_array_equal(layout["avel"], -values)
