"""The channel format ``h264``: the contract suite, and what is special to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from recorder.codecs.h264 import H264Decoder, rgb_pixels
from recorder.codecs.storage import measure
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, StorageError
from tests.codecs.storage_contract import ChannelContract, Message
from tests.h264 import GROUP, SIZE, decoded, encode, number_of

SPEC = ChannelSpec("video.h264", "h264", "u1", (SIZE[1], SIZE[0], 3))


class TestH264(ChannelContract):
    spec = SPEC

    def messages(self) -> list[Message]:
        units = encode(sum(self.counts))
        decoder = H264Decoder()
        pictures = [rgb_pixels(decoder.decode(unit, "here")) for unit in units]
        made, at = [], 0
        for count in self.counts:
            some = units[at : at + count]
            sizes = np.array([len(unit) for unit in some], np.uint32)
            made.append(Message(b"".join(some), sizes, np.stack(pictures[at : at + count]), some))
            at += count
        return made

    def message(self, count: int, rng: np.random.Generator) -> Message:
        raise NotImplementedError("access units depend on each other")

    @pytest.mark.parametrize("by_stream", [False])
    def test_codec_and_storage_agree(self, tmp_path: Path, by_stream: bool) -> None:
        """Nothing is encoded; keyframes decode alone to what the storage reads."""
        messages = self.messages()
        self.write(tmp_path, messages)
        with self.open(tmp_path) as channel:
            for index in range(0, len(channel), GROUP):
                out: Any = np.empty(self.spec.shape, np.uint8)
                channel._codec.decoder()(channel.encoded(index), out, "here")  # type: ignore[attr-defined]
                np.testing.assert_array_equal(channel.check(index), out)
            channel.check_finished()

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        """The file plays as it is: FFmpeg's demuxer and decoder."""
        return np.stack(decoded(folder / "video.h264"))

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        if file == "video.h264_i":
            return cut // 24
        ends = np.cumsum([len(e) for m in messages for e in m.encoded])
        return int((ends <= cut).sum())

    def cuts(self, file: str, size: int) -> list[int]:
        ends = np.cumsum([len(unit) for unit in encode(sum(self.counts))])
        near = {int(e) + d for e in ends for d in (-1, 0, 1)}
        return [n for n in range(size) if file.endswith("_i") or n in near or n % 211 == 0]


def test_opencv_plays_the_file(tmp_path: Path) -> None:
    suite = TestH264()
    suite.write(tmp_path, suite.messages())
    video = cv2.VideoCapture(str(tmp_path / "video.h264"))
    numbers = []
    while (read := video.read())[0]:
        numbers.append(number_of(read[1]))
    assert numbers == list(range(11))


def test_the_index_has_keyframes(tmp_path: Path) -> None:
    suite = TestH264()
    suite.write(tmp_path, suite.messages())
    units = encode(11)
    rows = np.fromfile(tmp_path / "video.h264_i", "<u8").reshape(-1, 3)
    assert rows[:, 1].tolist() == [len(unit) for unit in units]
    assert rows[:, 0].tolist() == np.cumsum([0, *map(len, units[:-1])]).tolist()
    with av.open(str(tmp_path / "video.h264")) as container:
        keys = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
    assert rows[:, 2].astype(bool).tolist() == keys
    with suite.open(tmp_path) as channel:
        assert [channel.entry(k) for k in range(11)] == [0] * 5 + [5] * 5 + [10]
        with pytest.raises(IndexError):
            channel.entry(11)


def test_pictures_in_order_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = TestH264()
    suite.write(tmp_path, suite.messages())
    decoded: list[str] = []
    decode = H264Decoder.decode

    def counting(self: H264Decoder, unit: bytes, where: str) -> Any:
        decoded.append(where.rpartition(" ")[2])
        return decode(self, unit, where)

    monkeypatch.setattr(H264Decoder, "decode", counting)
    with suite.open(tmp_path) as channel:
        for index in (0, 1, 1, 2, 4, 8, 7, 10, 0, 2):
            assert number_of(channel[index]) == index
    # From 4 to 8: from the keyframe 5 on; 7 is known; back to 0: not known any more; 2 from 0 on.
    assert list(map(int, decoded)) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 0, 1, 2]


