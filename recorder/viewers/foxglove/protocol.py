"""Foxglove WebSocket protocol: messages to the viewer, and messages from the viewer.

This module does no I/O. Sources: foxglove/ws-protocol, docs/spec.md (subprotocol
``foxglove.websocket.v1``), and foxglove/foxglove-sdk, rust/foxglove/src/protocol (subprotocol
``foxglove.sdk.v1``, which adds the control of playback).  All integers in binary messages are
little-endian.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from recorder.common.errors import ProtocolError
from recorder.common.files import Buffer
from recorder.formats.mcap import Schema

SUBPROTOCOLS: Final = ("foxglove.sdk.v1", "foxglove.websocket.v1")
"""In order of preference."""
_BINARY_SCHEMAS: Final = frozenset({"protobuf", "flatbuffer"})  # sent as base64

_MESSAGE_DATA = struct.Struct("<BIQ")
_TIME = struct.Struct("<BQ")
_SERVICE_RESPONSE = struct.Struct("<BIII")
_SERVICE_REQUEST = struct.Struct("<III")
_PLAYBACK_STATE = struct.Struct("<BBQfBI")
_PLAYBACK_REQUEST = struct.Struct("<BfBQI")
_LARGEST_TIME_NS: Final = (1 << 63) - 1


class Level(IntEnum):
    """Level of a status message."""

    INFO = 0
    WARNING = 1
    ERROR = 2


class PlaybackStatus(IntEnum):
    """State of the playback."""

    PLAYING = 0
    PAUSED = 1
    BUFFERING = 2
    ENDED = 3


@dataclass(frozen=True, slots=True)
class Advertised:
    """Advertisement of a channel.

    Attributes:
        id: number of the channel; never used again for another topic, encoding or schema.
        topic: name of the channel.
        encoding: of the messages: ``protobuf``, ``json``; of recorded topics ``cdr`` ...
        schema: schema of the messages.
    """

    id: int
    topic: str
    encoding: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Service:
    """A service with JSON requests and responses."""

    id: int
    name: str
    request: Schema
    response: Schema


# Messages to the viewer


def server_info(
    name: str,
    capabilities: Sequence[str],
    session: str,
    *,
    metadata: Mapping[str, str],
    data_range_ns: tuple[int, int] | None = None,
) -> str:
    """Encode the first message on a connection.

    Args:
        name: name of the server, shown to users.
        capabilities: ``services``, ``parameters``, ``time``, ``playbackControl``, ...
        session: changes with each server, so that viewers drop their state of another server.
        metadata: free form.
        data_range_ns: first and last time of recorded data; with ``playbackControl`` only.
    """
    info: dict[str, Any] = {
        "op": "serverInfo",
        "name": name,
        "capabilities": list(capabilities),
        "supportedEncodings": ["json"] if "services" in capabilities else [],
        "metadata": dict(metadata),
        "sessionId": session,
    }
    if data_range_ns is not None:
        for key, t_ns in zip(("dataStartTime", "dataEndTime"), data_range_ns, strict=True):
            info[key] = {"sec": t_ns // 1_000_000_000, "nsec": t_ns % 1_000_000_000}
    return json.dumps(info)


def status(level: Level, message: str) -> str:
    """Encode a status message for users."""
    return json.dumps({"op": "status", "level": level, "message": message})


def advertise(channels: Iterable[Advertised]) -> str:
    """Encode the advertisement of new channels."""
    described = [
        {
            "id": channel.id,
            "topic": channel.topic,
            "encoding": channel.encoding,
            "schemaName": channel.schema.name,
            "schemaEncoding": channel.schema.encoding,
            "schema": _schema_text(channel.schema),
        }
        for channel in channels
    ]
    return json.dumps({"op": "advertise", "channels": described})


def unadvertise(ids: Iterable[int]) -> str:
    """Encode the removal of channels."""
    return json.dumps({"op": "unadvertise", "channelIds": list(ids)})


def advertise_services(services: Iterable[Service]) -> str:
    """Encode the services that the viewer may call."""
    described = []
    for service in services:
        entry: dict[str, Any] = {"id": service.id, "name": service.name, "type": service.name}
        for key, schema in (("request", service.request), ("response", service.response)):
            entry[key] = {
                "encoding": "json",
                "schemaName": schema.name,
                "schemaEncoding": schema.encoding,
                "schema": _schema_text(schema),
            }
        described.append(entry)
    return json.dumps({"op": "advertiseServices", "services": described})


def service_failure(service: int, call: int, message: str) -> str:
    """Encode the failure of a call."""
    failure = {"op": "serviceCallFailure", "serviceId": service, "callId": call, "message": message}
    return json.dumps(failure)


def parameter_values(parameters: Iterable[Mapping[str, Any]], request: str | None) -> str:
    """Encode parameters (``name`` and ``value`` each); `request` is the request's id, if any."""
    values: dict[str, Any] = {"op": "parameterValues", "parameters": list(parameters)}
    if request is not None:
        values["id"] = request
    return json.dumps(values)


def message_data(subscription: int, t_ns: int, *payload: Buffer) -> bytes:
    """Encode a channel's message; `t_ns` is its log time, epoch ns, `payload` its parts."""
    return b"".join([_MESSAGE_DATA.pack(1, subscription, t_ns), *payload])


def time(t_ns: int) -> bytes:
    """Encode the server's time, epoch ns; only with the capability ``time``."""
    return _TIME.pack(2, t_ns)


def service_response(service: int, call: int, payload: bytes) -> bytes:
    """Encode the JSON response to a call."""
    return _SERVICE_RESPONSE.pack(3, service, call, 4) + b"json" + payload


