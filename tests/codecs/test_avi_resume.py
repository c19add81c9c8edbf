"""Resumption and repair of AVI files: cut anywhere, the bytes come out the same."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import cv2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recorder.codecs.storage import open_channel
from recorder.codecs.storage.avi import INDX_ENTRIES, AviLayout, AviWriter, scan_avi
from recorder.codecs.storage.mjpg import AviExtent
from recorder.common.errors import FormatError, StorageError
from tests.codecs.avi_kit import (
    DISK,
    HEIGHT,
    JPEGS,
    LAYOUT,
    META,
    SEGMENT,
    WIDTH,
    append,
    decode,
    packets,
    repair_avi,
    same_picture,
    write,
)

sizes_of_frames = st.lists(st.integers(1, 90), min_size=0, max_size=25)


def body(index: int, size: int) -> bytes:
    return bytes((index * 31 + k) % 251 for k in range(size))


@given(sizes_of_frames, st.integers(1, 400), st.integers(0, 25), st.integers(0, 25), st.booleans())
@example([10] * 6, 8_000, 3, 6, True)
def test_resume_gives_the_uninterrupted_file(
    tmp_path: Path, sizes: list[int], beyond_header: int, at: int, killed_at: int, finished: bool
) -> None:
    frames = [body(i, size) for i, size in enumerate(sizes)]
    layout = AviLayout.of(WIDTH, HEIGHT, 25.0, super_entries=40)
    limit = beyond_header + (layout.header_bytes if beyond_header % 2 else 0)
    for name in ("whole.avi", "until.avi", "v.avi"):
        (tmp_path / name).unlink(missing_ok=True)
    write(tmp_path / "whole.avi", frames, True, limit, layout)
    expected = (tmp_path / "whole.avi").read_bytes()
    write(tmp_path / "until.avi", frames[:at], False, limit, layout)

    path = tmp_path / "v.avi"
    writer = AviWriter.create(path, DISK, layout, limit)
    append(writer, frames[:at])
    if finished:
        writer.finish()
        committed = writer.files[0].length
    else:
        committed = writer.files[0].length
        append(writer, frames[at:killed_at])
    writer.files[0].close()
    for _ in range(2):  # the second time without a commit in between
        writer = AviWriter.resume(path, DISK, committed, layout, limit)
        writer.files[0].close()
        assert path.read_bytes() == (tmp_path / "until.avi").read_bytes()
    writer = AviWriter.resume(path, DISK, committed, layout, limit)
    append(writer, frames[at:])
    writer.finish()
    writer.files[0].close()
    assert path.read_bytes() == expected


@given(sizes_of_frames, st.integers(1, 400), st.data())
def test_cut_anywhere_then_repaired(
    tmp_path: Path, sizes: list[int], limit: int, data: st.DataObject
) -> None:
    """Of a file cut anywhere after its header, finished or not: the reader gives all whole
    frames; repair leaves what a writer of just these frames would have; twice is once."""
    frames = [body(i, size) for i, size in enumerate(sizes)]
    layout = AviLayout.of(WIDTH, HEIGHT, 25.0, super_entries=40)
    path = tmp_path / "v.avi"
    path.unlink(missing_ok=True)
    finished = data.draw(st.booleans())
    size = write(path, frames, finished, limit, layout)
    unfinished = bytearray(path.read_bytes())
    cut = data.draw(st.integers(layout.header_bytes, size))
    os.truncate(path, cut)

    with open_channel(tmp_path, "v.avi", META, partial=True) as channel:
        whole = len(channel)
        assert [channel.encoded(i) for i in range(whole)] == frames[:whole]
    ends = [unfinished.find(b"00dc" + struct.pack("<I", len(f)) + f) + 8 + len(f) for f in frames]
    assert whole == sum(end <= cut for end in ends)

    assert repair_avi(path) == whole
    (tmp_path / "other.avi").unlink(missing_ok=True)
    write(tmp_path / "other.avi", frames[:whole], True, limit, layout)
    repaired = path.read_bytes()
    assert repaired == (tmp_path / "other.avi").read_bytes()
    inode = path.stat()
    assert repair_avi(path) == whole
    assert path.stat().st_mtime_ns == inode.st_mtime_ns
    assert path.read_bytes() == repaired
    with open_channel(tmp_path, "v.avi", META) as channel:
        assert [channel.encoded(i) for i in range(whole)] == frames[:whole]


def test_repaired_file_seeks_in_opencv(tmp_path: Path) -> None:
    path = tmp_path / "v.avi"
    size = write(path, JPEGS, finish=False)
    os.truncate(path, size - 10)
    assert cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FRAME_COUNT) == 0
    assert repair_avi(path) == 39
    video = cv2.VideoCapture(str(path))
    assert video.get(cv2.CAP_PROP_FRAME_COUNT) == 39
    for index in (38, 0, 20):
        video.set(cv2.CAP_PROP_POS_FRAMES, index)
        assert same_picture(video.read()[1], JPEGS[index])


@given(st.lists(st.integers(0, 60), max_size=12, unique=True), st.booleans())
def test_header_patches_lost_or_early(tmp_path: Path, undo: list[int], early: bool) -> None:
    """A power cut may keep any of the header's patches and lose others; frames count alone."""
    path = tmp_path / "v.avi"
    path.unlink(missing_ok=True)
    write(path, JPEGS[:30])
    finished = path.read_bytes()
    scan = scan_avi(path)
    patches = LAYOUT.count_patches(30, scan.segments[0].count)
    for number, segment in enumerate(scan.segments):
        patches += segment.size_patches(closed=True)
        patches.append((INDX_ENTRIES + 16 * number, bytes(16)))
    stale = bytearray(finished)
    for at in undo:
        offset, data = patches[at % len(patches)]
        stale[offset : offset + len(data)] = b"\4\0\0\0" if len(data) == 4 else data
    end = len(stale)
    if early:  # the patches of a segment whose frames did not come through
        end = scan.segments[-1].frames_end - 10
    path.write_bytes(stale[:end])
    whole = 30 - early
    assert repair_avi(path) == whole
    (tmp_path / "other.avi").unlink(missing_ok=True)
    write(tmp_path / "other.avi", JPEGS[:whole])
    assert path.read_bytes() == (tmp_path / "other.avi").read_bytes()


