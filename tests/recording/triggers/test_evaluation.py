"""Triggers over sessions: the same moments live and afterwards, sample by sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.cli import main
from recorder.common.errors import SessionError
from recorder.config.settings import TriggerSettings
from recorder.recording.clip import writing
from recorder.recording.clip.writing import write_clip
from recorder.recording.triggers.evaluation import Evaluation, Fired
from recorder.session.journal import journal as journals
from tests.recording.clip.cuts import part
from tests.session.build import START_NS, Builder, camera_spec, imu_spec

END_NS = START_NS + 4_900_000_000


def session(path: Path) -> Path:
    """An IMU whose ``acc[0]`` is the number of its sample, cut so that it has many commits."""
    builder = Builder(path / "source")
    n = 500
    acc = np.zeros((n, 3), "<f4")
    acc[:, 0] = np.arange(n)
    zeros = np.zeros((n, 3), "<f4")
    zeros[250:, 1] = np.nan
    builder.add(imu_spec(), count=n, data={"acc": acc, "avel": zeros, "rot": zeros})
    builder.add(camera_spec(), 4.0)
    builder.lose("camera", 120, 124, t_ns=START_NS + 4 * 10**9)
    log = [
        {"t_ns": START_NS + 10**9, "stream": "camera", "state": {"gain": {"x": 2}, "on": True}},
        {"t_ns": START_NS + 3 * 10**9, "stream": "camera", "state": {"gain": {"x": 5}}},
        {"t_ns": START_NS + 3 * 10**9, "stream": "camera", "state": {"gain": "odd"}},
    ]
    (builder.path / "_recorder/log.jsonl").write_text("".join(json.dumps(e) + "\n" for e in log))
    for t in (1.5, 2.5):
        builder.events.append(
            {"t_ns": START_NS + round(t * 1e9), "type": "fault", "stream": "imu", "cause": "odd"}
            | {"first_seq": None, "last_seq": None, "count": None, "duration_ns": None}
        )
    builder.close()
    return write_clip([builder.path], part(0, 60), path, "made").session


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return session(tmp_path_factory.mktemp("drive"))


def trigger(when: str, name: str = "t", **more: Any) -> TriggerSettings:
    return TriggerSettings(name, when, **more)


def seconds(fired: list[Fired]) -> list[float]:
    return [round((one.t_ns - START_NS) / 1e9, 2) for one in fired]


@pytest.mark.parametrize(
    ("when", "more", "expected"),
    [
        ("imu.acc[0] >= 100", {}, [1.0]),
        ("imu.acc[0] >= 100 and imu.acc[0] < 110 or imu.acc[0] == 300", {}, [1.0, 3.0]),
        ("imu.acc[0] >= 100", {"duration": 0.5}, [1.5]),
        ("abs(imu.acc[0] - 200) < 1.5", {"until": "imu.acc[0] > 1000"}, [1.99]),
        ("imu.avel[1] == 0", {}, [0.0]),
        ("imu.avel[1] != 0", {}, [2.5]),
        ("camera.state.gain.x > 3", {}, [3.0]),
        ("camera.state.on", {}, [1.0]),
        ("camera.state.none > 0", {}, []),
        ("imu.events.fault >= 2", {}, [2.5]),
        ("imu.events.odd >= 1", {}, [1.5]),
        ("session.events.end >= 2", {}, []),
        ("nothing.rate > 0", {}, []),
    ],
)
def test_moments(drive: Path, when: str, more: dict[str, Any], expected: list[float]) -> None:
    evaluation = Evaluation(drive, [trigger(when, **more)])
    assert seconds(list(evaluation.read())) == expected
    assert evaluation.closed and not evaluation.problems
    assert list(evaluation.read()) == []


def test_rates_and_losses_are_those_of_commits(drive: Path) -> None:
    found = list(Evaluation(drive, [trigger("95 <= imu.rate <= 105", "rate")]).read())
    assert 1.0 <= seconds(found)[0] <= 2.1
    silent = list(Evaluation(drive, [trigger("camera.rate < 5")]).read())
    assert 4.8 <= seconds(silent)[0] <= 5.1
    lost = list(Evaluation(drive, [trigger("camera.lost >= 5 and camera.uncounted == 0")]).read())
    assert 4.0 <= seconds(lost)[0] <= 5.1
    assert lost[0].values == {"camera.lost": 5.0, "camera.uncounted": 0.0}


def test_no_more_than_a_second_of_stamps_is_held(drive: Path) -> None:
    """A recording of days is evaluated in a fixed memory, whatever the conditions name."""
    for when in ("imu.acc[0] < 0", "imu.rate > 1000", "imu.acc[0] < 0 and imu.rate > 1000"):
        evaluation = Evaluation(drive, [trigger(when)])
        assert not list(evaluation.read())
        assert len(evaluation._watched["imu"].recent_ns) <= 100


def test_a_session_that_grows_gives_the_same(
    drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is read in pieces that end anywhere, as a follower finds it."""
    triggers = [
        trigger("imu.acc[0] - 7 * imu.state.none < 0 or imu.acc[0] / 50 == 3", "a"),
        trigger("imu.rate > 90 and camera.rate > 20", "b"),
        trigger("camera.state.gain.x > 1 and imu.acc[0] > 250", "c", duration=0.3),
        trigger("imu.events.fault == 1", "d"),
    ]
    expected = list(Evaluation(drive, triggers).read())
    assert {one.trigger for one in expected} == {"a", "b", "c", "d"}
    data = (drive / "_recorder/commits").read_bytes()
    growing = tmp_path / "commits"
    evaluation = Evaluation(drive, triggers)
    monkeypatch.setattr(evaluation._journal, "_path", growing)
    found: list[Fired] = []
    for end in range(0, len(data) + 997, 997):
        growing.write_bytes(data[:end])
        found += evaluation.read()
    assert found == expected
    assert journals.JournalFollower is type(evaluation._journal)


