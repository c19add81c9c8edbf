"""Which message comes next: only the expected one, whatever arrives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.bus.wire import Kind, Message
from recorder.common.errors import ProtocolError
from recorder.recording.writer.sequencing import Position, Verdict, check_report


def data(number: int, seq: int, epoch: int = 1, count: int = 1) -> Message:
    times = np.arange(count)
    return Message(Kind.DATA, "s", epoch, number, seq, count, t_mono_ns=times)


def test_the_expected_message_is_accepted_once() -> None:
    position = Position()
    assert position.judge(data(0, 0, count=3)) is Verdict.ACCEPT
    assert position.judge(data(0, 0, count=3)) is Verdict.DUPLICATE
    assert (position.epoch, position.number, position.seq) == (1, 1, 3)


def test_a_hole_is_told_once_until_it_is_filled() -> None:
    position = Position()
    position.judge(data(0, 0))
    verdicts = [position.judge(data(n, n)) for n in (2, 3, 1, 2, 4, 5, 3)]
    assert verdicts == [
        Verdict.HOLE,
        Verdict.WAITING,
        Verdict.ACCEPT,
        Verdict.ACCEPT,
        Verdict.HOLE,
        Verdict.WAITING,
        Verdict.ACCEPT,
    ]


def test_only_data_and_losses_take_sample_numbers() -> None:
    position = Position()
    position.judge(data(0, 0, count=2))
    for number, kind, count in ((1, Kind.STATE, 0), (2, Kind.LOST, 5), (3, Kind.LOST, None)):
        message = Message(kind, "s", 1, number, position.seq, count)
        assert position.judge(message) is Verdict.ACCEPT
    assert position.seq == 7
    end = Message(Kind.END, "s", 1, 4, 7, values={"reason": "eof"})
    assert position.judge(end) is Verdict.ACCEPT
    assert position.ended == "eof"
    assert position.judge(end) is Verdict.DUPLICATE


def test_a_new_start_of_the_driver_begins_anew_and_stragglers_are_ignored() -> None:
    position = Position()
    position.judge(data(0, 0, epoch=5))
    position.judge(Message(Kind.END, "s", 5, 1, 1, values={"reason": "stopped"}))
    assert position.judge(data(1, 1, epoch=9)) is Verdict.HOLE  # its first is still under way
    assert (position.epoch, position.ended) == (5, "stopped")
    assert position.judge(data(0, 0, epoch=9)) is Verdict.ACCEPT
    assert (position.epoch, position.number, position.ended) == (9, 1, None)
    for number in (0, 2, 7):
        assert position.judge(data(number, number, epoch=5)) is Verdict.DUPLICATE
    assert position.judge(data(1, 1, epoch=9)) is Verdict.ACCEPT
    assert position.past == {5}


def test_a_right_number_with_a_wrong_seq_is_an_error_and_changes_nothing() -> None:
    position = Position()
    position.judge(data(0, 0, count=4))
    with pytest.raises(ProtocolError, match="message 1 begins with sample 3, but 4 comes next"):
        position.judge(data(1, 3))
    assert position.judge(data(1, 4)) is Verdict.ACCEPT


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), max_size=60))
def test_any_order_of_arrival_gives_each_start_in_order_without_gaps(
    arrivals: list[tuple[int, int]],
) -> None:
    position = Position()
    accepted: list[tuple[int, int]] = []
    for epoch, number in arrivals:
        before = (position.epoch, position.number)
        if position.judge(data(number, number, epoch)) is Verdict.ACCEPT:
            accepted.append((epoch, number))
        else:
            assert (position.epoch, position.number) == before
    for epoch in (1, 2, 3):
        numbers = [n for e, n in accepted if e == epoch]
        assert numbers == list(range(len(numbers)))
    epochs = [e for e, n in accepted if n == 0]
    assert [e for e, _ in accepted] == sorted((e for e, _ in accepted), key=epochs.index)


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        (Kind.STATE, {"raw": b"bytes"}, "not JSON serializable"),
        (Kind.STATE, {"a": {"b": [b"x"]}}, "not JSON serializable"),
        (Kind.STATE, {b"key": 1}, "keys must be"),
        (Kind.END, {"reason": "fault", "detail": b"x"}, "not JSON serializable"),
        (Kind.LOST, {"cause": "device", "t_ns": 5}, "'t_ns'"),
        (Kind.LOST, {"cause": "device", "stream": "x"}, "'stream'"),
        (Kind.LOST, {"cause": "device", "kind": "x"}, "'kind'"),
        (Kind.LOST, {"cause": "device", "count": "x"}, "'count'"),
        (
            Kind.LOST,
            {"cause": "device", "estimate": "many"},
            "estimate: Expected `int | null`, got `str`",
        ),
        (
            Kind.LOST,
            {"cause": "device", "duration_ns": 0.5},
            "duration_ns: Expected `int | null`, got `float`",
        ),
    ],
)
def test_what_the_logs_could_not_take_is_refused_at_the_door(
    kind: Kind, values: dict[str, Any], text: str
) -> None:
    with pytest.raises(ProtocolError, match=f"s: {kind} message 3") as caught:
        check_report(Message(kind, "s", number=3, values=values))
    assert text in str(caught.value)


def test_a_message_of_several_times_that_is_no_data_is_refused() -> None:
    with pytest.raises(ProtocolError, match="has several times"):
        check_report(Message(Kind.LOST, "s", t_mono_ns=np.array([], np.int64)))


@pytest.mark.parametrize(
    "message",
    [
        Message(Kind.STATE, "s", values={"t_ns": 5, "x": [1.5, None, "ü"]}),
        Message(Kind.LOST, "s", count=None, values={"cause": "x", "estimate": None}),
        Message(Kind.LOST, "s", values={"cause": "x", "duration_ns": 3, "frame_id": 7}),
        Message(Kind.END, "s", values={"reason": "eof"}),
    ],
    ids=lambda message: str(message.kind),
)
def test_what_drivers_tell_passes_as_it_is_and_is_next(message: Message) -> None:
    before = copy.deepcopy(message)
    check_report(message)
    assert message == before
    position = Position(epoch=message.epoch or 1)
    message.epoch = position.epoch
    assert position.judge(message) is Verdict.ACCEPT and position.number == 1
