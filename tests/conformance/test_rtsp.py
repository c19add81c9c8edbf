"""The RTSP camera on a server of somebody else's, which streams H.264 and H.265 over RTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.camera.pictures import Missing, Shot
from drivers.camera.rtsp.camera import RtspCamera
from recorder.common.errors import DeviceError
from tests.drivers.camera.http_rig import small_camera
from tests.drivers.camera.model_numbers import read_frame_number

av = pytest.importorskip("av", reason="needs av, which is not installed")
server = pytest.importorskip(
    "aio_rtsp_toolkit.server", reason="needs aio-rtsp-toolkit[server], which is not installed"
)
server_streaming = pytest.importorskip("aio_rtsp_toolkit.server_streaming")
pytestmark = pytest.mark.conformance

FRAMES = 70
FPS = 20


def write_video(path: Path, codec: str, options: dict[str, str]) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for index in range(FRAMES):
            picture = small_camera().frame(index)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        container.mux(stream.encode())


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a server that streams ``h264.mp4`` and ``h265.mp4`` to each client from the start."""
    folder = tmp_path_factory.mktemp("media")
    # The server marks every slice as the end of a picture, so pictures of one slice.
    write_video(
        folder / "h264.mp4", "libx264",
        {"tune": "zerolatency", "g": "10", "x264-params": "sliced-threads=0"},
    )  # fmt: skip
    write_video(folder / "h265.mp4", "libx265", {"x265-params": "log-level=none:keyint=10"})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = int(probe.getsockname()[1])
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def serve() -> None:
        running = await server.RtspServer(str(folder), "127.0.0.1", number).start()
        started.set()
        await running.serve_forever()

    task: Any = None

    def run() -> None:
        nonlocal task
        asyncio.set_event_loop(loop)
        task = loop.create_task(serve())
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            loop.run_until_complete(loop.shutdown_asyncgens())

    thread = threading.Thread(target=run, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        # Where its queue takes a packet just when this time is over, the server queues it twice.
        patch.setattr(server_streaming, "QUEUE_PUT_POLL_INTERVAL", 60.0)
        thread.start()
        assert started.wait(60)
        yield number
        loop.call_soon_threadsafe(task.cancel)
        thread.join(60)
    loop.close()


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_every_picture_comes_in_order_until_the_stream_ends(port: int, codec: str) -> None:
    camera = RtspCamera("front", f"//user:secret@127.0.0.1:{port}/{codec}.mp4", timeout_s=20.0)
    camera.open()
    assert (camera.size, camera.fps, camera.jpegs) == ((160, 120), FPS, False)
    shots: list[Shot] = []
    with pytest.raises(DeviceError, match=r"user:\*\*\*@127.*the camera"):
        while True:
            shots += [event for event in camera.read(0.2) if isinstance(event, Shot)]
    camera.close()
    numbers = []
    for shot in shots:
        assert not isinstance(shot.picture, (bytes, Missing))
        numbers.append(read_frame_number(np.asarray(shot.picture)))
    assert numbers == list(range(FRAMES))
    times = np.array([shot.t_ns for shot in shots])
    assert (np.diff(times) > 0).all()


def test_a_stream_that_is_not_there(port: int) -> None:
    camera = RtspCamera("front", f"//127.0.0.1:{port}/none.mp4")
    with pytest.raises(DeviceError, match=r"front: rtsp://127\.0\.0\.1:.*/none\.mp4: answers 404"):
        camera.open()
    camera.close()
