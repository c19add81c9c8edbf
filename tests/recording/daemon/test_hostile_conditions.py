"""What a daemon meets that nobody meant it to: odd folders, disks that go, files that lie."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from recorder.common.errors import StorageError, UsageError
from recorder.common.files import PosixDisk
from recorder.recording import preflight
from recorder.recording.daemon.metrics import _MOST_CLIENTS, MetricsServer
from recorder.recording.postprocessing.finalizing import HUNG_S, Finalizing
from recorder.recording.sessions.desired_state import DesiredStateFile
from recorder.recording.sessions.state_machine import DesiredState
from recorder.recording.supervisor.sensors import HUNG_NS
from recorder.recording.supervisor.supervisor import WRITER
from tests.manual_clock import ManualClock
from tests.recording.daemon.fakes import CONFIG, FakeChore, Said, Vehicle, make_session, vehicle
from tests.recording.daemon.test_retention_of_strange_folders import session

# Chores that hang, or cannot be begun.


def test_a_chore_that_does_nothing_for_long_is_ended(tmp_path: Path) -> None:
    (session(tmp_path, "a") / "_recorder/checksums.csv").unlink()
    (session(tmp_path, "b") / "_recorder/checksums.csv").unlink()
    clock, chores = ManualClock(), list[FakeChore]()

    def spawn(command: Sequence[str]) -> FakeChore:
        chores.append(FakeChore(command))
        return chores[-1]

    queue = Finalizing(tmp_path, clock, Said().say, frozenset(), spawn)
    for _ in range(int(HUNG_S)):  # one that works, however long
        queue.turn(None)
        chores[0].used += 0.01
        clock.advance(10.0)
    assert len(chores) == 1
    while len(chores) == 1:
        queue.turn(None)
        clock.advance(10.0)
    assert chores[0].ended and chores[1].command[-1].endswith("/b")
    reported = json.loads((tmp_path / "a/_recorder/finalize.json").read_text())
    assert reported["steps"]["checksums"]["tries"] == 1
    assert "did nothing" in reported["steps"]["checksums"]["error"]


def test_a_machine_without_memory_for_a_chore_is_waited_for(tmp_path: Path) -> None:
    (session(tmp_path, "a") / "_recorder/checksums.csv").unlink()
    clock, tried = ManualClock(), []

    def spawn(command: Sequence[str]) -> FakeChore:
        tried.append(command)
        raise OSError(12, "Cannot allocate memory")

    queue = Finalizing(tmp_path, clock, Said().say, frozenset(), spawn)
    for _ in range(100):
        queue.turn(None)
        clock.advance(0.1)
    assert len(tried) == 1 and queue.current is None
    clock.advance(100.0)
    queue.turn(None)
    assert len(tried) == 2


GIVES_WAY = (
    "import os; from recorder.recording.supervisor.background_process import give_way; give_way();"
    "print(os.nice(0), os.sched_getscheduler(0), open('/proc/self/oom_score_adj').read())"
)


def test_a_chore_gives_way_to_everything() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GIVES_WAY], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["19", str(os.SCHED_BATCH), "500"]


# The root goes, and comes back.


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def kinds(rig: Vehicle) -> list[str]:
    return [fault["kind"] for fault in rig.ask("status")["status"]["faults"]]


def test_a_session_folder_that_is_deleted_under_the_daemon_does_it_no_harm(rig: Vehicle) -> None:
    rig.ask("start", name="a")
    rig.run(3)
    shutil.rmtree(rig.root)
    rig.run(10)
    assert rig.ask("status")["state"] == "recording"
    assert rig.running._root.held and not rig.running._root.lost
    rig.writer.session = None
    rig.writer.end_by_itself = None  # type: ignore[assignment,method-assign]


def test_a_root_that_is_unmounted_while_recording_gets_no_new_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = True
    monkeypatch.setattr(Path, "is_mount", lambda path: mounted or path == Path("/"))
    monkeypatch.setattr(preflight, "file_system", lambda path: None)
    text = CONFIG.replace("min_free_gb: 0", "min_free_gb: 0, require_mount: true").replace(
        "  root: sessions", "  root: sessions\n  split: {minutes: 1}"
    )
    with vehicle(tmp_path, text) as rig:
        rig.daemon()
        rig.ask("start", name="a")
        mounted = False
        rig.run(200)
        assert rig.sessions == ["a_p001"]
        assert rig.ask("status")["state"] == "recording" and kinds(rig) == ["root"]
        mounted = True
        rig.run(60)
        assert rig.sessions == ["a_p001", "a_p002"] and kinds(rig) == []


def test_memory_is_no_mounted_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/run/media/disk without the disk lies in the tmpfs of /run."""
    from recorder.config.settings import StorageSettings
    from recorder.recording.host.disk import FileSystem

    monkeypatch.setattr(Path, "is_mount", lambda path: True)
    for kind, wanted in (("tmpfs", True), ("ext4", False)):
        found = FileSystem(tmp_path, kind, kind, None)
        monkeypatch.setattr(preflight, "file_system", lambda path, found=found: found)
        problem = preflight.mount_problem(
            tmp_path, StorageSettings(200, 5.0, 256.0, require_mount=True)
        )
        assert (problem is not None) is wanted


