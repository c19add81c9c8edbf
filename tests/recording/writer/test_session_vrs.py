"""``session.vrs``: what of a session is in it, in which order, and that it can be gone on with."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.bus.wire import Kind
from recorder.codecs.streams import ChannelSpec
from recorder.common.files import PosixDisk
from recorder.formats.vrs import ImageContent, RecordType, VrsReader, description_end
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.recording.writer.vrs_recovery import measure_vrs
from recorder.session.journal.journal import read_journal
from recorder.session.layout import VRS, VRS_INDEX, private, read_session_json
from recorder.session.reader import Session
from recorder.session.validation import validate
from recorder.session.vrs.files import describe_vrs, open_vrs
from recorder.session.vrs.records import ConfigurationData, StateData, _create_piece, file_tags
from tests.campaigns import Selector
from tests.manual_clock import ManualClock
from tests.recording.writer.vrs_session import EPOCH, SPECS, Recording, data_of, stream_of
from tests.session.build import rewrite_header


def played(root: Path, streams: list[str], commits: bool = True) -> Recording:
    recording = Recording(root, streams)
    recording.declare()
    for turn in range(4):
        recording.data("camera", 2)
        recording.data("imu", 5)
        recording.data("imu")
        recording.data("lidar", 1 + turn % 2)
        if commits:
            recording.writer.commit()
    return recording


def test_data_records_hold_what_was_sent_to_the_bit(tmp_path: Path) -> None:
    recording = played(tmp_path, list(SPECS))
    recording.end()
    assert_records(recording)


def assert_records(recording: Recording) -> None:
    """The file has every sample that was sent, in its order."""
    for name, spec in SPECS.items():
        records = data_of(recording.path, name)
        sent = [(m, at) for m in recording.sent[name] for at in range(m.count or 0)]
        for (layout, *blocks), (message, at) in zip(records, sent, strict=True):
            assert not isinstance(message.t_mono_ns, int)
            described, data = layout.as_dict(), [b.data for b in blocks if not hasattr(b, "spec")]
            assert (described["seq"], described["epoch"]) == (message.seq + at, message.epoch)
            assert described["t_mono_ns"] == message.t_mono_ns[at]
            if message.t_dev_ns is not None:
                assert described["t_dev_ns"] == message.t_dev_ns[at]
            for channel, part in zip(spec.channels, parts(message, spec, at), strict=True):
                got = described[channel.name] if channel.name in described else data.pop(0)
                if not isinstance(got, bytes):  # a scalar comes as Python's own
                    got = np.asarray(got).tobytes()[: len(part)]
                assert got == part
            assert not data


def parts(message: Any, spec: Any, at: int) -> Iterator[bytes]:
    sizes = iter(message.sizes)
    for channel, frame in zip(spec.channels, message.frames, strict=True):
        if channel.variable:
            size = next(sizes)
            start = int(size[:at].sum())
            yield frame[start : start + int(size[at])]
        else:
            data = lzma.decompress(frame) if channel.format == "lzma" else frame
            yield data[at * channel.sample_bytes : (at + 1) * channel.sample_bytes]


def test_channels_become_what_readers_know(tmp_path: Path) -> None:
    path = played(tmp_path, list(SPECS)).end()
    with open_vrs(path) as vrs:
        formats = {
            name: str(vrs.stream(stream_of(vrs, name)).records[RecordType.DATA, 1].format)
            for name in SPECS
        }
        (camera, *_) = data_of(path, "camera")
        assert isinstance(camera[1].content, ImageContent) and camera[1].data[:2] == b"\xff\xd8"
        (sweep, *_) = data_of(path, "lidar")
        assert sweep[-1].array().shape == (64, 128) and sweep[-1].array().dtype == np.uint16
        flavors = {name: vrs.stream(stream_of(vrs, name)).flavor for name in SPECS}
        ids = {name: stream_of(vrs, name).type_id for name in SPECS}
    assert formats["imu"] == "data_layout/size=134"
    assert formats["camera"] == "data_layout/size=28+image/jpg/16x8"
    assert formats["lidar"] == (
        "data_layout/size=44+custom/format=rng.xz+data_layout/size=4+custom/size=8192/format="
        "t_col.u8+data_layout/size=4+image/raw/128x64/pixel=grey16"
    )
    assert flavors == {name: f"recorder/the_{name}" for name in SPECS}
    assert ids == {"camera": 214, "imu": 241, "lidar": 245}


def test_only_the_data_that_are_wanted_and_the_configuration_and_state_of_all(
    tmp_path: Path,
) -> None:
    recording = played(tmp_path, ["imu"])
    recording.tell(Kind.STATE, "lidar", temperature=41.5, mode="1024x10", on=True, big=10**400)
    recording.tell(Kind.LOST, "camera", 3, cause="device", packets=7)
    recording.clock.step_realtime(2.5)
    recording.writer.event("mark", cause="user", text="here")
    recording.writer.commit()
    path = recording.end()
    with Session(path) as session:
        described = describe_vrs(session)
    assert described is not None and described["indexed"]
    counts = {
        n: (s["configuration"], s["state"], s["data"]) for n, s in described["streams"].items()
    }
    assert counts == {
        "camera": (1, 3, 0),  # begin, loss, end
        "imu": (1, 2, 24),
        "lidar": (1, 3, 0),
        "(session)": (1, 2, 0),  # mark, clock step
    }
    with open_vrs(path) as vrs:
        states = {n: layouts(vrs, n, RecordType.STATE, StateData) for n in ("lidar", "camera", "")}
        (configuration,) = layouts(vrs, "lidar", RecordType.CONFIGURATION, ConfigurationData)
        (of_session,) = layouts(vrs, "", RecordType.CONFIGURATION, ConfigurationData)
        tags = vrs.tags
    state = next(s for s in states["lidar"] if s.kind == "state")
    assert state.numbers == {"temperature": 41.5, "on": 1.0}
    assert json.loads(state.values)["mode"] == "1024x10"
    lost = next(s for s in states["camera"] if s.kind == "lost")
    assert (lost.cause, lost.seq, lost.numbers["count"]) == ("device", 8, 3.0)
    assert {s.kind: s.numbers.get("step_ns") for s in states[""]} == {"mark": None, "clock": 2.5e9}
    assert configuration.files == dict(SPECS["lidar"].files)
    assert configuration.rate_hz == 10.0 and configuration.driver == "the_lidar"
    assert json.loads(configuration.declaration)["channels"][0]["name"] == "rng"
    assert of_session.files == {"config.yaml": "version: 1\n"}
    start_ns = read_session_json(path)["start_ns"]
    assert int(tags["start_ns"]) == start_ns and "CLOCK_MONOTONIC" in tags["time_domain"]


def layouts(vrs: VrsReader, name: str, kind: RecordType, layout: type) -> list[Any]:
    return [record.layout(layout) for record in vrs.records(stream_of(vrs, name), kind)]


def test_time_stamps_are_those_of_ts(tmp_path: Path) -> None:
    path = played(tmp_path, ["imu", "camera"]).end()
    with open_vrs(path) as vrs:
        for name in ("imu", "camera"):
            stamps = vrs.timestamps_s(stream_of(vrs, name), RecordType.DATA)
            assert stamps.tolist() == np.fromfile(path / name / "ts", "<f8").tolist()


def test_every_epoch_is_configured_before_its_data(tmp_path: Path) -> None:
    recording = played(tmp_path, ["imu"])
    recording.restart("imu")
    recording.data("imu", 3)
    recording.data("imu", 3)
    path = recording.end()
    with open_vrs(path) as vrs:
        configured = None
        seen = []
        for record in vrs.records(stream_of(vrs, "imu")):
            if record.record_type is RecordType.CONFIGURATION:
                configured = record.layout(ConfigurationData).epoch
            elif record.record_type is RecordType.DATA:
                assert record.blocks()[0]["epoch"] == configured  # type: ignore[index]
                seen.append(configured)
    assert seen == [EPOCH] * 24 + [EPOCH + 1] * 6


def test_records_lie_in_order_of_time_where_sensors_are_late(tmp_path: Path) -> None:
    recording = Recording(tmp_path, list(SPECS))
    recording.declare()
    for _ in range(5):
        recording.data("imu", 20, late_s=0.001)
        recording.data("camera", late_s=0.035)
        recording.data("lidar", late_s=0.05)
    path = recording.end()
    with open_vrs(path) as vrs:
        stamps = [r.timestamp_s for r in vrs.records(types=RecordType.DATA, file_order=True)]
        counts = {n: len(vrs.numbers(stream_of(vrs, n), RecordType.DATA)) for n in SPECS}
    assert stamps == sorted(stamps)
    assert counts == {"imu": 100, "camera": 5, "lidar": 5}


def test_a_closed_session_has_no_side_file_and_is_sound(tmp_path: Path) -> None:
    recording = played(tmp_path, list(SPECS))
    assert private(recording.path, VRS_INDEX).exists()
    path = recording.end()
    assert not private(path, VRS_INDEX).exists()
    report = validate(path, deep=True)
    assert report.sound, report.problems
    assert any(line.startswith("session.vrs: ") for line in report.checked)


def test_no_record_format_no_file(tmp_path: Path) -> None:
    recording = Recording(tmp_path, None)
    recording.declare("imu")
    recording.data("imu", 4)
    path = recording.end()
    assert not (path / VRS).exists() and validate(path).sound
    with Session(path) as session:
        assert describe_vrs(session) is None


@pytest.mark.parametrize("finished", [False, True])
def test_a_killed_writers_successor_goes_on_in_the_file(tmp_path: Path, finished: bool) -> None:
    """The result is byte for byte that of one undisturbed writer."""
    whole = played(tmp_path / "a", list(SPECS))
    killed = played(tmp_path / "b", list(SPECS))
    killed.data("imu", 7)  # lost with the writer: no commit holds it
    for file in killed.writer._files():
        file.flush()
    if finished:  # died while it closed the session
        assert killed.writer.vrs is not None
        killed.writer.vrs.finish()
    killed.writer.abandon()
    killed.writer = SessionWriter.resume(PosixDisk(), killed.path, ManualClock(6_000_000_000))
    again = killed.sent["imu"].pop()
    killed.declare()
    killed.writer.append(again)
    killed.writer.commit()
    path = killed.end()
    whole.data("imu", 7)
    assert whole.end()
    with VrsReader(path / VRS) as one, VrsReader(whole.path / VRS) as other:
        for name in SPECS:
            mine = [r.payload() for r in one.records(stream_of(one, name), RecordType.DATA)]
            theirs = [r.payload() for r in other.records(stream_of(other, name), RecordType.DATA)]
            assert mine == theirs and mine
    assert validate(path, deep=True).sound


def test_a_killed_sessions_file_has_all_samples_that_were_kept(tmp_path: Path) -> None:
    """Beyond the last commit, too: epochs, numbers, frames as they were sent."""
    recording = played(tmp_path, list(SPECS))
    recording.restart("lidar")
    for name in ("camera", "imu", "lidar", "lidar"):
        recording.data(name, 3)
    for file in recording.writer._files():
        file.flush()
    recording.writer.abandon()
    report = recover(recording.path, PosixDisk(), ManualClock(9_000_000_000))
    assert report.vrs is not None and report.vrs.damaged is None
    assert {n: s.kept - s.committed for n, s in report.streams.items()} == {
        "camera": 3,
        "imu": 3,
        "lidar": 6,
    }
    found = validate(recording.path, deep=True)
    assert found.sound, found.problems
    assert_records(recording)


@pytest.mark.parametrize("killed", [False, True])
def test_a_compressed_file_has_the_same_records(tmp_path: Path, killed: bool) -> None:
    """Also after a kill, when recovery adds the records that are missing."""
    files = {}
    for name in ("none", "zstd"):
        recording = Recording(tmp_path / name, list(SPECS), record_compression=name)
        recording.declare()
        for turn in range(3):
            recording.data("camera", 2)
            recording.data("imu", 5)
            recording.data("lidar")
            recording.tell(Kind.STATE, "lidar", text="x" * 400)
            if turn < 2:
                recording.writer.commit()
        if killed:
            for file in recording.writer._files():
                file.flush()
            recording.writer.abandon()
            recover(recording.path, PosixDisk(), ManualClock(9_000_000_000))
        else:
            recording.end()
        with open_vrs(recording.path) as vrs:
            assert vrs.indexed
            records = [(str(r.stream), r.record_type, r.timestamp_s) for r in vrs]
            data = [r.payload() for r in vrs if r.record_type is RecordType.DATA]
            packed = sum(bool(r.header().uncompressed_size) for r in vrs)
        files[name] = records, data, packed, (recording.path / "session.vrs").stat().st_size
        assert validate(recording.path).problems == []
    assert files["zstd"][:2] == files["none"][:2]
    assert files["none"][2] == 0 < files["zstd"][2]
    assert files["zstd"][3] < files["none"][3]


def test_after_a_power_cut_only_what_is_proven_is_believed(tmp_path: Path) -> None:
    recording = played(tmp_path, ["imu"])
    recording.data("imu", 9)
    for file in recording.writer._files():
        file.flush()
    with (recording.path / VRS).open("ab") as tail:
        tail.write(bytes(5000))
    recording.writer.abandon()
    report = recover(recording.path, PosixDisk(), ManualClock(), boot="another")
    assert report.vrs is not None and report.vrs.cut_bytes >= 5000
    assert len(data_of(recording.path, "imu")) == 24 + 9, "their digests were written before them"
    assert validate(recording.path, deep=True).sound
    (part,) = private(recording.path, "salvage").glob("session.vrs@*")
    assert part.stat().st_size == report.vrs.cut_bytes


def test_cut_anywhere_it_is_recovered_to_whole_records(tmp_path: Path, select: Selector) -> None:
    """A disk that lost what it had promised: measured all over it, recovered at records' ends."""
    recording = Recording(tmp_path, ["imu"])
    recording.declare("imu")
    recording.data("imu", 2)
    recording.writer.commit()
    recording.data("imu", 3)
    recording.writer.commit()
    recording.writer.abandon()
    path = recording.path / VRS
    lengths = read_journal(private(recording.path, "commits")).files
    with VrsReader(path) as vrs:
        start, _ = description_end(path)
        ends = sorted({start, *(r.offset for r in vrs), *(r.offset + r.size for r in vrs)})
    data = path.read_bytes()
    assert ends[-1] == len(data) == lengths[VRS]
    kept = {p: p.read_bytes() for p in recording.path.rglob("*") if p.is_file()}
    recovered = {at + more for at in ends for more in (-1, 0, 1)} - {len(data), len(data) + 1}
    found = []
    for length in sorted({*select(range(len(data)), 100), *recovered}):
        os.truncate(path, length)
        report = measure_vrs(recording.path, lengths, length)
        whole = max((end for end in ends if end <= length), default=0)
        assert report.damaged and report.lengths.get(VRS, 0) == whole
        if length in recovered:
            found.append(recovered_records(recording.path, kept))
        path.write_bytes(data)
    # Filled up again from the stream's own files, but for a file without a whole description.
    assert found == [0] + [5] * (len(found) - 1)


