"""Cameras with raw pictures through the command: recorded, checked, packed, played again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.camera.driver import CameraDriver
from drivers.camera.model import make_camera
from drivers.camera.model_output import make_raw_values
from drivers.camera.raw_pictures import RAW_FORMATS
from recorder.codecs.raw_pixels import Levels
from recorder.config.options import check_options
from recorder.formats.vrs import DataBlock, RecordType, VrsReader
from recorder.session.reader import Session
from tests.acceptance.command import (
    assert_nothing_lost,
    assert_sound,
    column,
    here,
    meta,
    recorder,
    write_config,
)
from tests.acceptance.conftest import Recorded
from tests.recording.writer.vrs_session import stream_of

CAMERAS = {"front": "SRGGB10P", "rear": "SGBRG12", "thermal": "Y16"}
SIZE = (320, 240)
LEVELS = {"black_level": 64, "white_level": 960}
SENSORS = "".join(
    f'{name}: {{driver: camera, source: "sim:", pace: max, fps: 10, width: {SIZE[0]}, '
    f"height: {SIZE[1]}, pixel_format: {form}, black_level: 64, white_level: 960}}\n"
    for name, form in CAMERAS.items()
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("raw")
    config = write_config(folder / "config.yaml", SENSORS)
    with config.open("a") as file:
        file.write("record_format: {streams: [front, rear]}\nfinalize: [ncore, vrs]\n")
    ran = here("run", config, "--root", folder, "--name", "s", "--duration", 1)
    return folder / "s", ran


def drawn(name: str, index: int) -> npt.NDArray[Any]:
    options = check_options(CameraDriver.options, {})
    camera = make_camera(name, options, SIZE, 10.0)
    levels = Levels.from_settings(RAW_FORMATS[CAMERAS[name]].pixels, LEVELS)
    return make_raw_values(camera.frame(index), levels)


def test_every_value_is_recorded(recorded: Recorded) -> None:
    session, ran = recorded
    assert ran.code == 0, ran.err
    assert_nothing_lost(session)
    assert_sound(session)
    for name, form in CAMERAS.items():
        pixels = RAW_FORMATS[form].pixels
        entry = meta(session, name)[pixels.channel]
        assert (entry["format"], entry["shape"]) == ("raw", [SIZE[1], SIZE[0]])
        values = column(session, name, pixels.channel)
        assert len(values) == 10
        for index in (0, 4, 9):
            np.testing.assert_array_equal(values[index], drawn(name, index))


def test_the_record_format_has_the_values(recorded: Recorded) -> None:
    """Those of the recorded file, and of the archive."""
    session, _ = recorded
    for path in (session / "session.vrs", session / "_archives/vrs/s.vrs"):
        with VrsReader(path) as vrs:
            for name in ("front", "rear"):
                values = column(session, name, RAW_FORMATS[CAMERAS[name]].pixels.channel)
                records = list(vrs.records(stream_of(vrs, name), RecordType.DATA))
                assert len(records) == len(values)
                for record, value in zip(records, values, strict=True):
                    (block,) = (b for b in record.blocks() if isinstance(b, DataBlock))
                    np.testing.assert_array_equal(block.array(), value)


def test_the_archive_that_has_eight_bits_tells_so(recorded: Recorded) -> None:
    session, _ = recorded
    report = recorder("finalize", session, "--to", "ncore", "--format", "json")
    assert report.code == 0, report.err
    for name, how in (("front", "demosaiced"), ("thermal", "monochrome")):
        assert report.out.count(f"{name}: pictures have the sensor's values") == 1
        assert how in report.out


def test_a_session_is_a_source(recorded: Recorded, tmp_path: Path) -> None:
    session, _ = recorded
    sensors = "".join(
        f'{name}: {{driver: camera, source: "session:{session}", pace: max}}\n' for name in CAMERAS
    )
    config = write_config(tmp_path / "again.yaml", sensors)
    ran = here("run", config, "--root", tmp_path, "--name", "again")
    assert (ran.code, ran.complaints) == (0, []), ran.err
    for name, form in CAMERAS.items():
        channel = RAW_FORMATS[form].pixels.channel
        assert meta(tmp_path / "again", name)[channel] == meta(session, name)[channel]
        np.testing.assert_array_equal(
            column(tmp_path / "again", name, channel), column(session, name, channel)
        )
    with Session(session) as first, Session(tmp_path / "again") as second:
        for name in CAMERAS:
            settings = first.declared[name].settings
            assert second.declared[name].settings == settings
            assert settings["pixel_format"] == CAMERAS[name]
