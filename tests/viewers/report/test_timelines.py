"""Lanes of the timeline: every piece lies where it was."""

from __future__ import annotations

import re
from collections import Counter

from recorder.session.timeline import DATA, LOST, UNCOUNTED, Piece, StreamTimeline, Timeline
from recorder.viewers.report.timelines import _draw_lane, _draw_points

START_NS, S = 1_750_000_000_000_000_000, 1_000_000_000


def lane(*pieces: tuple[float, float, str, dict[str, int]], seconds: float = 200.0) -> str:
    found = [
        Piece(START_NS + round(a * S), START_NS + round(b * S), kind, Counter(causes))
        for a, b, kind, causes in pieces
    ]
    stream = StreamTimeline(pieces=found)
    timeline = Timeline(START_NS, START_NS + round(seconds * S), {"imu": stream}, (), ())
    return str(_draw_lane(stream, timeline, "imu"))


def rectangles(drawn: str) -> list[tuple[str, str, str, str]]:
    """Class, left, width and text of each."""
    rects = re.findall(r"<rect ([^>]*)><title>([^<]*)", drawn)
    named = [(dict(re.findall(r'([a-z]+)="([^"]*)"', words)), text) for words, text in rects]
    return [(a["class"], a["x"], a["width"], text) for a, text in named]


def test_pieces_lie_where_they_were() -> None:
    drawn = lane(
        (0.0, 50.0, DATA, {}),
        (50.0, 60.0, LOST, {"buffer": 12, "device": 3}),
        (60.0, 100.0, DATA, {}),
        (100.0, 150.0, UNCOUNTED, {"slow": 0}),
        (150.0, 200.0, DATA, {}),
    )
    path = "M0.0 3h250.0v12h-250.0zM300.0 3h200.0v12h-200.0zM750.0 3h250.0v12h-250.0z"
    assert f'd="{path}"' in drawn
    assert rectangles(drawn) == [
        ("unknown", "500", "250", "slow not counted, 100.0 s to 150.0 s"),
        ("lost", "250", "50", "buffer 12, device 3 lost, 50.0 s to 60.0 s"),
    ]
    assert "imu: 2 intervals with losses" in drawn


def test_a_short_loss_at_the_end_can_be_seen_and_nothing_lies_outside() -> None:
    drawn = lane(
        (-50.0, 100.0, DATA, {}),
        (199.99, 200.0, LOST, {"buffer": 1}),
        (200.0, 300.0, UNCOUNTED, {"absent": 0}),
    )
    assert 'd="M0.0 3h500.0v12h-500.0z"' in drawn
    assert [(kind, x, wide) for kind, x, wide, _ in rectangles(drawn)] == [
        ("unknown", "998.5", "1.5"),
        ("lost", "998.5", "1.5"),
    ]


def test_beyond_sixty_losses_have_one_shape() -> None:
    pieces = [(float(k), k + 0.5, LOST, {"buffer": 1}) for k in range(60)]
    assert len(rectangles(lane(*pieces))) == 60
    drawn = lane(*pieces, (60.0, 61.0, LOST, {"buffer": 1}))
    assert rectangles(drawn) == [] and drawn.count("h2.5v18") == 60
    assert 'class="lost"' in drawn and "M300.0 0h5.0v18h-5.0z" in drawn


def test_points_stand_at_their_time() -> None:
    drawn = str(
        _draw_points([(START_NS + 50 * S, "tunnel"), (START_NS, "gate")], "mark", START_NS, 200)
    )
    assert re.findall(r'<svg x="([0-9.]+%)"', drawn) == ["25%", "0%"]
    assert re.findall(r"<title>([^<]*)", drawn) == ["50.0 s: tunnel", "0.0 s: gate"]
