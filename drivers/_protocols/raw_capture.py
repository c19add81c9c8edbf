"""Files of raw radar IQ as written by a DCA1000: consecutive frames of int16."""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from drivers._protocols.chirp import ChirpConfig
from recorder.contract.errors import SourceError

Frame = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Truncated:
    """Marks an incomplete frame at a file's end."""

    path: Path
    bytes: int


class CaptureFiles:
    """Reads the frames of a raw capture one by one; memory does not grow with the file.

    >>> capture = CaptureFiles(path, chirp, "radar: file:adc_data.bin")
    >>> while (frame := capture.read()) is not None:
    ...     ...                          # int16 chirp.shape
    >>> capture.close()

    Args:
        path: a file, or a folder of ``.bin`` files, read in the order of the numbers in their names
            (``2.bin`` before ``10.bin``).
        chirp: defines a frame's shape.
        where: prefix of messages.

    Raises:
        SourceError: no file holds a complete frame.
    """

    def __init__(self, path: Path, chirp: ChirpConfig, where: str) -> None:
        self._where, self._chirp = where, chirp
        self._file: FileIO | None = None
        self._paths = [path]
        if path.is_dir():
            found = sorted(path.glob("*.bin"), key=_number_order)
            if not found:
                raise SourceError(f"{self._where}: no .bin file in this folder")
            self._paths = found
        sizes = [p.stat().st_size for p in self._paths]
        if max(sizes) < chirp.frame_bytes:
            shape = " x ".join(map(str, chirp.shape))
            raise SourceError(
                f"{self._where}: {max(sizes)} bytes, but a frame of {shape} int16 has "
                f"{chirp.frame_bytes}"
            )
        self._paths.reverse()
        self._open_next()

    def read(self) -> Frame | Truncated | None:
        """Return the next frame as a new array: int16 [chirps, tx, rx, values], little endian.

        Returns None after the last frame.

        Raises:
            SourceError: the operating system reports an error.
        """
        while self._file is not None:
            frame = np.empty(self._chirp.shape, "<i2")  # a new array, because the caller keeps it
            view = frame.reshape(-1).view(np.uint8).data
            got = 0
            try:
                while got < len(view) and (count := self._file.readinto(view[got:])):
                    got += count
            except OSError as error:
                raise SourceError(f"{self._where}: {error.strerror}") from None
            if got == len(view):
                return frame
            path = self._paths.pop()
            self._open_next()
            if got:
                return Truncated(path, got)
        return None

    def _open_next(self) -> None:
        self.close()
        if self._paths:
            try:
                self._file = self._paths[-1].open("rb", buffering=0)
            except OSError as error:
                raise SourceError(f"{self._where}: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None


def _number_order(path: Path) -> list[tuple[bool, int | str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in parts if part]
