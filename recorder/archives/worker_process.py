"""A process that answers tasks, one after the other, over a pair of sockets.

Large buffers (arrays, bytes in `pickle.PickleBuffer`) are sent beside the pickle, without a copy on
either side.
"""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from multiprocessing import connection, forkserver
from typing import Any, Final

import numpy as np

from recorder.common.syscalls import be_idle

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_LENGTHS: Final = struct.Struct("<Q")
_IDLE: Final = 19
_PATIENCE_S: Final = 10.0
_MOST_PARTS: Final = 256  # of a call of sendmsg; the system's limit is 1024


def start_server(modules: Sequence[str]) -> None:
    """Start the process that workers are forked from, once; it imports modules by itself.

    Forking the caller's own process is not safe, since it has threads; this process has none.
    """
    forkserver.set_forkserver_preload(list(modules))
    forkserver.ensure_running()


class WorkerProcess:
    """A worker process with the niceness and idle priority of its caller.

    Args:
        make: makes what answers the tasks, by its method ``answer``; called in the process.
        arguments: its arguments.
    """

    def __init__(self, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._socket = ours
            self._is_busy = False
            self._ending = threading.Lock()
            self._process = _CONTEXT.Process(
                target=_run,
                args=(theirs, make, arguments, os.getpriority(os.PRIO_PROCESS, 0)),
                daemon=True,
            )
            self._process.start()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, task: Any) -> Any:
        """Send a task, and wait for its answer.

        Raises:
            EOFError: the process has ended.
        """
        self._is_busy = True
        try:
            send(self._socket, task)
            answer = receive(self._socket)
        except OSError as error:
            raise EOFError(str(error)) from None
        self._is_busy = False
        return answer

    def end(self) -> str:
        """Wait for the process's end; return how it ended."""
        self._join()
        code = self._process.exitcode
        assert code is not None
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return f"{name}{' (no memory left?)' if -code == signal.SIGKILL else ''}"

    def stop(self) -> None:
        """End the process; at once if it works, since it only reads."""
        if not self._is_busy:
            self._socket.shutdown(socket.SHUT_RDWR)
            connection.wait([self._process.sentinel], _PATIENCE_S)
        self._process.kill()
        self._join()

    def _join(self) -> None:
        """Wait for the process's end.

        The exit code comes through a pipe, once: of two threads that wait, one would read nothing,
        or wait for all workers that have the pipe's other end.
        """
        with self._ending:
            self._process.join()

    def close(self) -> None:
        """Release the socket of a process that has ended."""
        self._socket.close()


def _run(
    wire: socket.socket, make: Callable[..., Any], arguments: tuple[Any, ...], nice: int
) -> None:
    """Answer tasks until the other side is gone."""
    gc.freeze()  # a collection would copy the memory that all workers share
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the caller, which ends this
    if nice == _IDLE:
        be_idle()
    elif nice > os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    worker = make(*arguments)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            send(wire, worker.answer(receive(wire)))


class _Pickler(pickle.Pickler):
    """A pickler that leaves out the bytes of memoryviews, too."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is memoryview:
            return memoryview, (pickle.PickleBuffer(value),)
        return NotImplemented


def send(wire: socket.socket, value: Any) -> None:
    """Send a value; buffers that its pickle leaves out are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    head = file.getbuffer()
    raw = [buffer.raw() for buffer in buffers]
    sizes = [len(head), *(len(one) for one in raw)]
    lengths = struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes)
    parts = [view for view in (memoryview(lengths), head, *raw) if len(view)]
    while parts:
        sent = wire.sendmsg(parts[:_MOST_PARTS])
        while parts and sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        if sent:
            parts[0] = parts[0][sent:]


def receive(wire: socket.socket) -> Any:
    """Receive a value; its buffers are writable and belong to it alone.

    Raises:
        EOFError: the other side is gone.
    """
    (count,) = _LENGTHS.unpack(_read(wire, _LENGTHS.size))
    sizes = struct.unpack(f"<{count}Q", _read(wire, count * _LENGTHS.size))
    head, *buffers = (_read(wire, size) for size in sizes)
    return pickle.loads(head, buffers=buffers)


def _read(wire: socket.socket, size: int) -> memoryview:
    data = np.empty(size, np.uint8).data  # not cleared, as a bytearray would be
    view = data
    while view:
        got = wire.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return data