def playback_state(
    status: PlaybackStatus, t_ns: int, speed: float, *, seeked: bool, request: str = ""
) -> bytes:
    """Encode the state of the playback.

    Args:
        status: state of the playback.
        t_ns: time of the playback, epoch ns.
        speed: recorded seconds per second.
        seeked: the playback jumped to another time; the viewer drops its messages.
        request: id of the request that this message answers; empty for a change without a request.
    """
    name = request.encode()
    return _PLAYBACK_STATE.pack(5, status, t_ns, speed, seeked, len(name)) + name


# Messages from the viewer


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Request to subscribe to channels; pairs of subscription id and channel id."""

    subscriptions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Request to end subscriptions."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GetParameters:
    """Request for parameters; no names: all."""

    names: tuple[str, ...]
    request: str | None


@dataclass(frozen=True, slots=True)
class SetParameters:
    """Request to change parameters."""

    names: tuple[str, ...]
    request: str | None


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """Call of a service."""

    service: int
    call: int
    encoding: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class PlaybackRequest:
    """Request to control the playback.

    Attributes:
        play: True: play, False: pause.
        speed: recorded seconds per second; finite.
        seek_ns: target time, epoch ns; None without a seek.
        request: id that the answer repeats.
    """

    play: bool
    speed: float
    seek_ns: int | None
    request: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Request that needs no answer, such as a subscription to parameters, which never change."""


ClientMessage = (
    Subscribe
    | Unsubscribe
    | GetParameters
    | SetParameters
    | ServiceCall
    | PlaybackRequest
    | Ignored
)
_IGNORED: Final = frozenset({"subscribeParameterUpdates", "unsubscribeParameterUpdates"})
_UNSUPPORTED: Final = {
    "advertise": "clientPublish",
    "unadvertise": "clientPublish",
    "fetchAsset": "assets",
    "subscribeConnectionGraph": "connectionGraph",
    "unsubscribeConnectionGraph": "connectionGraph",
}


def parse_text(text: str) -> ClientMessage:
    """Parse a text message.

    Raises:
        ProtocolError: the message is malformed or unknown, or needs a capability that is not
            offered.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("the message is not JSON") from None
    if not isinstance(values, dict) or not isinstance(values.get("op"), str):
        raise ProtocolError('the message is not an object with an "op"')
    op: str = values["op"]
    if op == "subscribe":
        pairs = [
            (_number(entry, "id"), _number(entry, "channelId"))
            for entry in _list(values, "subscriptions")
        ]
        return Subscribe(tuple(pairs))
    if op == "unsubscribe":
        ids = _list(values, "subscriptionIds")
        return Unsubscribe(
            tuple(_number({"subscriptionIds": id_}, "subscriptionIds") for id_ in ids)
        )
    if op == "getParameters":
        names = _list(values, "parameterNames")
        return GetParameters(tuple(map(str, names)), _request(values))
    if op == "setParameters":
        entries = _list(values, "parameters")
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        return SetParameters(tuple(map(str, names)), _request(values))
    if op in _IGNORED:
        return Ignored()
    if op in _UNSUPPORTED:
        raise ProtocolError(f"{op}: the server does not offer {_UNSUPPORTED[op]}")
    raise ProtocolError(f"there is no op {op[:40]!r}")


def parse_binary(data: bytes) -> ClientMessage:
    """Parse a binary message; raise the same errors as `parse_text`."""
    if not data:
        raise ProtocolError("the message is empty")
    opcode, body = data[0], memoryview(data)[1:]
    if opcode == 1:
        raise ProtocolError("message data: the server does not offer clientPublish")
    if opcode == 2:
        service, call, length = _unpack(_SERVICE_REQUEST, body, "the service call")
        rest = body[_SERVICE_REQUEST.size :]
        return ServiceCall(service, call, _text(rest, length), bytes(rest[length:]))
    if opcode == 3:
        command, speed, has_seek, seek_ns, length = _unpack(
            _PLAYBACK_REQUEST, body, "the playback request"
        )
        if command > 1:
            raise ProtocolError(f"there is no playback command {command}")
        if not math.isfinite(speed):
            raise ProtocolError(f"the playback speed {speed} is not finite")
        if has_seek and seek_ns > _LARGEST_TIME_NS:
            raise ProtocolError(f"the time {seek_ns} is out of range")
        request = _text(body[_PLAYBACK_REQUEST.size :], length)
        return PlaybackRequest(command == 0, speed, seek_ns if has_seek else None, request)
    raise ProtocolError(f"there is no binary opcode {opcode}")


def _unpack(layout: struct.Struct, body: memoryview, what: str) -> tuple[Any, ...]:
    if len(body) < layout.size:
        raise ProtocolError(f"{what} is cut short")
    return layout.unpack_from(body)


def _text(data: memoryview, length: int) -> str:
    if len(data) < length:
        raise ProtocolError("a text is cut short")
    try:
        return bytes(data[:length]).decode()
    except UnicodeDecodeError:
        raise ProtocolError("a text is not UTF-8") from None


def _schema_text(schema: Schema) -> str:
    """Return a schema as JSON messages carry it."""
    if schema.encoding in _BINARY_SCHEMAS:
        return base64.b64encode(schema.data).decode()
    return schema.data.decode(errors="replace")


def _list(values: Mapping[str, Any], key: str) -> list[Any]:
    found = values.get(key)
    if not isinstance(found, list):
        raise ProtocolError(f"{values['op']}: {key} is not a list")
    return found


def _number(entry: Any, key: str) -> int:
    value = entry.get(key) if isinstance(entry, dict) else None
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ProtocolError(f"{key} is not a number of 32 bits")
    return value


def _request(values: Mapping[str, Any]) -> str | None:
    request = values.get("id")
    if request is None or isinstance(request, str):
        return request
    raise ProtocolError(f"{values['op']}: id is not a text")
