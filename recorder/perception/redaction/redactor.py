"""An external program that finds the regions to redact, over pipes (docs/redaction.md).

::

    with Redactor(["python", "blur.py"], folder, 300.0, 60.0) as redactor:
        for number, (t_ns, rgb) in enumerate(pictures):
            found = redactor.ask("front", number, t_ns, rgb)     # boxes, or a mask
        redactor.finish()

The program gets a header and the pixels of a picture on its standard input, and answers with a
header and boxes, or a mask, on its standard output.  It is started once.  Any violation of the
protocol is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import RedactionError
from recorder.common.files import Closeable
from recorder.common.module_launcher import module_command
from recorder.common.secret_masking import mask_value

VERSION: Final = 1
PICTURE: Final = struct.Struct("<4sIIII4sQqQ80s")
"""``RPIC``, version, width, height, channels, ``RGB8``, number, stamp, bytes, stream."""
ANSWER: Final = struct.Struct("<4sIQII")
"""``RBOX`` or ``RMSK``, version, number, rows, columns."""
MOST_BOXES: Final = 65_536

_PIPE_BYTES: Final = 1 << 20
_LAST_WORDS: Final = 300
_END_S: Final = 5.0
_GUARD: Final = "recorder.perception.redaction.guard"

Pixels = npt.NDArray[np.uint8]
Boxes = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class Redactor(Closeable):
    """The program's process; see the module's example.  Not for several threads.

    Args:
        command: the program and its arguments.
        folder: its working directory.
        start_timeout_s: the most that its start and its first answer may take.
        timeout_s: the most that each further answer, and its end, may take.

    Raises:
        RedactionError: there is no such program.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, start_timeout_s: float, timeout_s: float
    ) -> None:
        self._name = f"redactor `{shown(command)}`"
        self._timeout_s, self._next_timeout_s = timeout_s, start_timeout_s
        self._got, self._said = bytearray(), b""
        if (program := find_program(command[0], folder)) is None:
            raise RedactionError(f"{self._name}: no such program, neither in {folder} nor in PATH")
        life, self._life = os.pipe()
        try:
            self._process = subprocess.Popen(
                module_command(_GUARD, str(life), str(program), *command[1:]),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[life],
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._life)
            raise RedactionError(f"{self._name}: {folder}: {error.strerror}") from None
        finally:
            os.close(life)
        files = self._process.stdin, self._process.stdout, self._process.stderr
        self._in, self._out, self._err = (file.fileno() for file in files if file is not None)
        self._open = {self._out, self._err}
        self._guard = os.pidfd_open(self._process.pid)
        for descriptor in (self._in, *self._open):
            os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError):  # a user may have so many bytes in pipes
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def ask(self, stream: str, number: int, t_ns: int, rgb: Pixels) -> Boxes | Mask:
        """Return the regions of a picture to redact.

        Args:
            stream: name of the camera's stream.
            number: index of the sample.
            t_ns: its stamp, epoch ns.
            rgb: u1 [height, width, 3], red, green, blue.

        Returns:
            f4 [n, 4], x0 y0 x1 y1 in pixels from the upper left corner; or bool [height, width].

        Raises:
            RedactionError: the program ended, was too slow, or broke the protocol.
        """
        deadline_s = time.monotonic() + self._next_timeout_s
        self._next_timeout_s = self._timeout_s
        height, width, channels = rgb.shape
        pixels = np.ascontiguousarray(rgb).reshape(-1).data
        about = VERSION, width, height, channels, b"RGB8", number, t_ns, len(pixels)
        self._send(PICTURE.pack(b"RPIC", *about, stream.encode()), deadline_s)
        self._send(pixels, deadline_s)
        kind, version, echo, rows, columns = ANSWER.unpack(self._receive(ANSWER.size, deadline_s))
        if self._count_unread():
            raise self._create_error("answered before it had read the picture")
        if kind not in (b"RBOX", b"RMSK") or version != VERSION:
            raise self._create_error(f"answered {kind!r}, version {version}, which is no header")
        if echo != number:
            raise self._create_error(f"answered picture {echo}, not {number}")
        if kind == b"RMSK":
            if (rows, columns) != (height, width):
                raise self._create_error(
                    f"gave a mask of {columns} x {rows}, not {width} x {height}"
                )
            mask = np.frombuffer(self._receive(rows * columns, deadline_s), np.uint8)
            found: Mask = mask.reshape(rows, columns) != 0
            return found
        if columns not in (4, 5) or rows > MOST_BOXES:
            raise self._create_error(
                f"gave {rows} boxes of {columns} values: needs 4, or 5 with a score"
            )
        data = self._receive(rows * columns * 4, deadline_s)
        return self._check_boxes(np.frombuffer(data, "<f4").reshape(rows, columns), width, height)

    def _check_boxes(self, boxes: Boxes, width: int, height: int) -> Boxes:
        for number, box in enumerate(boxes.tolist()):
            x0, y0, x1, y1 = box[:4]
            if not np.isfinite(box).all():
                what = "has values that are no numbers"
            elif x1 - x0 < 1 or y1 - y0 < 1:
                what = "is smaller than a pixel: needs x0 y0 x1 y1 in pixels"
            elif x1 <= 0 or y1 <= 0 or x0 >= width or y0 >= height:
                what = f"is outside of the picture, {width} x {height}"
            else:
                continue
            raise self._create_error(
                f"gave box {number}, {[round(v, 3) for v in box]}, which {what}"
            )
        return boxes[:, :4]

    def finish(self) -> None:
        """Close the program's input and wait for its end, which must be without an error.

        Raises:
            RedactionError: it wrote more than its answers, ended with an error, or does not end.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        deadline_s = time.monotonic() + self._timeout_s
        while self._open and not self._got:
            self._step(deadline_s)
        if self._got:
            raise self._create_error("wrote more than its answers")
        try:
            code = self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._create_error("did not end after its last answer") from None
        if code:
            raise self._create_error(f"{_describe_exit(code)} after its last answer")

    def close(self) -> None:
        """End the program and all processes that it has started."""
        if self._life >= 0:
            os.close(self._life)
            os.close(self._guard)
            self._life = -1
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            if file is not None:
                file.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, data: bytes | memoryview, deadline_s: float) -> None:
        """Write all data; the program must not write meanwhile."""
        left = memoryview(data)
        while left:
            sent = self._step(deadline_s, left)
            if self._got:
                raise self._create_error("answered before it had the picture")
            if self._out not in self._open:
                raise self._create_error(self._describe_end())
            left = left[sent:]

    def _receive(self, size: int, deadline_s: float) -> bytes:
        while len(self._got) < size:
            if self._out not in self._open:
                raise self._create_error(self._describe_end())
            self._step(deadline_s)
        data = bytes(self._got[:size])
        del self._got[:size]
        return data

    def _step(self, deadline_s: float, sending: memoryview | None = None) -> int:
        """Wait until the program writes or reads bytes; return the number of bytes that it read.

        The program's output is read first: what it writes later may be the answer to these bytes.
        """
        if (left_s := deadline_s - time.monotonic()) <= 0:
            raise self._create_error("did not answer in time")
        poll = select.poll()
        for descriptor in (*self._open, self._guard):
            poll.register(descriptor, select.POLLIN)
        if sending is not None:
            poll.register(self._in, select.POLLOUT)
        ready = [descriptor for descriptor, _ in poll.poll(left_s * 1e3)]
        read = {descriptor for descriptor in tuple(self._open) if self._read(descriptor)}
        if self._guard in ready:  # if it was killed, others may hold the pipes
            self._open &= read
        if sending is None or self._in not in ready or self._got:
            return 0
        try:
            return os.write(self._in, sending)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise self._create_error(self._describe_end()) from None

    def _count_unread(self) -> int:
        """Return the number of bytes that were sent and are not read yet (pipe(7), FIONREAD)."""
        count = bytearray(4)
        fcntl.ioctl(self._in, termios.FIONREAD, count)
        return int.from_bytes(count, sys.byteorder)

    def _read(self, descriptor: int) -> bool:
        """Read the program's output; return whether there was any."""
        try:
            data = os.read(descriptor, _PIPE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._open.discard(descriptor)
        elif descriptor == self._out:
            self._got += data
        else:
            self._said = (self._said + data)[-_LAST_WORDS:]
        return bool(data)

    def _describe_end(self) -> str:
        """Describe why a pipe of the program is closed."""
        try:
            return _describe_exit(self._process.wait(_END_S))
        except subprocess.TimeoutExpired:
            return "closed its input or output"

    def _create_error(self, what: str) -> RedactionError:
        if self._err in self._open:
            self._read(self._err)
        said = " ".join(self._said.decode(errors="replace").split())
        return RedactionError(f"{self._name} {what}" + (f"; it reported: {said}" if said else ""))


def _describe_exit(code: int) -> str:
    if code <= 128:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(code - 128).name}"


def shown(command: Sequence[str]) -> str:
    """Return a command as a text for people, without passwords."""
    return shlex.join(map(mask_value, command))


def find_program(name: str, folder: Path) -> Path | None:
    """Return a program's file: below a folder if its name has a slash, else in PATH; else None."""
    found = shutil.which(str(folder / name) if "/" in name else name)
    return None if found is None else Path(found)
