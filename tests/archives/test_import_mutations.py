"""Datasets with changed bytes are imported, refused or lose samples: nothing else happens."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from drivers.kit.dataset_source import DatasetSource
from drivers.kit.driver import EndOfSource, SensorConfig
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.importing import Contents
from recorder.archives.ncore import importing as ncore
from recorder.common.errors import RecorderError
from tests.archives.ncore import build
from tests.archives.ncore.packer_rig import rig
from tests.campaigns import seeded

pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")

DOCUMENTS = (b"{}", b"[]", b"null", b'{"a": 1}', b"", b'[",", 1]')


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sequence in an itar and in a folder, and a dataset in a ZIP."""
    root = tmp_path_factory.mktemp("datasets")
    for kind in ("itar", "folder"):
        (root / kind).mkdir()
        build.write_sequence(root / kind, kind)
    session = root / "drive"
    rig(session, 0.2).close()
    list(finalize(session, [ArchiveRequest("edgefirst")], out=root))
    return root


def _mutate(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if not data:
        return
    match rng.randrange(4):
        case 0:
            del data[rng.randrange(len(data)) :]
        case 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            data[:] = rng.choice(DOCUMENTS)
        case _:
            start = max(0, len(data) - rng.randrange(1, min(len(data), 3000) + 1))
            for at in range(start, min(len(data), start + 16)):
                data[at] = rng.randrange(256)
    path.write_bytes(data)


def _read(contents: Contents, scheme: str, staged: Path) -> None:
    staged.mkdir()
    for file in contents.files:
        if file.prepare is not None:
            file.prepare(staged)
    for sensor in contents.sensors:
        address = sensor.source.partition(":")[2]
        source = DatasetSource(SensorConfig("one", scheme, address, {}, pace="max"))
        try:
            source.open()
            with suppress(EndOfSource):
                while True:
                    source.read()
        finally:
            source.close()


@seeded(4, weight=40, least=60)
def test_mutated_datasets(datasets: Path, tmp_path: Path, seed: int) -> None:
    from recorder.archives.edgefirst import importing as edgefirst

    rng = random.Random(seed)
    kind = ("itar", "folder", "drive.zip", "drive.arrow")[seed % 4]
    of_ncore = kind in ("itar", "folder")
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    place = folder / "drive"
    shutil.copytree(datasets / (kind if of_ncore else "edgefirst/drive"), place)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    if not of_ncore:
        files = [place / kind]
    for _ in range(rng.choice((1, 1, 3))):
        _mutate(rng.choice(files), rng)
    path: Path = place / "drive.json" if of_ncore else place
    module: Any = ncore if of_ncore else edgefirst
    with suppress(RecorderError):
        _read(module.read_contents(path), "ncore" if of_ncore else "edgefirst", folder / "staged")
    shutil.rmtree(folder)
