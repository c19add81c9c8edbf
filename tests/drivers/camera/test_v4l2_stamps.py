"""What the stamps of V4L2 cameras mean, and how they become the end of the exposure."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest

from drivers.camera.pictures import LiveCamera, Missing, Note, Shot
from drivers.camera.v4l2 import abi
from drivers.camera.v4l2.camera import Timing
from drivers.kit.driver import Sample, State
from tests.drivers.camera.rig import driver, take
from tests.drivers.camera.v4l2_kernel import (
    DEVICE,
    JPEGS,
    MONOTONIC,
    FakeDevice,
    Frame,
    camera,
    exposure_controls,
)
from tests.support.devices import opened, streaming

EXPOSURE = MONOTONIC | abi.BUF_SOURCE_EXPOSURE
HARDWARE_STAMPS = "/sys/module/uvcvideo/parameters/hwtimestamps"
MS = 1_000_000
AGE_NS = 35 * MS  # of a stamp when its buffer is dequeued


def device(flags: int = EXPOSURE, offset_ns: int = -AGE_NS, count: int = 2) -> FakeDevice:
    """A camera, not of USB, whose stamps are that far from the dequeuing, 40 ms apart."""
    made = FakeDevice(*(Frame(data, flags=flags) for data in JPEGS[:count]))
    for k, frame in enumerate(made.frames):
        frame.after_ms = 40
        frame.t_ns = made.now_ns + (k + 1) * 40 * MS + offset_ns
    made.driver = b"rkisp1"
    return made


def recorded(made: FakeDevice, **more: Any) -> tuple[dict[str, Any], list[Shot | Note], list[int]]:
    """The state at the start, what comes after it, and its times after the kernel's stamps."""
    stamps = [frame.t_ns or 0 for frame in made.frames]
    with opened(camera(made, **more)) as front:
        (state, *events) = front.read(0.2)
        while came := front.read(0.2):
            events += came
    assert isinstance(state, Note)
    shots = [event.t_ns for event in events if isinstance(event, Shot)]
    return state.values, events, [t - s for t, s in zip(shots, stamps, strict=True)]


@pytest.mark.parametrize(
    ("flags", "offset_ns", "meaning"),
    [
        (MONOTONIC, -AGE_NS, "kernel, end of frame"),
        (EXPOSURE, -AGE_NS, "kernel, start of exposure"),
        (0, -AGE_NS, "arrival"),  # a clock that is not named
        (MONOTONIC, 1_700_000_000 * 10**9, "arrival"),  # one that lies
        (MONOTONIC, -70_000 * 10**9, "arrival"),
    ],
)
def test_the_meaning_of_stamps_is_recorded(flags: int, offset_ns: int, meaning: str) -> None:
    state, _, moved = recorded(device(flags, offset_ns))
    assert state["stamps"] == meaning
    assert "stamps_added_ms" not in state
    assert moved == [-offset_ns if meaning == "arrival" else 0] * 2


@pytest.mark.parametrize(
    ("parameter", "meaning"),
    [
        (None, "kernel, start of transfer"),
        ("0\n", "kernel, start of transfer"),
        ("1\n", "kernel, start of exposure"),
    ],
)
def test_usb_stamps_are_the_first_packets_without_hardware_stamps(
    parameter: str | None, meaning: str
) -> None:
    """uvcvideo flags all its stamps as the start of the exposure."""
    made = device()
    made.driver = b"uvcvideo"
    made.controls = exposure_controls(units=80)
    if parameter is not None:
        made.texts[HARDWARE_STAMPS] = parameter
    state, events, moved = recorded(made)
    assert state["stamps"] == meaning
    assert moved == [8 * MS if "exposure" in meaning else 0] * 2
    assert [event.exposure_us for event in events if isinstance(event, Shot)] == [8000, 8000]


@pytest.mark.parametrize(
    ("flags", "timing", "added", "moved_ms"),
    [
        (EXPOSURE, Timing(8.5, 11.0, 4.0), {"exposure": 8.5, "readout": 11.0}, 19.5),
        (EXPOSURE, Timing(None, 11.0, 4.0), {"readout": 11.0}, 11.0),
        (MONOTONIC, Timing(8.5, 11.0, 4.0), {"latency": -4.0}, -4.0),
        (MONOTONIC, Timing(8.5, 0.0, -3.0), {"latency": 3.0}, 3.0),
        (0, Timing(8.5, 11.0, 4.0), {"latency": -4.0}, 31.0),  # after the dequeuing's 35 ms
    ],
)
def test_known_times_move_stamps_to_the_end_of_the_exposure(
    flags: int, timing: Timing, added: dict[str, float], moved_ms: float
) -> None:
    made = device(flags)
    made.controls = exposure_controls(units=123) if timing.exposure_ms else []
    state, _, moved = recorded(made, timing=timing)
    assert state["stamps_added_ms"] == added
    assert moved == [round(moved_ms * MS)] * 2


def test_no_exposure_ends_after_its_picture_arrived() -> None:
    made = device()
    made.controls = exposure_controls(units=5000)  # half a second, at 25 Hz
    _, _, moved = recorded(made)
    assert moved == [AGE_NS] * 2