def recovered_records(session: Path, kept: dict[Path, bytes]) -> int:
    """Recover, look, and put everything back as it was."""
    report = recover(session, PosixDisk(), ManualClock(), boot="another")
    assert report.streams["imu"].kept == 5
    records = 0
    if read_session_json(session)["record_format"]:
        with open_vrs(session) as vrs:
            assert vrs.tail is None and vrs.indexed
            records = len(vrs.numbers(types=RecordType.DATA))
    else:
        assert not (session / VRS).exists()
        assert (private(session, "salvage") / VRS).exists()
    for path in session.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    return records


def test_a_missing_record_is_found_by_validation(tmp_path: Path) -> None:
    path = played(tmp_path, ["imu"]).end()
    values = read_session_json(path)
    values["record_format"]["streams"].append("camera")
    rewrite_header(path, **values)
    report = validate(path)
    assert not report.sound
    assert any("0 data records of stream camera, which has 8" in p.message for p in report.problems)


def test_a_damaged_or_missing_file_is_found_by_validation(tmp_path: Path) -> None:
    path = played(tmp_path, ["imu"]).end()
    size = (path / VRS).stat().st_size
    os.truncate(path / VRS, size - 10)
    messages = [p.message for p in validate(path).problems]
    assert any("has no index" in m for m in messages)
    (path / VRS).unlink()
    assert any("session.vrs" in p.message for p in validate(path).problems)


