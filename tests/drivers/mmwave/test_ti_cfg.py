"""TI's .cfg files, with the values that TI's visualizer writes for an AWR1843BOOST."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.mmwave.chirp import DEVICES, ChirpConfig
from drivers.mmwave.ti_cfg import LVDS_COMMAND, CfgFile, read_cfg
from recorder.common.errors import ConfigError

VISUALIZER = """\
% ***************************************************************
% Created for SDK ver:03.06
% Platform:xWR18xx
% ***************************************************************
sensorStop
flushCfg
dfeDataOutputMode 1
channelCfg 15 7 0
adcCfg 2 1
adcbufCfg -1 0 1 1 1
profileCfg 0 77 267 7 57.14 0 0 70 1 256 5209 0 0 30
chirpCfg 0 0 0 0 0 0 0 1
chirpCfg 1 1 0 0 0 0 0 4
chirpCfg 2 2 0 0 0 0 0 2
frameCfg 0 2 16 0 100 1 0
lowPower 0 0
guiMonitor -1 1 1 0 0 0 1
lvdsStreamCfg -1 0 0 0
compRangeBiasAndRxChanPhase 0.0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0
calibData 0 0 0
sensorStart
"""
PHASES = " ".join(f"0.{k:02} -0.5" for k in range(12))


def read(folder: Path, text: str, device: str | None = None) -> CfgFile:
    (folder / "radar.cfg").write_text(text)
    return read_cfg(folder / "radar.cfg", device, "radar.cfg")


def test_the_visualizers_file(tmp_path: Path) -> None:
    file = read(tmp_path, VISUALIZER)
    assert file.chirp == ChirpConfig(
        "AWR1843", 77.0, 267.0, 7.0, 57.14, 70.0, 256, 5209, 16, 100.0, 1.0, (0, 2, 1)
    )
    assert file.chirp.shape == (16, 3, 4, 512)
    assert file.iq_order == "qqii" and not file.calibration
    # The raised transmitter is the last of a loop.
    assert list(file.chirp.antennas.tx_places) == [(0, 0), (4, 0), (2, 1)]
    lines = [line for line in VISUALIZER.splitlines() if not line.startswith("%")]
    lines[lines.index("lvdsStreamCfg -1 0 0 0")] = LVDS_COMMAND
    assert [*file.commands, file.start] == lines
    assert file.warnings == (
        f"{tmp_path / 'radar.cfg'}: lvdsStreamCfg -1 0 0 0: {LVDS_COMMAND} is set",
    )


def test_the_calibration_is_by_the_devices_transmitters(tmp_path: Path) -> None:
    text = VISUALIZER.replace("Phase 0.0 " + " ".join(["1 0"] * 12), f"Phase 0.03 {PHASES}")
    found = read(tmp_path, text).calibration
    assert found is not None
    assert (found["range_bias_m"], found["method"]) == (0.03, "compRangeBiasAndRxChanPhase")
    assert [row[0] for row in found["coefficients"]] == [[0.0, -0.5], [0.08, -0.5], [0.04, -0.5]]
    assert found["coefficients"][1][3] == [0.11, -0.5]


def test_two_transmitters_and_several_turns_in_a_loop(tmp_path: Path) -> None:
    text = VISUALIZER.replace("channelCfg 15 7", "channelCfg 15 5").replace(
        "chirpCfg 2 2 0 0 0 0 0 2\nframeCfg 0 2",
        "chirpCfg 2 2 0 0 0 0 0 1\nchirpCfg 3 3 0 0 0 0 0 4\nframeCfg 0 3",
    )
    for device in ("AWR1843", "AWR1843L"):
        chirp = read(tmp_path, text, device).chirp
        assert (chirp.frame_length, chirp.transmitters) == (32, (0, 2))
        assert chirp.antennas.tx_places == DEVICES["AWR1843L"].tx_places


def test_one_chirp_line_for_several_chirps_and_the_other_order(tmp_path: Path) -> None:
    text = VISUALIZER.replace("adcbufCfg -1 0 1", "adcbufCfg -1 0 0")
    text = text.replace("chirpCfg 0 0 0 0 0 0 0 1", "chirpCfg 0 3 0 0 0 0 0 1")
    text = text.replace("frameCfg 0 2", "frameCfg 3 3")
    file = read(tmp_path, text, "AWR1843")
    assert file.iq_order == "iiqq" and file.chirp.transmitters == (0,)


def test_real_samples_and_a_frame_with_the_number_of_samples(tmp_path: Path) -> None:
    text = VISUALIZER.replace("adcCfg 2 1", "adcCfg 2 0").replace(
        "Cfg -1 0 1 1 1", "Cfg -1 1 1 1 1"
    )
    text = text.replace("frameCfg 0 2 16 0 100", "frameCfg 0 2 16 0 256 100")
    text = text.replace(" ".join(["1 0"] * 12), " ".join(["1 0"] * 16))
    chirp = read(tmp_path, text, "AWR2944").chirp
    assert (chirp.frame_period, chirp.shape) == (100.0, (16, 3, 4, 256))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Platform:xWR18xx", "Platform:xWR68xx", r"radar.cfg: names no known platform"),
        ("profileCfg", "%profileCfg", r"radar.cfg: lacks profileCfg"),
        ("channelCfg 15 7 0", "channelCfg 7 7 0", r":8: channelCfg: 7: all four receivers"),
        ("channelCfg 15 7 0", "channelCfg 15 3 0", r":8: transmitters 7 are used, 3 enabled"),
        ("adcCfg 2 1", "adcCfg 1 1", r":9: adcCfg: 1: samples of 16 bits"),
        ("adcCfg 2 1", "adcCfg 2 0", r":9: adcCfg: 0: the samples of a AWR1843 have another"),
        ("adcbufCfg -1 0 1 1 1", "adcbufCfg -1 0 1 0 1", r":10: adcbufCfg: 0: only receivers in"),
        ("70 1 256 5209", "70 1 256", r":11: profileCfg has 13 arguments instead of 14"),
        ("70 1 256", "70 1 255", r":11: the number of samples is odd"),
        ("profileCfg 0 77", "profileCfg 0 x", r":11: profileCfg has an argument that is no"),
        ("profileCfg 0 77", "profileCfg 0 nan", r":11: profileCfg has an argument that is no"),
        ("2 2 0 0 0 0 0 2", "2 2 0 0 0 7 0 2", r":14: chirps of different shapes"),
        ("2 2 0 0 0 0 0 2", "2 2 0 0 0 0 0 3", r":14: transmitters 3: not one of the"),
        ("2 2 0 0 0 0 0 2", "2 2 0 0 0 0 0 1", r":15: the transmitters do not take turns"),
        ("frameCfg 0 2", "frameCfg 0 3", r":15: chirp 3 has no chirpCfg"),
        ("frameCfg", "advFrameCfg", r":15: advanced frames"),
        ("dfeDataOutputMode 1", "dfeDataOutputMode 3", r":7: dfeDataOutputMode: 3: only frames"),
        ("1 0\ncalibData", "1\ncalibData", r":19: compRange\w+ has 24 arguments, not 25"),
        ("1 0\ncalibData", "0 0.5 0.5\ncalibData", r":19: compRange\w+ has 26 arguments"),
    ],
)
def test_an_invalid_file_names_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in VISUALIZER
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path, VISUALIZER.replace(old, new))
    assert str(caught.value).startswith(f"radar.cfg: {tmp_path / 'radar.cfg'}")


def test_what_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.cfg: No such file"):
        read_cfg(tmp_path / "none.cfg", "AWR1843", "radar.cfg")
    with pytest.raises(ConfigError, match="the commands of a AWRL6844 are not read"):
        read(tmp_path, VISUALIZER, "AWRL6844")
