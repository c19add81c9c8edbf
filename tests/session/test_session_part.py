"""Part of a session: an interval of time, some of the streams."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.common.errors import SessionError, UsageError
from recorder.session.part import Moment, Part
from recorder.session.session_part import SessionPart
from tests.session.build import START_NS, Builder, camera_spec, full_session, imu_spec


def part(begin: str | None = None, end: str | None = None, *streams: str) -> Part:
    first, last = (None if text is None else Moment.parse(text) for text in (begin, end))
    return Part(first, last, streams or None)


@pytest.mark.parametrize(
    ("text", "ns", "since_epoch"),
    [
        ("0", 0, False),
        ("12.5", 12_500_000_000, False),
        (".000000001", 1, False),
        ("2024-06-01T10:00:00Z", 1_717_236_000_000_000_000, True),
        ("2024-06-01T10:00:00.123456789Z", START_NS, True),
        ("2024-06-01 10:00:00.250 UTC", 1_717_236_000_250_000_000, True),
        ("2024-06-01T10:00", 1_717_236_000_000_000_000, True),
    ],
)
def test_moments(text: str, ns: int, since_epoch: bool) -> None:
    moment = Moment.parse(text)
    assert (moment.ns, moment.since_epoch) == (ns, since_epoch)


@pytest.mark.parametrize("text", ["", "-1", "nan", "1e3", "10:00", "2024-06-31T10:00:00Z", "soon"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(UsageError, match=r"day is out of range|needs seconds since"):
        Moment.parse(text)


def test_samples_of_the_interval(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 1.0)
    with SessionPart(builder.path, part("0.25", "0.5", "camera", "imu")) as session:
        assert list(session.streams) == ["camera", "imu"]
        assert session.start_ns == START_NS + 250_000_000
        assert session.end_ns == START_NS + 500_000_000
        for name, stream in session.streams.items():
            made = builder.streams[name]
            inside = (made.t_ns >= session.start_ns) & (made.t_ns < session.end_ns)
            assert 0 < len(stream) == np.count_nonzero(inside) < len(made.t_ns)
            assert np.array_equal(stream.t_ns, made.t_ns[inside])
            assert stream.seq is not None
            assert np.array_equal(stream.seq, made.seq[inside])
            assert stream.first == int(np.argmax(inside))
            assert len(stream.whole) == len(made.t_ns)
        imu, made = session.streams["imu"], builder.streams["imu"]
        first = imu.first
        assert np.array_equal(imu.sample(0)["acc"], made.data["acc"][first])
        assert np.array_equal(imu.sample(-1)["acc"], made.data["acc"][first + len(imu) - 1])
        batches = [batch.data["acc"] for batch in imu.iterate(7)]
        inside_acc = made.data["acc"][first : first + len(imu)]
        assert np.array_equal(np.concatenate(batches), inside_acc)
        with pytest.raises(IndexError):
            imu.read(0, len(imu) + 1)
        camera = session.streams["camera"]
        video, whole = camera.channels["video.avi"], camera.whole.channels["video.avi"]
        assert video.encoded(1) == whole.encoded(camera.first + 1)
        assert video.encoded(-1) == whole.encoded(camera.first + len(camera) - 1)
        assert session.whole.streams["lidar"].name == "lidar"


def test_an_open_end_and_utc(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 1.0)
    with SessionPart(builder.path, part("2024-06-01T10:00:00.5Z")) as session:
        t_ns = builder.streams["imu"].t_ns
        inside = t_ns[t_ns >= 1_717_236_000_500_000_000]
        assert np.array_equal(session.streams["imu"].t_ns, inside)
        assert session.end_ns == session.whole.end_ns


def test_epochs_and_losses_of_the_part(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    epochs = ((11, 0), (12, 40), (13, 70))
    builder.add(imu_spec(), seq=[*range(40), *range(30), *range(30)], epochs=epochs)
    builder.add(camera_spec(), 1.0)
    builder.lose("imu", 40, 44, t_ns=START_NS + 410_000_000)
    builder.lose("imu", 30, 31, epoch=12, t_ns=START_NS + 710_000_000)
    builder.lose("camera", 30, 31, t_ns=START_NS + 800_000_000)
    path = builder.close()
    with SessionPart(path, part("0.6", None, "imu")) as session:
        imu = session.streams["imu"]
        assert [(e["epoch"], e["first_sample"]) for e in imu.epochs or ()] == [
            (12, 0),
            (13, 70 - imu.first),
        ]
        assert [e["epoch"] for e in session.events()] == [12]


def test_streams_without_a_sample_are_named(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), 1.0)
    builder.add(camera_spec(), 0.2)
    path = builder.close()
    with SessionPart(path, part("0.5")) as session:
        assert list(session.streams) == ["imu"]
        assert session.empty == ["camera"]
    with pytest.raises(SessionError, match=r"has no sample: from 5 s"):
        SessionPart(path, part("5"))
    with pytest.raises(SessionError, match=r"has no sample: from 0.5 s, streams camera"):
        SessionPart(path, part("0.5", None, "camera"))
    with pytest.raises(SessionError, match=r"no stream 'lidar'; its streams: camera, imu"):
        SessionPart(path, part(None, None, "lidar"))
    with pytest.raises(SessionError, match="ends before it begins"):
        SessionPart(path, part("2024-06-01T10:00:01Z", "0.5"))
