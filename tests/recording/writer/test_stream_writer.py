"""Streams of a session: what is held back until a stream may begin."""

from __future__ import annotations

from pathlib import Path

from recorder.session.reader import Session
from tests.recording.writer.test_seal import Recording


def test_a_single_sample_is_stored_at_the_close_though_its_driver_never_ended_the_stream(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path)
    recording.data(epoch=1, number=0, seq=0, count=1)
    recording.writer.commit()
    assert not (recording.path / "a").exists(), "held back: nobody may be told that it is durable"
    assert recording.writer.durable["a"] < (1, 1)
    recording.writer.close("clean")
    with Session(recording.path) as session:
        assert len(session.streams["a"]) == 1
