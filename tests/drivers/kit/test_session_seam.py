"""The session that an item belongs to, and what a driver owes to both sides of a seam."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.read_watchdog import ReadWatchdog
from drivers.kit.session_seam import SessionSeam
from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.messages import Hello
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.manual_clock import ManualClock

IMU = StreamSpec("imu", (ChannelSpec("x", "raw", "u1", (4,)),), rate_hz=100.0)
VIDEO = StreamSpec("camera", (ChannelSpec("video.h264", "h264", "u1", (64, 96, 3)),))
KEY, OTHER = b"\0\0\0\1\x65\x88", b"\0\0\0\1\x41\x9a"
FIRST = Session("s1", start_ns=0, until_ns=None, last_ns=None)
SECOND = Session("s2", start_ns=0, until_ns=None, last_ns=None, seam_ns=100)


def hello(session: Session, following: Session | None = None, crossing: str | None = None) -> Hello:
    return Hello(session, following, crossing, {}, buffer_bytes=1000, window_bytes=1000)


def seam_of(spec: StreamSpec, clock: ManualClock | None = None) -> SessionSeam:
    seam = SessionSeam((spec,), clock or ManualClock(), ReadWatchdog())
    seam.follow(hello(FIRST))
    return seam


def batch(*t_ns: int) -> Sample:
    return Sample("imu", np.array(t_ns, np.int64), {"x": np.arange(4 * len(t_ns)).reshape(-1, 4)})


def message(t_ns: int) -> Message:
    return Message(Kind.DATA, "imu", count=1, t_mono_ns=np.array([t_ns]), frames=[bytes(4)])


def assigned(seam: SessionSeam, item: Item) -> list[tuple[list[int], str | None]]:
    """Stamps, and key of the session, of each part of an item."""
    return [
        (np.atleast_1d(part.t_ns).tolist(), None if owner is None else owner.key)
        for part, owner in seam.assign(item, seam.session)
    ]


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        (batch(98, 99), [([98, 99], "s1")]),
        (batch(100, 101), [([100, 101], "s2")]),
        (batch(98, 99, 100, 101), [([98, 99], "s1"), ([100, 101], "s2")]),
        (State("imu", 99, {}), [([99], "s1")]),
        (Lost("imu", 100, "device", 2), [([100], "s2")]),
    ],
)
def test_items_belong_to_the_side_of_the_seam_they_lie_on(
    item: Item, parts: list[tuple[list[int], str]]
) -> None:
    seam = seam_of(IMU)
    assert [key for _, key in assigned(seam, batch(500))] == ["s1"], "no seam is known"
    seam.follow(hello(FIRST, SECOND))
    if isinstance(item, Sample):
        item = batch(*item.t_ns.tolist())  # `assign` reduces the batch
    assert assigned(seam, item) == parts


def test_a_batch_keeps_its_samples_data_across_the_seam() -> None:
    seam = seam_of(IMU)
    seam.follow(hello(FIRST, SECOND))
    (before, _), (behind, _) = seam.assign(batch(98, 99, 100), FIRST)
    assert isinstance(before, Sample) and isinstance(behind, Sample)
    assert np.asarray(before.data["x"]).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert np.asarray(behind.data["x"]).tolist() == [[8, 9, 10, 11]]


def test_without_a_session_nothing_crosses() -> None:
    seam = seam_of(IMU)
    seam.follow(hello(FIRST, SECOND))
    ((item, owner),) = seam.assign(batch(99, 100), None)
    assert isinstance(item, Sample) and item.count == 2 and owner is None


def test_video_crosses_with_its_next_keyframe() -> None:
    seam = seam_of(VIDEO)
    seam.follow(hello(FIRST, SECOND))
    units = [KEY, OTHER, OTHER, KEY, OTHER]
    video = Sample("camera", np.arange(98, 103), {"video.h264": units})
    owners = [[98], "s1"], [[99], "s1"], [[100], "s1"], [[101], "s2"], [[102], "s2"]
    assert [list(part) for part in assigned(seam, video)] == list(owners)


def test_the_session_before_is_sent_and_acknowledged_until_it_is_empty() -> None:
    clock = ManualClock()
    seam = seam_of(IMU, clock)
    assert seam.offer(message(1), FIRST)
    seam.follow(hello(FIRST, SECOND))
    assert not seam.begins(FIRST) and seam.begins(SECOND)
    clock.advance(1.0)  # or both would be of one epoch
    seam.cross()
    assert seam.session is SECOND and not seam.begins(SECOND)
    assert seam.is_open(FIRST), "its continuation is open"
    assert seam.offer(message(101), SECOND)
    before, present = seam.parts
    sent = []
    while (found := seam.next_to_send()) is not None:
        ring, sent_message = found
        ring.mark_sent(sent_message)
        sent.append((sent_message.kind, sent_message.epoch))
    assert sent == [(Kind.DATA, before.ring.epoch), (Kind.END, before.ring.epoch)], (
        "the writer has not admitted the next session yet"
    )
    assert present.ring.buffer_bytes == 1000 - before.ring.bytes_held
    seam.acknowledge({"imu": (before.ring.epoch, 2, 2)})
    assert before.ring.empty and present.ring.buffer_bytes == 1000
    seam.follow(hello(SECOND, crossing="s1"))
    assert seam.leaving is before
    found = seam.next_to_send()
    assert found is not None and found[0] is present.ring
    seam.follow(hello(SECOND))
    assert seam.leaving is None, "the writer has closed the session"