def test_damage_is_named_and_ends_with_the_group(tmp_path: Path) -> None:
    suite = TestH264()
    suite.write(tmp_path, suite.messages())
    units = encode(11)
    data = bytearray((tmp_path / "video.h264").read_bytes())
    at = sum(map(len, units[:2])) + len(units[2]) // 2
    data[at : at + 30] = bytes(b ^ 0x5A for b in data[at : at + 30])
    (tmp_path / "video.h264").write_bytes(data)
    with suite.open(tmp_path) as channel:
        assert number_of(channel[1]) == 1
        with pytest.raises(FormatError, match=r"video.h264: sample 2"):
            channel.check(2)
        with pytest.raises(FormatError, match=r"video.h264: sample 2"):
            channel.check(3)
        assert number_of(channel.check(5)) == 5


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([[0, 5, 1], [6, 3, 0]], "row 1"),
        ([[1, 5, 1]], "row 0"),
        ([[0, 0, 1]], "row 0"),
        ([[0, 5, 2]], "row 0"),
        ([[0, 1 << 63, 1], [1 << 63, 1 << 63, 0]], "row 0"),
        ([[0, 50, 1]], "its index ends at 50"),
    ],
)
def test_a_bad_index_is_named(tmp_path: Path, rows: list[list[int]], fault: str) -> None:
    (tmp_path / "video.h264").write_bytes(bytes(8))
    np.array(rows, "<u8").tofile(tmp_path / "video.h264_i")
    with pytest.raises(FormatError, match=fault):
        TestH264().open(tmp_path)


def test_a_wrong_key_in_the_index_is_found(tmp_path: Path) -> None:
    suite = TestH264()
    suite.write(tmp_path, suite.messages())
    path = tmp_path / "video.h264_i"
    rows = np.fromfile(path, "<u8").reshape(-1, 3)
    rows[0, 2], rows[1, 2] = 0, 1
    rows.tofile(path)
    with suite.open(tmp_path) as channel:
        with pytest.raises(FormatError, match="sample 1: is it a keyframe"):
            channel.check(1)
        with pytest.raises(FormatError, match="sample 0: no keyframe before it"):
            channel[0]
        with pytest.raises(FormatError, match="does not begin with a keyframe"):
            channel.check_finished()


@pytest.mark.parametrize("wrong", [(0, -24), (-1, 0), (0, -3), (5, None), (None, 0)])
def test_resume_wants_lengths_of_one_access_unit(
    tmp_path: Path, wrong: tuple[int | None, int | None]
) -> None:
    suite = TestH264()
    writer = suite.create(tmp_path)
    suite.extend(writer, suite.messages())
    lengths = suite.close(writer)
    for (name, length), change in zip(list(lengths.items()), wrong, strict=True):
        lengths[name] = 0 if change is None else length + change
    with pytest.raises(StorageError, match=r"video.h264: committed lengths"):
        suite.resume(tmp_path, lengths)


def test_a_tail_that_is_no_access_unit_is_not_measured(tmp_path: Path) -> None:
    suite = TestH264()
    suite.write(tmp_path, suite.messages(), finish=False)
    units = encode(11)
    path = tmp_path / "video.h264"
    data = bytearray(path.read_bytes())
    at = sum(map(len, units[:8]))
    data[at:] = bytes(len(data) - at)
    path.write_bytes(data)
    assert measure(tmp_path, SPEC, 0).samples == 8
    assert measure(tmp_path, SPEC, 11).samples == 11  # committed ones are trusted


def test_meta_json_declares_the_index_alone() -> None:
    files = StreamSpec("camera", (SPEC,)).meta_files()
    assert list(files) == ["meta.json", "video.h264.json"]
    assert [*files["meta.json"]] == ["ts", "seq", "t_mono", "video.h264_i"]
    assert files["meta.json"]["video.h264_i"] | {"desc": ""} == {
        "format": "raw", "type": "u8", "shape": [3], "desc": "",
    }  # fmt: skip
    assert files["video.h264.json"] == SPEC.meta()
