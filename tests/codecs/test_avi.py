"""The AVI writer: structure, and OpenCV as a player."""

from __future__ import annotations

import contextlib
import os
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.codecs.storage import avi_demux, open_channel
from recorder.codecs.storage.avi import INDX_ENTRIES, RIFF_SIZE, AviLayout, scan_avi
from recorder.codecs.storage.avi_demux import find_frames
from recorder.codecs.storage.channel import ReadFile
from recorder.common.errors import FormatError
from tests.codecs.avi_kit import HEIGHT, JPEGS, META, WIDTH, decode, packets, same_picture, write

# --- structure, read by a parser of the test's own


def parse(data: bytes, start: int, end: int) -> list[tuple[str, int, Any]]:
    """A RIFF tree: (name, offset of the body, bytes or list); sizes must add up exactly."""
    found: list[tuple[str, int, Any]] = []
    at = start
    while at < end:
        name, size = data[at : at + 4].decode(), int.from_bytes(data[at + 4 : at + 8], "little")
        assert at + 8 + size <= end, (name, at, size)
        if name in ("RIFF", "LIST"):
            kind = data[at + 8 : at + 12].decode()
            found.append((kind, at + 8, parse(data, at + 12, at + 8 + size)))
        else:
            found.append((name, at + 8, data[at + 8 : at + 8 + size]))
        at += 8 + size
        if size % 2:
            assert data[at] == 0
            at += 1
    assert at == end
    return found


@pytest.mark.parametrize("count", [1, 6, 40])
def test_structure(tmp_path: Path, count: int) -> None:
    path = tmp_path / "v.avi"
    frames = JPEGS[:count]
    write(path, frames)
    data = path.read_bytes()
    riffs = parse(data, 0, len(data))
    assert [r[0] for r in riffs] == ["AVI "] + ["AVIX"] * (len(riffs) - 1)
    assert len(riffs) == {1: 1, 6: 2, 40: 9}[count]

    hdrl, movi, idx1 = riffs[0][2]
    assert (hdrl[0], movi[0], idx1[0]) == ("hdrl", "movi", "idx1")
    avih, strl, odml = hdrl[2]
    strh, strf, indx = (part[2] for part in strl[2])
    in_first = sum(name == "00dc" for name, _, _ in movi[2])
    fields = struct.unpack("<14I", avih[2])
    frame_bytes = WIDTH * HEIGHT * 3
    assert fields == (
        40_000,  # dwMicroSecPerFrame
        *(0, 0),  # dwMaxBytesPerSec, dwPaddingGranularity
        0x910,  # dwFlags: has an index, is interleaved, chunk types are to be trusted
        in_first,  # dwTotalFrames
        0,  # dwInitialFrames
        1,  # dwStreams
        frame_bytes,  # dwSuggestedBufferSize
        *(WIDTH, HEIGHT),
        *(0, 0, 0, 0),  # dwReserved
    )
    assert struct.unpack("<4s4sIHH8I4H", strh) == (
        *(b"vids", b"MJPG"),
        *(0, 0, 0, 0),  # dwFlags, wPriority, wLanguage, dwInitialFrames
        *(1, 25),  # dwScale, dwRate
        *(0, count),  # dwStart, dwLength
        frame_bytes,  # dwSuggestedBufferSize
        0xFFFFFFFF,  # dwQuality
        0,  # dwSampleSize
        *(0, 0, WIDTH, HEIGHT),  # rcFrame
    )
    assert struct.unpack_from("<III", strf) == (40, WIDTH, HEIGHT)
    assert strf[16:20] == b"MJPG"
    assert struct.unpack_from("<I", odml[2][0][2]) == (count,)

    by_super, by_standard, in_order = [], [], []
    (used,) = struct.unpack_from("<I", indx, 4)
    assert used == len(riffs)
    assert indx[:4] == b"\4\0\0\0"
    assert indx[8:12] == b"00dc"
    for number, riff in enumerate(riffs):
        chunks = (movi if number == 0 else riff[2][0])[2]
        *shown, (name, at, index) = chunks
        assert name == "ix00"
        assert {n for n, _, _ in shown} == {"00dc"}
        in_order += [body for _, _, body in shown]
        offset, size, duration = struct.unpack_from("<QII", indx, 24 + 16 * number)
        assert (offset, size, duration) == (at - 8, len(index) + 8, len(shown))
        by_super.append(duration)
        words, sub, kind, n, chunk_id, base, _ = struct.unpack_from("<HBBI4sQI", index)
        assert (words, sub, kind, n, chunk_id) == (2, 0, 1, len(shown), b"00dc")
        for start, length in struct.iter_unpack("<II", index[24:]):
            by_standard.append(data[base + start : base + start + length])
    assert in_order == by_standard == frames
    assert sum(by_super) == count
    old = list(struct.iter_unpack("<4sIII", idx1[2]))
    assert len(old) == in_first
    for (name, flags, offset, size), frame in zip(old, frames[:in_first], strict=True):
        at = movi[1] + offset
        assert (name, flags) == (b"00dc", 0x10)
        assert data[at : at + 8] == struct.pack("<4sI", b"00dc", size)
        assert data[at + 8 : at + 8 + size] == frame


