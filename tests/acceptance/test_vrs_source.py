"""A recording of Project Aria's becomes a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from recorder.formats.vrs import RecordType, VrsReader
from recorder.session.reader import Session
from tests.acceptance.command import assert_nothing_lost, assert_sound, here, write_config

CAMERAS = {"eyes": "211-1"}
IMUS = {"imu": "1202-1"}


def test_its_cameras_and_imus_are_recorded_as_they_are(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "vrs" / "aria_recording.vrs"
    sensors = "".join(
        f'{name}: {{driver: {driver}, source: "vrs:{path}#{stream}", pace: max}}\n'
        for streams, driver in ((CAMERAS, "camera"), (IMUS, "xsens"))
        for name, stream in streams.items()
    )
    config = write_config(tmp_path / "config.yaml", sensors)
    ran = here("run", config, "--root", tmp_path / "sessions", "--name", "s")
    assert (ran.code, ran.complaints) == (0, [])
    assert_nothing_lost(tmp_path / "sessions" / "s")
    assert_sound(tmp_path / "sessions" / "s")
    with VrsReader(path) as vrs, Session(tmp_path / "sessions" / "s") as session:
        first_s = vrs.timestamps_s(types=RecordType.DATA)[0]
        for name, stream in {**CAMERAS, **IMUS}.items():
            recorded = session.streams[name]
            assert session.start_ns is not None and recorded.t_dev_ns is not None
            stamps = vrs.timestamps_s(stream, RecordType.DATA)
            offsets_s = (recorded.t_ns - session.start_ns) / 1e9
            assert np.allclose(offsets_s, stamps - first_s, atol=1e-6)
            for at, record in enumerate(vrs.records(stream, RecordType.DATA)):
                layout, *blocks = cast("list[Any]", record.blocks())
                if name in CAMERAS:
                    channel = recorded.channels["video.avi"]
                    assert channel.encoded(at) == blocks[0].data
                else:
                    values = recorded.sample(at)
                    assert np.array_equal(values["acc"], layout["accelerometer"])
                    assert np.array_equal(values["avel"], layout["gyroscope"])
                    assert recorded.t_dev_ns[at] == layout["capture_timestamp_ns"]