def test_what_an_lzma_channel_cannot_be_seals_the_session_not_the_writer(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["lidar"])
    recording.declare("lidar")
    recording.data("lidar", 2)
    message = recording.data("lidar", 2)
    message.number += 1
    message.frames = [message.frames[0], b"no xz", *message.frames[2:]]
    with pytest.raises(Exception, match="lidar: valid: data message"):
        recording.writer.append(message)
    recording.writer.seal("sealed")
    assert recover(recording.path, PosixDisk(), ManualClock()).action == "recovered"
    assert validate(recording.path, deep=True).sound


@pytest.mark.parametrize(
    ("channel", "tags"),
    [
        (ChannelSpec("a", "raw", "f4", (3,), "what it is", "m"),
         {"unit": "m", "description": "what it is"}),
        (ChannelSpec("a", "raw", "f4", (3, 2)), {"shape": "3x2"}),
        (ChannelSpec("a", "raw", "f2"), {"dtype": "f2"}),
        (ChannelSpec("a", "raw", "f2", (4,)), {"dtype": "f2"}),
        (ChannelSpec("a", "raw", "c8"), {"dtype": "c8"}),
        (ChannelSpec("a", "raw", "c8", (2, 3)), {"dtype": "c8", "shape": "2x3"}),
        (ChannelSpec("a", "raw", "u8"), {}),
    ],
)  # fmt: skip
def test_what_a_piece_cannot_say_of_a_channel_is_in_its_tags(
    channel: ChannelSpec, tags: dict[str, str]
) -> None:
    """VRS knows neither halves nor complex numbers, and no array of several dimensions."""
    assert dict(_create_piece(channel).tags) == tags


def test_the_tags_of_a_file_say_when_and_where_it_was_recorded() -> None:
    start_ns, start_mono_ns = 1_717_236_000_999_999_999, 5_000_000_000
    values = {
        "name": "tour",
        "hostname": "rig-1",
        "recorder_version": "9.8",
        "start_ns": start_ns,
        "start_mono_ns": start_mono_ns,
        "metadata": {"driver": "Ann"},
    }
    tags = file_tags(values)
    assert tags["capture_time_epoch"] == "1717236000"  # whole seconds, as in the format's own files
    assert (tags["session_id"], tags["device_id"]) == ("tour", "rig-1")
    assert (tags["recorder_version"], tags["metadata.driver"]) == ("9.8", "Ann")
    assert int(tags["start_ns"]) == start_ns and int(tags["start_mono_ns"]) == start_mono_ns
    assert int(tags["clock_offset_ns"]) == start_ns - start_mono_ns
