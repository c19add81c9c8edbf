"""A message that is wrong is refused with one error, and ends neither writer nor recording."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from recorder.bus.messages import Ack, AskStatus, Finish, Hello, Join, read_command, read_reply
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ProtocolError
from recorder.recording.supervisor.writer_client import WriterClient
from tests.drivers.kit.sim_driver import CAMERA
from tests.drivers.kit.simulation import Plane
from tests.drivers.kit.test_dataplane import assert_nothing_lost, begin
from tests.manual_clock import ManualClock

PLAN = {"root": "root", "name": "s", "exact_name": True, "config_text": ""}
WIRE = StreamSpec("imu", (ChannelSpec("x", "raw", "u1"),)).to_wire()

COMMANDS: list[tuple[dict[str, Any], str]] = [
    ({}, "no command None"),
    ({"op": "dance"}, "no command 'dance'"),
    ({"op": ["start"]}, "no command ['start']"),
    ({"op": "start"}, "start command: plan: is missing"),
    ({"op": "start", "plan": 3}, "start command: plan: Expected `object`, got `int`"),
    ({"op": "start", "plan": {"root": "/"}}, "start command: plan.name: is missing"),
    ({"op": "start", "plan": PLAN | {"nam": 1}}, "start command: plan.nam: there is no such field"),
    ({"op": "start", "plan": PLAN | {"name": 7}}, "start command: plan.name: Expected `str`"),
    ({"op": "start", "plan": PLAN | {"name": "a\0"}}, "start command: plan.name: Expected `str`"),
    ({"op": "start", "plan": PLAN | {"metadata": {"a": b"x"}}}, "start command: "),
    ({"op": "start", "plan": PLAN | {"duration_s": float("nan")}}, "plan.duration_s: Expected"),
    ({"op": "start", "plan": PLAN | {"sync_interval_ms": -1}}, "plan.sync_interval_ms: Expected"),
    ({"op": "start", "plan": PLAN | {"min_free_gb": float("inf")}}, "plan.min_free_gb: Expected"),
    ({"op": "start", "plan": PLAN | {"sensors": {"cam": 1}}}, "plan.sensors[...]: Expected"),
    (
        {"op": "start", "plan": PLAN | {"sensors": {"cam": {"min_rate": "x"}}}},
        "start command: plan.sensors.cam: min_rate: Expected",
    ),
    ({"op": "start", "plan": PLAN, "live": []}, "start command: live: there is no such field"),
    ({"op": "split", "plan": PLAN | {"nam": 1}}, "split command: plan.nam: there is no such field"),
    ({"op": "split", "plan": PLAN, "live": "cam"}, "split command: live: Expected `array | null`"),
    ({"op": "split", "plan": PLAN, "session": 5}, "split command: session: Expected `str | null`"),
    ({"op": "stop"}, "stop command: live: is missing"),
    ({"op": "stop", "live": ["cam"]}, "stop command: grace_s: is missing"),
    ({"op": "stop", "live": [1], "grace_s": 1.0}, "stop command: live[0]: Expected `str`"),
    ({"op": "stop", "live": [], "grace_s": "1"}, "stop command: grace_s: Expected `float`"),
    ({"op": "stop", "live": [], "grace_s": float("inf")}, "stop command: grace_s: Expected"),
    ({"op": "event"}, "event command: event: is missing"),
    ({"op": "event", "event": {}}, "event command: event.kind: is missing"),
    ({"op": "event", "event": {"kind": 1}}, "event command: event.kind: is missing, or not"),
    ({"op": "event", "event": {"kind": "a", "cause": 1}}, "event command: event.cause: is not"),
    ({"op": "event", "event": {"kind": "a", "t_ns": 1}}, "event command: event.t_ns: is not for"),
    ({"op": "event", "event": {"kind": "a", "raw": b"x"}}, "event command: "),
    ({"op": "status", "now": True}, "status command: now: there is no such field"),
]


@pytest.mark.parametrize("recording", [False, True])
def test_a_bad_command_is_answered_with_an_error_and_never_ends_the_writer(
    make_plane: Callable[..., Plane], recording: bool
) -> None:
    plane = make_plane(1)
    if recording:
        begin(plane, ("cam", (CAMERA,)))
    else:
        plane.start_writer()
    writer = next(actor for actor in plane.actors if actor.name == "writer")
    for command, text in COMMANDS:
        reply = plane.answer_to(command)
        assert set(reply) == {"error", "exit_code"} and reply["exit_code"] == 1, command
        assert text in reply["error"], command
        assert not writer.done
    if recording:
        for _ in range(3):
            plane.drivers["cam"].data(CAMERA, [10])
        assert_nothing_lost(plane, plane.stop_session())
    else:
        assert plane.ask(op="status")["session"] is None


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "join: sensor: is missing"),
        ({"sensor": 5, "streams": []}, "join: sensor: Expected `str`, got `int`"),
        ({"sensor": "imu", "streams": {}}, "join: streams: Expected `array`, got `object`"),
        ({"sensor": "imu", "streams": [3]}, "join: streams[0]: Expected `object`, got `int`"),
        ({"sensor": "imu", "streams": [WIRE], "since_ns": "x"}, "join: since_ns: Expected `int`"),
        ({"sensor": "imu", "streams": [{}]}, "not a stream declaration"),
        (
            {"sensor": "imu", "streams": [WIRE | {"bytes_per_sample": "many"}]},
            "join: stream 'imu': bytes_per_sample: Expected `int`, got `str`",
        ),
    ],
)
def test_a_bad_introduction_is_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(text)):
        Join.of(Message(Kind.JOIN, values=values)).specs()


HELLO = {
    "session": {"key": "s", "start_ns": 5, "until_ns": None, "last_ns": None},
    "next": None,
    "crossing": None,
    "positions": {"imu": [1, 2, 3]},
    "buffer_bytes": 10,
    "window_bytes": 10,
}


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        (Hello, HELLO | {"buffer_bytes": -1}, "hello: buffer_bytes: Expected `int` >= 0"),
        (Hello, HELLO | {"session": {"key": "s"}}, "hello: session.start_ns: is missing"),
        (Hello, HELLO | {"positions": {"imu": [1, 2]}}, "hello: positions[...]: Expected `array`"),
        (Hello, HELLO | {"extra": 1}, "hello: extra: there is no such field"),
        (Ack, {"positions": {"imu": [1, 2, "x"]}}, "ack: positions[...][2]: Expected `int`"),
        (Ack, {}, "ack: positions: is missing"),
        (Finish, {"session": None}, "finish: session: Expected `str`, got `null`"),
    ],
)
def test_a_bad_message_of_the_writer_is_refused(kind: Any, values: Any, text: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(text)):
        kind.of(Message(kind.kind, values=values))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"error": 5, "exit_code": 1}, "refusal reply: error: Expected `str`"),
        ({"closed": "s", "streams": []}, "ending reply: streams: Expected `object`"),
        ({"session": 5}, "status reply: session: Expected `str | null`"),
        ({"session": "s", "commits": "x"}, "status reply: commits: Expected `int`"),
    ],
)
def test_a_bad_answer_of_the_writer_is_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(text)):
        read_reply(Message(Kind.STATUS, values=values))


def test_a_bad_answer_is_the_error_of_its_question() -> None:
    answers = [Message(Kind.STATUS, number=1, values={"session": 5})]
    line: Any = SimpleNamespace(
        receive=lambda: answers.pop() if answers else None, send=lambda message: True
    )
    client = WriterClient(line, ManualClock())
    question = client.ask(AskStatus(), 5.0)
    assert client.pump(object(), list)
    assert question.done and question.answer is None
    with pytest.raises(ProtocolError, match="status reply: session: Expected"):
        _ = question.ending


def test_a_command_comes_out_as_it_went_in() -> None:
    values = {"op": "split", "plan": PLAN, "live": ["cam"], "session": "s"}
    command = read_command(Message(Kind.COMMAND, values=values))
    again = read_command(command.message(7))
    assert again == command and again.op == "split"
