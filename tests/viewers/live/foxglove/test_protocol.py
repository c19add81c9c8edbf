"""Messages of the protocol, against bytes made by hand from the specification."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import ProtocolError
from recorder.perception.foxglove.channels import Schema
from recorder.viewers.foxglove import protocol
from recorder.viewers.foxglove.protocol import (
    Advertised,
    Level,
    PlaybackRequest,
    PlaybackStatus,
    Service,
    ServiceCall,
    Subscribe,
    Unsubscribe,
    parse_binary,
    parse_text,
)

T_NS = 0x1122334455667788


def test_binary_messages_to_the_viewer() -> None:
    assert protocol.message_data(0x0A0B0C0D, T_NS, b"xyz") == bytes.fromhex(
        "01" "0d0c0b0a" "8877665544332211" "78797a"
    )  # fmt: skip
    assert protocol.time(1_234_567_890) == bytes.fromhex("02d202964900000000")
    assert protocol.service_response(10, 12, b'{"key": "value"}') == bytes.fromhex(
        "03" "0a000000" "0c000000" "04000000" "6a736f6e" "7b226b6579223a202276616c7565227d"
    )  # fmt: skip
    assert protocol.playback_state(
        PlaybackStatus.PLAYING, 12345, 1.0, seeked=False, request="i-am-a-request"
    ) == bytes.fromhex(
        "05" "00" "3930000000000000" "0000803f" "00" "0e000000" "692d616d2d612d72657175657374"
    )  # fmt: skip
    assert protocol.playback_state(
        PlaybackStatus.ENDED, 12345, 0.5, seeked=True
    ) == bytes.fromhex("05" "03" "3930000000000000" "0000003f" "01" "00000000")  # fmt: skip


def test_text_messages_to_the_viewer() -> None:
    info = json.loads(
        protocol.server_info(
            "rig",
            ["services", "time"],
            "id",
            metadata={"a": "b"},
            data_range_ns=(1_000_000_002, 3_000_000_004),
        )
    )
    assert info == {
        "op": "serverInfo",
        "name": "rig",
        "capabilities": ["services", "time"],
        "supportedEncodings": ["json"],
        "metadata": {"a": "b"},
        "sessionId": "id",
        "dataStartTime": {"sec": 1, "nsec": 2},
        "dataEndTime": {"sec": 3, "nsec": 4},
    }
    assert json.loads(protocol.status(Level.WARNING, "w")) == {
        "op": "status", "level": 1, "message": "w",
    }  # fmt: skip
    binary = Advertised(1, "/a", "protobuf", Schema("pkg.A", "protobuf", b"\x00\xff"))
    text = Advertised(2, "/b", "json", Schema("B", "jsonschema", b'{"type": "object"}'))
    assert json.loads(protocol.advertise([binary, text])) == {
        "op": "advertise",
        "channels": [
            {"id": 1, "topic": "/a", "encoding": "protobuf", "schemaName": "pkg.A",
             "schemaEncoding": "protobuf", "schema": "AP8="},
            {"id": 2, "topic": "/b", "encoding": "json", "schemaName": "B",
             "schemaEncoding": "jsonschema", "schema": '{"type": "object"}'},
        ],
    }  # fmt: skip
    assert json.loads(protocol.unadvertise([1, 2])) == {"op": "unadvertise", "channelIds": [1, 2]}
    shape = Schema("Q", "jsonschema", b"{}")
    described = json.loads(protocol.advertise_services([Service(4, "/go", shape, shape)]))
    part = {"encoding": "json", "schemaName": "Q", "schemaEncoding": "jsonschema", "schema": "{}"}
    assert described == {
        "op": "advertiseServices",
        "services": [{"id": 4, "name": "/go", "type": "/go", "request": part, "response": part}],
    }
    assert json.loads(protocol.service_failure(4, 5, "no")) == {
        "op": "serviceCallFailure", "serviceId": 4, "callId": 5, "message": "no",
    }  # fmt: skip
    assert json.loads(protocol.parameter_values([{"name": "a", "value": 1}], "7")) == {
        "op": "parameterValues", "parameters": [{"name": "a", "value": 1}], "id": "7",
    }  # fmt: skip


def test_binary_messages_of_the_viewer() -> None:
    call = bytes.fromhex("020a0000000c000000040000006a736f6e7b7d")
    assert parse_binary(call) == ServiceCall(10, 12, "json", b"{}")
    play = bytes.fromhex(
        "03" "00" "0000803f" "01" "15cd5b0700000000" "07000000" "736f6d652d6964"
    )  # fmt: skip
    assert parse_binary(play) == PlaybackRequest(True, 1.0, 123_456_789, "some-id")
    pause = bytes.fromhex("03010000004000ffffffffffffffff00000000")
    assert parse_binary(pause) == PlaybackRequest(False, 2.0, None, "")


def test_text_messages_of_the_viewer() -> None:
    pairs = [{"id": 0, "channelId": 3}, {"id": 1, "channelId": 5, "more": None}]
    subscribe = json.dumps({"op": "subscribe", "subscriptions": pairs})
    assert parse_text(subscribe) == Subscribe(((0, 3), (1, 5)))
    assert parse_text('{"op": "unsubscribe", "subscriptionIds": [0, 1]}') == Unsubscribe((0, 1))
    assert parse_text('{"op": "getParameters", "parameterNames": [], "id": "a"}') == (
        protocol.GetParameters((), "a")
    )
    change = '{"op": "setParameters", "parameters": [{"name": "a", "value": 1}]}'
    assert parse_text(change) == protocol.SetParameters(("a",), None)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("", "JSON"),
        ("[1]", "op"),
        ('{"op": 1}', "op"),
        ("[" * 100_000, "JSON"),
        ('{"op": "subscribe"}', "subscriptions"),
        ('{"op": "subscribe", "subscriptions": [1]}', "id"),
        ('{"op": "subscribe", "subscriptions": [{"id": -1, "channelId": 1}]}', "id"),
        ('{"op": "subscribe", "subscriptions": [{"id": 1, "channelId": 4294967296}]}', "channelId"),
        ('{"op": "subscribe", "subscriptions": [{"id": true, "channelId": 1}]}', "id"),
        ('{"op": "unsubscribe", "subscriptionIds": ["1"]}', "subscriptionIds"),
        ('{"op": "getParameters", "parameterNames": [], "id": 7}', "id"),
        ('{"op": "advertise", "channels": []}', "clientPublish"),
        ('{"op": "fetchAsset", "uri": "file:///etc/passwd", "requestId": 1}', "assets"),
        ('{"op": "subscribeConnectionGraph"}', "connectionGraph"),
        ('{"op": "hello"}', "hello"),
        (b"", "empty"),
        (b"\x01\x00\x00\x00\x00x", "clientPublish"),
        (b"\x02\x00", "cut short"),
        (bytes.fromhex("020a0000000c000000ff0000006a"), "cut short"),
        (bytes.fromhex("020a0000000c00000001000000ff"), "UTF-8"),
        (bytes.fromhex("03020000803f00000000000000000000000000"), "command 2"),
        (bytes.fromhex("03000000c07f00000000000000000000000000"), "speed"),
        (bytes.fromhex("03000000803f01ffffffffffffffff00000000"), "time"),
        (b"\x09", "opcode 9"),
    ],
)
def test_malformed_messages_are_named(message: str | bytes, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        parse_text(message) if isinstance(message, str) else parse_binary(message)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_OPS = st.sampled_from(["subscribe", "unsubscribe", "getParameters", "setParameters", "advertise"])
_KEYS = st.sampled_from(["subscriptions", "subscriptionIds", "parameterNames", "parameters", "id"])


@given(
    st.text()
    | st.builds(
        lambda op, more: json.dumps({**more, "op": op}), _OPS, st.dictionaries(_KEYS, _JSON)
    )
)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse_text(text)
    except ProtocolError as error:
        assert str(error)


@given(st.binary() | st.builds(lambda op, rest: bytes([op]) + rest, st.integers(0, 5), st.binary()))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        parse_binary(data)
    except ProtocolError as error:
        assert str(error)
