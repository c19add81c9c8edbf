"""The verdict: each broken contract with its place and amount."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorder.common.errors import SessionError
from recorder.session.events import make_event
from recorder.session.lock import lock_is_held
from recorder.session.verdict import FAIL, PASS, Reason, Verdict
from recorder.viewers.report.session_scan import scan_session, verdict
from tests.session.build import START_NS, Builder, camera_spec, full_session, imu_session

S = 1_000_000_000


def judge(path: Path) -> Verdict:
    return verdict(scan_session(path))


def reasons(path: Path) -> dict[tuple[str, str], str]:
    return {(r.what, r.where): r.how_much for r in judge(path).reasons}


@pytest.mark.parametrize("plain", [False, True])
def test_a_clean_session_passes(tmp_path: Path, plain: bool) -> None:
    judged = judge(full_session(tmp_path / "rig", plain=plain).path)
    assert judged.reasons == [] and judged.passed and judged.word == PASS == judged.text


def test_losses_are_told_by_stream_and_cause(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", seq=[*range(50), *range(60, 150), *range(155, 200)])
    builder.add(camera_spec(), 2.0)
    builder.lose("imu", 50, 59, "refused")
    builder.lose("imu", 150, 154, "corrupt", t_ns=START_NS + S)
    builder.lose("camera", 60, None, "driver", count=None, duration_ns=S // 2, estimate=15)
    judged = judge(builder.close())
    found = {(r.what, r.where, r.how_much.partition(";")[0]) for r in judged.reasons}
    assert found == {
        ("samples lost", "imu", "10 of 200 (5 %)"),
        ("samples lost", "imu", "5 of 200 (2.5 %)"),
        ("uncounted loss", "camera", "1 interval, 500 ms, about 15 samples"),
    }
    assert judged.word == FAIL and judged.text.startswith("FAIL: uncounted loss (camera)")


def test_numbers_that_are_missing_without_an_event_are_a_loss(tmp_path: Path) -> None:
    found = reasons(imu_session(tmp_path / "rig", seq=[*range(50), *range(60, 100)]).close())
    assert found["samples lost", "imu"].startswith("10 of 100 (10 %); unknown")


@pytest.mark.parametrize(
    ("cause", "what"),
    [("absent", "sensor absent"), ("silent", "sensor silent"), ("rate", "below the minimum rate")],
)
def test_sensors_that_gave_too_little(tmp_path: Path, cause: str, what: str) -> None:
    builder = imu_session(tmp_path / "rig", 1.0)
    builder.lose("imu", 100, None, cause, count=None, duration_ns=3 * S)
    assert reasons(builder.close())[what, "imu"] == "1 interval, 3.0 s"


def test_an_absent_sensor_without_an_event(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", 1.0)
    builder.sensors["camera"] = {"driver": "camera", "streams": []}
    assert ("sensor absent", "camera") in reasons(builder.close())


def test_a_mean_rate_below_the_minimum_without_an_event(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", 4.0)
    builder.sensors["imu"]["min_rate"] = 150
    text = reasons(builder.close())["below the minimum rate", "imu"]
    assert text == "100 Hz on average; the minimum is 150 Hz"


def test_counted_losses_do_not_make_a_stream_slow(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", seq=[*range(20), *range(500, 1000, 1)])
    builder.lose("imu", 20, 499, "refused")
    builder.sensors["imu"]["min_rate"] = 150
    assert [what for what, _ in reasons(builder.close())] == ["samples lost"]


def test_faults_and_steps_of_the_clock(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", 1.0)
    for k in range(3):
        builder.events.append(make_event("clock", START_NS + k * S, cause="step", step_ns=-2 * S))
    builder.events.append(make_event("fault", START_NS + S, "imu", "hung", detail="no answer"))
    builder.events.append(make_event("disk", START_NS + S, cause="floor", detail="1 GB free"))
    builder.events.append(make_event("mark", START_NS + S, text="a bridge"))
    found = reasons(builder.close())
    assert found["clock step", "host clock"] == "3 times, first at 0.0 s: stepped by -2.000 s"
    assert found["fault: hung", "imu"] == "at 1.0 s: no answer"
    assert found["disk: floor", "disk"] == "at 1.0 s: 1 GB free"
    assert found["ended early", "disk"] == "1 GB free"


@pytest.mark.parametrize(
    ("state", "what"),
    [("sealed", "sealed"), ("recovered", "recovered"), ("recording", "not closed")],
)
def test_states(tmp_path: Path, state: str, what: str) -> None:
    judged = judge(imu_session(tmp_path / "rig", 1.0).close(state))
    (reason,) = judged.reasons
    assert reason.what == what and judged.word == FAIL
    assert reason.how_much.startswith("the disk failed") == (state == "sealed")


def test_a_session_that_is_being_recorded_is_open(tmp_path: Path) -> None:
    import fcntl

    path = imu_session(tmp_path / "rig", 1.0).close("recording")
    with (path / "_recorder" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert lock_is_held(path / "_recorder" / "lock")
        judged = judge(path)
    assert judged.open and judged.passed and judged.word == PASS


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    path = full_session(tmp_path / "rig").path
    with (path / "imu" / "acc").open("r+b") as file:
        file.truncate(100)
    (path / "radar" / "meta.json").write_text("{")
    found = judge(path).reasons
    assert any(r.what == "damaged" and r.where == "imu" for r in found)
    assert any(
        r.what == "damaged" and r.where == "radar" and "meta.json" in r.how_much for r in found
    )
    messages = [r.how_much for r in found]
    assert len(messages) == len(set(messages))


def test_a_session_that_cannot_be_opened(tmp_path: Path) -> None:
    path = full_session(tmp_path / "rig").path
    (path / "_recorder" / "session.json").write_text("{")
    (reason,) = judge(path).reasons
    assert reason.what == "session unreadable" and "session.json" in reason.how_much


def test_no_session_at_all(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="is no session"):
        scan_session(tmp_path)


def test_failed_postprocessing(tmp_path: Path) -> None:
    path = full_session(tmp_path / "rig").path
    steps = {"ncore": {"done": False, "tries": 3, "error": "no space"}, "vrs": {"done": True}}
    (path / "_recorder" / "finalize.json").write_text(json.dumps({"version": 1, "steps": steps}))
    assert judge(path).reasons == [Reason("postprocessing failed", "ncore", "no space")]


@pytest.mark.parametrize("text", ["{", "[]", '{"steps": 3}', '{"steps": {"a": 1}}', "\xff"])
def test_a_strange_record_of_postprocessing(tmp_path: Path, text: str) -> None:
    path = full_session(tmp_path / "rig").path
    (path / "_recorder" / "finalize.json").write_bytes(text.encode("latin-1"))
    assert judge(path).passed


def with_holes(tmp_path: Path, holes: int, samples: int = 100, **sensor: float) -> Verdict:
    builder = imu_session(tmp_path / "rig", samples / 100)
    builder.sensors["imu"] |= sensor
    for k in range(holes):
        counts = {"count": 1, "parts": 16}
        at_ns = START_NS + k * 2 * S
        builder.events.append(make_event("incomplete", at_ns, "imu", "network", **counts))
    return judge(builder.close())


def test_a_share_of_incomplete_samples_fails_and_fewer_are_remarked(tmp_path: Path) -> None:
    judged = with_holes(tmp_path / "few", 1)
    assert judged.word == PASS
    assert [(r.what, r.where) for r in judged.remarks] == [("incomplete samples", "imu")]
    (reason,) = with_holes(tmp_path / "many", 2).reasons
    assert (reason.what, reason.where) == ("incomplete samples", "imu")
    assert reason.how_much.startswith("2 samples lack 32 parts (network): 2 % of 100, ")
    assert "max_incomplete allows 1 %" in reason.how_much
    assert "packets were lost on the way" in reason.how_much
    assert with_holes(tmp_path / "allowed", 20, max_incomplete=0.2).passed
    assert not with_holes(tmp_path / "none", 1, max_incomplete=0.0).passed


def played(tmp_path: Path, seconds: float) -> Builder:
    """A camera of 12 s beside an IMU that ends earlier, both played."""
    builder = imu_session(tmp_path / "rig", seconds)
    builder.add(camera_spec(), 12.0)
    for name in ("imu", "camera"):
        builder.sensors[name] |= {"live": False}
    return builder


def ended(path: Path, reason: str, **header: object) -> Path:
    """Write into the header why the streams ended, and more."""
    file = path / "_recorder" / "session.json"
    values = json.loads(file.read_text()) | header
    for epochs in values["epochs"].values():
        epochs[-1]["ended"] = reason
    file.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("reason", ["eof", "stopped", "duration"])
def test_a_stream_that_ends_long_before_the_others_fails(tmp_path: Path, reason: str) -> None:
    found = reasons(ended(played(tmp_path, 6.0).close(), reason))
    assert list(found) == [("ends early", "imu")]
    assert found["ends early", "imu"].startswith("at 6.0 of 12.0 s; ")
    assert ("its source ended" in found["ends early", "imu"]) == (reason == "eof")


def test_a_stream_that_ends_a_little_earlier_passes(tmp_path: Path) -> None:
    assert judge(played(tmp_path, 9.5).close()).passed


def test_a_tail_that_is_counted_as_lost_is_reported_once(tmp_path: Path) -> None:
    builder = played(tmp_path, 6.0)
    builder.lose("imu", 600, None, "late", count=None, duration_ns=6 * S, t_ns=START_NS + 12 * S)
    assert list(reasons(builder.close())) == [("uncounted loss", "imu")]


def test_all_streams_that_end_before_the_duration_end_early(tmp_path: Path) -> None:
    builder = played(tmp_path, 12.0)
    builder.events.append(make_event("end", START_NS + 90 * S, cause="overtime"))
    found = reasons(ended(builder.close(), "stopped", duration_s=60.0))
    assert set(found) == {("ends early", "imu"), ("ends early", "camera")}
    assert found["ends early", "imu"].startswith("at 12.0 of 60.0 s")


def test_rates_that_the_supervisor_saw_count_for_played_sources(tmp_path: Path) -> None:
    for live in (False, True):
        builder = imu_session(tmp_path / f"{live}" / "rig", 4.0)
        builder.sensors["imu"] |= {"live": live}
        for k in range(23):
            low = {"rate_hz": 45.28 + k, "floor_hz": 50.0}
            builder.events.append(make_event("rate", START_NS + k * S, "imu", "low", **low))
        found = reasons(builder.close())
        if live:  # by the stamps of a device nothing is missing: a busy machine was late
            assert found == {}
        else:
            text = found["below the minimum rate", "imu"]
            assert text == "23 times, first at 0.0 s: down to 45.28 Hz; the minimum is 50 Hz"


def test_every_verb_says_the_same_of_a_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from recorder.cli import main
    from recorder.fleet.catalog.rows import read_row
    from recorder.session.reader import Session
    from recorder.session.summary import brief, summarize

    builder = imu_session(tmp_path / "root" / "rig", seq=[*range(50), *range(60, 100)])
    builder.lose("imu", 50, 59, "refused")
    counts = {"count": 30, "parts": 480}
    builder.events.append(make_event("incomplete", START_NS, "imu", "network", **counts))
    path = builder.close()
    judged = judge(path)
    texts = [reason.text for reason in judged.reasons]
    assert len(texts) == 2 and judged.word == FAIL
    with Session(path) as session:
        summary = summarize(session)
    line, row = brief(path), read_row(path)
    assert summary["verdict"] == line["verdict"] == row.verdict == FAIL
    assert [Reason(**reason).text for reason in summary["reasons"]] == texts
    assert line["reasons"] == list(row.reasons) == texts
    assert line["state"] == row.state == summary["state"] == "clean"
    assert summary["streams"]["imu"]["incomplete"] == {"network": {"samples": 30, "parts": 480}}
    assert (line["incomplete"], row.incomplete, row.streams[0].incomplete_parts) == (30, 30, 480)
    assert main(["validate", str(path), "--format", "json"]) == 0, "its files are sound"
    checked = json.loads(capsys.readouterr().out)
    assert (checked["state"], checked["verdict"], checked["sound"]) == ("clean", FAIL, True)
    assert [Reason(**reason).text for reason in checked["reasons"]] == texts
    for argv in (["info", path], ["list", path.parent], ["validate", path]):
        assert main([str(word) for word in argv]) == 0
        out = capsys.readouterr().out
        assert "clean" in out and FAIL in out and "samples lost (imu)" in out
        assert not {"sound", "nothing was lost", "LOSS"} & set(out.split())
