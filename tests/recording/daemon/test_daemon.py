"""The daemon with writer and drivers that are made up, on a clock that is, too."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import UsageError
from recorder.recording import preflight
from recorder.recording.root_lock import is_held
from recorder.recording.sessions.state_machine import RETRY_S
from recorder.recording.supervisor.supervisor import WRITER
from recorder.session.layout import read_session_json
from tests.recording.daemon.fakes import CONFIG, RATES, Vehicle, make_session, vehicle

SPLIT = CONFIG.replace("  root: sessions", "  root: sessions\n  split: {minutes: 1}")
AUTO = CONFIG.replace("  root: sessions", "  root: sessions\n  autostart: true")


def states(reply: dict) -> tuple[bool, str]:  # type: ignore[type-arg]
    assert reply["state"] == reply["status"]["state"]
    return reply["ok"], reply["state"]


def sound(rig: Vehicle) -> bool:
    return rig.running.sound


def test_a_session_from_start_to_stop(rig: Vehicle) -> None:
    assert states(rig.ask("status")) == (True, "idle")
    reply = rig.ask("start", name="tour", meta={"driver": "ada"})
    assert states(reply) == (True, "recording")
    assert reply["session"] == str(rig.root / "tour")
    (plan,) = [c["plan"] for c in rig.writer.commands if c["op"] == "start"]
    assert plan["metadata"] == {"vehicle": "rig-1", "driver": "ada"}
    assert plan["exact_name"] is True
    rig.run(5)
    reply = rig.ask("mark", text="pothole")
    assert states(reply) == (True, "recording")
    assert rig.writer.events["tour"] == [{"kind": "mark", "cause": "pothole", "text": "pothole"}]
    rig.ask("mark", text="bend", age_s=0.4)
    assert rig.writer.events["tour"][1]["age_ns"] == 400_000_000
    status = reply["status"]
    assert status["healthy"] and status["faults"] == []
    assert status["session"]["name"] == "tour" and status["session"]["part"] == 1
    assert status["sensors"]["cam"]["streams"]["cam"]["rate_hz"] == pytest.approx(30, abs=1)
    reply = rig.ask("stop")
    assert states(reply) == (True, "idle")
    assert reply["closed"]["streams"]["cam"]["samples"] >= 150
    assert rig.ask("status")["status"]["session"] is None


@pytest.mark.parametrize("waits", [False, True])
def test_a_status_from_before_a_stop_changes_nothing_after_it(rig: Vehicle, waits: bool) -> None:
    """Both answers arrive at once on a busy machine; that of the stop is looked at first.

    If the writer waits for its drivers, it answers a status that was asked for after the stop.
    """
    rig.ask("start", name="tour")
    rig.run(2)
    rig.writer.late, rig.writer.waits = True, waits
    rig.run(0 if waits else 2)  # the status is asked for
    before = len(rig.writer.commands)
    replies = rig.send("stop")
    rig.run(2 if waits else 0.5)
    rig.writer.late = False
    rig.run(1)
    assert replies[0]["ok"]
    assert not any("without a request" in line for line in rig.lines)
    assert [c["op"] for c in rig.writer.commands[before:]].count("stop") == 1
    assert states(rig.ask("status")) == (True, "idle")


def test_what_did_not_happen_is_never_ok(rig: Vehicle) -> None:
    """The other refusals, to the letter: test_control_golden."""
    make_session(rig.root / "lap_p003")
    reply = rig.ask("start", name="lap")
    assert states(reply) == (False, "idle")
    assert reply["exit_code"] == 2 and "exists" in reply["error"]
    assert rig.ask("status")["status"]["wish"]["wanted"] is False
    rig.writer.refuse["start"] = "it is full"
    reply = rig.ask("start")
    assert states(reply) == (False, "idle") and reply["error"] == "it is full"
    del rig.writer.refuse["start"]
    assert states(rig.ask("start")) == (True, "recording")


def test_two_clients_at_once(rig: Vehicle) -> None:
    first, second = rig.send("start", name="a"), rig.send("start", name="b")
    rig.run(2)
    assert states(first[0]) == (True, "recording")
    assert second[0]["ok"] is False and second[0]["state"] == "starting"
    assert rig.sessions == ["a"]
    first, second = rig.send("stop"), rig.send("stop")
    rig.run(2)
    assert states(first[0]) == states(second[0]) == (True, "idle")
    assert first[0]["closed"] == second[0]["closed"]


@pytest.mark.parametrize(
    "rig", [CONFIG.replace("min_free_gb: 0", "min_free_gb: 1000000000")], indirect=True
)
def test_a_full_disk_refuses_a_start(rig: Vehicle) -> None:
    reply = rig.ask("start")
    assert states(reply) == (False, "idle") and "min_free_gb" in reply["error"]
    assert not any(c["op"] == "start" for c in rig.writer.commands)


@pytest.mark.parametrize("room", [True, False])
def test_an_unmounted_root_is_a_fault_and_is_never_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    mounted = False
    monkeypatch.setattr(preflight, "file_system", lambda path: None)
    monkeypatch.setattr(Path, "is_mount", lambda path: mounted or path == Path("/"))
    floor = "min_free_gb: 0" if room else "min_free_gb: 1000000000"
    text = AUTO.replace("min_free_gb: 0", f"{floor}, require_mount: true")
    with vehicle(tmp_path, text) as rig:
        rig.daemon()
        assert states(rig.ask("start")) == (False, "idle")
        rig.run(20)
        assert [f["kind"] for f in rig.ask("status")["status"]["faults"]] == ["root"]
        assert not rig.root.exists()
        if not room:
            return
        mounted = True
        rig.run(10)
        assert states(rig.ask("status")) == (True, "recording")  # autostart, as soon as it can be
        assert rig.sessions == ["drive"]


def test_a_disk_that_fills_up_is_a_fault_until_there_is_room(recording: Vehicle) -> None:
    recording.writer.end_by_itself(full="its disk is nearly full")
    recording.writer.refuse["start"] = "it is full"
    recording.run(1)
    reply = recording.ask("status")
    assert states(reply) == (True, "fault")
    assert {"about": "recording", "kind": "fault", "message": "its disk is nearly full"} in (
        reply["status"]["faults"]
    )
    recording.run(sum(RETRY_S))
    assert states(recording.ask("status")) == (True, "fault")
    del recording.writer.refuse["start"]
    recording.run(RETRY_S[-1] + 1)
    assert states(recording.ask("status")) == (True, "recording")
    assert recording.sessions == ["drive", "drive_p002"]
    assert states(recording.ask("stop")) == (True, "idle")


def test_a_failed_disk_is_recovered_and_the_next_part_recorded(recording: Vehicle) -> None:
    recording.writer.end_by_itself(sealed="an I/O error")
    recording.run(5)
    assert states(recording.ask("status")) == (True, "recording")
    assert recording.sessions == ["drive", "drive_p002"]
    assert recording.chores[0].command == ["recorder", "recover", str(recording.root / "drive")]


def test_the_reason_that_a_failed_disk_did_not_take_is_there_before_recovery(
    recording: Vehicle,
) -> None:
    path = recording.root / "drive"
    recording.writer.end_by_itself(sealed="No space left on device")
    make_session(path, "recording")  # as it was: the disk took nothing
    recording.run(5)
    assert recording.chores[0].command == ["recorder", "recover", str(path)]
    values = read_session_json(path)
    assert (values["state"], values["sealed"]) == ("sealed", "No space left on device")


def test_an_absent_sensor_is_a_fault_and_the_others_record(tmp_path: Path) -> None:
    with vehicle(tmp_path) as rig:
        rig.arms = False
        rig.daemon()
        rig.run(1)
        assert rig.notify.calls.count("ready") == 0
        rig.children["lidar"].arm()
        rig.children["cam"].report("device", state="absent", message="cam: no /dev/video0")
        rig.run(1)
        assert rig.notify.calls.count("ready") == 1
        reply = rig.ask("start")
        assert states(reply) == (True, "recording")
        (fault,) = reply["status"]["faults"]
        assert fault == {"about": "cam", "kind": "absent", "message": "cam: no /dev/video0"}
        assert not reply["status"]["healthy"]
        rig.run(1)
        (event,) = rig.writer.events["drive"]
        assert (event["kind"], event["stream"], event["cause"]) == ("device", "cam", "absent")
        rig.children["cam"].report("device", state="present", message="")
        rig.children["cam"].arm()
        rig.run(5)
        status = rig.ask("status")["status"]
        assert status["healthy"] and status["sensors"]["cam"]["state"] == "armed"
        rig.children["cam"].report("device", state="lost", message="cam: unplugged")
        rig.run(1)
        assert rig.ask("status")["status"]["sensors"]["cam"]["state"] == "lost"
        causes = [event["cause"] for event in rig.writer.events["drive"]]
        assert causes == ["absent", "present", "lost"]


def test_an_optional_sensor_that_is_absent_is_no_fault(tmp_path: Path) -> None:
    with vehicle(tmp_path) as rig:
        rig.arms = False
        rig.daemon()
        rig.children["cam"].arm()
        rig.children["lidar"].report("device", state="absent", message="lidar: no answer")
        reply = rig.ask("start")
        assert reply["status"]["healthy"]
        assert reply["status"]["sensors"]["lidar"]["state"] == "absent"


def test_a_breach_of_the_rate_is_an_event_and_in_status_within_seconds(rig: Vehicle) -> None:
    rig.ask("start")
    rig.run(10)
    assert rig.ask("status")["status"]["faults"] == []
    still = rig.writer.streams()["cam"]
    rig.writer.frozen["cam"] = still
    rig.run(5)
    faults = rig.ask("status")["status"]["faults"]
    assert ("cam", "rate") in [(f["about"], f["kind"]) for f in faults]
    rate = [e for e in rig.writer.events["drive"] if e["kind"] == "rate" and e["stream"] == "cam"]
    assert [(e["cause"], e["floor_hz"]) for e in rate] == [("low", 25.0)]


def test_a_disk_that_stalls_is_a_fault_and_starves_the_watchdog(rig: Vehicle) -> None:
    rig.ask("start")
    rig.writer.uncommitted_s = 20.0
    rig.run(2)
    assert [f["kind"] for f in rig.ask("status")["status"]["faults"]] == ["stalled"]
    assert sound(rig)
    rig.writer.uncommitted_s = 31.0
    rig.run(2)
    rig.notify.calls.clear()
    rig.run(10)
    assert "watchdog" not in rig.notify.calls
    rig.writer.uncommitted_s = 0.0
    rig.run(2)
    assert "watchdog" in rig.notify.calls
    causes = [e["cause"] for e in rig.writer.events["drive"] if e["kind"] == "disk"]
    assert causes == ["stalled", "restored"]


def test_a_writer_that_hangs_starves_the_watchdog_and_is_killed_in_the_end(
    recording: Vehicle,
) -> None:
    recording.writer.mute = True
    recording.run(29)
    assert sound(recording)
    recording.run(5)
    assert not sound(recording)
    hung = recording.children[WRITER]
    recording.run(75)  # a watchdog of 40 s would have acted by now
    assert recording.children[WRITER] is hung
    recording.run(15)
    assert recording.children[WRITER] is not hung
    recording.writer.mute = False
    recording.run(2)
    assert recording.children[WRITER].alive
    assert "--resume" in recording.children[WRITER].command
    assert states(recording.ask("status")) == (True, "recording")


def test_a_silent_sensor_never_starves_the_watchdog(rig: Vehicle) -> None:
    rig.writer.rates = dict.fromkeys(rig.writer.rates, 0.0)
    rig.ask("start")
    rig.run(100)
    rig.notify.calls.clear()
    rig.run(10)
    assert rig.notify.calls.count("watchdog") >= 9


def test_a_killed_driver_is_started_again_and_given_up_in_the_end(recording: Vehicle) -> None:
    recording.children["lidar"].die()
    recording.run(2)
    assert recording.children["lidar"].alive
    assert recording.ask("status")["status"]["sensors"]["lidar"]["starts"] == 2
    recording.arms = False
    for _ in range(25):
        recording.children["lidar"].die(1)
        recording.run(11)
    status = recording.ask("status")["status"]
    assert status["sensors"]["lidar"]["state"] == "failed"
    assert status["state"] == "recording" and status["sensors"]["cam"]["state"] == "armed"
    recording.ask("stop")
    recording.arms = True
    recording.ask("start")  # each session is a new try
    assert recording.ask("status")["status"]["sensors"]["lidar"]["state"] == "armed"


def test_a_writer_that_does_not_come_up_is_a_fault_and_tried_again(recording: Vehicle) -> None:
    recording.writer.mute = True
    for _ in range(25):
        recording.children[WRITER].die(1)
        recording.run(11)
    status = recording.running.status()
    assert status["state"] == "fault" and recording.children["cam"].process is not None
    assert recording.children["cam"].alive
    recording.writer.mute, recording.writer.session = False, None
    make_session(recording.root / "drive", "recording")
    recording.run(120)
    assert states(recording.ask("status")) == (True, "recording")
    assert recording.sessions == ["drive", "drive_p002"]


def test_after_a_crash_a_new_part_is_recorded(rig: Vehicle) -> None:
    rig.ask("start", name="tour", meta={"driver": "ada"})
    rig.crash()
    rig.daemon()
    rig.run(2)
    status = rig.ask("status")["status"]
    assert status["session"]["name"] == "tour_p002"
    plan = [c["plan"] for c in rig.writer.commands if c["op"] == "start"][-1]
    assert plan["metadata"]["driver"] == "ada"
    rig.run(1)
    assert rig.chores[0].command == ["recorder", "recover", str(rig.root / "tour")]
    rig.ask("stop")
    rig.crash()
    rig.daemon()
    rig.run(2)
    assert states(rig.ask("status")) == (True, "idle")
    assert rig.sessions == ["tour", "tour_p002"]


@pytest.mark.parametrize(("text", "state"), [(AUTO, "recording"), (CONFIG, "idle")])
def test_after_a_reboot_autostart_decides(tmp_path: Path, text: str, state: str) -> None:
    with vehicle(tmp_path, text) as rig:
        rig.daemon()
        rig.run(2)
        if state == "idle":
            rig.ask("start")
        rig.running.stop()  # the key is turned
        rig.run(5)
        rig.running.close()
        assert rig.writer.session is None
        rig.boot = "boot-2"
        rig.daemon()
        rig.run(2)
        assert states(rig.ask("status")) == (True, state)
        assert rig.sessions == (["drive", "drive_p002"] if state == "recording" else ["drive"])


@pytest.mark.parametrize("rig", [SPLIT], indirect=True)
def test_sessions_split_by_time_and_parts_have_numbers(rig: Vehicle) -> None:
    rig.ask("start")
    rig.run(130)
    assert rig.sessions == ["drive_p001", "drive_p002", "drive_p003"]
    assert rig.ask("status")["status"]["session"]["name"] == "drive_p003"
    rig.ask("stop")
    rig.ask("start")
    assert rig.writer.session is not None
    assert rig.writer.session.name == "drive_2_p001"


@pytest.mark.parametrize("rig", [SPLIT.replace("minutes: 1", "gb: 0.02")], indirect=True)
def test_sessions_split_by_size(rig: Vehicle) -> None:
    rig.ask("start")
    rig.run(11)  # two streams of 1 MB/s
    assert rig.sessions == ["drive_p001", "drive_p002"]


@pytest.mark.parametrize("rig", [SPLIT], indirect=True)
def test_a_split_that_fails_leaves_the_session_and_is_tried_again(rig: Vehicle) -> None:
    rig.ask("start")
    rig.writer.refuse["split"] = "no room"
    rig.run(65)
    assert states(rig.ask("status")) == (True, "recording")
    assert rig.writer.events["drive_p001"][-1]["cause"] == "split"
    del rig.writer.refuse["split"]
    rig.run(40)
    assert rig.sessions == ["drive_p001", "drive_p002"]


def test_a_changed_stream_gets_a_new_part_and_its_driver_a_new_start(rig: Vehicle) -> None:
    rig.ask("start")
    rig.run(10)
    camera = rig.children["cam"]
    camera.report("fault", message="cam: 640x480 now", exit_code=3, kind="changed")
    camera.die(3)
    rig.run(3)
    assert rig.sessions == ["drive", "drive_p002"]
    assert rig.children["cam"] is not camera and rig.children["cam"].alive
    assert states(rig.ask("status")) == (True, "recording")
    splits = [c for c in rig.writer.commands if c["op"] == "split"]
    assert [(c["session"], c["live"]) for c in splits] == [(str(rig.root / "drive"), ["lidar"])]
    rig.ask("stop")
    rig.children["cam"].report("fault", message="again", exit_code=3, kind="changed")
    rig.children["cam"].die(3)
    rig.run(3)
    assert rig.children["cam"].alive  # without a session there is nothing to split


def test_the_late_news_of_a_drivers_end_starts_no_second_one(rig: Vehicle) -> None:
    before = rig.children["cam"]
    before.report("fault", message="cam: 640x480 now", exit_code=3, kind="changed")
    before.alive = False  # it has ended, and nobody has heard of it
    rig.run(1)
    after = rig.children["cam"]
    assert after is not before
    before.report("exit", code=3)
    rig.run(30)
    assert rig.children["cam"] is after and after.alive
    assert rig.running.status()["sensors"]["cam"]["starts"] == 2


def test_the_end_closes_the_session_in_order(rig: Vehicle) -> None:
    rig.ask("start")
    rig.running.stop()
    rig.run(10)
    assert rig.notify.calls.count("stopping") == 1  # before the session is closed
    assert rig.running._left
    assert rig.writer.commands[-1]["op"] == "stop"
    waiting = rig.send("status")
    rig.running.run()  # its end: the servers, which close next, send the refusals
    assert [reply["ok"] for reply in waiting] == [False]
    late = rig.send("status")
    rig.running.close()
    assert [reply["ok"] for reply in (*waiting, *late)] == [False, False]
    assert not any(child.alive for child in rig.children.values())
    assert rig.notify.calls[-1] == "stopping"


def test_the_end_comes_in_bounded_time_whatever_the_writer_does(rig: Vehicle) -> None:
    rig.ask("start")
    rig.writer.mute = True
    rig.running.stop()
    before_ns = rig.clock.monotonic_ns()
    rig.run(200)
    assert rig.running._left
    assert rig.clock.monotonic_ns() - before_ns < 61e9


def test_one_daemon_per_root(rig: Vehicle) -> None:
    first = rig.running
    with pytest.raises(UsageError, match="another daemon records there"):
        rig.daemon()
    rig.running.close()
    rig.running = first


def test_one_daemon_per_ring_in_ram(tmp_path: Path) -> None:
    """Two daemons with roots of their own: each would delete the parts of the other."""
    text = f"{CONFIG}ring: {{medium: ram, folder: {tmp_path}/ram}}\n"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = Vehicle(tmp_path / "a", text), Vehicle(tmp_path / "b", text)
    held = first.daemon()
    with pytest.raises(UsageError, match=f"{tmp_path}/ram: another daemon records there"):
        second.daemon()
    assert not is_held(second.root)  # it waits for the ring, and holds nothing
    held.close()
    second.daemon().close()
    # The tmpfs is mounted again under the daemon.
    held = first.daemon()
    (tmp_path / "ram").rename(tmp_path / "before")
    first.run(12)
    assert is_held(tmp_path / "ram") and is_held(first.root)
    with pytest.raises(UsageError, match="another daemon records there"):
        second.daemon()
    held.close()


def test_keep_and_release(rig: Vehicle) -> None:
    rig.ask("start", name="tour")
    reply = rig.ask("keep")
    assert states(reply) == (True, "recording") and reply["status"]["session"]["kept"]
    assert (rig.root / "tour/_recorder/keep").exists()
    assert rig.ask("keep", session="tour", release=True)["kept"] is False
    assert not (rig.root / "tour/_recorder/keep").exists()


def test_a_session_that_nobody_knew_of_is_closed(rig: Vehicle) -> None:
    rig.writer._open({"root": str(rig.root), "name": "stray", "metadata": {}})
    rig.run(3)
    assert rig.writer.session is None
    assert states(rig.ask("status")) == (True, "idle")


def test_a_stream_that_a_driver_finds_is_one_of_its_sensor(recording: Vehicle) -> None:
    found = StreamSpec("cam_2", (ChannelSpec("x", "raw", "u1"),)).to_wire()
    recording.children["cam"].report("streams", streams=[found])
    recording.run(2)
    assert list(recording.ask("status")["status"]["sensors"]["cam"]["streams"]) == ["cam", "cam_2"]
    sensor = recording.running.supervisor.sensors["cam"]
    assert sensor.header["streams"] == ["cam", "cam_2"]  # of the next part


def test_a_driver_that_reports_nonsense_ends_and_it_alone(recording: Vehicle) -> None:
    nonsense = recording.children["lidar"]
    nonsense.report("armed", streams=[{"name": "?"}])
    recording.run(2)
    assert not nonsense.alive and recording.children["lidar"].alive
    for values in ({}, {"streams": 5}, {"streams": None}):
        recording.children["lidar"].report("armed", **values)
        recording.children["cam"].report("unheard of", **values)
        recording.run(3)
    assert recording.children["cam"].alive and states(recording.ask("status")) == (
        True,
        "recording",
    )
    assert any("its driver breaks the protocol" in line for line in recording.lines)


def test_a_machine_that_can_start_no_process_is_waited_for(rig: Vehicle) -> None:
    rig.ask("start")
    spawn, tries = rig.running.supervisor._spawn, 0

    def fail(*args: object, **more: object) -> None:
        nonlocal tries
        tries += 1
        raise BlockingIOError(11, "Resource temporarily unavailable")

    rig.running.supervisor._spawn = fail  # type: ignore[assignment]
    rig.children["cam"].die()
    rig.children[WRITER].die()
    rig.run(5)
    assert tries > 5
    rig.running.supervisor._spawn = spawn
    rig.run(10)
    assert rig.children["cam"].alive and rig.children[WRITER].alive
    assert states(rig.ask("status")) == (True, "recording")


def test_ticks_are_for_whoever_wants_them(rig: Vehicle) -> None:
    seen: list[int] = []
    rig.running.on_tick.append(lambda daemon, now_ns: seen.append(now_ns))
    rig.run(1)
    assert len(seen) == 10 and seen == sorted(seen)


def test_a_nearly_full_disk_begins_no_recording_that_would_end_at_once(
    rig: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting needs more room than a recording that goes on; between the two it does not begin."""
    rig.run(2)
    needed = 120 * sum(RATES.values())  # bytes: the sensors of the test give one a sample
    free = 0.9 * needed
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=round(free)))
    rig.run(3)
    why = rig.ask("status")["status"]["start_refused"]
    assert "delete or move sessions, or set retention.gb" in why
    assert rig.ask("start")["error"] == why
    assert not any(c["op"] == "start" for c in rig.writer.commands)
    free = 1.1 * needed
    rig.run(3)
    assert rig.ask("status")["status"]["start_refused"] is None
    assert rig.ask("start")["ok"]
    free = 0.9 * needed
    rig.run(3)
    status = rig.ask("status")["status"]
    assert (status["state"], status["start_refused"]) == ("recording", None)
    rig.writer.end_by_itself(full="its disk is nearly full")
    rig.run(600)
    assert rig.sessions == ["drive"] and states(rig.ask("status")) == (True, "fault")
    assert "a recording begins with" in rig.ask("status")["status"]["start_refused"]
    said = [line for line in rig.lines if line.startswith("not recording: ")]
    assert 3 < len(said) < 20
    free = 1.1 * needed
    rig.run(RETRY_S[-1] + 1)
    assert rig.sessions == ["drive", "drive_p002"]


def test_recordings_that_end_at_once_begin_less_and_less_often(rig: Vehicle) -> None:
    """As on a disk that something else fills: 18 parts in 35 s helped nobody."""
    rig.ask("start")
    for _ in range(3600):
        if rig.writer.session is not None:
            rig.writer.end_by_itself(full="its disk is nearly full")
        rig.run(0.1)
    assert 3 <= len(rig.sessions) <= 12
