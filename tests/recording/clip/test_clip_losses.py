"""Numbers, epochs and losses of clips."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recorder.common.errors import SessionError
from recorder.recording.clip.writing import write_clip
from recorder.session import layout
from recorder.session.journal.journal import read_journal, walk_journal
from recorder.session.loss_accounts import group_lost_events
from recorder.session.reader import Session
from tests.recording.clip.cuts import part, samples, sound
from tests.session.build import START_NS, Builder, imu_session, imu_spec

fates = st.lists(st.sampled_from("sssssslLu"), min_size=2, max_size=40)


@st.composite
def recordings(draw: st.DrawFn) -> list[str]:
    """Epochs of a stream: stored samples (s), counted losses (l, L), uncounted losses (u)."""
    return ["".join(draw(fates)) for _ in range(draw(st.integers(1, 3)))]


def build(path: Path, epochs: Sequence[str]) -> tuple[Path, set[tuple[int, int]]]:
    """A session of an IMU with these fates; the lost numbers by epoch."""
    builder, starts = Builder(path), []
    seq: list[int] = []
    lost: set[tuple[int, int]] = set()
    events: list[tuple[int, int, int, str]] = []
    uncounted = []
    for number, fate in enumerate(epochs, start=11):
        starts.append((number, len(seq)))
        at = 0
        for one in fate:
            if one == "s":
                seq.append(at)
            elif one == "u":
                uncounted.append((number, len(seq), at))
                continue
            else:
                lost.add((number, at))
                events.append((number, len(seq), at, {"l": "buffer", "L": "device"}[one]))
            at += 1
    made = builder.add(imu_spec(), seq=seq, epochs=starts)
    for number, index, first, cause in events:
        t_ns = int(made.t_ns[min(index, len(seq) - 1)])
        builder.lose("imu", first, first, cause, epoch=number, t_ns=t_ns)
    for number, index, first in uncounted:
        t_ns = int(made.t_ns[min(index, len(seq) - 1)])
        builder.lose("imu", first, None, "driver", epoch=number, t_ns=t_ns, count=None)
    return builder.close(), lost


def lost_numbers(session: Path) -> list[tuple[int, int]]:
    """Lost numbers by epoch; a merged event has those of stored samples between them, too."""
    told: set[tuple[int, int]] = set()
    count = 0
    with Session(session) as opened:
        stream = opened.streams["imu"]
        seq = stream.channels["seq"].read(0, len(stream)).tolist()
        entries = stream.epochs or ()
        starts = [entry["first_sample"] for entry in entries]
        stops = [*starts[1:], len(seq)]
        stored = {
            (entry["epoch"], k)
            for entry, start, stop in zip(entries, starts, stops, strict=True)
            for k in seq[start:stop]
        }
        for event in group_lost_events(opened.events()).get("imu", ()):
            if event["count"] is not None:
                count += event["count"]
                numbers = range(event["first_seq"], event["last_seq"] + 1)
                told |= {(event["epoch"], k) for k in numbers} - stored
    assert len(told) == count
    return sorted(told)


@settings(deadline=None)
@given(recordings(), st.integers(-5, 120), st.integers(1, 120))
@example(["sssssuss"], 6, 1)
@example(["ssssssussl"], 7, 1)
@example(["slsl"], 0, 2)
@example(["sLslsL"], 0, 60)
def test_accounts_of_a_clip_are_those_of_its_interval(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[str], first: int, count: int
) -> None:
    if "".join(epochs).count("s") < 2:
        return
    folder = tmp_path_factory.mktemp("accounts")
    source, lost = build(folder / "source", epochs)
    begin, end = max(0, first) / 100, (max(0, first) + count) / 100
    begin_ns, end_ns = START_NS + round(begin * 1e9), START_NS + round(end * 1e9)
    try:
        clip = write_clip([source], part(begin, end), folder)
    except SessionError as error:
        assert "has no sample" in str(error)
        assert not samples(source, "imu", begin_ns, end_ns)
        return
    sound(clip.session)
    assert samples(clip.session, "imu", None, None) == samples(source, "imu", begin_ns, end_ns)
    told = lost_numbers(clip.session)
    assert set(told) <= lost
    for entry in epochs_of(clip.session):
        epoch, begins = entry["epoch"], entry.get("first_seq", 0)
        inside = {k for e, k in lost if e == epoch and k >= begins}
        if entry["ended"] == "clip":
            inside = {k for k in inside if k < entry["sent"]}
        assert {k for e, k in told if e == epoch} == inside
    shutil.rmtree(folder)


def epochs_of(session: Path) -> list[dict[str, Any]]:
    with Session(session) as opened:
        found: list[dict[str, Any]] = (opened.header or {})["epochs"]["imu"]
    return found


def test_gaps_at_both_cuts_are_in_the_clip(tmp_path: Path) -> None:
    source, _ = build(tmp_path / "source", ["ssslllsssLLss"])
    clip = write_clip([source], part(0.035, 0.055), tmp_path)
    assert samples(clip.session, "imu", None, None)[0][2] == 7
    assert lost_numbers(clip.session) == [(11, 9), (11, 10)]
    expected = {"epoch": 11, "first_sample": 0, "first_seq": 7, "sent": 11, "ended": "clip"}
    assert epochs_of(clip.session) == [expected]


def test_a_gap_before_the_first_sample_is_in_the_clip(tmp_path: Path) -> None:
    source, _ = build(tmp_path / "source", ["ssslllsssLLss"])
    clip = write_clip([source], part(0.025, 0.045), tmp_path)
    sound(clip.session)
    assert lost_numbers(clip.session) == [(11, 3), (11, 4), (11, 5)]
    expected = {"epoch": 11, "first_sample": 0, "first_seq": 3, "sent": 8, "ended": "clip"}
    assert epochs_of(clip.session) == [expected]
    journal = layout.private(clip.session, layout.JOURNAL)
    epochs = [content for frame, content, _ in walk_journal(journal) if frame.kind == "epoch"]
    assert [epoch["first_seq"] for epoch in epochs] == [3]
    (count,) = read_journal(journal).positions["imu"]["lost"].values()
    assert count == 3


def test_an_epoch_without_samples_is_where_its_losses_are(tmp_path: Path) -> None:
    source, _ = build(tmp_path / "source", ["ssss", "ll", "ssss"])
    clips = [write_clip([source], part(begin, 0.075), tmp_path) for begin in (0.015, 0.045)]
    for clip in clips:
        sound(clip.session)
    first, empty, last = (
        {"epoch": 11, "first_sample": 0, "first_seq": 2, "sent": 4, "ended": "stopped"},
        {"epoch": 12, "first_sample": 2, "sent": 2, "ended": "stopped"},
        {"epoch": 13, "first_sample": 2, "sent": 4, "ended": "stopped"},
    )
    assert [epochs_of(clip.session) for clip in clips] == [
        [first, empty, last],
        [{**last, "first_sample": 0, "first_seq": 1}],
    ]
    assert [lost_numbers(clip.session) for clip in clips] == [[(12, 0), (12, 1)], []]


def test_an_event_that_reaches_beyond_the_clip_is_trimmed(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "source", seq=[0, 1, 2, 6, 7, 8, 11, 12])
    builder.lose("imu", 3, 10, count=5, merged=2)
    clip = write_clip([builder.close()], part(0.045, 0.065), tmp_path)
    sound(clip.session)
    with Session(clip.session) as session:
        (event,) = group_lost_events(session.events())["imu"]
    assert (event["first_seq"], event["last_seq"], event["count"]) == (9, 10, 2)
    assert event["cause"] == "buffer"


def test_uncounted_losses_of_another_time_are_not_in_the_clip(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "source", 3.0)
    for t in (0.5, 1.5, 2.5):
        t_ns = START_NS + round(t * 1e9)
        builder.lose("imu", 7, None, "slow", count=None, t_ns=t_ns, duration_ns=2 * 10**8)
    clip = write_clip([builder.close()], part(1.0, 2.0), tmp_path)
    sound(clip.session)
    with Session(clip.session) as session:
        events = group_lost_events(session.events())["imu"]
    assert [event["t_ns"] - START_NS for event in events] == [1_500_000_000]
