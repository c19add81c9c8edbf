"""Checks of an MCAP file by our own reader and by the package ``mcap``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from recorder.archives.validation import ArchiveCheck, ArchiveReport, need
from recorder.common.errors import ArchiveError, UsageError, need_extra

_OFTEN = 1024
_METADATA = "metadata.yaml"


class McapCheck(ArchiveCheck):
    """Check that reads every record, and compares chunks, indexes, statistics and CRCs."""

    software: ClassVar[str] = "mcap"
    left: ClassVar[str] = "whether other readers of MCAP read it"

    def find(self, path: Path) -> Path | None:
        """Return the MCAP file; for a ROS 2 bag, the file in its folder."""
        if path.is_dir():
            files = sorted(path.glob("*.mcap")) if (path / _METADATA).is_file() else []
            return files[0] if len(files) == 1 else None
        return path if path.suffix == ".mcap" and path.is_file() else None

    def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        try:
            from recorder.formats.mcap.index import check_file
        except ModuleNotFoundError as error:
            text = f"checking an MCAP file {need_extra('archives')}: no {error.name}"
            raise UsageError(text) from None
        found = yield from check_file(path)
        counts = {channel.topic: found.counts[n] for n, channel in found.channels.items()}
        report.checked.append(
            f"{sum(counts.values())} messages on {len(counts)} topics in "
            f"{len(found.blocks.offset)} chunks, {len(found.attachments)} attachments, "
            f"{len(found.metadata)} metadata records, indexes and CRCs"
        )
        if (path.parent / _METADATA).is_file():
            _check_bag(path.parent / _METADATA, path.name, counts)
            report.checked.append(f"{_METADATA}: the numbers of messages of all topics")

    def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        reader = need("mcap.reader")
        with path.open("rb") as file:
            summary = reader.make_reader(file).get_summary()
        total = summary.statistics.message_count
        counts: Counter[int] = Counter()
        with path.open("rb") as file:
            stream = reader.NonSeekingReader(file, validate_crcs=True)
            messages = stream.iter_messages(log_time_order=False)
            for number, (_, channel, _) in enumerate(messages):
                counts[channel.id] += 1
                if number % _OFTEN == 0:
                    yield number / max(1, total)
        expected = {k: n for k, n in summary.statistics.channel_message_counts.items() if n}
        if counts != expected:
            raise ArchiveError(f"{counts.total()} messages, the statistics have {total}")
        report.checked.append(f"mcap: {total} messages, CRCs of chunks and of the data section")


CHECK = McapCheck()


def _check_bag(path: Path, name: str, counts: dict[str, int]) -> None:
    """Compare the description of a bag with its file."""
    try:
        bag: dict[str, Any] = yaml.safe_load(path.read_bytes())["rosbag2_bagfile_information"]
        files = bag["relative_file_paths"]
        described = {
            entry["topic_metadata"]["name"]: entry["message_count"]
            for entry in bag["topics_with_message_count"]
        }
        total = bag["message_count"]
    except (yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{path}: is no description of a bag: {error!r}") from None
    if files != [name]:
        raise ArchiveError(f"{path}: names the files {files}, the bag has {name}")
    if described != counts or total != sum(counts.values()):
        wrong = sorted(described.items() ^ counts.items())[:3]
        raise ArchiveError(f"{path}: has other numbers of messages than the file, such as {wrong}")