def test_damage_in_a_closed_segment_is_not_believed_to_be_frames(tmp_path: Path) -> None:
    """What a power cut left of a segment: sizes and index came through, its last frame did not."""
    path = tmp_path / "v.avi"
    write(path, JPEGS, finish=False)
    scan = scan_avi(path)
    hurt = scan.segments[3]
    at = hurt.frames_end - len(JPEGS[0])
    with path.open("r+b") as file:
        file.seek(path.read_bytes().rfind(b"00dc", 0, at + 20))
        file.write(bytes(300))
    whole = sum(s.count for s in scan.segments[:4]) - 1
    assert repair_avi(path) == whole
    assert packets(path) == JPEGS[:whole]


def test_zeros_after_a_power_cut_are_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "v.avi"
    size = write(path, JPEGS[:9], finish=False)
    os.truncate(path, size + 5000)
    with pytest.raises(FormatError, match=r"v\.avi: 5000 bytes after"):
        open_channel(tmp_path, "v.avi", META)
    assert repair_avi(path) == 9


@pytest.mark.parametrize("cut", [0, 3, 11, 12, 100, LAYOUT.header_bytes - 1])
def test_repair_refuses_what_has_no_header(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "v.avi"
    write(path, JPEGS[:3])
    os.truncate(path, cut)
    before = path.read_bytes()
    with pytest.raises(FormatError, match=r"v\.avi"):
        repair_avi(path)
    assert path.read_bytes() == before


def test_repair_refuses_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "v.avi"
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (WIDTH, HEIGHT))
    video.write(decode(JPEGS[0]))
    video.release()
    before = path.read_bytes()
    with pytest.raises(FormatError, match="not an AVI of this recorder"):
        repair_avi(path)
    assert path.read_bytes() == before


def test_resume_refuses_another_make_or_half_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "v.avi"
    size = write(path, JPEGS[:9], finish=False)
    before = path.read_bytes()
    with pytest.raises(StorageError, match="begun as"):
        AviWriter.resume(path, DISK, size, AviLayout.of(WIDTH, HEIGHT, 26.0, 16), SEGMENT)
    with pytest.raises(StorageError, match="inside a frame"):
        AviWriter.resume(path, DISK, size - 9, LAYOUT, SEGMENT)
    with pytest.raises(StorageError, match="were committed"):
        AviWriter.resume(path, DISK, size + 1, LAYOUT, SEGMENT)
    assert path.read_bytes() == before


@given(st.lists(st.integers(1, 90), min_size=1, max_size=6))
def test_a_finished_file_needs_no_padding_after_its_last_frame(
    tmp_path: Path, sizes: list[int]
) -> None:
    path = tmp_path / "v.avi"
    path.unlink(missing_ok=True)
    write(path, [body(i, size) for i, size in enumerate(sizes)], True, 1 << 20, LAYOUT)
    extent = AviExtent(path)
    assert extent.cut(len(sizes))[1][path.name] % 2 == 0
    assert extent.needed(len(sizes))[path.name] == extent.cut(len(sizes))[1][path.name] - (
        sizes[-1] % 2
    )