def test_samples_of_several_streams_come_in_order_of_time(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "source")
    acc = np.zeros((300, 3), "<f4")
    acc[:, 0] = np.arange(300)
    for name, offset_ns in (("late", 5_000_000), ("early", 0)):
        data = {"acc": acc, "avel": np.zeros_like(acc), "rot": np.zeros_like(acc)}
        builder.add(imu_spec(name), count=300, data=data, offset_ns=offset_ns)
    made = write_clip([builder.close()], part(0, 60), tmp_path).session
    ahead = "early.acc[0] - late.acc[0]"
    triggers = [trigger(f"{ahead} > 1.5 or {ahead} < -0.5", "odd"), trigger(f"{ahead} == 1", "one")]
    fired = [one.trigger for one in Evaluation(made, triggers).read()]
    assert fired == ["one"] * 299


def test_the_state_goes_on_in_the_next_part(
    drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_COMMIT_NS", 10**8)
    parts = [write_clip([drive], part(*span), tmp_path).session for span in ((0, 2.3), (2.3, 9))]
    triggers = [
        trigger("imu.acc[0] >= 200", "held", duration=0.6),
        trigger("imu.acc[0] >= 100", "once"),
        trigger("imu.rate > 90", "rate"),
        trigger("imu.rate < 60", "slow"),
    ]
    expected = [(one.trigger, one.t_ns) for one in Evaluation(drive, triggers).read()]
    evaluation: Evaluation | None = None
    found: list[Fired] = []
    for each in parts:
        evaluation = Evaluation(each, triggers, evaluation)
        found += evaluation.read()
    timed = ("held", "once")
    held = [(one.trigger, one.t_ns) for one in found if one.trigger in timed]
    assert held == [one for one in expected if one[0] in timed]
    others = [one.trigger for one in found if one.trigger not in timed and one.t_ns < END_NS]
    assert others == ["rate"]


def test_what_a_stream_does_not_have_leaves_its_trigger_out(drive: Path) -> None:
    evaluation = Evaluation(
        drive,
        [
            trigger("imu.acc[3] > 0", "far"),
            trigger("imu.acc > 0", "bare"),
            trigger("imu.speed > 0", "unknown"),
            trigger("imu.acc[0] > 100", "good"),
        ],
    )
    assert [one.trigger for one in evaluation.read()] == ["good"]
    assert evaluation.problems == {
        "far": "imu.acc[3]: 3 is beyond the axis of 3",
        "bare": "imu.acc: needs an index for each axis of [3]",
        "unknown": "imu.speed: imu has only the channels acc, avel, rot",
    }


def test_a_file_that_is_shorter_than_committed_is_named(tmp_path: Path) -> None:
    made = session(tmp_path)
    (made / "imu/acc").write_bytes(b"")
    with pytest.raises(SessionError, match=r"imu/acc: ends before sample"):
        list(Evaluation(made, [trigger("imu.acc[0] > 0")]).read())


CONFIG = """
version: 1
sensors:
  imu: {driver: xsens, source: "sim:"}
triggers:
  hundred: {when: "imu.acc[0] >= 100", before: 3, after: 2}
  often: {when: "imu.acc[0] / 100 == 1 or imu.acc[0] / 101 == 1", until: "True", cooldown: 5}
"""


def test_the_command(drive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(CONFIG)
    assert main(["events", str(drive), "--triggers", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["made", "hundred", "1.001", "3:2", "imu.acc[0]", "100"]
    assert lines[-1] == "often: its cooldown held it back 1 times"
    assert main(["events", str(drive), "--triggers", str(config), "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [event["trigger"] for event in made["events"]] == ["hundred", "often"]
    assert made["events"][0]["values"] == {"imu.acc[0]": 100.0}
    config.write_text(CONFIG.replace("acc[0] >=", "none >="))
    assert main(["events", str(drive), "--triggers", str(config)]) == 1
    assert "hundred: imu.none: imu has only the channels" in capsys.readouterr().err


def test_streams_that_no_session_has_are_named(
    drive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(
        CONFIG
        + '  a: {when: "gps.pos[0] > 0 and imu.lost > 0"}\n'
        + '  b: {when: "cam.rate < 1", until: "gps.lost"}\n'
        + "  c: {when: session.events.mark > 3}\n"
    )
    assert main(["events", str(drive), "--triggers", str(config)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "recorder events: a: no stream gps in what was read",
        "recorder events: b: no stream cam in what was read",
        "recorder events: b: no stream gps in what was read",
    ]
    imu = write_clip([drive], part(0, 1, "imu"), tmp_path, "imu").session
    config.write_text(CONFIG + "  a: {when: camera.rate > 100}\n")
    for sessions, said in (([imu], True), ([imu, drive], False)):
        assert main(["events", *map(str, sessions), "--triggers", str(config)]) == 0
        assert ("a: no stream camera" in capsys.readouterr().err) == said


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x: {when: 'imu.acc[0] ** 2'}", "triggers.x.when: column 1: of operators there are only"),
        ("x: {when: 'imu.rate > 1', until: '('}", "triggers.x.until: column 1: no expression"),
        ("x: {before: 1}", "triggers.x.when"),
        ("x: {when: 'True', before: -1}", "triggers.x.before"),
        ("x: {when: 'True', befor: 1}", "befor"),
        ("x: {when: 'True', before: 86401}", "triggers.x.before"),
        ("x: {when: 'True', after: 86401}", "triggers.x.after"),
        ("X-1: {when: 'True'}", "triggers.X-1: a trigger's name"),
        ("x: now", "triggers.x: needs a mapping with the key 'when'"),
    ],
)
def test_a_wrong_config_names_its_place(
    drive: Path, tmp_path: Path, entry: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(CONFIG.split("  hundred")[0] + f"  {entry}\n")
    assert main(["events", str(drive), "--triggers", str(config)]) == 2
    error = capsys.readouterr().err
    assert f"{config}:6: " in error and message in error


def test_a_config_without_triggers(
    drive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(CONFIG.split("triggers:")[0])
    assert main(["events", str(drive), "--triggers", str(config)]) == 2
    assert "has no triggers" in capsys.readouterr().err
