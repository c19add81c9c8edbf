"""Simulated pedestrians, found in the pixels by a redactor, are in no archive."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.sim.annotate import annotate
from drivers.world import World
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.codecs.streams import ChannelSpec
from recorder.config.settings import RedactSettings
from recorder.perception.camera.camera_pictures import Pictures
from recorder.session.reader import Session
from tests.archives.edgefirst.rig import read as read_edgefirst
from tests.archives.mcap.reading import read as read_mcap
from tests.perception.redaction import people
from tests.session.build import Builder, camera_spec

Array = npt.NDArray[Any]
SIZE = 1280, 720
COUNT, PERIOD_S = 7, 4.0
LEAST_PX = 150
"""Visible pixels of a pedestrian that the redactor finds: about 20 pixels of height."""
DARK = 24


def record(path: Path, camera: SimulatedCamera) -> Path:
    """A session of the simulated camera, a picture every four seconds, with the world's truth."""
    channel = ChannelSpec("video.avi", "mjpg", "u1", (SIZE[1], SIZE[0], 3), "RGB image")
    spec = replace(camera_spec("front"), channels=(channel,), rate_hz=1 / PERIOD_S)
    builder = Builder(path)
    frames = np.stack([camera.frame(k) for k in range(COUNT)])
    builder.add(spec, count=COUNT, data={"video.avi": frames})
    builder.sensors["front"] |= {"source": "sim"}
    builder.close()
    sensor = f'{{driver: camera, source: "sim:", width: {SIZE[0]}, height: {SIZE[1]}}}'
    (path / "config.yaml").write_text(f"version: 1\nsensors: {{front: {sensor}}}\n")
    annotate(path)
    return path


@pytest.mark.campaign(weight=5)
def test_pedestrians_are_covered_and_nothing_else_is_changed(tmp_path: Path) -> None:
    world = World("drive", 0)
    camera = SimulatedCamera(world, Lens.default(*SIZE), fps=1 / PERIOD_S)
    path = record(tmp_path / "drive", camera)
    command = (sys.executable, people.__file__)
    redact = [RedactSettings("front", tmp_path, command, quality=90)]
    mcap, edgefirst = finalize(
        path, [ArchiveRequest("mcap"), ArchiveRequest("edgefirst")], redact=redact
    )
    data = read_edgefirst(edgefirst)
    archived = [
        [m.value.data for m in read_mcap(mcap.files[0]).messages["/front/image"]],
        [data.file(k, "camera.jpeg") for k in range(COUNT)],
    ]
    with Session(path) as session:
        pictures = Pictures(session.streams["front"])
        recorded = [pictures.picture(k)[..., ::-1] for k in range(COUNT)]
    labels = [json.loads(line) for line in (path / "_labels/front.jsonl").read_text().splitlines()]
    numbers = {target.track: target.number for target in world.targets}
    walking = [label for label in labels[1:] if label["class"] == "pedestrian"]
    seen = []
    for label in walking:
        drawn, number = camera.frame(label["frame"]), numbers[label["track"]]
        alone = camera.frame(label["frame"], frozenset([number]))
        seen.append((alone != drawn).any(axis=-1))
    for jpegs in archived:
        shown = [np.array(Image.open(io.BytesIO(jpeg)).convert("RGB")) for jpeg in jpegs]
        covered = 0
        for label, visible in zip(walking, seen, strict=True):
            if visible.sum() < LEAST_PX:
                continue
            k = label["frame"]
            assert recorded[k][visible].max() > 3 * DARK
            assert shown[k][visible].max() <= DARK, label
            if label["occluded"] == 0:
                x, y, w, h = label["box_px"]
                box = np.s_[round(y) : round(y + h) + 1, round(x) : round(x + w) + 1]
                assert shown[k][box].max() <= DARK, label
            covered += 1
        assert covered >= 4
        for picture, archive in zip(recorded, shown, strict=True):
            near = np.zeros(picture.shape[:2], bool)
            for x0, y0, x1, y1 in people.people(picture):
                # Blocks of 16 pixels share what JPEG loses.
                top, left = max(0, int(y0) - 16), max(0, int(x0) - 16)
                near[top : int(y1) + 17, left : int(x1) + 17] = True
            assert near.mean() < 0.3
            error = np.abs(archive.astype(int) - picture)[~near]
            assert error.mean() < 1.5 and error.max() < 60
