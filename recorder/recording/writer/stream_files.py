"""Files of one stream of a session: folder, time files and channels."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from recorder.bus.wire import Message, TimeArray
from recorder.codecs.storage import ChannelWriter, create_writer, resume_writer
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError
from recorder.common.files import AppendFile, Disk
from recorder.session.layout import private

Stamps = np.ndarray[Any, np.dtype[np.float64]]
"""Epoch seconds, as in ``ts``."""


class StreamFiles:
    """Writer of one stream's samples.

    The folder is created at the second sample, since roverd's readers fail on a stream with one
    sample.  Until then messages are held back and not acknowledged.

    Attributes:
        spec: the declared stream.
        samples: number of samples on disk (appended, not necessarily durable).
        last_ns: ``t_mono`` of the latest appended sample; -1 before the first.
        adjusted: number of samples whose times were moved.
    """

    def __init__(self, disk: Disk, session: Path, spec: StreamSpec, offset_ns: int) -> None:
        self.spec = spec
        self.samples = 0
        self.last_ns = -1
        self.adjusted = 0
        self._last_ts = -np.inf
        self._disk = disk
        self._session = session
        self._offset_ns = offset_ns
        self._times: dict[str, AppendFile] = {}
        self._channels: list[ChannelWriter] = []

    @property
    def folder(self) -> Path:
        return self._session / self.spec.name

    @property
    def exists(self) -> bool:
        """Whether the stream has its folder."""
        return bool(self._times)

    @property
    def files(self) -> list[AppendFile]:
        """All files; `ts`, whose length gives the number of samples, comes last."""
        return [*(f for c in self._channels for f in c.files), *self._times.values()]

    def metadata(self) -> dict[str, bytes]:
        """Return the contents of the folder's constant files, by name."""
        files = self.spec.meta_files().items()
        meta = {name: json.dumps(entries, indent=1).encode() for name, entries in files}
        return meta | {name: text.encode() for name, text in self.spec.files.items()}

    @property
    def bytes(self) -> int:
        """Appended bytes of all files."""
        return sum(file.length for file in self.files)

    def create(self, declare: Callable[[], None]) -> None:
        """Create the folder with all files under a temporary name; `declare` journals it first."""
        declare()
        temporary = private(self._session, f"{self.spec.name}.tmp")
        self._disk.make_folder(temporary)
        for name, data in self.metadata().items():
            self._disk.write_file(temporary / name, data)
        self._times = {name: self._disk.create(temporary / name) for name in self._time_names()}
        self._channels = [
            create_writer(temporary, channel, self._disk, self.spec.rate_hz)
            for channel in self.spec.channels
        ]
        for file in self.files:  # no folder without headers and first index entries
            file.flush()
            file.sync()
        self._disk.sync_folder(temporary)
        self._disk.rename(temporary, self.folder)
        for file in self.files:  # the rename keeps descriptors valid, but not paths
            file.path = self.folder / file.path.name

    def resume(self, lengths: Mapping[str, int], last_ns: int) -> None:
        """Resume a folder that an earlier writer left, cut to its committed lengths.

        Metadata files that were removed meanwhile are rewritten from the journal's declaration.
        """
        for name, data in self.metadata().items():
            if not (self.folder / name).exists():
                self._disk.write_file(self.folder / name, data)
        self._times = {
            name: self._disk.reopen(self.folder / name, lengths[name])
            for name in self._time_names()
        }
        self._channels = [
            resume_writer(self.folder, channel, self._disk, self.spec.rate_hz, lengths)
            for channel in self.spec.channels
        ]
        self.samples = lengths["ts"] // 8
        self.last_ns = last_ns
        self._last_ts = self._to_ts(np.array([last_ns]))[0] if self.samples else -np.inf

    def append(self, message: Message) -> tuple[TimeArray, Stamps]:
        """Append a data message's samples; the message was checked when it was received.

        Returns:
            The stored times: ``t_mono`` in ns, and ``ts``.
        """
        t_mono, ts = self._increasing(message)
        count = len(t_mono)
        self._times["ts"].append(ts.tobytes())
        if count == 1:
            self._times["seq"].append(message.seq.to_bytes(8, "little"))
        else:
            seq = np.arange(message.seq, message.seq + count, dtype="<u8")
            self._times["seq"].append(seq.tobytes())
        # A non-negative int64 has the bytes of a u8.
        self._times["t_mono"].append(t_mono.astype("<i8", copy=False).tobytes())
        if message.t_dev_ns is not None:
            self._times["t_dev"].append(message.t_dev_ns.astype("<i8", copy=False).tobytes())
        sizes = iter(message.sizes)
        for channel, spec, frame in zip(
            self._channels, self.spec.channels, message.frames, strict=True
        ):
            channel.append(frame, count, next(sizes) if spec.variable else None)
        self.samples += count
        self.last_ns = int(t_mono[-1])
        return t_mono, ts

    def finish(self) -> None:
        """Finish every channel."""
        for channel in self._channels:
            channel.finish()

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _time_names(self) -> list[str]:
        return [*(["t_dev"] if self.spec.device_clock else []), "t_mono", "seq", "ts"]

    def _to_ts(self, t_mono: TimeArray) -> Stamps:
        return (t_mono + self._offset_ns).astype("<f8") / 1e9

    def _increasing(self, message: Message) -> tuple[TimeArray, Stamps]:
        """Return the message's times in ns and as ``ts``, moved so that ``ts`` strictly increases.

        A double resolves epoch seconds to about 240 ns.  Closer samples, and samples whose stamps
        step back, are moved just after their predecessor and counted in `adjusted`.
        """
        times = np.atleast_1d(message.t_mono_ns)
        ts = self._to_ts(times)
        if ts[0] > self._last_ts and (len(ts) == 1 or bool((np.diff(ts) > 0).all())):
            self._last_ts = ts[-1]
            return times, ts
        moved = times.copy()
        last = self._last_ts
        for i in range(len(moved)):
            value = self._to_ts(moved[i : i + 1])[0]
            if value <= last:
                self.adjusted += 1
                moved[i] = round(np.nextafter(last, np.inf) * 1e9) - self._offset_ns
                while (value := self._to_ts(moved[i : i + 1])[0]) <= last:
                    moved[i] += 120  # conversion to and from double rounds twice
            last = value
        self._last_ts = last
        return moved, self._to_ts(moved)


def check_same(old: StreamSpec, new: StreamSpec) -> None:
    """Check that a stream is redeclared in the same form.

    Raises:
        ProtocolError: channels, formats, dtypes or shapes have changed; names the first change.
    """
    same = attrgetter("name", "format", "dtype", "shape")
    for before, after in zip(old.channels, new.channels, strict=False):
        if same(before) != same(after):
            raise ProtocolError(
                f"{new.name}/{after.name}: now {after.format} {after.dtype} {list(after.shape)}, "
                f"but this session has {before.name}: {before.format} {before.dtype} "
                f"{list(before.shape)}"
            )
    if len(old.channels) != len(new.channels) or old.device_clock != new.device_clock:
        raise ProtocolError(f"{new.name}: its channels differ from those of this session")
