"""A radar's detections in an NCore sequence: what each return carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.common.errors import ConfigError
from recorder.perception.calibration import read_calibration
from recorder.perception.sensor_files import radar_geometry
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import Archive, pack, rig

ANTENNAS = """
sensors:
  radar:
    antennas:
      range_bias_m: 0.03
      coefficients: [[[1, 0], [0, 1], [-1, 0], [0, -1]], [[1, 0], [1, 0], [1, 0], [2, 0]]]
      residual_deg: 3.0
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rig(tmp_path_factory.mktemp("radar") / "s", 0.5).close()


@pytest.fixture(scope="module")
def packed(session: Path) -> Archive:
    return pack(session)


def test_each_return_carries_its_speeds_margin_method_and_period(packed: Archive) -> None:
    metadata = packed.attributes("radars/radar")["generic_meta_data"]
    known = metadata["processing"]
    period = known["velocity_period_m_s"]
    assert period == 2 * known["unambiguous_velocity_m_s"] > 0
    assert known["velocity_methods"] == {"ambiguous": 0, "array": 1, "range_rate": 2}
    assert known["antennas_calibrated"] is None
    rays = 0
    for _, end in packed.times_us("radars/radar"):
        frame = f"radars/radar/frames/{end}/ray_bundle_returns"
        value = {
            name: packed.array(f"{frame}/{name}")[0]
            for name in (
                "distance_m", "radial_velocity_m_s", "power_db", "snr_db", "rcs_dbsm",
                "velocity_margin_db", "velocity_method", "velocity_period_m_s",
            )
        }  # fmt: skip
        rays += len(value["distance_m"])
        assert (value["velocity_period_m_s"] == np.float32(period)).all()
        assert set(value["velocity_method"].tolist()) <= {0.0, 2.0}
        first = np.abs(value["radial_velocity_m_s"][value["velocity_method"] == 0])
        assert (first <= period / 2 * 1.001).all()
        assert (np.abs(value["radial_velocity_m_s"]) <= known["max_velocity_m_s"]).all()
        expected = value["power_db"] + 40 * np.log10(np.maximum(value["distance_m"], 0.01)) - 67.2
        assert np.allclose(value["rcs_dbsm"], expected, atol=1e-3)
    assert rays > 0


def test_the_reference_of_the_cross_section_is_an_option(session: Path, packed: Archive) -> None:
    other = pack(session, radar_rcs_db=60.0)
    end = packed.times_us("radars/radar")[0, 1]
    name = f"radars/radar/frames/{end}/ray_bundle_returns/rcs_dbsm"
    assert np.allclose(other.array(name) - packed.array(name), 7.2, atol=1e-3)


def test_the_calibration_file_calibrates_the_antennas(session: Path, tmp_path: Path) -> None:
    path = tmp_path / "calibration.yaml"
    path.write_text(ANTENNAS)
    with Session(session) as opened:
        geometry = radar_geometry(opened.streams["radar"], read_calibration(path))
        measured = geometry.calibration
        assert measured is not None
        assert (measured.range_bias_m, measured.residual_deg) == (0.03, 3.0)
        assert np.angle(geometry.factors[0], deg=True) == pytest.approx([0, 90, 180, -90])
        assert np.mean(np.abs(geometry.factors) ** 2) == pytest.approx(1)
        assert abs(geometry.factors[1, 3] / geometry.factors[1, 2]) == pytest.approx(2)
        for old, new, message in (
            (
                "range_bias",
                "transmitters: [0, 2]\n      range_bias",
                r"is \[0, 2\], but .* \[0, 1\]",
            ),
            ("range_bias", "frequency_ghz: 60.0\n      range_bias", "frequency_ghz: is 60.0, but"),
            ("[[[1, 0], [0, 1], [-1, 0], [0, -1]], ", "[", r"coefficients have the shape \(1, 4"),
            ("coefficients", "coefficient", "lacks coefficients"),
        ):
            path.write_text(ANTENNAS.replace(old, new))
            with pytest.raises(ConfigError, match=message) as caught:
                radar_geometry(opened.streams["radar"], read_calibration(path))
            assert "calibration.yaml" in str(caught.value)


def test_a_calibrated_radar_is_named_in_the_metadata(tmp_path: Path) -> None:
    path = rig(tmp_path / "s", 0.2).close()
    text = ANTENNAS.replace("range_bias", "method: test\n      range_bias")
    (path / "calibration.yaml").write_text(text)
    known = pack(path).attributes("radars/radar")["generic_meta_data"]["processing"]
    assert known["antennas_calibrated"] == "test"
