"""``recorder calibrate-radar``: what it prints is what the archives read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drivers.mmwave.driver import SIM_CHIRP
from recorder.cli import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.perception.calibration import read_calibration
from recorder.perception.sensor_files import radar_geometry
from recorder.session.reader import Session
from tests.perception.test_radar_calibration import PLACE, at, error_deg, errors_of, frames
from tests.session.build import Builder, imu_spec

ERRORS = errors_of(5, 60.0)
REFLECTOR = ":".join(map(str, PLACE))


def radar(name: str) -> StreamSpec:
    channels = (
        ChannelSpec("iq", "raw", "i2", SIM_CHIRP.shape, "raw IQ"),
        ChannelSpec("valid", "raw", "u1", (), "1: complete"),
    )
    text = json.dumps(SIM_CHIRP.intrinsics("qqii"))
    return StreamSpec(name, channels, rate_hz=20.0, files={"radar.json": text})


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A standing vehicle before a reflector; the second frame lacks packets."""
    builder = Builder(tmp_path_factory.mktemp("root") / "rig")
    builder.add(radar("radar"), count=3)
    builder.add(imu_spec(), 0.2)
    path = builder.close()
    seen = frames([at(*PLACE), [12.0, 3.0, 0.0]], ERRORS)
    seen[1][:] = 0
    (path / "radar/iq").write_bytes(np.stack(seen).tobytes())
    (path / "radar/valid").write_bytes(bytes([1, 0, 1]))
    return path


def test_what_is_printed_is_a_calibration_file(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate-radar", str(session), "--reflector", REFLECTOR]) == 0
    captured = capsys.readouterr()
    (tmp_path / "calibration.yaml").write_text(captured.out)
    with Session(session) as opened:
        calibration = read_calibration(tmp_path / "calibration.yaml")
        found = radar_geometry(opened.streams["radar"], calibration).calibration
    assert found is not None and found.method == "reflector"
    assert error_deg(found, ERRORS) < 0.5
    assert captured.err.startswith("2 frames, 1 range cells, ")


def test_as_json(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["calibrate-radar", str(session), "--reflector", REFLECTOR]
    assert main([*arguments, "--sensor", "radar", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["frames"] == 2 and result["residual_deg"] < 2
    antennas = result["sensors"]["radar"]["antennas"]
    assert (antennas["device"], antennas["transmitters"]) == ("AWR1843", [0, 1, 2])
    assert np.array(antennas["coefficients"]).shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 1, "at least 12 in 4 are needed; use a reflector"),
        (["--reflector", "9:0:0"], 1, "nothing stands out at 9 m"),
        (["--reflector", "9:0"], 2, "'9:0' is not RANGE:AZIMUTH:ELEVATION"),
        (["--reflector", "9:x:0"], 2, "--reflector"),
        (["--sensor", "imu"], 2, "no radar 'imu'; the session's radars: radar"),
    ],
)
def test_no_calibration(
    session: Path,
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["calibrate-radar", str(session), *arguments]) == code
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
