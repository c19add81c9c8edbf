"""The Foxglove protocol against the SDK's own server: the same bytes for the same contents."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any

import foxglove
import numpy as np
import pytest
from foxglove import Channel, Context, Schema
from foxglove.messages import PointCloud
from foxglove.websocket import (
    Capability,
    MessageSchema,
    Parameter,
    PlaybackCommand,
    PlaybackControlRequest,
    PlaybackState,
    ServerListener,
    Service,
    ServiceRequest,
    ServiceSchema,
)
from foxglove.websocket import PlaybackStatus as ReferenceStatus
from websockets.asyncio.client import ClientConnection, connect

from recorder.perception.foxglove.channels import schema_of
from recorder.perception.foxglove.clouds import cloud
from recorder.perception.lidar.points import POINT
from recorder.viewers.foxglove import protocol
from recorder.viewers.foxglove.protocol import Advertised, Level, PlaybackStatus
from recorder.viewers.foxglove.services import offered_services
from tests.viewers.live.foxglove.client import Client

pytestmark = pytest.mark.conformance

T_NS = 1_717_236_000_123_456_789
RANGE_NS = (T_NS, T_NS + 10_000_000_000)


class Listener(ServerListener):
    """Keeps the requests that the reference server understood."""

    def __init__(self) -> None:
        self.playback: list[PlaybackControlRequest] = []

    def on_playback_control_request(self, request: PlaybackControlRequest) -> PlaybackState:
        self.playback.append(request)
        return PlaybackState(
            status=ReferenceStatus.Paused,
            current_time=T_NS,
            playback_speed=0.5,
            did_seek=True,
            request_id=request.request_id,
        )

    def on_get_parameters(
        self, client: Any, param_names: list[str], request_id: str | None = None
    ) -> list[Parameter]:
        return [Parameter("fps", value=30), Parameter("exposure_ms", value=2.0)]


class Reference:
    """The SDK's server, a channel of it, and a connection to it."""

    def __init__(self, connection: ClientConnection, server: Any, context: Context) -> None:
        self.connection, self.server, self.context = connection, server, context
        self.client = Client(connection)
        self.listener: Listener

    async def text(self, op: str) -> dict[str, Any]:
        return await self.client.op(op)

    async def binary(self) -> bytes:
        async with asyncio.timeout(60.0):
            while not isinstance(data := await self.connection.recv(), bytes):
                pass
        return data


