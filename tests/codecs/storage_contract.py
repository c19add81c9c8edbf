"""What every recorded channel format must keep to; a test class per format inherits this.

>>> class TestRaw(ChannelContract):
...     spec = ChannelSpec("acc", "raw", "f4", (3,))
...     ...
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from recorder.bus.wire import Kind, check_data
from recorder.bus.wire import Message as WireMessage
from recorder.codecs import CHANNEL_FORMATS, Encode, Framing, channel_files, payload
from recorder.codecs.storage import (
    ChannelReader,
    ChannelWriter,
    create_writer,
    known_lengths,
    measure,
    open_channel,
    resume_writer,
)
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, StorageError
from recorder.common.files import PosixDisk
from tests.campaigns import Selector


@dataclass
class Message:
    """A data message's part of one channel, and the values in it."""

    frame: bytes
    sizes: npt.NDArray[np.uint32] | None
    values: npt.NDArray[Any]  # [count, *shape]
    encoded: list[bytes]

    @property
    def count(self) -> int:
        return len(self.values)


class ChannelContract(ABC):
    """The suite.  Hooks: `spec`, `message`, `oracle`, `whole_samples`; `cuts`, `assert_decoded`."""

    spec: ClassVar[ChannelSpec]
    rate_hz: ClassVar[float | None] = 20.0
    counts: ClassVar[tuple[int, ...]] = (1, 3, 2, 1, 4)
    more_from_cuts: ClassVar[bool] = False
    """A cut file may give more samples than `whole_samples` says (never wrong ones)."""

    @abstractmethod
    def message(self, count: int, rng: np.random.Generator) -> Message:
        """A message of `count` samples."""

    @abstractmethod
    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        """All values of a finished channel, decoded by something else than the code under test."""

    @abstractmethod
    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        """Samples that the channel holds when `file` is cut to `cut` bytes; None: not readable."""

    def cuts(self, file: str, size: int) -> Iterable[int]:
        """Lengths to cut a file to."""
        return range(size)

    # --- helpers

    @property
    def told(self) -> str:
        """What errors name of the channel's files."""
        return self.spec.name.removesuffix(".bin")

    def messages(self) -> list[Message]:
        rng = np.random.default_rng(7)
        return [self.message(count, rng) for count in self.counts]

    def values(self, messages: list[Message]) -> npt.NDArray[Any]:
        return np.concatenate([m.values for m in messages])

    def create(self, folder: Path) -> ChannelWriter:
        folder.mkdir(exist_ok=True)
        return create_writer(folder, self.spec, PosixDisk(), self.rate_hz)

    def resume(self, folder: Path, lengths: dict[str, int]) -> ChannelWriter:
        return resume_writer(folder, self.spec, PosixDisk(), self.rate_hz, lengths)

    def write(self, folder: Path, messages: list[Message], finish: bool = True) -> None:
        writer = self.create(folder)
        self.extend(writer, messages)
        if finish:
            writer.finish()
        self.close(writer)

    def extend(self, writer: ChannelWriter, messages: list[Message]) -> None:
        for m in messages:
            writer.append(memoryview(m.frame), m.count, m.sizes)

    def close(self, writer: ChannelWriter) -> dict[str, int]:
        lengths = self.lengths(writer)
        for file in writer.files:
            file.close()
        return lengths

    def lengths(self, writer: ChannelWriter) -> dict[str, int]:
        for file in writer.files:
            file.flush()
        return {file.path.name: file.length for file in writer.files}

    def open(self, folder: Path, partial: bool = False) -> ChannelReader:
        return open_channel(folder, self.spec.name, self.spec.meta(), partial=partial)

    def content(self, folder: Path) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    # --- tests of the codec

    @pytest.mark.parametrize("by_stream", [False, True])
    def test_codec_and_storage_agree(self, tmp_path: Path, by_stream: bool) -> None:
        """What the codec encodes, by settings or without, the storage reads and the codec too."""
        codec = CHANNEL_FORMATS[self.spec.format]
        encode: Encode = codec.encode
        if by_stream:
            encode = codec.encoder(StreamSpec("s", (self.spec,)), self.spec)
        decode = codec.decoder()
        messages, decoded = [], []
        for values in (m.values for m in self.messages()):
            encoded = encode(values)
            assert len(encoded) == (len(values) if codec.framing is Framing.EACH else 1)
            (frame,), sizes = payload((self.spec,), (encoded,))
            assert len(sizes) == self.spec.variable
            out = np.empty_like(values)
            for part, target in zip(encoded, out if self.spec.variable else [out], strict=True):
                decode(part, target, "here")
            decoded.append(out)
            messages.append(Message(bytes(frame), sizes[0] if sizes else None, values, []))
            wire = WireMessage(
                Kind.DATA, "s", count=len(values), t_mono_ns=np.arange(len(values)),
                sizes=sizes, frames=[frame],
            )  # fmt: skip
            check_data(wire, StreamSpec("s", (self.spec,)))
        self.write(tmp_path, messages)
        with self.open(tmp_path) as channel:
            np.testing.assert_array_equal(channel.read(0, len(channel)), np.concatenate(decoded))
            for index in range(len(channel)):
                np.testing.assert_array_equal(channel.check(index), channel[index])
            channel.check_finished()
        self.assert_decoded(np.concatenate(decoded), self.values(messages))

    def assert_decoded(self, decoded: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
        """What the codec gave back is what it was given."""
        np.testing.assert_array_equal(decoded, values)

    def test_codec_names_the_frame_that_does_not_decode(self) -> None:
        decode = CHANNEL_FORMATS[self.spec.format].decoder()
        for wrong in (b"no frame", b""):
            with pytest.raises(FormatError, match="here"):
                decode(wrong, np.empty((1, *self.spec.shape), self.spec.np_dtype), "here")

    # --- tests of the storage

    def test_files_are_those_of_the_description(self, tmp_path: Path) -> None:
        writer = self.create(tmp_path)
        self.extend(writer, self.messages())
        lengths = self.close(writer)
        assert set(lengths) == set(channel_files(self.spec.name, self.spec.format))
        known = known_lengths(self.spec, sum(self.counts))
        assert known.items() <= lengths.items()

    def test_measure_and_cut_before_every_sample(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path / "whole", messages, finish=False)
        values = self.values(messages)
        extent = measure(tmp_path / "whole", self.spec, 0)
        assert extent.samples == len(values)
        for samples in range(len(values) + 1):
            kept, lengths = extent.cut(samples)
            assert kept <= samples
            folder = tmp_path / str(samples)
            shutil.copytree(tmp_path / "whole", folder)
            for name, length in lengths.items():
                os.truncate(folder / name, length)
            with self.open(folder, partial=True) as channel:
                np.testing.assert_array_equal(channel.read(0, len(channel)), values[:kept])
            assert measure(folder, self.spec, kept).samples == kept
        for name in self.content(tmp_path / "whole"):
            (tmp_path / "whole" / name).unlink()
            assert measure(tmp_path / "whole", self.spec, 0).samples == 0

    def test_round_trip(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        values = self.values(messages)
        with self.open(tmp_path) as channel:
            assert (channel.name, channel.format) == (self.spec.name, self.spec.format)
            assert (channel.dtype, channel.shape) == (self.spec.np_dtype, self.spec.shape)
            assert len(channel) == len(values) == sum(self.counts)
            assert channel.tail_bytes == 0
            block = channel.read(0, len(values))
            assert block.dtype == values.dtype
            np.testing.assert_array_equal(block, values)
            np.testing.assert_array_equal(np.stack(list(channel)), values)
            for batch in (None, 1, 3, len(values), 1000):
                blocks = list(channel.iterate(batch))
                np.testing.assert_array_equal(np.concatenate(blocks), values)
                if batch:
                    assert all(len(b) == batch for b in blocks[:-1])

    def test_another_decoder_agrees(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        np.testing.assert_array_equal(self.oracle(tmp_path), self.values(messages))

    def test_random_access_equals_sequential(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        values = self.values(messages)
        n = len(values)
        rng = np.random.default_rng(3)
        with self.open(tmp_path) as channel:
            for index in rng.integers(-n, n, 40).tolist():
                sample = channel[index]
                assert sample.shape == self.spec.shape
                np.testing.assert_array_equal(sample, values[index])
            for start, stop in np.sort(rng.integers(0, n + 1, (20, 2)), axis=1).tolist():
                np.testing.assert_array_equal(channel.read(start, stop), values[start:stop])

    def test_arrays_belong_to_the_caller(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        with self.open(tmp_path) as channel:
            channel.read(0, 2)[...] = 0
            channel[0][...] = 0
            np.testing.assert_array_equal(channel.read(0, 2), self.values(messages)[:2])

    def test_indices_out_of_range(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        n = sum(self.counts)
        with self.open(tmp_path) as channel:
            for index in (n, -n - 1):
                with pytest.raises(IndexError, match=self.told):
                    channel[index]
                with pytest.raises(IndexError, match=self.told):
                    channel.encoded(index)
            for start, stop in ((-1, 2), (0, n + 1), (3, 2)):
                with pytest.raises(IndexError, match=self.told):
                    channel.read(start, stop)
            with pytest.raises(ValueError, match="batch"):
                list(channel.iterate(0))

    def test_encoded_is_what_was_appended(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        encoded = [e for m in messages for e in m.encoded]
        with self.open(tmp_path) as channel:
            assert [channel.encoded(i) for i in range(len(channel))] == encoded
            assert channel.encoded(-1) == encoded[-1]

    def test_without_samples(self, tmp_path: Path) -> None:
        self.write(tmp_path, [])
        with self.open(tmp_path) as channel:
            assert len(channel) == 0
            assert list(channel) == []
            assert channel.read(0, 0).shape == (0, *self.spec.shape)
            with pytest.raises(IndexError):
                channel[0]

    def test_resume_at_every_message_equals_uninterrupted(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path / "whole", messages)
        expected = self.content(tmp_path / "whole")
        for at in range(len(messages) + 1):
            for beyond in range(at, len(messages) + 1):  # written, but not committed
                folder = tmp_path / f"{at}_{beyond}"
                writer = self.create(folder)
                self.extend(writer, messages[:at])
                lengths = self.lengths(writer)
                self.extend(writer, messages[at:beyond])
                self.close(writer)
                writer = self.resume(folder, lengths)
                assert self.lengths(writer) == lengths
                self.extend(writer, messages[at:])
                writer.finish()
                self.close(writer)
                assert self.content(folder) == expected, (at, beyond)

    def test_resume_after_finish_equals_uninterrupted(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path / "whole", messages)
        expected = self.content(tmp_path / "whole")
        for at in range(len(messages) + 1):
            folder = tmp_path / str(at)
            writer = self.create(folder)
            self.extend(writer, messages[:at])
            writer.finish()
            lengths = self.close(writer)
            self.close(self.resume(folder, lengths))  # killed again before its first commit
            writer = self.resume(folder, lengths)
            self.extend(writer, messages[at:])
            writer.finish()
            self.close(writer)
            assert self.content(folder) == expected, at

    def test_resume_refuses_lengths_that_cannot_be(self, tmp_path: Path) -> None:
        writer = self.create(tmp_path)
        self.extend(writer, self.messages())
        lengths = self.close(writer)
        before = self.content(tmp_path)
        for name, length in lengths.items():
            with pytest.raises(StorageError, match=self.told):
                self.resume(tmp_path, {k: v for k, v in lengths.items() if k != name})
            with pytest.raises(StorageError, match=self.told):
                self.resume(tmp_path, lengths | {name: length + 8 * self.spec.sample_bytes})
            assert self.content(tmp_path) == before

    def test_a_name_that_is_taken(self, tmp_path: Path) -> None:
        self.write(tmp_path, self.messages())
        before = self.content(tmp_path)
        with pytest.raises(FileExistsError):
            self.create(tmp_path)
        assert self.content(tmp_path) == before

    def test_missing_file(self, tmp_path: Path) -> None:
        self.write(tmp_path, self.messages())
        for name in self.content(tmp_path):
            (tmp_path / name).rename(tmp_path / "aside")
            for partial in (False, True):
                with pytest.raises(FormatError, match=name):
                    self.open(tmp_path, partial)
            (tmp_path / "aside").rename(tmp_path / name)

    def test_over_long_file(self, tmp_path: Path) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        path = tmp_path / self.spec.name
        whole = path.read_bytes()
        for extra in (b"\x01", b"\0" * (self.spec.sample_bytes - 1)):
            path.write_bytes(whole + extra)
            with pytest.raises(FormatError, match=self.told):
                self.open(tmp_path)
            with self.open(tmp_path, partial=True) as channel:
                np.testing.assert_array_equal(channel.read(0, len(channel)), self.values(messages))
                assert channel.tail_bytes == len(extra)

    def test_cut_at_every_byte(self, tmp_path: Path, select: Selector) -> None:
        messages = self.messages()
        self.write(tmp_path, messages)
        values = self.values(messages)
        for name, whole in self.content(tmp_path).items():
            for cut in select(sorted(self.cuts(name, len(whole)), reverse=True), 60):
                os.truncate(tmp_path / name, cut)
                expected = self.whole_samples(name, cut, messages)
                if expected is None:
                    with pytest.raises(FormatError, match=self.told):
                        self.open(tmp_path, partial=True)
                else:
                    with self.open(tmp_path, partial=True) as channel:
                        n = len(channel)
                        assert n == expected or (self.more_from_cuts and n > expected), cut
                        np.testing.assert_array_equal(channel.read(0, n), values[:n])
                try:
                    strict = self.open(tmp_path)
                except FormatError as error:
                    assert self.told in str(error)
                else:  # cut where a sample ends
                    with strict:
                        assert len(strict) == expected
            (tmp_path / name).write_bytes(whole)
