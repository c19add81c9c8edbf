"""Garbage from an RTSP camera, through the whole client; its parsers are in `tests.fuzz`."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.pictures import Missing, Shot
from recorder.common.errors import DeviceError, RecorderError
from tests.drivers.camera.rtp_packets import encode, packets
from tests.drivers.camera.rtsp_script import Script, answers, pieces, watch
from tests.drivers.fuzzing import mutated

PARTS = (b"\r\n\r\n", b"$\0\xff\xff", b"Content-Length: 99999\r\n", b"\x7c\x85", b"RTSP/1.0 200 OK")


@given(seed=st.integers(0, 2**32))
def test_a_camera_that_answers_and_streams_garbage(seed: int) -> None:
    """The whole client: pictures, counted losses, then one error that names the camera."""
    rng = random.Random(seed)
    says = answers()
    sent = pieces(packets(encode("h264", 12)))
    if rng.random() < 0.5:
        method = rng.choice(["OPTIONS", "DESCRIBE", "SETUP", "PLAY"])
        damaged = mutated(rng, says[method][0].encode("latin-1"), PARTS[:3])
        says[method] = [damaged.decode("latin-1")]
    else:
        at = rng.randrange(len(sent))
        sent[at] = mutated(rng, sent[at], PARTS)
    script = Script(*sent, says=says)
    camera = script.camera()
    try:
        camera.open()
    except RecorderError as error:
        assert str(error).startswith("front: rtsp://cam/live: ")
        return
    finally:
        if camera._player is None:
            assert script.open == 0
    shots, end = watch(camera)
    assert str(end).startswith("front: rtsp://cam/live: ")
    assert isinstance(end, DeviceError) or "pixels" in str(end)
    assert sum(isinstance(s, Shot) and not isinstance(s.picture, Missing) for s in shots) <= 12
