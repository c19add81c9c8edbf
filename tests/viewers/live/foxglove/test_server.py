"""The connection: handshake, access, services, parameters, malformed and stalled viewers."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from recorder.viewers.foxglove import connection as connection_module
from recorder.viewers.foxglove.outbox import MOST_BYTES
from tests.viewers.live.foxglove.client import Client, decode_schema, stamp_ns
from tests.viewers.live.foxglove.rig import ALLOWED, OFFSET_NS, FakeBackend, serving
from tests.viewers.live.views.sensors import first


@pytest.mark.parametrize("subprotocol", ["foxglove.sdk.v1", "foxglove.websocket.v1"])
async def test_the_greeting(subprotocol: str) -> None:
    async with serving() as rig:
        client = await rig.client(subprotocol)
        assert client.connection.subprotocol == subprotocol
        info = await client.receive()
        assert info["op"] == "serverInfo"
        assert info["capabilities"] == ["parameters", "parametersSubscribe", "services"]
        assert info["supportedEncodings"] == ["json"]
        assert info["metadata"]["mode"] == "live"
        assert (await client.receive())["op"] == "advertiseServices"
        assert (await client.receive())["op"] == "advertise"


@pytest.mark.parametrize("subprotocols", [None, ["mqtt"], ["foxglove.sdk.v2"]])
async def test_a_client_without_a_known_subprotocol_is_refused(subprotocols: Any) -> None:
    async with serving() as rig:
        with pytest.raises(InvalidStatus) as refused:
            await connect(rig.url, subprotocols=subprotocols)
        assert refused.value.response.status_code == 400
        assert b"foxglove.sdk.v1" in refused.value.response.body


async def test_the_token_and_an_allowed_origin_open_the_connection(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(token="secret") as rig:
        client = await Client.open(rig.url + "?token=secret", origin=ALLOWED)
        await client.greeted("/log")
        await client.close()
    assert "secret" not in caplog.text + "".join(capfd.readouterr())


async def test_services_start_stop_and_mark() -> None:
    async with serving() as rig:
        client = await rig.client()
        offered = (await client.op("advertiseServices"))["services"]
        numbers = {service["name"]: service["id"] for service in offered}
        assert set(numbers) == {"/recorder/start", "/recorder/stop", "/recorder/mark"}
        for service in offered:
            for part in ("request", "response"):
                assert service[part]["schemaEncoding"] == "jsonschema"
                assert json.loads(service[part]["schema"])["type"] == "object"
        await client.call(numbers["/recorder/start"], 1, b'{"name": "drive_1"}')
        reply = await client.op("serviceCallResponse")
        assert (reply["serviceId"], reply["callId"]) == (numbers["/recorder/start"], 1)
        assert reply["encoding"] == "json"
        assert reply["values"] == {"ok": True, "session": "drive_1", "error": ""}
        await client.call(numbers["/recorder/mark"], 2, b'{"text": "pothole"}')
        await client.op("serviceCallResponse")
        await client.call(numbers["/recorder/stop"], 3, b"")
        await client.op("serviceCallResponse")
        assert rig.backend.asked == [
            ("start", {"name": "drive_1"}),
            ("mark", {"text": "pothole"}),
            ("stop", {}),
        ]
        await client.call(numbers["/recorder/start"], 4, b'{"name": "taken"}')
        failure = await client.op("serviceCallFailure")
        assert (failure["callId"], failure["message"]) == (4, "start: 'taken' exists already")


@pytest.mark.parametrize(
    ("service", "payload", "encoding", "named"),
    [
        (99, b"{}", "json", "no service 99"),
        (1, b"{", "json", "JSON"),
        (1, b"[]", "json", "object"),
        (1, b'{"force": true}', "json", "force"),
        (1, b"{}", "ros1", "ros1"),
    ],
)
async def test_a_wrong_call_fails_with_its_reason(
    service: int, payload: bytes, encoding: str, named: str
) -> None:
    async with serving() as rig:
        client = await rig.client()
        await client.call(service, 8, payload, encoding)
        failure = await client.op("serviceCallFailure")
        assert failure["callId"] == 8
        assert named in failure["message"]
        assert not rig.backend.asked


async def test_a_server_that_takes_no_requests_offers_no_services() -> None:
    async with serving(backend=FakeBackend(frozenset({"play"}))) as rig:
        client = await rig.client()
        info = await client.op("serverInfo")
        assert "services" not in info["capabilities"]
        await client.greeted("/log")
        assert not any(message.get("op") == "advertiseServices" for message in client.log)


CONFIG = """
version: 1
session: {root: /data/sessions, metadata: {vehicle: rig-1, operator: ""}}
sensors:
  camera: {driver: camera, source: "http://user:hunter2@10.0.0.5/video", fps: 30, exposure_ms: 2.0}
  lidar: {driver: ouster, source: "pcap:../shared/sweeps.pcap", loop: false}