@pytest.mark.parametrize(
    ("rate_hz", "rate"),
    [
        (None, Fraction(30)),
        (29.97, Fraction(2997, 100)),
        (30000 / 1001, Fraction(30000, 1001)),
        (0.1, Fraction(1, 10)),
        (1e-9, Fraction(1, 100_000)),
        (999_999.5, Fraction(1_999_999, 2)),
    ],
)
def test_frame_rate(tmp_path: Path, rate_hz: float | None, rate: Fraction) -> None:
    layout = AviLayout.of(WIDTH, HEIGHT, rate_hz, 4)
    assert layout.rate == rate
    write(tmp_path / "v.avi", JPEGS[:2], layout=layout, segment_bytes=1 << 20)
    assert scan_avi(tmp_path / "v.avi").layout == layout
    assert packets(tmp_path / "v.avi") == JPEGS[:2]
    if 1 <= rate <= 60:
        shown = cv2.VideoCapture(str(tmp_path / "v.avi")).get(cv2.CAP_PROP_FPS)
        assert shown == pytest.approx(float(rate))


# --- OpenCV plays it


def test_opencv_plays_and_seeks_across_segments(tmp_path: Path) -> None:
    path = tmp_path / "v.avi"
    write(path, JPEGS)
    assert len(scan_avi(path).segments) == 9
    assert packets(path) == JPEGS
    video = cv2.VideoCapture(str(path))
    assert video.get(cv2.CAP_PROP_FRAME_COUNT) == len(JPEGS)
    assert video.get(cv2.CAP_PROP_FPS) == 25
    assert (video.get(cv2.CAP_PROP_FRAME_WIDTH), video.get(cv2.CAP_PROP_FRAME_HEIGHT)) == (
        WIDTH,
        HEIGHT,
    )
    for jpeg in JPEGS:
        good, image = video.read()
        assert good
        assert same_picture(image, jpeg)
    assert not video.read()[0]
    order = np.random.default_rng(5).permutation(len(JPEGS)).tolist()
    for index in order:
        assert video.set(cv2.CAP_PROP_POS_FRAMES, index)
        good, image = video.read()
        assert good
        assert [same_picture(image, j) for j in JPEGS].index(True) == index


@pytest.mark.parametrize("count", [3, 12, 40])
def test_opencv_reads_all_whole_frames_of_an_unfinished_file(tmp_path: Path, count: int) -> None:
    """Cut anywhere in the last frames, past the header: every whole frame, in order."""
    path = tmp_path / "v.avi"
    write(path, JPEGS[:count], finish=False)
    assert len(scan_avi(path).segments) == {3: 1, 12: 3, 40: 9}[count]
    size = path.stat().st_size
    for cut in range(size, size - 2 * len(JPEGS[0]), -13):
        os.truncate(path, cut)
        whole = scan_avi(path).total
        found = packets(path)
        # FFmpeg lets a frame through that lacks its last byte; ours does not.
        assert len(found) in (whole, whole + 1)
        assert found[:whole] == JPEGS[:whole]
        if len(found) > whole:
            assert len(JPEGS[whole]) - 1 <= cut - scan_avi(path).frames_end - 8


@pytest.mark.parametrize("kept", [1, 7, 20])
def test_reader_takes_opencvs_own_files(tmp_path: Path, kept: int) -> None:
    """roverd's traces are written by OpenCV's VideoWriter."""
    path = tmp_path / "v.avi"
    size = (WIDTH, HEIGHT)
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, size)
    for jpeg in JPEGS[:kept]:
        video.write(decode(jpeg))
    video.release()
    with open_channel(tmp_path, "v.avi", META) as channel:
        assert len(channel) == kept
        assert [channel.encoded(i) for i in range(kept)] == packets(path)
        for index in range(kept):
            shown = channel[index].astype(int) - decode(JPEGS[index])[..., ::-1]
            assert np.abs(shown).max() <= 10  # encoded a second time
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 200])
    with open_channel(tmp_path, "v.avi", META, partial=True) as channel:
        assert len(channel) in (kept - 1, kept)


def chunk(name: bytes, body: bytes) -> bytes:
    return name + len(body).to_bytes(4, "little") + body + b"\0" * (len(body) % 2)


def plain_avi(frames: list[bytes], counted: int | None = None) -> bytes:
    """An AVI file of one RIFF without any index, of a muxer that knows no more (AVI 1.0)."""
    strh = bytearray(56)
    strh[:8] = b"vidsMJPG"
    strh[32:36] = (len(frames) if counted is None else counted).to_bytes(4, "little")
    strl = chunk(b"LIST", b"strl" + chunk(b"strh", bytes(strh)))
    hdrl = chunk(b"LIST", b"hdrl" + chunk(b"avih", bytes(56)) + strl)
    movi = chunk(b"LIST", b"movi" + b"".join(chunk(b"00dc", frame) for frame in frames))
    return chunk(b"RIFF", b"AVI " + hdrl + movi)


