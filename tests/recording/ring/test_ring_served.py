"""A daemon with a ring: what events ask for is kept, the rest goes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from recorder.session.discovery import find_sessions
from recorder.session.event_clips import KeptEvent, read_index
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.recording.daemon.served import Served
from tests.support.waiting import wait_until

CONFIG = """
version: 1
session: {root: sessions, name: drive}
sensors:
  imu: {driver: xsens, source: "sim:"}
storage: {min_free_gb: 0}
record_format: {enabled: false}
ring: {seconds: 1, gb: 1, part: 5}
triggers:
  up: {when: "imu.avel[0] > 0", until: "imu.avel[0] < 0", before: 0.5, after: 0.5, cooldown: 3600}
"""


def events(served: Served) -> dict[str, KeptEvent]:
    return {event.text: event for event in read_index(served.root)}


def names(served: Served) -> set[str]:
    return {path.name for path in find_sessions(served.root)}


def stored_ns(served: Served, event: KeptEvent) -> list[int]:
    """The stamps of an event's samples in its window."""
    times: list[int] = []
    for part in event.parts:
        with Session(served.root / part) as session:
            times += map(int, session.stream("imu").times())
    return [t_ns for t_ns in times if event.from_ns <= t_ns <= event.until_ns]


@pytest.mark.campaign(weight=15)
def test_events_are_kept_and_the_rest_goes(served: Served) -> None:
    served.start()  # nobody asks for a recording: a ring records all the time
    wait_until("the second part", lambda: (served.root / "drive_p002").exists())
    reply = served.request("mark", text="Pothole", keep="2:1")
    assert reply["event"]["state"] == "open" and reply["event"]["parts"]
    wait_until("it is kept", lambda: events(served)["Pothole"].state == "kept")
    kept = events(served)["Pothole"]
    assert kept.id.endswith("_pothole") and kept.until_ns - kept.from_ns == 3_000_000_000
    times = stored_ns(served, kept)
    assert len(times) == pytest.approx(300, abs=2)  # 100 Hz
    fired = wait_until(
        "a trigger's event", lambda: [e for e in events(served).values() if e.trigger == "up"]
    )
    assert len(fired) == 1
    wait_until("old parts go", lambda: len(names(served)) < int(max(names(served))[-3:]) - 1)
    wait_until("it is settled", lambda: events(served)[fired[0].text].state != "open")
    served.request("stop")
    wanted = {part for event in events(served).values() for part in event.parts}
    assert wanted <= names(served)
    assert served.terminate() == 0, served.log
    for name in wanted:
        assert validate(served.root / name, deep=True).sound
    # What nothing asks for gets no work after the session.
    for name in names(served):
        assert (served.root / name / "checksums.csv").exists() <= (name in wanted)


@pytest.mark.campaign(weight=11)
def test_a_restart_goes_on_with_what_was_open(served: Served) -> None:
    served.start()
    wait_until("it records", lambda: served.samples("imu") > 50)
    served.request("mark", text="long", keep="60:6")
    served.kill()
    served.start()
    wait_until("it is settled", lambda: events(served)["long"].state == "short")
    long = events(served)["long"]
    causes = [(one.cause, one.stream) for one in long.shortfalls]
    assert ("power", None) in causes and causes[0] == ("start", None), long.shortfalls
    stored = stored_ns(served, long)
    assert stored
    # Between what is stored and what is listed, there is nothing.
    covered = sorted([(t, t) for t in stored] + [(s.from_ns, s.until_ns) for s in long.shortfalls])
    reach = long.from_ns
    for low, high in covered:
        assert low - reach < 50_000_000
        reach = max(reach, high)
    assert long.until_ns - reach < 50_000_000


@pytest.fixture
def in_ram(tmp_path: Path) -> Iterator[Served]:
    # The folder stands for a tmpfs: what counts is that it is another folder.
    ring = f"ring: {{seconds: 2, gb: 1, part: 5, medium: ram, folder: {tmp_path}/ram}}"
    daemon = Served(tmp_path, CONFIG[: CONFIG.index("ring:")] + ring)
    yield daemon
    daemon.close()


@pytest.mark.campaign(weight=17)
def test_what_an_event_needs_moves_from_ram_to_the_disk(in_ram: Served) -> None:
    in_ram.start()
    ram = in_ram.folder / "ram"
    wait_until("the second part", lambda: (ram / "drive_p002").exists())
    assert names(in_ram) == set()  # nothing is on the disk before an event
    in_ram.request("mark", text="hole", keep="2:1")
    wait_until("it is kept", lambda: events(in_ram)["hole"].state == "kept")
    kept = events(in_ram)["hole"]
    times = stored_ns(in_ram, kept)
    assert len(times) == pytest.approx(300, abs=2)
    assert max(b - a for a, b in pairwise(times)) < 15_000_000
    last = max(kept.parts)
    wait_until("it goes on in RAM", lambda: any(p.name > last for p in find_sessions(ram)))
    assert not {path.name for path in find_sessions(ram)} & names(in_ram)
    in_ram.request("mark", text="long", keep="1:30")
    wait_until("a part on disk", lambda: names(in_ram) - set(kept.parts))
    in_ram.request("stop")
    assert in_ram.terminate() == 0, in_ram.log
    for name in names(in_ram):
        assert validate(in_ram.root / name, deep=True).sound


@pytest.mark.campaign(weight=10)
def test_a_power_cut_loses_ram_and_says_so(in_ram: Served) -> None:
    in_ram.start()
    ram = in_ram.folder / "ram"
    wait_until("it records", lambda: in_ram.samples("imu") > 100)
    in_ram.request("mark", text="crash", keep="20:4")
    assert events(in_ram)["crash"].state == "open"  # the event itself is on the disk at once
    in_ram.kill()
    shutil.rmtree(ram)
    in_ram.start()
    wait_until("it is settled", lambda: events(in_ram)["crash"].state == "short")
    crash = events(in_ram)["crash"]
    assert {s.cause for s in crash.shortfalls} & {"power", "start"}
    assert crash.shortfalls[0].from_ns == crash.from_ns
