"""The packer: what both profiles share.  Messages are in test_foxglove.py and test_ros2.py."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from mcap.reader import make_reader

from recorder.archives.context import PackingContext
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.mcap.packer import PACKER
from recorder.archives.validation import find_archives, validate_archive
from recorder.common.errors import FormatError, UsageError
from recorder.common.files import PosixDisk
from recorder.formats.mcap.index import check_file
from recorder.perception.calibration import Calibration
from recorder.session import layout
from recorder.session.event_clips import KeptEvent, Shortfall, write_events
from recorder.session.events import make_event
from recorder.session.journal.journal import CommitTimes, JournalWriter
from recorder.session.part import Moment, Part
from recorder.session.reader import Session
from tests.archives.contract import ArchiveContract, recovered, rig
from tests.archives.mcap.reading import Read, read
from tests.session.build import (
    START_MONO_NS,
    START_NS,
    Builder,
    build_session,
    camera_spec,
    imu_spec,
)

SECOND = 1_000_000_000
PROFILES = ("foxglove", "ros2")


class TestFoxglove(ArchiveContract):
    archive = "mcap"


def pack(path: Path, part: Part | None = None, **options: Any) -> Path:
    more = {} if part is None else {"part": part}
    (result,) = finalize(path, [ArchiveRequest("mcap", options)], **more)  # type: ignore[arg-type]
    return find_archives(result.files[0])[0]


def records_of(path: Path) -> tuple[dict[str, dict[str, str]], dict[str, bytes]]:
    """Metadata records and attachments."""
    with path.open("rb") as file:
        reader = make_reader(file)
        metadata = {found.name: found.metadata for found in reader.iter_metadata()}
        return metadata, {found.name: found.data for found in reader.iter_attachments()}


def events_of(builder: Builder) -> None:
    """A loss with a count, one without, two marks, a clock that stepped."""
    builder.lose("imu", 3, 5, "network", t_ns=START_NS + 300_000_000)
    builder.lose("imu", 9, None, "device", count=None, t_ns=START_NS + 400_000_000, estimate=7)
    add = builder.events.append
    add(make_event("mark", START_NS + 700_000_000, text="second \u2713"))
    add(make_event("mark", START_NS + 200_000_000, text="first"))
    add(make_event("clock", START_NS + 100_000_000, cause="state", offset_ns=12, source="ptp"))
    add(make_event("clock", START_NS + 150_000_000, cause="step", step_ns=5))


def text_of(profile: str, data: bytes) -> Any:
    """The JSON of a message: itself, or the text of a std_msgs/String."""
    if profile == "foxglove":
        return json.loads(data)
    size = int.from_bytes(data[4:8], "little")
    return json.loads(data[8 : 8 + size - 1])


def raw(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    with path.open("rb") as file:
        for _, channel, message in make_reader(file, validate_crcs=True).iter_messages():
            found.setdefault(channel.topic, []).append(message)
    return found


@pytest.mark.parametrize("profile", PROFILES)
def test_losses_and_marks_are_topics(tmp_path: Path, profile: str) -> None:
    builder = rig(tmp_path / "drive")
    events_of(builder)
    found = raw(pack(builder.close(), profile=profile))
    losses = [text_of(profile, m.data) for m in found["/recorder/losses"]]
    assert [(e["cause"], e["count"], e.get("estimate")) for e in losses] == [
        ("network", 3, None),
        ("device", None, 7),
    ]
    assert [m.log_time - START_NS for m in found["/recorder/losses"]] == [300000000, 400000000]
    marks = [text_of(profile, m.data) for m in found["/recorder/marks"]]
    assert [mark["text"] for mark in marks] == ["first", "second \u2713"]
    assert [m.sequence for m in found["/recorder/marks"]] == [0, 1]
    log = found["/log" if profile == "foxglove" else "/rosout"]
    assert len(log) == len(builder.events)
    assert [m.log_time for m in log] == sorted(m.log_time for m in log)


@pytest.mark.parametrize("profile", PROFILES)
def test_events_that_are_kept_are_a_topic_and_metadata(tmp_path: Path, profile: str) -> None:
    path = rig(tmp_path / "drive").close()
    end_ns = Session(path).end_ns
    assert end_ns is not None
    moments = (START_NS - 2 * SECOND, START_NS + SECOND // 10, end_ns + SECOND)
    missing = Shortfall(moments[1], end_ns, "imu", "lost")
    events = [
        KeptEvent(
            f"e{k}", "a \u2713", "brake", t_ns, t_ns - 3 * SECOND, t_ns + 3 * SECOND, "short",
            ("drive",), (missing,),
        )
        for k, t_ns in enumerate(moments)
    ]  # fmt: skip
    far = KeptEvent("far", "", None, end_ns + 9, end_ns + 9, end_ns + 9, "open")
    write_events(PosixDisk(), path, [*events, far])
    packed = pack(path, profile=profile)
    messages = raw(packed)["/recorder/events"]
    assert [m.log_time for m in messages] == [START_NS, moments[1], end_ns]
    expected = [msgspec.to_builtins(event) for event in events]
    assert [text_of(profile, m.data) for m in messages] == json.loads(json.dumps(expected))
    metadata, _ = records_of(packed)
    assert json.loads(metadata["recorder"]["events"]) == json.loads(json.dumps(expected))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_session_without_events_has_no_topic_of_them(tmp_path: Path, profile: str) -> None:
    packed = pack(rig(tmp_path / "drive").close(), profile=profile)
    metadata, _ = records_of(packed)
    assert "events" not in metadata["recorder"] and "/recorder/events" not in raw(packed)


@pytest.mark.parametrize("profile", PROFILES)
def test_records_describe_the_session(tmp_path: Path, profile: str) -> None:
    builder = rig(tmp_path / "drive")
    events_of(builder)
    path = builder.close()
    (path / "calibration.yaml").write_text("sensors: {}\n")
    metadata, attachments = records_of(pack(path, profile=profile))
    assert metadata["foxglove"] == {"deviceName": "rig-1"}
    ours = metadata["recorder"]
    assert (ours["session"], ours["state"], ours["profile"]) == ("drive", "clean", profile)
    assert int(ours["start_ns"]) == START_NS
    assert json.loads(ours["losses"])["imu"] == {
        "counted": {"network": 3},
        "uncounted_intervals": 1,
    }
    clocks = json.loads(ours["clocks"])
    assert clocks["steps"] == 1
    assert clocks["last_state"]["source"] == "ptp"
    assert (ours["hostname"], ours["recorder_version"]) == ("rig-1", "0.1.0")
    assert ours["packed_by"].startswith("recorder ")
    assert json.loads(ours["packed_with"]).keys() >= {"python", "mcap", "numpy"}
    assert len(ours["calibration_sha256"]) == 64
    for name in ("config.yaml", "calibration.yaml", "lidar/lidar.json", "radar/radar.json"):
        assert attachments[name] == (path / name).read_bytes()


def test_a_device_without_a_vehicle_has_the_name_of_its_host(tmp_path: Path) -> None:
    path = build_session(tmp_path / "drive", imu_spec(), seconds=0.1).path
    header = json.loads((path / "_recorder/session.json").read_text())
    header["metadata"], header["hostname"] = {"operator": "x"}, "nuc-7"
    (path / "_recorder/session.json").write_text(json.dumps(header))
    metadata, _ = records_of(pack(path))
    assert metadata["foxglove"]["deviceName"] == "nuc-7"
    assert json.loads(metadata["recorder"]["metadata"]) == {"operator": "x"}


# Publish times


def commits(builder: Builder, every: int, late_ns: int) -> None:
    """A journal with a commit after so many samples of each stream."""
    path = layout.private(builder.path, layout.JOURNAL)
    path.unlink(missing_ok=True)
    journal = JournalWriter(PosixDisk().create(path))
    journal.append("open", boot_id="b", start_mono_ns=START_MONO_NS, start_ns=START_NS)
    for made in builder.streams.values():
        journal.append("stream", spec=made.spec.to_wire())
    longest = max(len(made.t_ns) for made in builder.streams.values())
    for stop in range(every, longest + every, every):
        positions: dict[str, dict[str, Any]] = {}
        times: list[int] = []
        for name, made in builder.streams.items():
            count = min(stop, len(made.t_ns))
            last_ns = int(made.t_ns[count - 1]) - START_NS + START_MONO_NS
            times.append(last_ns)
            positions[name] = {"epoch": 11, "number": count, "seq": count, "ended": None,
                               "past": [], "lost": {}, "unknown_losses": 0,
                               "samples": count, "last_ns": last_ns}  # fmt: skip
        journal.commit(t_ns=max(times) + late_ns, files={}, streams=positions, events=[])
    journal.append("close", state="clean")
    journal.close()


def test_publish_time_is_that_of_the_commit(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "drive", imu_spec(), camera_spec(), seconds=0.5)
    imu = builder.streams["imu"]
    camera = builder.streams["camera"]
    commits(builder, 20, 3_000_000)
    with Session(builder.path) as session:
        times = CommitTimes(session.path, session.header)
        assert times.problem == ""
        for k, t_ns in enumerate(imu.t_ns.tolist()):
            last = int(imu.t_ns[min(k // 20 * 20 + 19, len(imu.t_ns) - 1)])
            commit_ns = times.of("imu", t_ns)
            assert commit_ns is not None
            assert commit_ns >= last + 3_000_000
        assert times.of("imu", int(imu.t_ns[-1]) + 1) is None  # no commit has it
        assert times.of("none", START_NS) is None
        expected = [times.of("camera", t_ns) for t_ns in camera.t_ns.tolist()]
    # Streams of the test may lie apart in validation: the packer is asked directly.
    found = read(packed(builder.path, tmp_path))
    (topic,) = [name for name in found.messages if name.startswith("/camera")]
    messages = found.messages[topic]
    assert [m.log_ns for m in messages] == camera.t_ns.tolist()
    assert [m.publish_ns for m in messages] == expected
    assert len(set(expected)) == 1


def packed(path: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    with Session(path, virtual=True) as session:
        (name,) = PACKER.pack(
            PackingContext(session, folder, PACKER.check({}), Calibration())
        ).files
    return folder / name


def test_without_a_journal_publish_time_is_log_time(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "trace", plain=True)
    builder.add(camera_spec(), 0.3)
    found = read(pack(builder.close()))
    assert found.messages
    for messages in found.messages.values():
        assert [m.publish_ns for m in messages] == [m.log_ns for m in messages]


# Parts, order, numbers


@pytest.mark.parametrize("profile", PROFILES)
def test_a_part_has_its_streams_and_its_interval(tmp_path: Path, profile: str) -> None:
    builder = Builder(tmp_path / "drive")
    imu = builder.add(imu_spec(), 1.0)
    builder.add(camera_spec(), 1.0)
    events_of(builder)
    part = Part(Moment.parse("0.25"), Moment.parse("0.5"), ("imu",))
    path = pack(builder.close(), part, profile=profile)
    found = raw(path)
    begin, end = START_NS + SECOND // 4, START_NS + SECOND // 2
    (topic,) = [topic for topic in found if topic.startswith("/imu")]
    times = [m.log_time for m in found[topic]]
    assert times == imu.t_ns[(imu.t_ns >= begin) & (imu.t_ns < end)].tolist()
    assert not any("camera" in topic for topic in found)
    assert all(begin <= m.log_time < end for messages in found.values() for m in messages)
    metadata, _ = records_of(path)
    assert metadata["recorder"]["part"] == "from 0.25 s, until 0.5 s, streams imu"


def test_numbers_are_those_of_the_samples(tmp_path: Path) -> None:
    found = read(pack(recovered(tmp_path / "drive")))
    assert [m.sequence for m in found.messages["/camera/image"]] == [0, 1, 2, 7, 8]


def test_messages_are_in_order_of_log_time(tmp_path: Path) -> None:
    path = pack(rig(tmp_path / "drive").close())
    with path.open("rb") as file:
        messages = make_reader(file).iter_messages(log_time_order=False)
        times: dict[bool, list[int]] = {True: [], False: []}
        for _, channel, message in messages:
            times[channel.topic == "/camera/image"].append(message.log_time)
    for each in times.values():  # of the compressed chunks, and of the others
        assert len(each) > 5
        assert each == sorted(each)


def test_progress_is_that_of_time(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 2.0)
    builder.add(imu_spec(), 2.0)
    done: list[float] = []
    steps = [ArchiveRequest("mcap")]
    list(finalize(builder.close(), steps, progress=lambda _, at, total: done.append(at / total)))
    assert done[-1] == pytest.approx(1.0)
    assert np.diff(done).max() < 0.05


@pytest.mark.parametrize("profile", PROFILES)
def test_times_before_1970_are_an_error_that_names_the_stream(tmp_path: Path, profile: str) -> None:
    path = build_session(tmp_path / "trace", camera_spec(), count=5, plain=True).path
    ts = np.fromfile(path / "camera/ts")
    (ts - ts[0] - 3.0).tofile(path / "camera/ts")
    with pytest.raises(FormatError, match=r"trace: mcap: camera: .*no"):
        pack(path, profile=profile)


@pytest.mark.parametrize(("profile", "module"), [("foxglove", "foxglove"), ("ros2", "mcap")])
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, profile: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"needs the extra archives .*: no {module}"):
        PACKER.check({"profile": profile})


# Validation


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = rig(tmp_path_factory.mktemp("mcap") / "drive").close()
    return {profile: pack(path, profile=profile) for profile in PROFILES}


@pytest.mark.parametrize("profile", PROFILES)
def test_archives_are_sound(sound: dict[str, Path], profile: str) -> None:
    report = validate_archive(sound[profile])
    assert report.sound, report.problems
    assert not report.unchecked
    assert any("mcap: " in line for line in report.checked)
    both = find_archives(sound["foxglove"].parent)
    assert both == sorted([sound["foxglove"], sound["ros2"]])


def test_every_byte_that_changes_is_found(sound: dict[str, Path], tmp_path: Path) -> None:
    """Our own reader alone finds each; but for the digits of CRCs that mean "none"."""
    data, path = sound["foxglove"].read_bytes(), tmp_path / "a.mcap"
    generator = np.random.default_rng(1)
    places = {*range(40), *range(len(data) - 300, len(data))}
    places |= set(generator.integers(0, len(data), 150).tolist())
    summary = int.from_bytes(data[-28:-20], "little")  # of the footer
    places |= {*range(summary - 13, summary + 9)}  # the end of the data, the first record after it
    for at in sorted(places):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        with pytest.raises(FormatError, match=r"a.mcap: byte \d+: "):
            list(check_file(path))


def test_a_wrong_description_of_a_bag_is_found(sound: dict[str, Path], tmp_path: Path) -> None:
    source = sound["ros2"]
    folder = tmp_path / "drive"
    folder.mkdir()
    (folder / source.name).write_bytes(source.read_bytes())
    bag = yaml.safe_load((source.parent / "metadata.yaml").read_bytes())
    information = bag["rosbag2_bagfile_information"]
    one, other = information["topics_with_message_count"][:2]

    def problems() -> str:
        (folder / "metadata.yaml").write_text(yaml.safe_dump(bag))
        return " ".join(validate_archive(find_archives(folder)[0]).problems)

    assert problems() == ""
    one["message_count"] += 1
    other["message_count"] -= 1  # the sum stays
    assert "other numbers of messages" in problems()
    one["message_count"] -= 1
    other["message_count"] += 1
    information["message_count"] += 1
    assert "other numbers of messages" in problems()
    (folder / "metadata.yaml").write_text("[]")
    report = validate_archive(find_archives(folder)[0])
    assert any("is no description of a bag" in problem for problem in report.problems)


def test_an_unfinished_file_is_damaged(sound: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(sound["foxglove"].read_bytes()[:-20])
    report = validate_archive(path)
    assert not report.sound
    assert "was not finished" in report.problems[0]
    assert report.unchecked == ["whether other readers of MCAP read it: it is damaged"]


def test_without_the_package_the_report_says_so(
    sound: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("recorder.formats.mcap."):
            raise ModuleNotFoundError("No module named 'mcap'", name="mcap")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    report = validate_archive(sound["foxglove"])
    (problem,) = report.problems
    assert "checking an MCAP file needs the extra archives" in problem


def test_read_has_all(sound: dict[str, Path]) -> None:
    found: Read = read(sound["foxglove"])
    assert found.messages.keys() >= {"/camera/image", "/imu", "/lidar/points"}