live: {token: hunter2, origins: ["http://a.example"], certificate: /etc/ssl/cert.pem}
control: {socket: null}
"""


async def test_parameters_show_the_config_without_secrets_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    async with serving(config=path) as rig:
        client = await (await rig.client()).greeted("/log")
        await client.send(op="getParameters", parameterNames=[], id="all")
        values = await client.op("parameterValues")
        assert values["id"] == "all"
        assert {p["name"]: p["value"] for p in values["parameters"]} == {
            "version": 1,
            "session.root": "sessions",
            "session.metadata.vehicle": "rig-1",
            "session.metadata.operator": "",
            "sensors.camera.driver": "camera",
            "sensors.camera.source": "http://user:***@10.0.0.5/video",
            "sensors.camera.fps": 30,
            "sensors.camera.exposure_ms": 2.0,
            "sensors.lidar.driver": "ouster",
            "sensors.lidar.source": "pcap:sweeps.pcap",
            "sensors.lidar.loop": False,
            "live.token": "***",
            "live.origins": ["http://a.example"],
            "live.certificate": "cert.pem",
        }
        floats = [p for p in values["parameters"] if p.get("type") == "float64"]
        assert [p["name"] for p in floats] == ["sensors.camera.exposure_ms"]
        await client.send(op="getParameters", parameterNames=["version", "x"], id="one")
        values = await client.op("parameterValues")
        assert values["parameters"] == [{"name": "version", "value": 1}]
        change = [{"name": "sensors.camera.fps", "value": 60}]
        await client.send(op="setParameters", parameters=change, id="set")
        assert "cannot be changed" in (await client.op("status"))["message"]
        values = await client.op("parameterValues")
        assert values["parameters"] == [{"name": "sensors.camera.fps", "value": 30}]
    assert path.read_text() == CONFIG


async def test_events_and_marks_are_log_messages() -> None:
    async with serving() as rig:
        client = await rig.viewing("/log", 5)
        rig.registry.notify({"type": "status", "status": {}})
        for note in (
            {"kind": "mark", "stream": None, "text": "pothole"},
            {"kind": "lost", "stream": "camera", "text": "lost 3 samples (device)"},
        ):
            t_ns = str(OFFSET_NS)
            rig.registry.notify({"type": "event", "t_ns": t_ns, "cause": None, **note})
        found = [await client.data(5), await client.data(5)]
        logs = [decode_schema(client.channels["/log"], each.payload) for each in found]
        assert [each.t_ns for each in found] == [OFFSET_NS, OFFSET_NS]
        assert [stamp_ns(log.timestamp) for log in logs] == [OFFSET_NS, OFFSET_NS]
        assert [log.message for log in logs] == ["mark: pothole", "lost 3 samples (device)"]
        assert [log.level for log in logs] == [2, 3]  # INFO, WARNING
        assert [log.name for log in logs] == ["recorder", "camera"]


@pytest.mark.parametrize(
    ("subscriptions", "level", "named"),
    [
        ([(1, 999)], 2, "channel 999"),
        ([(1, 0), (1, 0)], 2, "subscription 1"),
        ([(1, 0), (2, 0)], 1, "/log"),
    ],
)
async def test_wrong_subscriptions_are_reported(
    subscriptions: list[tuple[int, int]], level: int, named: str
) -> None:
    async with serving() as rig:
        client = await (await rig.client()).greeted("/log")
        log = client.channels["/log"]["id"]
        pairs = [{"id": id_, "channelId": channel or log} for id_, channel in subscriptions]
        await client.send(op="subscribe", subscriptions=pairs)
        status = await client.op("status")
        assert status["level"] == level
        assert named in status["message"]
        await client.send(op="unsubscribe", subscriptionIds=[77])
        assert "77" in (await client.op("status"))["message"]


async def test_a_viewer_that_sends_only_garbage_is_disconnected() -> None:
    async with serving() as rig:
        client = await rig.client()
        for _ in range(connection_module.MOST_ERRORS + 1):
            await client.connection.send("garbage")
        with pytest.raises(ConnectionClosed) as closed:
            await client.until(lambda _: False)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


@pytest.mark.campaign
async def test_a_stalled_viewer_holds_a_bounded_number_of_bytes_and_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recorder.viewers.live.browser.STALL_S", 0.5)
    spec, _, message = first("camera")
    picture = bytes(message.frames[0])
    comment = b"\xff\xfe" + (60_002).to_bytes(2, "big") + bytes(60_000)
    large = picture[:2] + 16 * comment + picture[2:]  # a JPEG of a megabyte
    message.frames = [large, *message.frames[1:]]
    message.sizes = (np.array([len(large)], np.uint32),)
    async with serving(specs=(spec,)) as rig:
        reading = await rig.viewing("/camera/image", 1)
        before = set(rig.foxglove.connections)
        number = reading.channels["/camera/image"]["id"]
        with closing(await _stalled_viewer(rig.url, number)):
            while not (new := set(rig.foxglove.connections) - before):
                await asyncio.sleep(0.001)
            (slow,) = new
            most = 0
            while slow in rig.foxglove.connections:
                rig.put(spec, message)
                await reading.data(1)  # the other viewer goes on
                most = max(most, slow.nbytes)
            assert most <= 2 * len(large) < MOST_BYTES
            rig.put(spec, message)
            await reading.data(1)


async def _stalled_viewer(url: str, channel: int) -> socket.socket:
    """A viewer with a small buffer that subscribes and then reads nothing more."""
    place = urlsplit(url)
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(stalled, (place.hostname, place.port))
    key = base64.b64encode(b"0123456789abcdef").decode()
    request = (
        f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: foxglove.sdk.v1\r\n\r\n"
    )
    await loop.sock_sendall(stalled, request.encode())
    answer = await loop.sock_recv(stalled, 1024)
    assert answer.startswith(b"HTTP/1.1 101")
    pairs = [{"id": 1, "channelId": channel}]
    frame = json.dumps({"op": "subscribe", "subscriptions": pairs}).encode()
    assert len(frame) < 126
    masked = bytes([0x81, 0x80 | len(frame), 0, 0, 0, 0]) + frame  # masked with zeros
    await loop.sock_sendall(stalled, masked)
    return stalled
