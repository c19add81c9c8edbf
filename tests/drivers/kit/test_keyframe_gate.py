"""Sessions of video begin, and go on after a loss, with a keyframe."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.session_seam import KEYFRAME_PATIENCE_NS, KeyframeGate
from recorder.bus.messages import AnnouncedSession as Session
from recorder.codecs.streams import ChannelSpec, StreamSpec

SPEC = StreamSpec("camera", (ChannelSpec("video.h264", "h264", "u1", (64, 96, 3)),))
KEY, OTHER = b"\0\0\0\1\x65\x88", b"\0\0\0\1\x41\x9a"
MS = 1_000_000


def session(key: str, start_ns: int = 0, seam_ns: int | None = None) -> Session:
    return Session(key=key, start_ns=start_ns, until_ns=None, seam_ns=seam_ns, last_ns=None)


def sample(data: bytes, t_ns: int = 5) -> Sample:
    return Sample("camera", np.array([t_ns], np.int64), {"video.h264": [data]})


def feed(gate: KeyframeGate, kinds: str, where: Session | None) -> str:
    """What becomes of keyframes ``k``, others ``p``, losses ``x``, states ``s``.

    Recorded ones keep their letter; ``L`` is a counted loss; ``.`` is in no session.
    """
    made = ""
    for t_ns, kind in enumerate(kinds):
        item: Item = sample(KEY if kind == "k" else OTHER, t_ns)
        if kind == "x":
            item = Lost("camera", t_ns, "device", 2)
        if kind == "s":
            item = State("camera", t_ns, {})
        came, taken = gate.admit(item, where)
        assert came.stream == "camera"
        if taken is None:
            made += "."
        elif isinstance(came, Lost) and kind != "x":
            assert (came.cause, came.count, came.t_ns) == ("corrupt", 1, t_ns)
            assert came.detail["reason"]
            made += "L"
        else:
            assert came is item
            made += kind
    return made


@pytest.mark.parametrize(
    ("kinds", "made"),
    [
        ("kppkp", "kppkp"),
        ("ppkpp", "..kpp"),
        ("pspkp", ".s.kp"),  # states are recorded as they come
        ("xpkpp", "..kpp"),  # before the first keyframe nothing is the session's
        ("kpxppkp", "kpxLLkp"),
        ("kxpxpk", "kxLxLk"),
        ("kxspk", "kxsLk"),
        ("kxkp", "kxkp"),
    ],
)
def test_one_session(kinds: str, made: str) -> None:
    assert feed(KeyframeGate(SPEC), kinds, session("a")) == made


def test_a_loss_of_unknown_count_counts_too() -> None:
    gate = KeyframeGate(SPEC)
    assert feed(gate, "kp", session("a")) == "kp"
    gate.admit(Lost("camera", 9, "device", None), session("a"))
    assert feed(gate, "ppk", session("a")) == "LLk"


def test_a_refused_picture_costs_those_that_refer_to_it() -> None:
    gate = KeyframeGate(SPEC)
    assert feed(gate, "kp", session("a")) == "kp"
    gate.record_refusal()
    assert feed(gate, "ppkp", session("a")) == "LLkp"


def test_every_session_begins_with_a_keyframe() -> None:
    gate = KeyframeGate(SPEC)
    assert feed(gate, "kpp", session("a")) == "kpp"
    assert feed(gate, "pp", None) == ".."
    assert feed(gate, "ppkp", session("a")) == "..kp"  # what came between is not in it
    assert feed(gate, "ppkp", session("b")) == "..kp"


def test_a_part_that_a_stream_crosses_to_without_a_keyframe_counts() -> None:
    gate = KeyframeGate(SPEC)
    assert feed(gate, "kpp", session("a", 7)) == "kpp"
    assert feed(gate, "ppkp", session("b", 7, seam_ns=100)) == "LLkp"
    assert feed(gate, "k", session("c", 7, seam_ns=200)) == "k"


def test_what_crosses_a_seam() -> None:
    gate, seam = KeyframeGate(SPEC), 1000 * MS
    assert gate.crosses(sample(KEY, seam), seam)
    assert not gate.crosses(sample(OTHER, seam), seam)
    assert not gate.crosses(sample(OTHER, seam + KEYFRAME_PATIENCE_NS - 1), seam)
    assert gate.crosses(sample(OTHER, seam + KEYFRAME_PATIENCE_NS), seam)
    assert not gate.crosses(State("camera", seam, {}), seam)
    assert not gate.crosses(Lost("camera", seam, "device", 1), seam)
