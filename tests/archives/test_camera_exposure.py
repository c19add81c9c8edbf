"""Exposure times of a camera's pictures, measured or stated, in the archives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.camera.live import EXPOSURE
from drivers.kit.driver import Sample, SensorConfig
from drivers.kit.session_source import SessionSource
from drivers.kit.vrs_source import VrsSource
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.codecs.streams import StreamSpec
from recorder.formats.vrs import LayoutBlock, RecordType, VrsReader
from recorder.session.reader import Session
from tests.archives.edgefirst.rig import exif_of
from tests.archives.edgefirst.rig import pack as pack_edgefirst
from tests.archives.ncore.packer_rig import pack as pack_ncore
from tests.recording.writer.vrs_session import stream_of
from tests.session.build import Builder, camera_spec

EXPOSURES_US = [8000, 9500, 0, 12_300]
EXPOSURE_TAG = 0x829A


def measured(**settings: Any) -> StreamSpec:
    spec = camera_spec()
    return replace(spec, channels=(*spec.channels, EXPOSURE), settings=settings)


def built(path: Path, spec: StreamSpec) -> Path:
    builder = Builder(path)
    builder.add(spec, count=len(EXPOSURES_US))
    if "exposure" in spec.meta():
        np.array(EXPOSURES_US, "<u4").tofile(builder.path / "camera/exposure")
    return builder.close()


@pytest.mark.parametrize(
    ("spec", "expected_us", "text"),
    [
        (camera_spec(), [0] * 4, "unknown; frames start at their end"),
        (replace(camera_spec(), settings={"exposure_ms": 12.5}), [12_500] * 4, "known"),
        (
            replace(camera_spec(), settings={"exposure_ms": 12.5, "readout_ms": 10.0}),
            [22_500] * 4,
            "known",
        ),
        (measured(), EXPOSURES_US, "known for each frame"),
        (measured(readout_ms=10.0), [e + 10_000 for e in EXPOSURES_US], "known for each frame"),
    ],
)
def test_ncore_frames_start_with_the_exposure(
    tmp_path: Path, spec: StreamSpec, expected_us: list[int], text: str
) -> None:
    path = built(tmp_path / "s", spec)
    packed = pack_ncore(path, poses="identity")
    times = packed.times_us("cameras/camera")
    with Session(path) as opened:
        ends_ns = opened.streams["camera"].t_ns
    assert np.array_equal(times[:, 1], ends_ns // 1000)
    starts_us = (ends_ns - np.array(expected_us) * 1000) // 1000
    assert times[:, 0].tolist() == starts_us.tolist()
    metadata = packed.attributes("cameras/camera")["generic_meta_data"]
    assert metadata["exposure"] == text
    assert packed.meta["sequence_timestamp_interval_us"]["start"] == times[0, 0]


_MODEL = "model: opencv-pinhole, resolution: [32, 24], parameters: {fx: 9, fy: 9, cx: 9, cy: 9"


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize(
    ("readout_ms", "stated", "packed_as", "words"),
    [
        (20.0, None, "ROLLING_TOP_TO_BOTTOM", None),
        (0.0, None, "GLOBAL", None),
        (20.0, "rolling-bottom-to-top", "ROLLING_BOTTOM_TO_TOP", None),
        (20.0, "global", "GLOBAL", "readout_ms is 20, but the calibration has shutter: global"),
        (
            0.0,
            "rolling-top-to-bottom",
            "ROLLING_TOP_TO_BOTTOM",
            "has shutter: rolling-top-to-bottom, but the recording has no readout_ms",
        ),
    ],
)
def test_ncore_gets_the_shutter_that_the_driver_knows(
    tmp_path: Path,
    readout_ms: float,
    stated: str | None,
    packed_as: str,
    words: str | None,
    calibrated: bool,
) -> None:
    """A rolling shutter packed as global puts the edges of moving boxes beside their pictures."""
    settings = {"readout_ms": readout_ms} if readout_ms else {}
    path = built(tmp_path / "s", replace(camera_spec(), settings=settings))
    parameters = _MODEL if calibrated else "parameters: {"
    shutter = "" if stated is None else f"{', ' * calibrated}shutter: {stated}"
    text = f"sensors: {{camera: {{{parameters}{shutter}}}}}}}\n"
    (path / "calibration.yaml").write_text(text)
    packed = pack_ncore(path, poses="identity")
    camera = packed.attributes("intrinsics/default/cameras/camera")
    assert camera["camera_model_parameters"]["shutter_type"] == packed_as
    assert camera["camera_model_type"] == "opencv-pinhole"  # also of the placeholder
    contradictions = [note for note in packed.result.notes if "readout_ms" in note]
    assert len(contradictions) == (words is not None)
    assert all(words in note and packed_as in note for note in contradictions if words)


def test_edgefirst_pictures_have_their_own_exposure(tmp_path: Path) -> None:
    data = pack_edgefirst(built(tmp_path / "s", measured(exposure_ms=3.0)))
    tags = [exif_of(data.file(k, "camera.jpeg"))["exif"].get(EXPOSURE_TAG) for k in range(4)]
    assert tags == [0.008, 0.0095, None, 0.0123]


def test_the_vrs_archive_has_the_exposure_of_each_record(tmp_path: Path) -> None:
    (result,) = finalize(built(tmp_path / "s", measured()), [ArchiveRequest("vrs", {})])
    found = []
    with VrsReader(result.files[0]) as vrs:
        for record in vrs.records(stream_of(vrs, "camera"), RecordType.DATA):
            values: dict[str, Any] = {}
            for block in record.blocks():
                values |= block.as_dict() if isinstance(block, LayoutBlock) else {}
            found.append(int(values["exposure"]))
    assert found == EXPOSURES_US


def test_a_session_is_replayed_with_its_exposures(tmp_path: Path) -> None:
    path = built(tmp_path / "s", measured())
    source = SessionSource(SensorConfig("camera", "session", f"{path}#camera", {}))
    (spec,) = source.open()
    assert [channel.name for channel in spec.channels] == ["video.avi", "exposure"]
    found: list[int] = []
    while len(found) < len(EXPOSURES_US):
        item = source.read()
        assert isinstance(item, Sample)
        found += np.asarray(item.data["exposure"]).tolist()
    source.close()
    assert found == EXPOSURES_US


def test_pictures_of_such_a_vrs_file_are_played(tmp_path: Path) -> None:
    (result,) = finalize(built(tmp_path / "s", measured()), [ArchiveRequest("vrs", {})])
    source = VrsSource(SensorConfig("camera", "vrs", str(result.files[0]), {}), "camera")
    (spec,) = source.open()
    assert [channel.name for channel in spec.channels] == ["video.avi"]
    item = source.read()
    assert isinstance(item, Sample)
    assert isinstance(item.data["video.avi"][0], bytes)
    source.close()