def found_in(path: Path, data: bytes) -> tuple[list[bytes], int, int]:
    """Frames, bytes behind the last whole chunk, and frames that are missing."""
    path.write_bytes(data)
    with contextlib.closing(ReadFile(path)) as file:
        frames = find_frames(file)
        places = zip(frames.offsets.tolist(), frames.sizes.tolist(), strict=True)
        return [file.read(at, size) for at, size in places], frames.tail, frames.missing


@pytest.mark.parametrize("last", [b"even", b"odd"])
def test_what_is_behind_the_last_whole_frame_is_counted(tmp_path: Path, last: bytes) -> None:
    """To the byte; a padding byte that is missing leaves nothing behind, and no less."""
    frames = [b"first", b"the second", last]
    whole, path = plain_avi(frames), tmp_path / "v.avi"
    assert found_in(path, whole) == (frames, 0, 0)
    size = len(whole) - len(last) - len(last) % 2
    if len(last) % 2:
        assert found_in(path, whole[:-1]) == (frames, 0, 0)
        whole = whole[:-1]
    for cut in range(1, len(last) + 1):
        left = len(last) - cut + 8
        assert found_in(path, whole[:-cut]) == (frames[:2], left, 1)
    for left in range(8):
        assert found_in(path, whole[: size - 8 + left]) == (frames[:2], left, 1)
    for more in (1, 7, 8, 100):
        assert found_in(path, plain_avi(frames) + b"\1" * more) == (frames, more, 0)


def test_frames_that_repeat_the_one_before_are_not_missing(tmp_path: Path) -> None:
    frames = [b"one", b"", b"two", b"", b""]
    held = [b"one", b"two"]
    assert found_in(tmp_path / "v.avi", plain_avi(frames)) == (held, 0, 0)
    assert found_in(tmp_path / "v.avi", plain_avi(frames, counted=9)) == (held, 0, 4)
    assert found_in(tmp_path / "v.avi", plain_avi(frames, counted=0)) == (held, 0, 0)


@pytest.mark.parametrize("fill", [b"\0", b"\1", b"\x7f", b"\xff"])
@pytest.mark.parametrize("half_closed", [False, True])
def test_of_a_segment_that_grows_the_super_index_is_not_believed(
    tmp_path: Path, fill: bytes, half_closed: bool
) -> None:
    """Nor where a power cut left one of its two sizes as they are when it is closed."""
    path = tmp_path / "v.avi"
    end = write(path, JPEGS[:4], finish=False)
    with path.open("r+b") as file:
        if half_closed:
            file.seek(RIFF_SIZE)
            file.write((end - 8).to_bytes(4, "little"))
        file.seek(INDX_ENTRIES)
        file.write(fill * 16)
    scan = scan_avi(path)
    assert (scan.total, scan.frames_end, scan.finished) == (4, end, False)


@pytest.mark.parametrize("count", [0, 3, 5, 0x1FFFFFFD, 0xFFFFFFFF])
def test_a_finished_file_with_a_damaged_count_is_walked(tmp_path: Path, count: int) -> None:
    path = tmp_path / "v.avi"
    write(path, JPEGS[:4])
    with path.open("r+b") as file:
        file.seek(INDX_ENTRIES + 12)  # dwDuration of the first segment
        file.write(count.to_bytes(4, "little"))
    scan = scan_avi(path)
    assert (scan.total, scan.finished) == (4, False)


@pytest.mark.parametrize(
    "before",
    [chunk(b"LIST", b"odml" + chunk(b"dmlh", bytes(4))), chunk(b"JUNK", b"strl" + bytes(20))],
    ids=["a list", "a chunk"],
)
def test_what_is_no_stream_has_no_number(tmp_path: Path, before: bytes) -> None:
    """Frames of the first stream are called 00dc, whatever stands before its header."""
    frames = [b"first!", b"second"]
    data = plain_avi(frames)
    at = data.index(b"LIST", data.index(b"avih"))
    size = int.from_bytes(data[16:20], "little") + len(before)
    data = data[:16] + size.to_bytes(4, "little") + data[20:at] + before + data[at:]
    assert found_in(tmp_path / "v.avi", data)[0] == frames


def test_a_header_may_be_as_large_as_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = plain_avi([b"frame!"])
    size = int.from_bytes(data[16:20], "little")
    monkeypatch.setattr(avi_demux, "_MAX_HEADER", size)
    assert found_in(tmp_path / "v.avi", data)[0] == [b"frame!"]
    monkeypatch.setattr(avi_demux, "_MAX_HEADER", size - 1)
    with pytest.raises(FormatError, match="an AVI without a frame list"):
        found_in(tmp_path / "v.avi", data)


@pytest.mark.parametrize("count", [5, len(JPEGS)])
def test_frames_of_a_finished_file_come_from_its_indices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Of one segment and of several; a file of hours is not walked."""
    path = tmp_path / "v.avi"
    write(path, JPEGS[:count])
    walked = found_in(path, path.read_bytes())
    monkeypatch.setattr(avi_demux, "_read_idx1", lambda *_: None)
    monkeypatch.setattr(avi_demux, "_walk", lambda *_: pytest.fail("the file is walked"))
    assert found_in(path, path.read_bytes()) == walked
    assert walked[0] == JPEGS[:count]
