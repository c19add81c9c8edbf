"""A sensor that is silent, hangs, or lies about time: the others record, and nothing is silent.

What goes wrong in the same span of time goes wrong in one session, for several sensors at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.recording import foreground
from recorder.recording.foreground import Foreground
from recorder.recording.supervisor import supervisor
from tests.acceptance.command import Ran, assert_sound, column, here, relative_ns, write_config
from tests.support.events import events

MOODY = '''
"""A sensor that fails as it is told to."""

import os
import signal
import sys
import time

import numpy as np

from drivers.kit.driver import Driver, EndOfSource, Sample
from drivers.kit.runner import main
from recorder.common.errors import ConfigError, SourceError
from recorder.config.options import Option
from recorder.codecs.streams import ChannelSpec, StreamSpec

S = 1_000_000_000


class MoodyDriver(Driver):
    """Counts at 100 Hz."""

    options = {
        "mood": Option("str", "good", "what goes wrong"),
        "samples": Option("int", 1_000_000, "how many there are"),
    }
    schemes = {"sim": "a counter", "live": "the same as a device"}
    live_schemes = frozenset({"live"})

    def open(self):
        self._k = 0
        match self.sensor.options["mood"]:
            case "raises":
                raise RuntimeError("no mood for that")
            case "exits":
                os._exit(7)
            case "hangs in open":
                signal.pause()
            case "opens slowly":  # once the other has come to its end
                while not os.path.exists(self.sensor.address):
                    time.sleep(0.01)
            case "is no source":
                raise SourceError(f"{self.sensor.name}: not what it should be")
            case "has a bad option":
                raise ConfigError("is odd", key=f"{self.sensor.name}.samples")
        channel = ChannelSpec("value", "raw", "u4", (1,), "a counter", "1")
        return [StreamSpec(self.sensor.name, (channel,), rate_hz=100.0, finite=True)]

    def read(self):
        mood, k = self.sensor.options["mood"], self._k
        if k >= self.sensor.options["samples"]:
            raise EndOfSource
        if mood == "hangs" and k == 20:
            if self.sensor.address:
                open(self.sensor.address, "w").close()
            while True:
                signal.pause()
        if mood == "falls silent" and k == 20 or mood == "never starts":
            time.sleep(0.01)
            return None
        self._k += 1
        t_ns = k * 10_000_000
        if mood == "steps back" and k >= 9:
            t_ns -= 3600 * S
        if mood == "jumps ahead" and k == 9:
            t_ns += 3600 * S
        if mood == "is slow":
            t_ns *= 5
        if not self.played:
            time.sleep(0.05 if mood == "is slow" else 0.01)
            base = time.monotonic_ns()
            t_ns = base
            if mood == "steps back" and k >= 90:
                t_ns -= 3600 * S
            if mood == "jumps ahead" and k == 90:
                t_ns += 3600 * S
            if mood == "counts from zero":
                t_ns = k * 10_000_000
        width = 2 if mood == "changes shape" and k >= 30 else 1
        value = np.full((1, width), k, np.uint32)
        return Sample(self.sensor.name, np.array([t_ns]), {"value": value})

    def close(self):
        if self.sensor.options["mood"] == "closes slowly":
            time.sleep(0.5)  # as long as it takes to stop a device
            print("is closed", file=sys.stderr)


if __name__ == "__main__":
    main(MoodyDriver)
'''

IMU = 'imu: {driver: xsens, source: "sim:", rate: 100, pace: max}'


def moody(name: str, mood: str, source: str = "sim:", **more: Any) -> str:
    entry = {"driver": "unsteady.moody", "source": source, "mood": mood, **more}
    return f"{name}: {json.dumps(entry)}"


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = folder / "root/s"

    def run(self, *sensors: str, duration_s: float | None = None, format: str = "json") -> Ran:
        config = write_config(self.folder / "c.yaml", "\n".join(sensors))
        duration = [] if duration_s is None else ["--duration", duration_s]
        where = ("--root", self.folder / "root", "--name", "s")
        return here("run", config, *where, *duration, "--format", format)

    def intervals(self, stream: str) -> list[dict[str, Any]]:
        info = here("info", self.session, "--format", "json")
        assert info.code == 0, info.err
        intervals: list[dict[str, Any]] = info.result["streams"][stream]["lost_intervals"]
        return intervals

    def events(self, kind: str, **values: object) -> list[dict[str, Any]]:
        return events(self.session, type=kind, **values)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    package = tmp_path / "unsteady"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "moody.py").write_text(MOODY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Bench(tmp_path)


@pytest.mark.campaign
def test_drivers_that_fail_in_open_stop_nobody_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settled(
        recording: Foreground,
    ) -> bool:  # as after 30 s: tests/recording/daemon/test_foreground.py
        return all(s.settled for name, s in recording.sensors.items() if name != "hangs")

    monkeypatch.setattr(Foreground, "settled", property(settled))
    ran = bench.run(moody("raises", "raises"), moody("hangs", "hangs in open"), IMU, duration_s=1)
    assert ran.code == 3, ran.err
    streams = ran.result["streams"]
    assert (streams["imu"]["samples"], streams["imu"]["lost"]) == (100, {})
    for name, said in {
        "raises": "raises: the driver failed: RuntimeError: no mood for that",
        "hangs": "hangs: did not open within 30 s",
    }.items():
        assert said in ran.result["faults"]
        reported = {event["detail"] for event in bench.events("fault", stream=name)}
        assert reported == {said}  # `info` shows the reason, however often the driver failed
        assert (streams[name]["samples"], streams[name]["unknown_losses"]) == (0, 1)
        assert [i["cause"] for i in bench.intervals(name)] == ["absent"]
    assert_sound(bench.session)


def test_what_drivers_refuse_is_one_error_and_the_other_devices_are_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreground, "_FAULTS_S", foreground._ARM_S)  # all of them are waited for
    bad = moody("one", "is no source"), moody("two", "has a bad option", samples=5)
    ran = bench.run(*bad, moody("slow", "closes slowly", "live:"), duration_s=1)
    file = bench.folder / "c.yaml"
    assert (ran.code, ran.out) == (2, "")
    assert [line for line in ran.err if line.startswith("recorder run: ")] == [
        f"recorder run: {file}:4: sensors.one.source: not what it should be",
        f"recorder run: {file}:5: sensors.two.samples: is odd",
    ]
    assert any("slow" in line and "is closed" in line for line in ran.err), ran.err
    assert not (bench.folder / "root").exists() or not list((bench.folder / "root").iterdir())


@pytest.mark.campaign(weight=5)
def test_reads_that_hang_are_intervals_and_the_duration_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_END_S", 0.5)  # until what hangs is killed
    bad = moody("played", "hangs"), moody("live", "hangs", "live:")
    ran = bench.run(*bad, IMU, duration_s=3)
    assert ran.code == 3, ran.err
    streams = ran.result["streams"]
    assert (streams["imu"]["samples"], streams["imu"]["lost"]) == (300, {})
    for name in ("played", "live"):
        samples = streams[name]["samples"]
        # On a busy machine a device's may all have come before the session began.
        assert samples <= 20 and (samples or name == "live")
        (interval,) = bench.intervals(name)
        gap_ns = 3e9 - (relative_ns(bench.session, name)[-1] if samples else 0)
        assert interval["cause"] == "hung" and abs(interval["duration_ns"] - gap_ns) < 0.1e9
        assert abs(interval["estimate"] - gap_ns / 1e7) < 11
    said = "its driver hangs: it returns no data"
    assert sorted(ran.result["faults"]) == [f"live: {said}", f"played: {said}"]
    assert ran.result["duration_s"] < 30  # what hangs was waited for so long
    assert_sound(bench.session)


@pytest.mark.campaign(weight=5)
def test_a_device_that_hangs_before_the_session_is_lost_from_its_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_END_S", 0.5)
    hangs = bench.folder / "hangs"
    slow = moody("slow", "opens slowly", f"sim:{hangs}")
    ran = bench.run(slow, moody("live", "hangs", f"live:{hangs}"), duration_s=2)
    assert ran.code == 3, ran.err
    live = ran.result["streams"]["live"]
    (interval,) = bench.intervals("live")
    assert (live["samples"], interval["cause"], interval["duration_ns"]) == (0, "hung", 2 * 10**9)
    assert abs(interval["estimate"] - 200) <= 1
    assert ran.result["faults"] == ["live: its driver hangs: it returns no data"]


def test_samples_of_another_shape_are_counted_and_disturb_no_other_stream(bench: Bench) -> None:
    shifty = moody("shifty", "changes shape", pace="max")
    ran = bench.run(shifty, IMU, duration_s=1)
    fault = "shifty/value: 1 x u4 [2] came where 1 x u4 [1] was declared"
    assert (ran.code, ran.result["faults"]) == (3, [fault])
    told = [line for line in ran.complaints if line != fault]
    assert len(told) < len(ran.complaints) and all("shifty: lost" in line for line in told)
    streams = ran.result["streams"]
    assert (streams["shifty"]["samples"], streams["shifty"]["ended"]) == (30, "changed")
    assert (streams["imu"]["samples"], streams["imu"]["ended"]) == (100, "duration")
    assert column(bench.session, "shifty", "value")[:, 0].tolist() == list(range(30))
    assert_sound(bench.session)
    reported = [e for e in events(bench.session, stream="shifty") if e["type"] != "rate"]
    assert {e["type"] for e in reported} == {"fault", "lost"} and fault in json.dumps(reported)
    assert streams["shifty"]["lost"] == {"changed": 70}


@pytest.mark.parametrize("duration_s", [None, pytest.param(1, marks=pytest.mark.campaign)])
def test_stamps_that_step_back_or_lie_far_ahead_are_placed_or_counted(
    bench: Bench, duration_s: float | None
) -> None:
    moods = {"back": "steps back", "ahead": "jumps ahead"}
    bad = [moody(name, mood, samples=50) for name, mood in moods.items()]
    ran = bench.run(*bad, duration_s=duration_s)
    assert ran.code == 3, ran.err
    accounts = here("validate", bench.session, "--format", "json").result["accounts"]
    sent = {each["stream"]: (each["sent"], each["lost"]) for each in accounts}
    assert sent == {"back": (50, {}), "ahead": (50, {"time": 1})}
    for name, lost in {"back": 0, "ahead": 1}.items():
        stream = ran.result["streams"][name]
        assert stream["samples"] == 50 - lost and sum(stream["lost"].values()) == lost
        values = column(bench.session, name, "value")[:, 0].tolist()
        assert values == [k for k in range(50) if not (lost and k == 9)]
        steps = bench.events("time", stream=name)
        assert [event["cause"] for event in steps] == (["step"] if not lost else [])
    assert_sound(bench.session)
    (fault,) = [fault for fault in ran.result["faults"] if fault.startswith("back: ")]
    assert fault == "back: its stamps step by -3600.000 s; stored without the step"


@pytest.mark.campaign(weight=4)
def test_devices_whose_stamps_step_or_jump_lose_one_sample(bench: Bench) -> None:
    moods = {"back": "steps back", "ahead": "jumps ahead", "zero": "counts from zero"}
    ran = bench.run(*(moody(n, mood, "live:") for n, mood in moods.items()), duration_s=2)
    assert ran.code == 3, ran.err
    for name in moods:
        values = column(bench.session, name, "value")[:, 0].astype(int).tolist()
        missing = sorted({*range(values[0], values[-1] + 1)} - {*values})
        assert missing == ([90] if name != "zero" else [])
        assert ran.result["streams"][name]["lost"] == ({"time": 1} if missing else {})
        assert bool(bench.events("time", stream=name)) == (name != "ahead")
    assert_sound(bench.session)


@pytest.mark.campaign(weight=8)
def test_streams_that_fall_silent_or_below_their_floor_are_intervals(bench: Bench) -> None:
    moods = {"silent": "falls silent", "never": "never starts", "slow": "is slow"}
    sources = {"played": "sim:", "live": "live:"}
    bad = [
        moody(f"{name}_{kind}", mood, source)
        for name, mood in moods.items()
        for kind, source in sources.items()
    ]
    ran = bench.run(*bad, duration_s=5)
    assert ran.code == 3, ran.err
    for stream in ran.result["streams"]:
        (interval,) = bench.intervals(stream)
        # A played source that is asked for more, and gives nothing, is silent, too.
        assert interval["cause"] == ("rate" if "slow" in stream else "silent"), stream
        assert interval["duration_ns"] > 3.5e9 and interval["estimate"] > 250, stream
    assert len(ran.result["streams"]) == 6
    assert ran.result["duration_s"] < 9.0
    assert_sound(bench.session)


@pytest.mark.campaign(weight=3)
def test_the_result_for_people_says_what_is_missing_and_why_it_ended(bench: Bench) -> None:
    ran = bench.run(moody("bad", "exits"), IMU, duration_s=1, format="text")
    lines = ran.out.splitlines()
    assert ran.code == 3, ran.err
    (row,) = [line.split() for line in lines if line.startswith("bad")]
    assert row == ["bad", "0", "0", "B", "1", "uncounted", "absent"]
    assert "ended     at its duration" in lines
    assert "fault: bad: driver ended with code 7" in lines
    assert lines[-1] == f"session {bench.session}"
    shown = here("info", bench.session).out.splitlines()
    assert "ended     at its duration" in shown
    assert any(line.startswith("fault ") and "ended with code 7" in line for line in shown)
