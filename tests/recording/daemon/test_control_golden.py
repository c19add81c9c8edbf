"""The bytes of the control protocol: programs on vehicles rely on them (docs/daemon.md)."""

# ruff: noqa: E501  lines are the protocol's

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.bus.control.client import Client
from recorder.bus.control.requests import parse_request
from recorder.bus.control.server import encode_reply, refusal
from recorder.cli import control, main
from recorder.common.errors import UsageError
from tests.recording.daemon.fakes import make_session, vehicle


class Recorded:
    """A way to a daemon that records the requests and answers each alike."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def exchange(self, line: bytes) -> bytes:
        self.lines.append(line)
        return b'{"ok":true,"state":"idle","session":"/s/tour","status":{"state":"idle"}}\n'

    def close(self) -> None:
        pass


def test_what_the_client_sends() -> None:
    wire = Recorded()
    with Client(wire=wire) as client:
        client.start()
        client.start("tour")
        client.start(meta={})
        client.start("tour", {"driver": "ada", "note": "é"})
        client.stop()
        client.status()
        client.mark("pothole")
        client.keep()
        client.keep("tour")
        client.keep("tour", release=True)
        client.request("reboot", now=True)
    assert wire.lines == [
        b'{"op":"start"}\n',
        b'{"op":"start","name":"tour"}\n',
        b'{"op":"start"}\n',
        b'{"op":"start","name":"tour","meta":{"driver":"ada","note":"\\u00e9"}}\n',
        b'{"op":"stop"}\n',
        b'{"op":"status"}\n',
        b'{"op":"mark","text":"pothole"}\n',
        b'{"op":"keep"}\n',
        b'{"op":"keep","session":"tour"}\n',
        b'{"op":"keep","session":"tour","release":true}\n',
        b'{"op":"reboot","now":true}\n',
    ]


def test_what_the_command_sends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wire = Recorded()
    monkeypatch.setattr(control, "connect", lambda _: Client(wire=wire))
    for words in (
        ["start"],
        ["start", "--name", "tour", "--meta", "b=1", "--meta", "a=2"],
        ["stop"],
        ["mark", "pothole"],
        ["keep", "tour"],
        ["keep", "tour", "--release"],
    ):
        assert main(words) == 0, words
    assert wire.lines == [
        b'{"op":"start"}\n',
        b'{"op":"start","meta":{"b":"1","a":"2"},"name":"tour"}\n',
        b'{"op":"stop"}\n',
        b'{"op":"mark","text":"pothole"}\n',
        b'{"op":"keep","session":"tour","release":false}\n',
        b'{"op":"keep","session":"tour","release":true}\n',
    ]


REFUSED = {
    b"": "the request is not a JSON object in UTF-8 on one line",
    b"[1]": 'the request is not an object with an "op"',
    b'{"op":1}': 'the request is not an object with an "op"',
    b'{"op":"reboot"}': "there is no op 'reboot'; there are start, stop, status, mark, keep",
    b'{"op":"stop","op":"stop"}': "the request is not a JSON object in UTF-8 on one line",
    b'{"op":"stop","now":true}': "stop takes nothing else, not 'now'",
    b'{"op":"start","nam":"a"}': "start takes name, meta, not 'nam'",
    b'{"op":"start","name":null}': "a session's name is a text",
    b'{"op":"start","name":5}': "a session's name is a text",
    b'{"op":"start","name":"../a"}': "session name '../a': is a path; a session is one folder right below its root",
    b'{"op":"start","meta":[]}': "metadata is not an object",
    b'{"op":"start","meta":{"a/b":"x"}}': "metadata key 'a/b': is 1 to 64 letters A-Z and a-z, digits, '_' and '-'",
    b'{"op":"start","meta":{"a":5}}': "metadata a: is not a text",
    b'{"op":"start","meta":{"a":"\\u0000"}}': "metadata a: holds '\\x00'",
    b'{"op":"mark","text":""}': "a mark needs a text",
    b'{"op":"mark","text":null}': "a mark needs a text",
    b'{"op":"mark","text":"a\\u001b"}': "a mark holds '\\x1b'",
    b'{"op":"mark","text":"a","age_s":-1}': "mark: age_s is not a number of seconds from 0 to 600",
    b'{"op":"mark","text":"a","age_s":true}': "mark: age_s is not a number of seconds from 0 to 600",
    b'{"op":"mark","text":"a","age_s":601}': "mark: age_s is not a number of seconds from 0 to 600",
    b'{"op":"keep","session":5}': "a session's name is a text",
    b'{"op":"keep","session":".."}': "session name '..': is a path; a session is one folder right below its root",
    b'{"op":"keep","release":1}': "keep: release is neither true nor false",
    b'{"op":"mark","text":"a","session":"b"}': "mark takes text, age_s, keep, t_ns, trigger, not 'session'",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_a_bad_request_is_answered(line: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        parse_request(line)
    answer = {"ok": False, "error": REFUSED[line], "exit_code": 2, "state": "idle"}
    expected = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    assert encode_reply(refusal(caught.value, "idle")) == expected


def test_what_requests_are_answered(tmp_path: Path) -> None:
    """Every member of a reply in its order, but for what `status` holds."""
    replies: list[dict[str, Any]] = []
    with vehicle(tmp_path) as rig:
        rig.daemon()
        rig.run(1)
        make_session(rig.root / "old")

        def ask(op: str, **values: Any) -> None:
            reply = rig.ask(op, **values)
            assert reply.pop("status")["state"] == reply["state"]
            replies.append(reply)

        ask("mark", text="early")
        ask("keep")
        ask("keep", session="none")
        ask("start", name="old")
        ask("start", name="tour", meta={"driver": "ada"})
        ask("start")
        ask("mark", text="pothole")
        ask("mark")
        ask("keep")
        ask("keep", session="old", release=True)
        ask("status")
        ask("stop")
        ask("stop")
    lines = [encode_reply(reply).decode().replace(str(rig.root), "/root") for reply in replies]
    assert lines == [
        '{"ok":false,"error":"nothing is being recorded","exit_code":1,"state":"idle"}\n',
        '{"ok":false,"error":"nothing is being recorded; name the session to keep","exit_code":1,"state":"idle"}\n',
        '{"ok":false,"error":"/root/none: no session of the recorder","exit_code":1,"state":"idle"}\n',
        '{"ok":false,"error":"/root/old: a session of that name exists","exit_code":2,"state":"idle"}\n',
        '{"ok":true,"state":"recording","session":"/root/tour"}\n',
        '{"ok":false,"error":"/root/tour: is being recorded already","exit_code":1,"state":"recording"}\n',
        '{"ok":true,"state":"recording","session":"/root/tour"}\n',
        '{"ok":false,"error":"a mark needs a text","exit_code":2,"state":"recording"}\n',
        '{"ok":true,"state":"recording","session":"/root/tour","kept":true}\n',
        '{"ok":true,"state":"recording","session":"/root/old","kept":false}\n',
        '{"ok":true,"state":"recording"}\n',
        '{"ok":true,"state":"idle","session":"/root/tour","closed":{"session":"/root/tour","why":null,"whole":true,"streams":{"cam":{"samples":33,"bytes":1100000,"lost":{},"unknown_losses":0,"incomplete":{},"ended":null},"lidar":{"samples":11,"bytes":1100000,"lost":{},"unknown_losses":0,"incomplete":{},"ended":null}},"faults":[]}}\n',
        '{"ok":false,"error":"nothing is being recorded","exit_code":1,"state":"idle"}\n',
    ]
