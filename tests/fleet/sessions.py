"""Small sessions with large files, for uploads."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from tests.session.build import Builder, imu_spec


def make_session(folder: Path, *, large: int = 0, seed: int = 1) -> Path:
    """A closed session with an archive and a report.

    Args:
        folder: of the session.
        large: bytes of a large archive; 0: it has none.
        seed: of its data.
    """
    builder = Builder(folder)
    spec = imu_spec()  # with few files: each is several calls to a server
    spec = replace(spec, channels=spec.channels[:1], device_clock=False)
    builder.add(spec, seq=range(20), seed=seed)
    builder.close()
    archive = folder / "_archives/l5kit/drive.zarr"
    archive.mkdir(parents=True)
    (archive / ".zgroup").write_text("{}")
    if large:
        (folder / "_archives/l5kit/large").write_bytes(random.Random(seed).randbytes(large))
    (folder / "report.html").write_text("<html></html>")
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
