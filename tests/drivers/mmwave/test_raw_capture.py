"""Raw captures in several files, and with packet headers.

The layouts are those of TI's DCA1000EVM_CLI_Record (RF_API/recorddatarecv.cpp of the CLI's source):
``PREFIX_Raw_N.bin``, a new file at a size, cut at a multiple of 1456 bytes; with
``sequenceNumberEnable``, each packet as u4 number, u4 bytes of data, u6 bytes before it, data.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.mmwave.capture_series import find_captures
from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.raw_capture import CapturedFrame, CaptureFiles, LostFrames
from recorder.common.errors import SourceError
from tests.drivers.mmwave.test_driver import SMALL, SMALL_BYTES, SMALL_SHAPE, frames
from tests.examples import examples

CHIRP = ChirpConfig(**SMALL)
PACKET = 1456


def ti_packets(data: bytes, lost: set[int] = frozenset(), first: int = 1) -> bytes:  # type: ignore[assignment]
    """The packets of a capture with the CLI's 14 bytes before each; some are lost."""
    made = b""
    for n, at in enumerate(range(0, len(data), PACKET)):
        part = data[at : at + PACKET]
        if n not in lost:
            made += struct.pack("<IIIH", first + n, len(part), at & 0xFFFFFFFF, at >> 32) + part
    return made


