"""Sessions over time, for a picture."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.codecs.storage.channel import ChannelReader
from recorder.session.events import make_event
from recorder.session.reader import Session
from recorder.session.timeline import (
    DATA,
    EVENTS,
    LOST,
    PIECES,
    RATES,
    UNCOUNTED,
    Piece,
    Timeline,
    make_timeline,
    merge,
)
from tests.session.build import (
    START_NS,
    Builder,
    build_session,
    camera_spec,
    full_session,
    imu_spec,
)

S = 1_000_000_000


def timeline_of(path: Path) -> Timeline:
    with Session(path, partial=True) as session:
        return make_timeline(session, START_NS, session.end_ns or START_NS + 10 * S)


def test_a_clean_session_is_one_piece_a_stream(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 2.0)
    timeline = timeline_of(builder.path)
    assert set(timeline.streams) == set(builder.streams)
    for name, stream in timeline.streams.items():
        made = builder.streams[name]
        (piece,) = stream.pieces
        assert piece == Piece(int(made.t_ns[0]), int(made.t_ns[-1]), DATA)
        assert stream.samples == len(made.t_ns) and not stream.lost and not stream.uncounted
        assert stream.rate_hz == pytest.approx(made.spec.rate_hz, rel=1e-2)
        seconds = (timeline.end_ns - timeline.start_ns) / RATES / 1e9
        assert sum(stream.rates_hz) * seconds == pytest.approx(len(made.t_ns))


def test_the_sample_of_the_last_moment_is_counted(tmp_path: Path) -> None:
    """Also where the moment, as a double, is up to 128 ns earlier."""
    builder = full_session(tmp_path / "rig", 1.0)
    stamps = builder.streams["imu"].t_ns.tolist()
    with Session(builder.path) as session:
        for number, end_ns in enumerate(stamps[80:], 81):
            timeline = make_timeline(session, START_NS, end_ns)
            seconds = (end_ns - START_NS) / RATES / 1e9
            counted = sum(timeline.streams["imu"].rates_hz) * seconds
            assert counted == pytest.approx(number, abs=0.01)


def test_no_payload_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = full_session(tmp_path / "rig", 0.5)
    read: set[str] = set()
    real = ChannelReader.read

    def spy(self: ChannelReader, start: int, stop: int) -> object:
        read.add(self.name)
        return real(self, start, stop)

    monkeypatch.setattr(ChannelReader, "read", spy)
    timeline_of(builder.path)
    assert read == {"t_mono", "seq"}


def test_pauses_divide_the_data(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "rig", imu_spec(), seconds=2.0)
    made = builder.streams["imu"]
    for name in ("t_mono", "ts"):
        stamps = np.fromfile(builder.path / "imu" / name, "<u8" if name == "t_mono" else "<f8")
        stamps[100:] += 3 * S if name == "t_mono" else 3
        stamps.tofile(builder.path / "imu" / name)
    with Session(builder.path) as session:
        (stream,) = make_timeline(session, START_NS, START_NS + 6 * S).streams.values()
    first, second = stream.pieces
    assert (first.start_ns, first.end_ns) == (int(made.t_ns[0]), int(made.t_ns[99]))
    assert (second.start_ns, second.end_ns) == (
        int(made.t_ns[100]) + 3 * S,
        int(made.t_ns[-1]) + 3 * S,
    )
    assert [rate > 0 for rate in stream.rates_hz].count(True) < RATES // 2


def test_losses_have_their_cause_and_gaps_without_an_event_are_unknown(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    seq = [*range(50), *range(60, 100), *range(103, 140)]
    made = builder.add(imu_spec(), seq=seq)
    builder.add(camera_spec(), 2.0)
    builder.lose("imu", 50, 59, "buffer", t_ns=int(made.t_ns[50]), duration_ns=90_000_000)
    builder.lose("imu", 140, None, "driver", count=None, t_ns=START_NS + 2 * S, duration_ns=S // 2)
    builder.events.append(make_event("mark", START_NS + S, text="a bridge"))
    builder.events.append(make_event("fault", START_NS + S, "imu", "died", detail="exit 1"))
    builder.events.append(make_event("disk", START_NS + S, cause="fine"))
    builder.close()
    timeline = timeline_of(builder.path)
    stream = timeline.streams["imu"]
    losses = [piece for piece in stream.pieces if piece.kind != DATA]
    at = made.t_ns.tolist()
    assert losses == [
        Piece(at[50] - 90_000_000, at[50], LOST, Counter(buffer=10)),
        Piece(at[89], at[90], LOST, Counter(unknown=3)),
        Piece(START_NS + 3 * S // 2, START_NS + 2 * S, UNCOUNTED, Counter(driver=0)),
    ]
    assert stream.lost == {"buffer": 10, "unknown": 3} and stream.uncounted == 1
    assert losses[0].text == "buffer 10" and losses[2].text == "driver"
    assert timeline.marks == [{"t_ns": START_NS + S, "text": "a bridge"}]
    assert [(e["type"], e["stream"], e["cause"]) for e in timeline.events] == [
        ("lost", "imu", "buffer"),
        ("lost", "imu", "driver"),
        ("mark", None, None),
        ("fault", "imu", "died"),
    ]


def test_a_sensor_that_was_absent_is_uncounted_all_along(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), 1.0)
    builder.sensors["gnss"] = {"driver": "x", "streams": []}
    builder.close()
    timeline = timeline_of(builder.path)
    (piece,) = timeline.streams["gnss"].pieces
    assert piece == Piece(START_NS, timeline.end_ns, UNCOUNTED, Counter(absent=0))


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 0.5)
    (builder.path / "lidar" / "meta.json").write_text("{")
    (builder.path / "imu" / "seq").unlink()
    with (builder.path / "_recorder" / "events.jsonl").open("a") as file:
        file.write("nonsense\n")
    timeline = timeline_of(builder.path)
    assert "meta.json" in timeline.streams["lidar"].problem
    assert "seq" in timeline.streams["imu"].problem
    assert "events.jsonl:1: not JSON" in timeline.problem
    assert timeline.streams["camera"].pieces and not timeline.streams["camera"].problem


def test_a_session_of_many_losses_is_bounded(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    made = builder.add(imu_spec(), seq=list(range(0, 6000, 2)))
    for k, t_ns in enumerate(made.t_ns.tolist()[:-1]):
        builder.lose("imu", 2 * k + 1, 2 * k + 1, t_ns=t_ns)
    for k in range(3000):
        builder.events.append(make_event("mark", START_NS + k, text=str(k)))
    builder.close()
    timeline = timeline_of(builder.path)
    stream = timeline.streams["imu"]
    assert len(stream.pieces) <= 2 * PIECES
    assert sum(piece.causes["buffer"] for piece in stream.pieces) == 2999
    assert len(timeline.events) == EVENTS and timeline.events[-1]["text"] == "2999"
    assert len(json.dumps([piece.text for piece in stream.pieces])) < 20_000


PIECE = st.builds(
    lambda start, length, kind, count: Piece(start, start + length, kind, Counter(a=count)),
    st.integers(0, 100_000),
    st.integers(0, 5_000),
    st.sampled_from([DATA, LOST, UNCOUNTED]),
    st.integers(0, 5),
)


@given(st.lists(PIECE, max_size=300), st.integers(0, 2_000))
def test_merging_keeps_times_and_counts(pieces: list[Piece], resolution: int) -> None:
    total = sum((piece.causes for piece in pieces), Counter())
    ends = [(p.kind, p.start_ns, p.end_ns) for p in pieces]
    merged = merge(pieces, resolution)
    assert sum((piece.causes for piece in merged), Counter()) == total
    for kind in (DATA, LOST, UNCOUNTED):
        mine = [piece for piece in merged if piece.kind == kind]
        for kind_before, start, end in ends:
            if kind_before == kind:
                assert any(p.start_ns <= start and end <= p.end_ns for p in mine)
        assert all(b.start_ns - a.end_ns > resolution for a, b in itertools.pairwise(mine))
        if resolution:
            assert len(mine) <= 105_000 // resolution + 1