def test_another_daemon_that_took_the_root_meanwhile_is_a_fault(rig: Vehicle) -> None:
    rig.running._root.release()
    rig.running._root.take = failing(UsageError("another daemon records there"))  # type: ignore[method-assign]
    rig.run(10)
    assert kinds(rig) == ["root"]


def test_a_root_that_cannot_be_taken_again_is_not_recorded_to(rig: Vehicle) -> None:
    """It is there and takes files, but its lock is gone and cannot be made anew."""
    refused = failing(StorageError("the lock cannot be made: Read-only file system"))
    take = rig.running._root.take
    rig.running._root.release()
    rig.running._root.take = refused  # type: ignore[method-assign]
    answer = rig.ask("start", name="a")
    assert answer["ok"] is False and "the lock cannot be made" in answer["error"]
    assert rig.sessions == []
    rig.running._root.take = take  # type: ignore[method-assign]
    assert rig.ask("start", name="b")["ok"] is True


def test_a_keep_that_is_not_permitted_is_refused(
    rig: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    session(rig.root, "a")
    forbidden = failing(PermissionError(13, "Permission denied"))
    monkeypatch.setattr(PosixDisk, "write_file", forbidden)
    reply = rig.ask("keep", session="a")
    assert (reply["ok"], reply["exit_code"]) == (False, 1) and "Permission" in reply["error"]


def test_folders_that_fail_are_no_reason_to_stop(
    rig: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = failing(OSError(5, "Input/output error"))
    monkeypatch.setattr(rig.running.finalizing, "turn", broken)
    rig.ask("start")
    rig.run(5)
    assert rig.ask("status")["state"] == "recording"
    assert sum("Input/output error" in line for line in rig.lines) == 1


# Drivers that hang, and a daemon that stood still itself.


def test_a_driver_that_hangs_is_started_again_and_a_silent_device_is_not(rig: Vehicle) -> None:
    rig.ask("start")
    hung = rig.children["cam"]
    for _ in range(200):
        if rig.children["cam"] is not hung:
            break
        rig.children["lidar"].report("stats", held=0, buffer=1)
        if _ < 5:
            hung.report("stats", held=0, buffer=1)
        rig.run(1)
    assert HUNG_NS < (_ - 3) * 10**9 < 2 * HUNG_NS
    rig.run(1)
    assert rig.children["cam"] is not hung and rig.children["cam"].alive
    assert rig.running.supervisor.sensors["lidar"].starts == 1
    events = [e for e in rig.writer.events["drive"] if e["kind"] == "fault"]
    assert [(e["stream"], e["cause"]) for e in events] == [("cam", "hung"), ("cam", "driver")]
    rig.ask("stop")
    rig.run(300)  # who records nothing has nothing to tell
    assert rig.running.supervisor.sensors["lidar"].starts == 1


def test_a_driver_whose_read_does_not_return_is_started_again(rig: Vehicle) -> None:
    rig.ask("start")
    hung = rig.children["cam"]
    hung.report("stall", stalled=True, hung_in="")
    rig.run(2)
    assert rig.children["cam"] is hung, "a slow read is waited for"
    hung.report("stall", stalled=True, hung_in="read")
    rig.run(2)
    assert rig.children["cam"] is not hung and rig.children["cam"].alive
    fault = "cam: its driver hangs: its read() does not return"
    assert fault in rig.running.supervisor.faults
    events = [e for e in rig.writer.events["drive"] if e["kind"] == "fault"]
    assert [(e["stream"], e["cause"]) for e in events] == [("cam", "hung"), ("cam", "driver")]
    assert events[0]["detail"] == fault


def test_a_daemon_that_stood_still_blames_nobody(rig: Vehicle) -> None:
    rig.ask("start")
    receive = rig.writer.receive
    for child in (rig.children["cam"], rig.children["lidar"]):
        child.report("stats", held=0, buffer=1)
    rig.run(2)
    writer = rig.children[WRITER]
    rig.writer.receive = lambda: None  # type: ignore[method-assign]
    rig.run(1)
    rig.clock.advance(1000.0)  # SIGSTOP, SIGCONT: what was said is not yet heard
    rig.run(0.5)
    rig.writer.receive = receive  # type: ignore[method-assign]
    for child in (rig.children["cam"], rig.children["lidar"]):
        child.report("stats", held=0, buffer=1)
    rig.run(20)
    assert rig.children[WRITER] is writer
    assert [s.starts for s in rig.running.supervisor.sensors.values()] == [1, 1]


@pytest.mark.parametrize(("mute_s", "still_s", "patience_s"), [(1, 1000.0, 4.5), (115, 7.0, 1)])
def test_a_daemon_that_stood_still_gives_its_writer_five_seconds(
    recording: Vehicle, mute_s: float, still_s: float, patience_s: float
) -> None:
    recording.writer.mute = True
    recording.run(mute_s)
    writer = recording.children[WRITER]
    recording.clock.advance(still_s)  # it was stopped: messages from before are unread
    recording.run(patience_s)
    assert recording.children[WRITER] is writer and writer.alive
    recording.run(6)
    assert not writer.alive or recording.children[WRITER] is not writer


def test_shutting_down_ends_every_process_that_does_not_end_by_itself(recording: Vehicle) -> None:
    graces: dict[str, float] = {}
    for name, child in recording.children.items():
        child.process.terminate = lambda: None  # as one that ignores SIGTERM
        child.end = partial(graces.__setitem__, name)  # type: ignore[method-assign]
    recording.running.supervisor.shutdown()
    assert graces.keys() == {"cam", "lidar", WRITER}
    assert all(0 <= grace_s <= 10 for grace_s in graces.values())


# The desired state.


def test_a_desired_state_that_cannot_be_kept_is_a_fault_and_no_reason_not_to_record(
    rig: Vehicle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = DesiredStateFile.write
    full = failing(StorageError("wish.json: cannot be written: No space left on device"))
    monkeypatch.setattr(DesiredStateFile, "write", full)
    assert rig.ask("start")["state"] == "recording"
    assert kinds(rig) == ["wish"]
    monkeypatch.setattr(DesiredStateFile, "write", write)
    rig.run(6)
    assert kinds(rig) == []
    assert DesiredStateFile(tmp_path / "state", rig.boot).read()[0].session == str(
        rig.root / "drive"
    )


def test_a_desired_state_is_not_written_through_an_unmounted_root(tmp_path: Path) -> None:
    problem: str | None = "not mounted"
    file = DesiredStateFile(tmp_path / "root/.recorder", "boot", lambda: problem)
    with pytest.raises(StorageError, match="not mounted"):
        file.write(DesiredState(True))
    assert not (tmp_path / "root").exists()
    problem = None
    file.write(DesiredState(True))
    assert file.read() == (DesiredState(True), True)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"version": 1, "boot_id": 1}', '{"a":' * 50_000, "\ud800", '"x"', "1e999"],
)
def test_a_desired_state_that_nobody_wrote_is_none(tmp_path: Path, text: str) -> None:
    file = DesiredStateFile(tmp_path, "boot")
    file.path.write_bytes(text.encode(errors="surrogatepass"))
    assert file.read() == (DesiredState(), False)


def test_a_crash_before_a_recordings_first_word_is_followed_by_its_next_part(
    tmp_path: Path,
) -> None:
    """The desired state is durable before the session is: its name is taken by nobody else."""
    with vehicle(tmp_path) as rig:
        make_session(rig.root / "tour", "recording")
        DesiredStateFile(tmp_path / "state", rig.boot).write(DesiredState(True, "tour", True, {}))
        rig.writer.refuse["start"] = "not yet"
        rig.daemon()
        rig.run(3)
        assert rig.ask("status")["state"] == "fault"  # nobody waits: it is tried again
        del rig.writer.refuse["start"]
        rig.run(10)
        assert rig.ask("status")["state"] == "recording"
        assert rig.sessions == ["tour", "tour_p002"]


@pytest.mark.campaign
def test_clients_of_the_metrics_take_a_bounded_number_of_threads() -> None:
    with MetricsServer(0, lambda: "x 1\n") as server:
        held = []
        try:
            for _ in range(_MOST_CLIENTS):
                held.append(socket.create_connection(("127.0.0.1", server.port)))
                held[-1].sendall(b"GET /met")
            with socket.create_connection(("127.0.0.1", server.port), timeout=60.0) as refused:
                assert refused.recv(100) == b""
        finally:
            for made in held:
                made.close()