def card_packets(data: bytes) -> bytes:
    """The packets as the card sends them, with 10 bytes before each."""
    made = b""
    for n, at in enumerate(range(0, len(data) // PACKET * PACKET, PACKET)):
        made += struct.pack("<IIH", n + 1, at & 0xFFFFFFFF, at >> 32) + data[at : at + PACKET]
    return made


def split(folder: Path, data: bytes, size: int, name: str = "adc_data_Raw_{}.bin") -> list[Path]:
    """Numbered files of a size."""
    paths = []
    for n, at in enumerate(range(0, len(data), size)):
        paths.append(folder / name.format(n))
        paths[-1].write_bytes(data[at : at + size])
    return paths


def rest_of(capture: CaptureFiles) -> list[CapturedFrame | LostFrames]:
    items = []
    while (item := capture.read()) is not None:
        items.append(item)
    capture.close()
    return items


def read(path: Path) -> list[CapturedFrame | LostFrames]:
    return rest_of(CaptureFiles(path, CHIRP, "radar: file:x"))


def played(items: list[CapturedFrame | LostFrames]) -> dict[int, bytes]:
    return {i.index: i.data.tobytes() for i in items if isinstance(i, CapturedFrame)}


def losses(items: list[CapturedFrame | LostFrames]) -> list[tuple[int, int, str]]:
    return [(i.index, i.count, i.cause) for i in items if isinstance(i, LostFrames)]


def all_of(data: npt.NDArray[np.int16]) -> dict[int, bytes]:
    return {k: frame.tobytes() for k, frame in enumerate(data)}


# Files that continue each other


@pytest.mark.parametrize("name", ["adc_data_Raw_{}.bin", "drive_{}.bin", "x_hdr_0CDA_{}.bin"])
@pytest.mark.parametrize("size", [3000, 2 * PACKET, 7 * 512, 1024])
def test_numbered_files_are_one_stream(tmp_path: Path, size: int, name: str) -> None:
    data = frames(30)
    split(tmp_path, data.tobytes(), size, name)
    items = read(tmp_path)
    assert played(items) == all_of(data) and losses(items) == []


@pytest.mark.parametrize("gone", [{0}, {1}, {0, 1}, {2, 3}])
def test_a_file_that_is_missing_between_others_is_a_loss(tmp_path: Path, gone: set[int]) -> None:
    data, size = frames(20), 2 * PACKET
    paths = split(tmp_path, data.tobytes(), size)
    for n in gone:
        paths[n].unlink()
    first, end = min(gone) * size, (max(gone) + 1) * size
    hit = range(first // SMALL_BYTES, -(-end // SMALL_BYTES))
    items = read(tmp_path)
    assert played(items) == {k: v for k, v in all_of(data).items() if k not in hit}
    (lost,) = [item for item in items if isinstance(item, LostFrames)]
    assert (lost.index, lost.count, lost.cause) == (hit.start, len(hit), "truncated")
    assert lost.detail["files_missing"] == [paths[n].name for n in sorted(gone)]


def test_a_file_that_is_shorter_than_the_others_is_a_loss(tmp_path: Path) -> None:
    """Its own frames only: what follows it keeps its place, which the size of the others gives."""
    data, size = frames(20), 2 * PACKET
    paths = split(tmp_path, data.tobytes(), size)
    paths[3].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-7])
    with pytest.raises(
        SourceError, match=r"adc_data_Raw_3.bin is missing, so that it is not known"
    ):
        read(tmp_path)


def test_one_later_file_alone_is_placed_by_the_files_before_it(tmp_path: Path) -> None:
    data, size = frames(20), 2 * PACKET
    paths = split(tmp_path, data.tobytes(), size)
    items = read(paths[2])
    first = -(-2 * size // SMALL_BYTES)
    ahead = first * SMALL_BYTES - 2 * size
    lost, *got = items
    assert isinstance(lost, LostFrames) and lost.detail["bytes"] == ahead
    whole = (size - ahead) // SMALL_BYTES
    assert list(played(got).values()) == [data[first + k].tobytes() for k in range(whole)]
    for path in paths:
        if path != paths[2]:
            path.unlink()
    with pytest.raises(SourceError, match=r"Raw_0.bin is missing.*rename adc_data_Raw_2.bin if"):
        read(paths[2])
    assert losses(read(split(tmp_path, data.tobytes(), 40 * PACKET)[0])) == []


def test_a_file_that_is_continued_warns(tmp_path: Path) -> None:
    first, second = split(tmp_path, frames(8).tobytes(), 4 * PACKET)
    capture = CaptureFiles(first, CHIRP, "radar")
    assert capture.warnings == [
        "adc_data_Raw_1.bin continues adc_data_Raw_0.bin and is not played; give the folder to "
        "play both"
    ]
    assert losses(rest_of(capture)) == [(5, 1, "truncated")]
    second.unlink()
    assert CaptureFiles(first, CHIRP, "radar").warnings == []


def test_numbers_with_zeros_before_them_and_empty_files(tmp_path: Path) -> None:
    data = frames(30)
    paths = split(tmp_path, data.tobytes(), 3000, "drive_{:03}.bin")
    (tmp_path / "drive_011.bin").write_bytes(b"")
    assert played(read(tmp_path)) == all_of(data)
    paths[4].unlink()
    (lost,) = [item for item in read(tmp_path) if isinstance(item, LostFrames)]
    assert lost.detail["files_missing"] == ["drive_004.bin"]


def test_captures_that_end_with_their_last_packet_are_no_continuations(tmp_path: Path) -> None:
    """The card keeps what does not fill a packet: five frames end 664 bytes early."""
    data = frames(10)
    whole = 5 * SMALL_BYTES // PACKET * PACKET
    for k in (0, 1):
        part = data[5 * k : 5 * k + 5].tobytes()[:whole]
        (tmp_path / f"drive_{k}.bin").write_bytes(part)
    items = read(tmp_path)
    assert losses(items) == [(4, 1, "truncated"), (9, 1, "truncated")]
    assert played(items) == {k: v for k, v in all_of(data).items() if k not in (4, 9)}


@pytest.mark.parametrize(
    ("sizes", "one"),
    [
        # Frames of 48 KiB; a capture of n frames ends with its last whole packet.
        ([49_152 * n // PACKET * PACKET for n in (100, 100, 60)], False),
        ([49_152 * n // PACKET * PACKET for n in (7, 7, 7)], False),
        ([49_152 * n for n in (5, 5)], False),
        ([1000 * PACKET, 1000 * PACKET, 377 * PACKET], True),
        ([1000 * PACKET, 1000 * PACKET, 1000 * PACKET], True),
        ([1000 * PACKET, 1000 * PACKET, 1001 * PACKET], False),  # the last is not the largest
        ([1000 * PACKET, 900 * PACKET, 100 * PACKET], False),
    ],
)
def test_files_are_joined_by_their_sizes(tmp_path: Path, sizes: list[int], one: bool) -> None:
    for n, size in enumerate(sizes):
        with (tmp_path / f"drive_{n}.bin").open("wb") as file:
            file.truncate(size)
    captures = find_captures(tmp_path, 49_152, "radar")
    assert [len(each.parts) for each in captures] == ([len(sizes)] if one else [1] * len(sizes))


def test_files_that_may_continue_each_other_warn(tmp_path: Path) -> None:
    chirp = ChirpConfig(**{**SMALL, "adc_samples": 64})
    for n, packets in enumerate((10, 9, 3)):
        (tmp_path / f"drive_{n}.bin").write_bytes(bytes(packets * PACKET))
    (warning,) = CaptureFiles(tmp_path, chirp, "radar").warnings
    assert warning.startswith("drive_0.bin ends inside a frame, and the next file is read as a")
    for n in range(3):
        (tmp_path / f"drive_{n}.bin").write_bytes(bytes(chirp.frame_bytes * (n + 1) - 700))
    assert CaptureFiles(tmp_path, chirp, "radar").warnings == []


def test_a_capture_and_what_mmwave_studio_made_of_it_are_not_both_played(tmp_path: Path) -> None:
    for name in ("adc_data.bin", "adc_data_Raw_0.bin"):
        (tmp_path / name).write_bytes(frames(2).tobytes())
    with pytest.raises(SourceError, match=r"adc_data.bin is made of adc_data_Raw_0.bin"):
        read(tmp_path)
    assert len(read(tmp_path / "adc_data.bin")) == 2


LOG = """Start record configuration :
,
Log mode : Raw
LVDS lane mode : 2 lane
Record stop mode : Infinite
Max file size (MB) : 1024,
,*DT 1,"""


def test_packets_that_tis_recorder_filled_with_zeros_are_missing(tmp_path: Path) -> None:
    """Its log names them (WriteOffsetMetaData in recorddatarecv.cpp); one came late."""
    data = frames(40)
    raw = bytearray(data.tobytes())
    for n in (3, 10, 11):
        raw[n * PACKET : (n + 1) * PACKET] = bytes(PACKET)
    split(tmp_path, bytes(raw), 6 * PACKET)
    log = LOG + f"\n,{3 * PACKET},{PACKET},,,\n,{10 * PACKET},{3 * PACKET},,,"
    log += f"\n,,,{12 * PACKET},{PACKET},"
    items = read(tmp_path)
    assert not any(item.bytes_missing for item in items if isinstance(item, CapturedFrame))
    (tmp_path / "adc_data_Raw_LogFile.csv").write_text(log)
    items = read(tmp_path)
    missing = {i.index: i.bytes_missing for i in items if isinstance(i, CapturedFrame)}
    missing |= {item.index: SMALL_BYTES for item in items if isinstance(item, LostFrames)}
    holes = np.zeros(40 * SMALL_BYTES, bool)
    for n in (3, 10, 11):
        holes[n * PACKET : (n + 1) * PACKET] = True
    assert missing == {k: int(n.sum()) for k, n in enumerate(holes.reshape(40, SMALL_BYTES))}
    found = [i.packets_lost for i in items if isinstance(i, CapturedFrame)]
    found += [i.detail["packets_lost"] for i in items if isinstance(i, LostFrames)]
    assert sum(found) == 3
    assert {cause for _, _, cause in losses(items)} == {"network"}


def test_a_log_that_names_other_bytes_is_not_believed(tmp_path: Path) -> None:
    data = frames(10)
    (tmp_path / "a_Raw_0.bin").write_bytes(data.tobytes())
    rows = [f"\n,{PACKET},{PACKET},,,", "\n,,,,,,1456,1456,,,", "\n,x,1,", "\n,99999999999999,9,,,"]
    (tmp_path / "a_Raw_LogFile.csv").write_text(LOG + "".join(rows))
    items = read(tmp_path / "a_Raw_0.bin")
    assert played(items) == all_of(data)
    assert not any(item.bytes_missing for item in items if isinstance(item, CapturedFrame))


# Packet headers


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("count", [1, 10, 400])
def test_packet_headers_are_no_samples(tmp_path: Path, count: int, first: int) -> None:
    data = frames(count)
    (tmp_path / "a.bin").write_bytes(ti_packets(data.tobytes(), first=max(first, count == 1)))
    items = read(tmp_path / "a.bin")
    assert played(items) == all_of(data) and losses(items) == []


def test_the_cards_own_headers_are_no_samples(tmp_path: Path) -> None:
    data = frames(20)
    (tmp_path / "a.bin").write_bytes(card_packets(data.tobytes()))
    items = read(tmp_path / "a.bin")
    whole = 20 * SMALL_BYTES // PACKET * PACKET // SMALL_BYTES
    assert played(items) == all_of(data[:whole])
    assert losses(items) == [(whole, 1, "truncated")]


@pytest.mark.parametrize("size", [10 * (PACKET + 14), 5000])
def test_files_with_headers_continue_each_other(tmp_path: Path, size: int) -> None:
    """Also where another program has cut them inside a packet."""
    data = frames(60)
    split(tmp_path, ti_packets(data.tobytes()), size)
    items = read(tmp_path)
    assert played(items) == all_of(data) and losses(items) == []


def test_lost_packets_are_counted_by_their_numbers(tmp_path: Path) -> None:
    data = frames(60)
    lost = {5, 20, 21, 22, 23}
    (tmp_path / "a.bin").write_bytes(ti_packets(data.tobytes(), lost))
    items = read(tmp_path / "a.bin")
    whole, holes = bytearray(data.tobytes()), bytearray(len(data.tobytes()))
    for n in lost:
        whole[n * PACKET : (n + 1) * PACKET] = bytes(PACKET)
        holes[n * PACKET : (n + 1) * PACKET] = b"\1" * PACKET
    gone = [k for k in range(60) if all(holes[k * SMALL_BYTES : (k + 1) * SMALL_BYTES])]
    assert gone and [k for i, n, _ in losses(items) for k in range(i, i + n)] == gone
    assert {cause for _, _, cause in losses(items)} == {"network"}
    packets = 0
    for item in items:
        packets += item.packets_lost if isinstance(item, CapturedFrame) else 0
        packets += item.detail["packets_lost"] if isinstance(item, LostFrames) else 0
        if isinstance(item, CapturedFrame):
            part = slice(item.index * SMALL_BYTES, (item.index + 1) * SMALL_BYTES)
            assert item.data.tobytes() == whole[part]
            assert item.bytes_missing == sum(holes[part])
    assert packets == len(lost)


def test_a_packet_with_a_damaged_header_is_not_used(tmp_path: Path) -> None:
    data = frames(60)
    raw = bytearray(ti_packets(data.tobytes()))
    for n in (0, 30):
        raw[n * 1470 + 9] ^= 1
    (tmp_path / "a.bin").write_bytes(raw)
    capture = CaptureFiles(tmp_path / "a.bin", CHIRP, "radar")
    missed, *items = rest_of(capture)
    assert isinstance(missed, LostFrames)  # packet 0 holds all of frame 0
    assert missed.detail == {"packets_lost": 0, "packets_corrupt": 1}
    bad = [i for i in items if isinstance(i, CapturedFrame) and i.bytes_missing]
    assert sum(item.packets_corrupt for item in bad) == 1
    assert capture.counts == {"packets_damaged": 2}
    good = {k: v for k, v in played(items).items() if k not in {item.index for item in bad}}
    assert good == {k: all_of(data)[k] for k in good} and len(good) >= 55


def test_repeated_and_late_packets_of_a_file_are_counted(tmp_path: Path) -> None:
    data = frames(60)
    raw = ti_packets(data.tobytes())
    records = [raw[at : at + 1470] for at in range(0, len(raw), 1470)]
    records[7], records[8] = records[8], records[7]
    records.insert(20, records[19])
    (tmp_path / "a.bin").write_bytes(b"".join(records))
    capture = CaptureFiles(tmp_path / "a.bin", CHIRP, "radar")
    assert played(rest_of(capture)) == all_of(data)
    assert capture.counts == {"packets_duplicate": 1, "packets_reordered": 1}


@pytest.mark.parametrize("gone", [0, 2])
def test_a_missing_file_of_packets_is_a_loss(tmp_path: Path, gone: int) -> None:
    data, size = frames(80), 10 * 1470
    paths = split(tmp_path, ti_packets(data.tobytes()), size)
    paths[gone].unlink()
    items = read(tmp_path)
    first, end = gone * 10 * PACKET, (gone + 1) * 10 * PACKET
    untouched = {k: v for k, v in all_of(data).items()
                 if (k + 1) * SMALL_BYTES <= first or k * SMALL_BYTES >= end}  # fmt: skip
    whole = [i for i in items if isinstance(i, CapturedFrame) and not i.bytes_missing]
    assert played(list(whole)) == untouched
    (lost,) = [item for item in items if isinstance(item, LostFrames)]
    assert lost.cause == "truncated" and lost.detail["files_missing"] == [paths[gone].name]
    assert len(items) - 1 + lost.count == 80


def test_two_captures_with_headers_begin_anew(tmp_path: Path) -> None:
    data = frames(40)
    for k in (0, 1):
        part = data[20 * k : 20 * k + 20].tobytes()
        (tmp_path / f"drive_{7 * k}.bin").write_bytes(ti_packets(part) + bytes(20))
    items = read(tmp_path)
    assert played(items) == all_of(data) and losses(items) == []


def test_the_rest_of_a_file_with_headers_is_a_loss(tmp_path: Path) -> None:
    data = frames(10)
    raw = ti_packets(data.tobytes())
    for size in range(len(raw) - 1600, len(raw), 97):
        (tmp_path / "a.bin").write_bytes(raw[:size])
        items = read(tmp_path / "a.bin")
        packets, rest = divmod(size, 1470)
        there = packets * PACKET + max(0, rest - 14)
        assert played(items) == all_of(data[: there // SMALL_BYTES])
        assert losses(items) == (
            [(there // SMALL_BYTES, 1, "truncated")] if there % SMALL_BYTES else []
        )


def test_the_rest_of_a_late_packet_is_not_used(tmp_path: Path) -> None:
    data = frames(20)
    raw = ti_packets(data.tobytes())
    records = [raw[at : at + 1470] for at in range(0, 14 * 1470, 1470)]
    records[12], records[13] = records[13], records[12][:500]
    (tmp_path / "a.bin").write_bytes(b"".join(records))
    items = read(tmp_path / "a.bin")
    bad = [i.index for i in items if isinstance(i, CapturedFrame) and i.bytes_missing]
    first, end = 12 * PACKET, 13 * PACKET
    assert bad == [k for k in range(20) if first < (k + 1) * SMALL_BYTES and k * SMALL_BYTES < end]
    assert {k: v for k, v in played(items).items() if k not in bad} == {
        k: v for k, v in all_of(data).items() if k not in (*bad, 19)
    }


def test_samples_are_no_headers(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for data in (
        np.zeros((20, *SMALL_SHAPE), "<i2"),
        np.full((20, *SMALL_SHAPE), PACKET, "<i2"),
        rng.integers(-3, 3, (20, *SMALL_SHAPE)).astype("<i2"),
        np.arange(20 * SMALL_BYTES // 2).astype("<i2").reshape(20, *SMALL_SHAPE),
    ):
        (tmp_path / "a.bin").write_bytes(data.tobytes())
        assert played(read(tmp_path / "a.bin")) == all_of(data)


@examples(2)
@given(st.data())
def test_every_frame_comes_right_or_is_counted(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever the size of the files, whatever packets and files are lost."""
    folder = tmp_path_factory.mktemp("raw")
    count = data.draw(st.integers(5, 40))
    sent = frames(count, seed=data.draw(st.integers(0, 9)))
    headers = data.draw(st.booleans())
    packets = -(-count * SMALL_BYTES // PACKET)
    lost = data.draw(st.sets(st.integers(0, packets - 1), max_size=4)) if headers else set()
    raw = ti_packets(sent.tobytes(), lost) if headers else sent.tobytes()
    unit = 1470 if headers else PACKET
    paths = split(folder, raw, data.draw(st.integers(1, 8)) * unit)
    gone = data.draw(st.sets(st.sampled_from(paths[:-1]), max_size=2)) if len(paths) > 4 else set()
    for path in gone:
        path.unlink()
    items = read(folder)
    want = all_of(sent)
    for item in items:
        if isinstance(item, CapturedFrame) and not item.bytes_missing:
            assert item.data.tobytes() == want[item.index]
    total = sum(1 if isinstance(item, CapturedFrame) else item.count for item in items)
    if not headers:
        assert total == count
    else:  # packets that are lost at the end do not show
        assert total <= count


def damaged(rng: random.Random, raw: bytes) -> bytes:
    made = bytearray(raw)
    for _ in range(rng.randrange(1, 20)):
        at = rng.randrange(len(made))
        match rng.randrange(3):
            case 0:
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                del made[at : at + rng.randrange(1, 3000)]
            case _:
                made[at:at] = rng.randbytes(rng.randrange(1, 3000))
    return bytes(made)


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    rng, raw = random.Random(3), ti_packets(frames(60).tobytes())
    for _ in range(60):
        (tmp_path / "a.bin").write_bytes(damaged(rng, raw))
        try:
            items: list[Any] = read(tmp_path / "a.bin")
        except SourceError as error:
            assert str(error).startswith("radar: file:x: ")
        else:
            assert items
