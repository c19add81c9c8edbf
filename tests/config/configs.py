"""What the tests of the config share: drivers' schemas, a folder to refer to, small configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.common.errors import ConfigError
from recorder.config.driver_schema import DriverSchema
from recorder.config.loading import Config, load_config
from recorder.config.options import Option

SCHEMAS = {
    "camera": DriverSchema(
        "camera",
        options={
            "width": Option("int", 1280, minimum=1),
            "fps": Option("float", None),
            "mask": Option("path", None),
            "lens": Option("map", keys={"table": Option("path", None), "n": Option("int", 1)}),
            "overlays": Option("list", [], items="path"),
        },
        schemes={
            "sim": "simulated",
            "file": "a video",
            "mcap": "a recording",
            "bag": "a recording",
            "rtsp": "a stream",
            "v4l2": "a device",
        },
        live_schemes=frozenset({"rtsp", "v4l2"}),
    ),
    "ouster": DriverSchema(
        "ouster",
        options={"metadata": Option("path", None)},
        schemes={"sim": "simulated", "pcap": "a capture"},
        stream_suffixes=("_imu",),
    ),
    "my.radar": DriverSchema("my.radar", schemes={"sim": ""}),
    "greedy": DriverSchema("greedy", options={"loop": Option("int")}, schemes={"sim": ""}),
}


def schema_of(name: str) -> DriverSchema:
    if name not in SCHEMAS:
        raise ConfigError(f"no driver {name!r}")
    return SCHEMAS[name]


def load(folder: Path, text: str | bytes) -> Config:
    path = folder / "rig.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(path, schema_of)


def refusal(folder: Path, text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    assert caught.value.exit_code == 2
    assert str(folder / "rig.yaml") in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


SMALL = 'version: 1\nsensors:\n  cam: {driver: camera, source: "sim:"}\n'

SENSOR = "version: 1\nsensors:\n  cam:\n    driver: camera\n    source: "


@pytest.fixture
def rig(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    for name in ("clip.mp4", "mask.png", "calibration.yaml"):
        (folder / name).touch()
    for name in ("old", "keys"):
        (folder / name).mkdir()
    return folder
