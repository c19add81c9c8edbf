"""Walk through a file from record to record, without an index (VRS, IndexRecord.cpp)."""

from __future__ import annotations

from collections.abc import Iterator

from recorder.formats.vrs.chunks import ChunkedFile
from recorder.formats.vrs.headers import (
    INDEX_TYPE_ID,
    RECORD_HEADER_BYTES,
    SPLIT_INDEX_VERSION,
    RecordHeader,
)

_AHEAD_BYTES = 64 * 1024


class RecordWalk:
    """Iterator over (offset, header) of the whole records from an offset on.

    After the last record, `fault` holds the reason of the end.

    Attributes:
        end: end of the last whole record.
        last_size: bytes of that record.
        fault: None at the end of the file; else a description of the bytes after `end`.
    """

    def __init__(
        self,
        file: ChunkedFile,
        offset: int,
        previous_size: int,
        *,
        header_bytes: int = RECORD_HEADER_BYTES,
        stop: int | None = None,
    ) -> None:
        """Begin at a record.

        Args:
            file: the file.
            offset: offset at which a record begins.
            previous_size: bytes of the record before it; 0 for the first.
            header_bytes: bytes of a record's header in this file.
            stop: offset at which to stop; None: the file's end.
        """
        self._file = file
        self._header_bytes = header_bytes
        self._stop = file.size if stop is None else min(stop, file.size)
        self._ahead = b""
        self._ahead_at = 0
        self.end = offset
        self.last_size = previous_size
        self.fault: str | None = None

    def __iter__(self) -> Iterator[tuple[int, RecordHeader]]:
        held: tuple[int, RecordHeader] | None = None
        while self.end < self._stop:
            header = self._header_at(self.end)
            if header is None:
                self.fault = f"{self._stop - self.end} bytes that are less than a record's header"
                break
            apart = header.previous_size != self.last_size
            fault = header.fault()
            if apart:
                fault = f"previous record of {header.previous_size} bytes, not {self.last_size}"
            elif header.size < self._header_bytes:
                fault = f"size {header.size}"
            if fault is not None:
                self.fault = f"what is no record ({fault})"
                if apart and held is not None:
                    # Either of the two may be wrong: the one before is dropped too.
                    self.end, self.last_size = held[0], held[1].previous_size
                    held = None
                break
            if self.end + header.size > self._stop:
                missing = self.end + header.size - self._stop
                self.fault = f"a record of {header.size} bytes that lacks {missing}"
                break
            if held is not None:
                yield held
            held = (self.end, header)
            self.end += header.size
            self.last_size = header.size
            if header.type_id == INDEX_TYPE_ID and header.version == SPLIT_INDEX_VERSION:
                break
        if held is not None:
            yield held

    def _header_at(self, offset: int) -> RecordHeader | None:
        at = offset - self._ahead_at
        if not 0 <= at <= len(self._ahead) - RECORD_HEADER_BYTES:
            # Small records lie close together, large ones far apart: read ahead accordingly.
            ahead = _AHEAD_BYTES if self.last_size < _AHEAD_BYTES // 4 else self._header_bytes
            self._ahead = self._file.peek(offset, min(ahead, self._stop - offset))
            self._ahead_at, at = offset, 0
        if len(self._ahead) - at < RECORD_HEADER_BYTES:
            return None
        return RecordHeader.unpack(self._ahead, at)
