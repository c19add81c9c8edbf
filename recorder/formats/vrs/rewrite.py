"""Copy of a VRS file record by record, to change its compression or repair damage."""

from __future__ import annotations

from pathlib import Path

from recorder.common.files import Disk
from recorder.formats.vrs.compression import Compressor
from recorder.formats.vrs.reader import VrsReader
from recorder.formats.vrs.tags import StreamTags
from recorder.formats.vrs.writer import VrsWriter


def rewrite_vrs(
    source: Path, target: Path, disk: Disk, *, compressor: Compressor | None = None
) -> int:
    """Copy a file's whole records into a new file with the same streams, tags and data.

    Records are in time order, chunks become one file, and the file is indexed and synced. The file
    with the collected index stays beside it.

    Args:
        source: any VRS file; bytes after its last whole record are left out.
        target: path of the new file.
        disk: disk that writes the file.
        compressor: compressor of the new file's records; None stores them uncompressed.

    Returns:
        Number of records.

    Raises:
        FormatError: the file is no VRS file, or a record does not decompress.
        FileExistsError: a file of the target's name exists.
    """
    with VrsReader(source) as reader:
        tags = {s.id: StreamTags(s.vrs_tags, s.tags) for s in reader.streams.values()}
        creation_id = reader.header.creation_id
        writer = VrsWriter.create_as(target, disk, tags, reader.tags, creation_id=creation_id)
        try:
            for record in reader:
                header, data = reader.read(record)
                kind, time_s = record.record_type, record.timestamp_s
                writer.put(record.stream, kind, header.version, time_s, [data], compressor)
            writer.finish()
            disk.sync_files(writer.files)
        finally:
            for file in writer.files:
                file.close()
        return writer.count
