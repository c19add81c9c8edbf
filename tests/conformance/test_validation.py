"""``recorder validate ARCHIVE`` with the formats' own software."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.l5kit.validation import l5kit_data
from recorder.archives.validation import find_archives, validate_archive
from tests.acceptance.command import recorder
from tests.archives.ncore import build

for module in ("pyvrs", "zarr", "edgefirst_client"):
    pytest.importorskip(module, reason=f"needs {module}, which is not installed")
components: Any = pytest.importorskip(
    "ncore.impl.data.v4.components", reason="needs nvidia-ncore, which is not installed"
)
UPath: Any = pytest.importorskip("upath").UPath

pytestmark = pytest.mark.conformance

SAID = {
    "edgefirst": ["edgefirst-client: metadata of schema 2026.10", "finds every file"],
    "l5kit": ["zarr 2", "l5kit: ChunkedDataset opens 1 scenes, 20 frames"],
    "mcap": ["mcap: "],
    "ncore": ["nvidia-ncore: frames of camera 60, lidar 20, radar"],
    "vrs": ["pyvrs: "],
}


@pytest.fixture(scope="module")
def packed(simulated: Path) -> Path:
    options = ["--option", "edgefirst.container=folder"]
    ran = recorder("finalize", simulated, "--to", "ncore,edgefirst,l5kit,vrs,mcap", *options)
    assert ran.code == 0, ran.err
    return simulated / "_archives"


def test_all_software_reads_what_is_packed(packed: Path) -> None:
    found = find_archives(packed)
    assert len(found) == len(SAID)
    for path, (archive, words) in zip(found, SAID.items(), strict=True):
        report = validate_archive(path)
        assert (report.archive, report.problems, report.unchecked) == (archive, [], [])
        said = "\n".join(report.checked)
        assert all(word in said for word in words), said


def test_parts_are_read_too(simulated: Path) -> None:
    options = ["--from", 0.5, "--until", 1.5]
    ran = recorder("finalize", simulated, "--to", "ncore,edgefirst,l5kit,vrs,mcap", *options)
    assert ran.code == 0, ran.err
    parts = find_archives(simulated / "_archives/parts")
    assert len(parts) == len(SAID)
    for path in parts:
        report = validate_archive(path)
        assert report.problems == []
        assert all("it needs the folder form" in line for line in report.unchecked)


def test_what_the_formats_software_wrote_is_sound(tmp_path: Path) -> None:
    """Its own files have none of our metadata."""
    write_edgefirst(tmp_path / "pictures")
    write_l5kit(tmp_path)
    for kind in ("itar", "directory"):
        write_ncore(tmp_path, kind)
    found = find_archives(tmp_path)
    assert sorted(path.name for path in found) == [
        "both.zarr", "directory.ncore4.zarr", "itar.ncore4.zarr.itar", "own.zarr", "pictures",
    ]  # fmt: skip
    for path in found:
        report = validate_archive(path)
        assert (report.problems, report.unchecked) == ([], []), path
        extendable = not any("cannot be extended" in line for line in report.remarks)
        assert extendable == (report.archive != "l5kit")


def write_edgefirst(root: Path) -> None:
    """A table of ``generate-arrow``."""
    for name in (
        "pictures/alone.jpg",
        "pictures/seq/seq_001.camera.jpeg",
        "pictures/seq/seq_002.png",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(build.jpeg(1))
    command = Path(sys.executable).with_name("edgefirst-client")
    words = ["generate-arrow", str(root / "pictures"), "-o", str(root / "pictures.arrow")]
    subprocess.run([command, *words, "--detect-sequences"], check=True, capture_output=True)


def write_l5kit(root: Path) -> None:
    """A dataset of ``ChunkedDataset``, and two joined by ``zarr_concat``."""
    with l5kit_data() as module, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that what it is to write is not there
        dataset = module.ChunkedDataset(str(root / "own.zarr")).initialize()
        scene, frames = np.zeros(1, module.SCENE_DTYPE), np.zeros(2, module.FRAME_DTYPE)
        scene["frame_index_interval"] = 0, 2
        frames["agent_index_interval"] = [(0, 1), (1, 3)]
        dataset.scenes.append(scene)
        dataset.frames.append(frames)
        dataset.agents.append(np.zeros(3, module.AGENT_DTYPE))
        joined = importlib.import_module("l5kit.data.zarr_utils")
        joined.zarr_concat([str(root / "own.zarr")] * 2, str(root / "both.zarr"))


def write_ncore(root: Path, kind: str) -> None:
    """Two stores of a sequence, without the JSON file that another of NVIDIA's tools writes."""
    interval = importlib.import_module("ncore.impl.common.transformations").HalfClosedInterval
    writer = components.SequenceComponentGroupsWriter(
        UPath(root), kind, "drive", interval(1000, 2001), {}, kind
    )
    poses = writer.register_component_writer(components.PosesComponent.Writer, "default")
    times = np.array([1000, 2000], np.uint64)
    poses.store_dynamic_pose("rig", "world", np.stack([np.eye(4)] * 2), times)
    for component in (components.IntrinsicsComponent, components.MasksComponent):
        writer.register_component_writer(component.Writer, "default")
    for name, group in (("default", None), ("net", "labels")):
        cuboids = components.CuboidsComponent.Writer
        writer.register_component_writer(cuboids, name, group).store_observations([])
    writer.finalize()


def test_the_client_misses_a_picture(packed: Path) -> None:
    """The table's samples need pictures, and the client looks for all of them."""
    root = packed / "edgefirst/s"
    picture = next((root / "s").glob("*/*_007.camera.jpeg"))
    data = picture.read_bytes()
    picture.unlink()
    try:
        report = validate_archive(root)
    finally:
        picture.write_bytes(data)
    assert not report.sound
