"""Checks of a VRS file by our own reader and by pyvrs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from recorder.archives.validation import ArchiveCheck, ArchiveReport, need
from recorder.common.errors import ArchiveError
from recorder.formats.vrs import VrsReader

_OFTEN = 256


class VrsCheck(ArchiveCheck):
    """Check that reads every record and its blocks."""

    software: ClassVar[str] = "pyvrs"
    left: ClassVar[str] = "whether other readers of VRS read it"

    def find(self, path: Path) -> Path | None:
        return path if path.suffix == ".vrs" and path.is_file() else None

    def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        with VrsReader(path) as reader:
            if not reader.indexed:
                raise ArchiveError(f"{path}: has no index: it was not finished")
            for number, record in enumerate(reader):
                record.blocks()
                if number % _OFTEN == 0:
                    yield number / len(reader)
            report.checked.append(
                f"{len(reader)} records of {len(reader.streams)} streams, and the index"
            )

    def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        pyvrs = need("pyvrs")
        reader = pyvrs.SyncVRSReader(str(path))
        for number, record in enumerate(reader):
            blocks = record.metadata_blocks, record.image_blocks, record.custom_blocks
            _ = [list(block) for block in blocks]
            if number % _OFTEN == 0:
                yield number / len(reader)
        with VrsReader(path) as ours:
            if len(ours) != len(reader):
                raise ArchiveError(f"{len(reader)} records, our own reader finds {len(ours)}")
        checksum = str(pyvrs.records_checksum(str(path), False))
        if len(checksum) != 16:  # it returns a text where it fails
            raise ArchiveError(f"records_checksum: {checksum}")
        report.checked.append(f"pyvrs: {len(reader)} records, checksum {checksum}")


CHECK = VrsCheck()
