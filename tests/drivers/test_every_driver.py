"""What holds for every driver of this project, on its simulated source."""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import drivers
from drivers.kit.driver import Driver, Sample, SensorConfig
from drivers.kit.encode import Encoder
from drivers.kit.runner import main
from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.options import CHIRP_OPTIONS
from recorder.bus.wire import Kind, Message, check_data
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError
from recorder.config.options import check_options

SMALL: dict[str, dict[str, Any]] = {
    "camera": {"width": 64, "height": 48},
    "can": {"rate": 1000.0},
    "gnss": {},
    "hesai": {"model": "PandarXT16"},
    "imu": {},
    "lidar": {"beams": 4, "columns": 90},
    "livox": {"rate": 50.0},
    "mmwave": {"radar": {"frame_length": 8, "adc_samples": 32}},
    "ouster": {"beams": 32, "mode": "512x10"},
    "robosense": {"model": "RS-16"},
    "topics": {},
    "udp": {"rate": 500.0},
    "velodyne": {"model": "VLP-16"},
    "xsens": {},
}
"""Options with which a driver's simulated sensor is cheap."""
SAMPLES = 6
FILES = ("file", "pcap", "osf")


def driver_class(name: str) -> type[Driver]:
    module = importlib.import_module(f"drivers.{name}.driver")
    kinds = [each for each in vars(module).values() if isinstance(each, type)]
    (found,) = (
        each for each in kinds if issubclass(each, Driver) and each.__module__ == module.__name__
    )
    return found


def make(name: str, scheme: str = "sim", address: str = "") -> Driver:
    kind, options = driver_class(name), SMALL[name]
    if scheme == "file" and name == "mmwave":  # a raw capture does not contain its own layout
        options = {"radar": {k: v for k, v in asdict(SIM_CHIRP).items() if k in CHIRP_OPTIONS}}
    return kind(SensorConfig("sensor", scheme, address, check_options(kind.options, options)))


def take(driver: Driver, count: int = SAMPLES) -> list[Sample]:
    samples: list[Sample] = []
    while len(samples) < count:
        if isinstance(item := driver.read(), Sample):
            samples.append(item)
    return samples


def encoded(spec: StreamSpec, sample: Sample) -> Message:
    encoder = Encoder(spec)
    frames, sizes = encoder.encode(sample)
    encoder.close()
    return Message(
        Kind.DATA, spec.name, count=sample.count, t_mono_ns=sample.t_ns,
        t_dev_ns=sample.t_dev_ns, sizes=sizes, frames=frames,
    )  # fmt: skip


def test_no_driver_is_missing_here() -> None:
    found = {module.name for module in pkgutil.iter_modules(drivers.__path__)}
    assert SMALL.keys() == {name for name in found if not name.startswith("_")} - {
        "kit",
        "sim",
        "world",
    }


@pytest.mark.parametrize("name", SMALL)
def test_its_schema_describes_options_and_sources(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(driver_class(name), ["schema"])
    schema = json.loads(capsys.readouterr().out)
    assert schema["name"] == name
    assert all(option["description"] for option in schema["options"].values())
    kind = driver_class(name)
    assert kind.live_schemes < kind.schemes.keys() and "sim" in kind.schemes
    assert all(kind.schemes.values())


@pytest.mark.parametrize("name", SMALL)
def test_its_samples_are_as_declared_and_in_order(name: str) -> None:
    driver = make(name)
    specs = {spec.name: spec for spec in driver.open()}
    suffixes = {"", *driver.stream_suffixes}
    named = {each.removeprefix("sensor") for each in specs}
    assert named <= suffixes or name == "topics"  # whose streams are named by topics
    last: dict[str, int] = {}
    for sample in take(driver):
        spec = specs[sample.stream]
        assert sample.t_ns.dtype == np.int64 and sample.t_ns.shape == (sample.count,)
        times = [last.get(sample.stream, -1), *sample.t_ns.tolist()]
        assert all(before < after for before, after in pairwise(times))
        last[sample.stream] = times[-1]
        check_data(encoded(spec, sample), spec)
    driver.close()


@pytest.mark.parametrize("name", SMALL)
def test_it_opens_again_and_gives_the_same(name: str) -> None:
    driver = make(name)
    runs = []
    for _ in range(2):
        specs = {spec.name: spec for spec in driver.open()}
        messages = [encoded(specs[sample.stream], sample) for sample in take(driver)]
        driver.close()
        driver.close()  # does no harm
        frames = [[bytes(frame) for frame in message.frames] for message in messages]
        runs.append((specs, frames, [np.asarray(m.t_mono_ns).tolist() for m in messages]))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("name", "scheme"),
    [(name, each) for name in SMALL for each in driver_class(name).schemes if each in FILES],
)
def test_a_file_that_is_missing_or_empty_is_named(name: str, scheme: str, tmp_path: Any) -> None:
    path = tmp_path / "recorded"
    with pytest.raises(SourceError, match=rf"{path}: (?i:no such file)"):
        make(name, scheme, str(path)).open()
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="recorded"):
        make(name, scheme, str(path)).open()