def against_reference(
    scene: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Make a test of a scene, which gets the reference before its parameters."""

    @functools.wraps(scene)
    def test(**parameters: Any) -> None:
        asyncio.run(run(**parameters))

    async def run(**parameters: Any) -> None:
        context, listener = Context(), Listener()
        services = []
        for _, service in offered_services(["start", "stop", "mark"]).values():
            shapes = [
                MessageSchema(
                    encoding="json",
                    schema=Schema(name=shape.name, encoding=shape.encoding, data=shape.data),
                )
                for shape in (service.request, service.response)
            ]
            schema = ServiceSchema(name=service.name, request=shapes[0], response=shapes[1])
            services.append(Service(name=service.name, schema=schema, handler=_answer))
        server = foxglove.start_server(
            name="recorder",
            port=0,
            capabilities=[
                Capability.Parameters,
                Capability.Services,
                Capability.Time,
                Capability.PlaybackControl,
            ],
            supported_encodings=["json"],
            services=services,
            server_listener=listener,
            context=context,
            session_id="id",
            playback_time_range=RANGE_NS,
        )
        try:
            url = f"ws://127.0.0.1:{server.port}"
            subprotocols: Any = [protocol.SUBPROTOCOLS[0]]
            async with connect(url, subprotocols=subprotocols) as connection:
                assert connection.subprotocol == protocol.SUBPROTOCOLS[0]
                reference = Reference(connection, server, context)
                reference.listener = listener
                await scene(reference, **parameters)
        finally:
            server.stop()

    signature = inspect.signature(scene)
    _, *asked = signature.parameters.values()
    test.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
    return test


def _answer(request: ServiceRequest) -> bytes:
    return b'{"of":' + request.payload + b"}"


@against_reference
async def test_the_server_information(reference: Reference) -> None:
    theirs = await reference.text("serverInfo")
    capabilities = theirs["capabilities"]
    ours = json.loads(
        protocol.server_info("recorder", capabilities, "id", metadata={}, data_range_ns=RANGE_NS)
    )
    assert set(capabilities) == {
        "parameters", "parametersSubscribe", "services", "time", "playbackControl",
    }  # fmt: skip
    theirs.pop("metadata", None)
    assert {key: value for key, value in ours.items() if key != "metadata"} == theirs


@against_reference
async def test_an_advertisement_and_a_message(reference: Reference) -> None:
    points = np.zeros(3, POINT)
    points["x"], points["ring"] = [1, 2, 3], [4, 5, 6]
    payload = b"".join(cloud(T_NS, "lidar", points))
    found = PointCloud.get_schema()
    channel = Channel(
        "/lidar/points", schema=found, message_encoding="protobuf", context=reference.context
    )
    (theirs,) = (await reference.text("advertise"))["channels"]
    known = Advertised(theirs["id"], "/lidar/points", "protobuf", schema_of(PointCloud))
    assert json.loads(protocol.advertise([known]))["channels"] == [theirs]
    await reference.client.subscribe("/lidar/points", 77)
    while not channel.has_sinks():
        await asyncio.sleep(0.01)
    sent = asyncio.create_task(_repeat(lambda: channel.log(payload, log_time=T_NS)))
    assert await reference.binary() == protocol.message_data(77, T_NS, payload)
    sent.cancel()


async def _repeat(send: Callable[[], object]) -> None:
    """A subscription is not acknowledged: send until it counts."""
    while True:
        send()
        await asyncio.sleep(0.02)


@against_reference
async def test_services_and_their_answers(reference: Reference) -> None:
    theirs = (await reference.text("advertiseServices"))["services"]
    services = [service for _, service in offered_services(["start", "stop", "mark"]).values()]
    ours = json.loads(protocol.advertise_services(services))["services"]

    def by_name(entries: list[dict[str, Any]]) -> dict[str, Any]:
        return {e["name"]: {k: v for k, v in e.items() if k != "id"} for e in entries}

    assert by_name(ours) == by_name(theirs)
    number = theirs[0]["id"]
    await reference.client.call(number, 5, b'{"text": "x"}')
    answer = protocol.service_response(number, 5, b'{"of":{"text": "x"}}')
    assert await reference.binary() == answer
    await reference.client.call(99, 6, b"{}")
    failure = await reference.text("serviceCallFailure")
    assert failure == json.loads(protocol.service_failure(99, 6, failure["message"]))


@against_reference
async def test_parameters(reference: Reference) -> None:
    await reference.client.send(op="getParameters", parameterNames=[], id="all")
    theirs = await reference.text("parameterValues")
    values = [
        {"name": "fps", "value": 30},
        {"name": "exposure_ms", "value": 2.0, "type": "float64"},
    ]
    assert json.loads(protocol.parameter_values(values, "all")) == theirs


@pytest.mark.parametrize("seek_ns", [None, T_NS + 5])
@against_reference
async def test_playback_requests_and_states(reference: Reference, seek_ns: int | None) -> None:
    await reference.text("serverInfo")
    await reference.client.control(play=True, speed=2.0, seek_ns=seek_ns, request="some-id")
    state = protocol.playback_state(
        PlaybackStatus.PAUSED, T_NS, 0.5, seeked=True, request="some-id"
    )
    assert await reference.binary() == state
    (request,) = reference.listener.playback
    assert request.playback_command == PlaybackCommand.Play
    assert (request.playback_speed, request.seek_time) == (2.0, seek_ns)
    assert request.request_id == "some-id"


@against_reference
async def test_time_and_statuses(reference: Reference) -> None:
    await reference.text("serverInfo")
    reference.server.broadcast_time(T_NS)
    assert await reference.binary() == protocol.time(T_NS)
    await reference.connection.send("garbage")
    status = await reference.text("status")
    assert status == json.loads(protocol.status(Level.ERROR, status["message"]))
