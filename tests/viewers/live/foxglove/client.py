"""A viewer that decodes by the specification, with nothing of the code under test."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from websockets.asyncio.client import ClientConnection, connect

from tests.support.waiting import PATIENCE_S
from tests.viewers.live.staging import BROWSER

SUBPROTOCOL = "foxglove.websocket.v1"


@dataclass(frozen=True)
class Received:
    """A message of a channel."""

    subscription: int
    t_ns: int
    payload: bytes


def decode_schema(channel: dict[str, Any], payload: bytes) -> Any:
    """A payload by the schema of its channel's advertisement."""
    if channel["encoding"] == "json":
        assert channel["schemaEncoding"] == "jsonschema"
        schema = json.loads(channel["schema"])
        values = json.loads(payload)
        assert schema["type"] == "object"
        assert values.keys() <= schema["properties"].keys()
        return values
    assert channel["encoding"] == channel["schemaEncoding"] == "protobuf"
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(base64.b64decode(channel["schema"], validate=True))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(channel["schemaName"]))
    message = kind()
    message.ParseFromString(payload)
    return message


def stamp_ns(timestamp: Any) -> int:
    """The time of a decoded message."""
    if isinstance(timestamp, dict):
        return int(timestamp["sec"]) * 1_000_000_000 + int(timestamp["nsec"])
    seconds, nanos = int(timestamp.seconds), int(timestamp.nanos)
    return seconds * 1_000_000_000 + nanos


class Client:
    """A connected viewer; everything it received is in `log`, in order."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.log: list[Any] = []
        self.channels: dict[str, dict[str, Any]] = {}
        self._at = 0

    @classmethod
    async def open(cls, url: str, subprotocol: str = SUBPROTOCOL, **options: Any) -> Client:
        subprotocols: Any = [subprotocol]
        return cls(await connect(url, subprotocols=subprotocols, **{**BROWSER, **options}))

    async def receive(self) -> Any:
        """The next message: an object, or a decoded binary message."""
        async with asyncio.timeout(PATIENCE_S):
            data = await self.connection.recv()
        message = json.loads(data) if isinstance(data, str) else _binary(data)
        if isinstance(message, dict) and message.get("op") == "advertise":
            self.channels |= {channel["topic"]: channel for channel in message["channels"]}
        if isinstance(message, dict) and message.get("op") == "unadvertise":
            gone = set(message["channelIds"])
            kept = {t: c for t, c in self.channels.items() if c["id"] not in gone}
            self.channels = kept
        self.log.append(message)
        return message

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The next message that is wanted."""
        while True:
            message = await self.receive()
            if wanted(message):
                return message

    async def op(self, op: str) -> dict[str, Any]:
        """The next message of an op."""
        found = await self.until(lambda m: isinstance(m, dict) and m.get("op") == op)
        assert isinstance(found, dict)
        return found

    async def greeted(self, *topics: str) -> Client:
        """Receive until these topics are advertised."""
        while not set(topics) <= self.channels.keys():
            await self.receive()
        return self

    async def data(self, subscription: int) -> Received:
        """The next message of a subscription."""
        found = await self.until(
            lambda m: isinstance(m, Received) and m.subscription == subscription
        )
        assert isinstance(found, Received)
        return found

    async def send(self, **values: Any) -> None:
        await self.connection.send(json.dumps(values))

    async def send_bytes(self, data: bytes) -> None:
        await self.connection.send(data)

    async def subscribe(self, topic: str, subscription: int) -> None:
        pairs = [{"id": subscription, "channelId": self.channels[topic]["id"]}]
        await self.send(op="subscribe", subscriptions=pairs)

    async def call(self, service: int, call: int, payload: bytes, encoding: str = "json") -> None:
        name = encoding.encode()
        head = struct.pack("<BIII", 2, service, call, len(name))
        await self.send_bytes(head + name + payload)

    async def control(
        self, *, play: bool, speed: float = 1.0, seek_ns: int | None = None, request: str = "r"
    ) -> None:
        name = request.encode()
        head = struct.pack(
            "<BBfBQI", 3, not play, speed, seek_ns is not None, seek_ns or 0, len(name)
        )
        await self.send_bytes(head + name)

    async def answered(self) -> None:
        """Return when the server has handled everything that was sent before."""
        request = f"done {len(self.log)}"
        await self.send(op="getParameters", parameterNames=["none"], id=request)
        await self.until(lambda m: isinstance(m, dict) and m.get("id") == request)

    async def close(self) -> None:
        await self.connection.close()


def _binary(data: bytes) -> Any:
    """Decode a binary message by the tables of the specification."""
    opcode = data[0]
    if opcode == 1:
        subscription, t_ns = struct.unpack_from("<IQ", data, 1)
        return Received(subscription, t_ns, data[13:])
    if opcode == 2:
        assert len(data) == 9
        return {"op": "time", "t_ns": struct.unpack_from("<Q", data, 1)[0]}
    if opcode == 3:
        service, call, length = struct.unpack_from("<III", data, 1)
        encoding, payload = data[13 : 13 + length], data[13 + length :]
        reply = {"op": "serviceCallResponse", "serviceId": service, "callId": call}
        return reply | {"encoding": encoding.decode(), "values": json.loads(payload)}
    assert opcode == 5, f"opcode {opcode}"
    status, t_ns, speed, seeked, length = struct.unpack_from("<BQfBI", data, 1)
    request = data[19 : 19 + length].decode()
    assert len(data) == 19 + length
    return {
        "op": "playbackState",
        "status": status,
        "t_ns": t_ns,
        "speed": speed,
        "seeked": bool(seeked),
        "request": request,
    }
