"""Drawings of recorded sessions against what their readers give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recorder.bus.wire import Kind, Message
from recorder.codecs import CHANNEL_FORMATS, payload
from recorder.codecs.streams import StreamSpec
from recorder.common.files import Buffer
from recorder.perception.encoded import EncodedSamples
from recorder.session.playback import Chunk, play
from recorder.session.reader import Session, lidar_range_mm
from recorder.session.stream import Stream
from recorder.viewers.live.views import make_view
from tests.session.build import Builder, full_session
from tests.viewers.live.views.sensors import first


def messages(session: Session, name: str) -> Iterator[tuple[StreamSpec, Stream, Chunk, Message]]:
    """The messages of a stream, made of the encoded samples that are on disk."""
    stream = session.streams[name]
    spec = stream.spec
    assert spec is not None
    for chunk in play(session, [name]):
        assert isinstance(chunk, Chunk)
        parts: list[list[Buffer]] = [
            list(CHANNEL_FORMATS[channel.format].encode(values))
            if isinstance(values := chunk.data[channel.name], np.ndarray)
            else [*values]
            for channel in spec.channels
        ]
        frames, sizes = payload(spec.channels, parts)
        yield (
            spec,
            stream,
            chunk,
            Message(
                Kind.DATA,
                name,
                seq=chunk.seq,
                count=len(chunk.t_ns),
                t_mono_ns=chunk.t_ns,
                t_dev_ns=chunk.t_dev_ns,
                sizes=sizes,
                frames=frames,
            ),
        )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_session(tmp_path_factory.mktemp("recorded") / "s", 0.5).path


@pytest.mark.parametrize("name", ["camera", "lidar", "lidar_imu", "radar", "imu"])
def test_samples_of_messages_are_those_of_the_reader(recorded: Path, name: str) -> None:
    count = 0
    with Session(recorded) as session:
        for spec, stream, chunk, message in messages(session, name):
            samples = EncodedSamples(spec)
            samples.check(message)
            newest = stream.sample(chunk.start + len(chunk.t_ns) - 1)
            for channel in spec.channels:
                values = samples.decoded(message, channel.name)
                assert np.array_equal(values, newest[channel.name]), channel.name
            count += len(chunk.t_ns)
        assert count == len(session.streams[name]) > 4


def test_recorded_samples_are_drawn_as_they_are(recorded: Path) -> None:
    with Session(recorded) as session:
        for spec, stream, chunk, message in messages(session, "camera"):
            drawing = make_view(spec, "picture", {}).draw([message])
            assert drawing is not None
            last = chunk.start + len(chunk.t_ns) - 1
            jpeg = stream.channels["video.avi"].encoded(last)
            assert bytes(drawing.arrays[0][1]) == jpeg
        every = list(messages(session, "imu"))
        spec, stream, _, _ = every[0]
        drawing = make_view(spec, "series", {}).draw([message for *_, message in every])
        assert drawing is not None
        arrays = dict(drawing.arrays)
        assert np.array_equal(np.asarray(arrays["acc"]), stream.read(0, None, ["acc"])["acc"])
        newest_ns = int(drawing.header["t0_ns"])
        assert np.allclose(np.asarray(arrays["t"]), (stream.t_ns - newest_ns) * 1e-9, atol=1e-12)


def test_recorded_sweeps_are_drawn_as_they_are(tmp_path: Path) -> None:
    spec, _, _ = first("lidar")
    builder = Builder(tmp_path / "s")
    builder.add(spec, count=3)
    with Session(builder.close()) as session:
        for made, stream, chunk, message in messages(session, "lidar"):
            drawing = make_view(made, "sweep", {}).draw([message])
            assert drawing is not None
            values = np.asarray(dict(drawing.arrays)["range"])
            ranges = lidar_range_mm(stream, chunk.start + len(chunk.t_ns) - 1)
            unit_mm = round(drawing.header["range_unit_m"] * 1000)
            error = np.sort(values.astype(np.int64) * unit_mm) - np.sort(ranges)
            assert values.shape == ranges.shape and np.abs(error).max() <= unit_mm / 2
