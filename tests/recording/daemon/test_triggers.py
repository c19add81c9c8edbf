"""Triggers beside a recording: the marks are what the recorded parts give afterwards."""

from __future__ import annotations

import pytest

from recorder.config.settings import TriggerSettings
from recorder.recording.triggers.evaluation import Evaluation, Fired
from recorder.session.reader import Session
from tests.recording.daemon.served import Served
from tests.support.waiting import wait_until

WHEN = "imu.avel[0] > 0"
CONFIG = f"""
version: 1
session: {{root: sessions, name: drive, split: {{minutes: 0.1}}}}
sensors:
  imu: {{driver: xsens, source: "sim:"}}
storage: {{min_free_gb: 0}}
record_format: {{enabled: false}}
triggers:
  up: {{when: "{WHEN}", until: "imu.avel[0] < 0", cooldown: 0.5}}
  odd: {{when: "imu.speed > 1"}}
"""


def marks(served: Served) -> list[str]:
    found = []
    for path in sorted(served.root.glob("drive_p*")):
        with Session(path) as session:
            found += [str(e["text"]) for e in session.events() if e["type"] == "mark"]
    return found


def expected(served: Served) -> list[str]:
    fired: list[Fired] = []
    evaluation = None
    for path in sorted(served.root.glob("drive_p*")):
        settings = TriggerSettings("up", WHEN, "imu.avel[0] < 0", cooldown=0.5)
        evaluation = Evaluation(path, [settings], evaluation)
        fired += evaluation.read()
    return [f"trigger up: imu.avel[0] {one.values['imu.avel[0]']:.6g}" for one in fired]


@pytest.mark.campaign(weight=12)
def test_marks_of_a_live_recording_are_those_of_the_recorded_parts(served: Served) -> None:
    served.start()
    served.request("start")
    wait_until("marks", lambda: len(marks(served)) >= 2)
    status = served.status()["triggers"]
    assert status["fault"] is None and status["pid"] > 0
    wait_until("the second part", lambda: (served.root / "drive_p002").exists())
    before = len(marks(served))
    wait_until("marks in it", lambda: len(marks(served)) > before + 2)
    wait_until("the fault", lambda: "odd: imu.speed: imu has only the channels" in served.log)
    # The triggers give way to everything: on a busy machine they are behind what is committed.
    committed = len(expected(served))
    wait_until("marks of all that was committed", lambda: len(marks(served)) >= committed)
    served.request("stop")
    assert served.terminate() == 0, served.log
    made = marks(served)
    assert made == expected(served)[: len(made)]