def test_a_manual_exposure_is_read_once() -> None:
    made = device(count=6)
    made.controls = exposure_controls(units=80)
    state, _, moved = recorded(made)
    assert state["stamps_added_ms"] == {"exposure": "channel exposure"}
    assert moved == [8 * MS] * 6
    assert made.calls[made.calls.index("STREAMON") :].count("G_CTRL") == 0


def test_an_automatic_exposure_is_read_with_the_pictures() -> None:
    made = device(count=5)
    made.controls = exposure_controls(automatic=True, units=80)

    def set_units(units: int) -> Any:
        return lambda device: setattr(device.controls[1], "value", units)

    def refuse_to_answer(device: FakeDevice) -> None:
        device.failing[abi.G_CTRL] = errno.EIO

    made.frames[1].then = set_units(90)
    made.frames[2].then = set_units(0)  # no time: the last one stays
    made.frames[3].then = set_units(70)
    made.frames[4].then = refuse_to_answer
    _, events, moved = recorded(made)
    assert moved == [8 * MS, 9 * MS, 9 * MS, 7 * MS, 7 * MS]
    shots = [event.exposure_us for event in events if isinstance(event, Shot)]
    assert shots == [8000, 9000, 9000, 7000, 7000]


def test_a_change_of_the_stamps_meaning_is_recorded() -> None:
    made = device(count=4)
    made.frames[2].flags = made.frames[3].flags = MONOTONIC
    state, events, moved = recorded(made, timing=Timing(5.0))
    assert state["stamps"] == "kernel, start of exposure"
    assert moved == [5 * MS, 5 * MS, 0, 0]
    notes = [event for event in events if isinstance(event, Note)]
    assert [note.values for note in notes] == [{"stamps": "kernel, end of frame"}]
    assert events.index(notes[0]) == 2


# In the driver


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    made = device(count=3)
    monkeypatch.setattr(abi, "LinuxKernel", lambda: made)
    return made


def test_reported_exposures_are_a_channel(on_device: FakeDevice) -> None:
    on_device.controls = exposure_controls(units=80)
    with streaming(driver(DEVICE, "v4l2", readout_ms=2.0)) as (front, spec):
        channels = [(c.name, c.format, c.dtype, c.shape, c.unit) for c in spec.channels]
        assert channels[1:] == [("exposure", "raw", "u4", (), "us")]
        assert spec.settings["readout_ms"] == 2.0
        assert "exposure_ms" not in spec.settings
        assert isinstance(take(front), State)
        sample = take(front)
        assert isinstance(sample, Sample)
        assert np.asarray(sample.data["exposure"]).tolist() == [8000]
        assert sample.data["video.avi"] == [JPEGS[0]]
        front.close()
        # The camera comes back, and no longer has the control: the channels are as declared.
        on_device.controls = []
        (again,) = front.open()
        assert again.channels == spec.channels
        take(front)
        sample = take(front)
        assert isinstance(sample, Sample)
        assert np.asarray(sample.data["exposure"]).tolist() == [0]


def test_a_stated_exposure_is_a_setting(on_device: FakeDevice) -> None:
    on_device.controls = exposure_controls(units=80)
    with streaming(driver(DEVICE, "v4l2", exposure_ms=5.0, latency_ms=1.0)) as (_, spec):
        assert [channel.name for channel in spec.channels] == ["video.avi"]
        assert (spec.settings["exposure_ms"], spec.settings["latency_ms"]) == (5.0, 1.0)


@pytest.mark.parametrize(("scheme", "made"), [("http", "HttpCamera"), ("rtsp", "RtspCamera")])
def test_latency_moves_stamps_of_arrival(
    scheme: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Arriving(LiveCamera):
        size, jpegs = (64, 48), True

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def open(self) -> None:
            self._events: list[Shot | Note] = [
                Note(100 * MS, {"a": 1}), Shot(100 * MS, JPEGS[0]), Shot(140 * MS, Missing("cut")),
            ]  # fmt: skip

        def read(self, timeout_s: float) -> list[Shot | Note]:
            return self._events

        def close(self) -> None:
            pass

    monkeypatch.setattr(f"drivers.camera.{scheme}.camera.{made}", Arriving)
    with streaming(driver("//cam/x", scheme, latency_ms=30.0, exposure_ms=8.0, readout_ms=2.0)) as (
        front,
        spec,
    ):
        assert [channel.name for channel in spec.channels] == ["video.avi"]
        times = {"exposure_ms": 8.0, "readout_ms": 2.0, "latency_ms": 30.0}
        assert spec.settings.items() >= times.items()
        assert [int(np.max(take(front).t_ns)) for _ in range(3)] == [70 * MS, 70 * MS, 110 * MS]


def test_the_simulated_cameras_times_are_settings() -> None:
    options: dict[str, Any] = {"width": 64, "height": 48, "exposure_ms": 4.0, "readout_ms": 10.0}
    with streaming(driver("", "sim", **options)) as (_, spec):
        assert (spec.settings["exposure_ms"], spec.settings["readout_ms"]) == (4.0, 10.0)
