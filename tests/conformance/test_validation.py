"""``recorder validate ARCHIVE`` with the formats' own software."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.archives.validation import find_archives, validate_archive
from tests.acceptance.command import recorder

for module in ("pyvrs", "zarr", "edgefirst_client", "ncore.impl.data.v4.components"):
    pytest.importorskip(module, reason=f"needs {module}, which is not installed")

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
