"""The serial port of an emulated device: a pseudo-terminal behind a symbolic link."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import tempfile
import tty
from pathlib import Path

from recorder.common.errors import DeviceError


class SerialPort:
    """A port that can be plugged in and pulled.

    Args:
        name: of the sensor, for messages.
        link: the symbolic link's name, in a folder of its own.

    Attributes:
        ends: descriptors, the device's and the host's; None while it is not plugged in.
    """

    def __init__(self, name: str, link: str) -> None:
        self._name, self._link = name, link
        self._folder: Path | None = None
        self.ends: tuple[int, int] | None = None

    def plug_in(self) -> Path:
        """Open a pseudo-terminal and return its link; DeviceError if none is available."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="emulated-"))
        try:
            self.ends = device, host = pty.openpty()
        except OSError as error:
            raise DeviceError(f"{self._name}: no pseudo-terminal: {error}") from None
        tty.setraw(host)
        os.set_blocking(device, False)
        link = self._folder / self._link
        link.symlink_to(os.ttyname(host))
        return link

    def pull(self) -> None:
        """Close the pseudo-terminal; may be called twice."""
        if self._folder is not None:
            (self._folder / self._link).unlink(missing_ok=True)
        for end in self.ends or ():
            os.close(end)
        self.ends = None

    def read(self) -> bytes:
        """Return the bytes that the host has written."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.ends[0], 1 << 16) if self.ends is not None else b""
        return b""

    def write(self, data: bytes) -> None:
        """Write to the host; bytes that do not fit into its buffer are lost (no flow control)."""
        with contextlib.suppress(BlockingIOError):
            while data and self.ends is not None:
                data = data[os.write(self.ends[0], data) :]

    def remove(self) -> None:
        """Close the pseudo-terminal and remove its folder; may be called twice."""
        self.pull()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
