"""A session's writer in a process of its own, driven line by line, to die where a test has it die.

Its streams count (`tests.faults.numbers`); sample n is n ms younger than the session.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recorder.common.clock import SystemClock
from recorder.common.errors import StorageError
from recorder.common.files import AppendFile, PosixDisk
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan, read_session_json
from tests.faults.numbers import message, stored, stream
from tests.kills import PROJECT

STREAMS = (stream("a"), stream("b", 100.0, ("raw", "lzmaf")), stream("c", 100.0, ("mjpg",)))
PLAIN = ("raw", "ts", "seq", "t_mono")
"""Files of stream ``a``: zeros in them are samples as good as any to whoever only counts bytes."""
_EPOCH = 7
_STEP_NS = 1_000_000


class DoomedWriter:
    """The process, and what it was asked::

    with DoomedWriter(device.words, device.root) as writer:
        writer.ask("append 100")             # samples to each stream
        writer.ask("commit")["durable"]      # {"a": 100, "b": 100, "c": 100}
        writer.ask("append 20")
        writer.ask("commit")["error"]        # the disk has failed
        writer.ask("seal")
        writer.ask("pad 300")                # a longer record in the journal, and nothing else
    writer.ask("stall")                  # handed to the kernel; the sync never begins
    # by now it was killed
    """

    def __init__(self, words: Sequence[str], root: Path, resume: str = "") -> None:
        command = [sys.executable, "-m", __name__, str(root), resume]
        self._process = subprocess.Popen(
            [*words, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )
        try:
            self._answer()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> DoomedWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the writer's process has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


def assert_as_sent(session: Path, name: str, least: int) -> int:
    """Every stored sample of a stream is the one that was sent; returns how many there are.

    Args:
        session: closed, by whatever way.
        name: the stream.
        least: samples that were acknowledged.
    """
    numbers = stored(session, name)
    assert numbers == list(range(len(numbers))), name
    assert len(numbers) >= least, f"{name}: acknowledged and gone"
    values = read_session_json(session)
    expected = np.arange(len(numbers), dtype=np.uint64)
    folder = session / name
    np.testing.assert_array_equal(np.fromfile(folder / "seq", "<u8"), expected)
    times = expected * np.uint64(_STEP_NS)
    t_mono = np.fromfile(folder / "t_mono", "<u8")
    np.testing.assert_array_equal(t_mono, times + np.uint64(values["start_mono_ns"]))
    ts_ns = np.fromfile(folder / "ts", "<f8") * 1e9
    np.testing.assert_allclose(ts_ns, times + np.uint64(values["start_ns"]), rtol=0, atol=1000)
    return len(numbers)


class _StallingDisk(PosixDisk):
    stalls = False

    def sync_files(self, files: Sequence[AppendFile]) -> None:
        if self.stalls:
            _say(stalled=True)
            threading.Event().wait()
        super().sync_files(files)


def _say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def _append(writer: SessionWriter, first: int, count: int) -> None:
    for number in range(first, first + count):
        for spec in STREAMS:
            item = message(spec, [number], writer.start_mono_ns + _STEP_NS * number)
            item.epoch, item.number, item.seq = _EPOCH, number, number
            writer.append(item)


def main() -> None:
    root, resume = Path(sys.argv[1]), sys.argv[2]
    disk, clock = _StallingDisk(), SystemClock()
    if resume:
        writer = SessionWriter.resume(disk, root / resume, clock)
    else:
        names = [spec.name for spec in STREAMS]
        plan = SessionPlan(str(root), "s", True, "version: 1\n", record_format=names)
        writer = SessionWriter.create(disk, plan, clock)
    for spec in STREAMS:
        writer.declare(spec)
    position = writer.positions()[STREAMS[0].name]
    number = int(position.get("number", 0)) if resume else 0
    _say(session=writer.path.name)
    for line in sys.stdin:
        verb, _, text = line.strip().partition(" ")
        error = None
        try:
            match verb:
                case "append":
                    _append(writer, number, int(text))
                    number += int(text)
                case "pad":
                    writer.record_next("x" * int(text), b"")
                case "commit":
                    writer.commit()
                case "stall":
                    disk.stalls = True
                    writer.commit()
                case "seal":
                    writer.seal("its disk has failed")
        except (OSError, StorageError) as failure:
            error = str(failure)
        durable = {name: count for name, (_, count) in writer.durable.items()}
        _say(error=error, sent=number, durable=durable)


if __name__ == "__main__":
    main()
