"""The Xsens driver: real and made up logs, and losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.driver import EndOfSource, Lost, Sample, State
from drivers.xsens import played
from drivers.xsens.mtdata2 import Coordinates, MtData2, Precision, decode_mtdata2
from drivers.xsens.packets import XbusParser, encode_message
from drivers.xsens.positions import Pvt
from recorder.common.errors import SourceError
from tests.drivers.xsens.xsens_logs import (
    acceleration_of,
    angles_of,
    log,
    message,
    quaternion,
    rate_of_turn_of,
    read_golden,
    sample,
)
from tests.drivers.xsens.xsens_played import driver_of, play, play_all
from tests.support.devices import column, device_times, losses, opened, read_all, samples, times

KINDS = ("quaternion", "euler_angles", "rotation_matrix")
PERIOD_NS = 10_000_000
GNSS = Pvt(*[0] * len(Pvt._fields))


def write(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "imu.bin"


def gnss(counter: int, ticks: int) -> bytes:
    return message(MtData2(packet_counter=counter, sample_time_fine=ticks, gnss_pvt=GNSS))


# --- real recordings --------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.campaign), 44, 200_000])
def test_real_capture(shared_data: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    source = shared_data / "imu/xsens_mti_g700_47s.bin"
    spec, gnss_spec = (driver := driver_of(source)).open()
    monkeypatch.setattr(played, "_CHUNK", chunk)  # after the look at the head, which takes its time
    items = read_all(driver)
    driver.close()
    assert all(isinstance(item, Sample) for item in items)  # nothing is lost
    good = [item for item in items if isinstance(item, Sample) and item.stream == "imu"]
    assert len(good) == 4746  # batches of 10 ms: one sample each
    placed = [item for item in items if isinstance(item, Sample) and item.stream == "imu_gnss"]
    assert gnss_spec.rate_hz == 4 and len(placed) == 190
    assert not column(placed, "fix").any() and np.isnan(column(placed, "pos")).all()
    assert [channel.name for channel in spec.channels] == ["acc", "avel", "rot", "quat"]
    messages = XbusParser().feed(source.read_bytes())
    decoded = [v for v in (decode_mtdata2(m.data) for m in messages) if v.acceleration]
    for name, field in (
        ("acc", "acceleration"),
        ("avel", "rate_of_turn"),
        ("quat", "quaternion"),
        ("rot", "rotation"),
    ):
        expected = np.array([getattr(v, field) for v in decoded], np.float32)
        np.testing.assert_array_equal(column(good, name), expected)
    assert (np.diff(times(good)) == PERIOD_NS).all()
    np.testing.assert_array_equal(times(good), device_times(good))
    assert spec.settings["coordinates"] == "ENU"
    assert spec.settings["device_rate_hz"] == 100.0


@pytest.mark.parametrize("name", ["mti_g710_1", "mti_g710_2"])
def test_golden_values(shared_data: Path, name: str) -> None:
    folder = shared_data / "imu" / name
    specs, everything = play_all(driver_of(folder / "output.bin"))
    items = [item for item in everything if item.stream == "imu"]
    golden = [v for v in read_golden(folder / "output.golden") if "acceleration" in v]
    whole = [v for v in golden if "euler_angles" in v]
    assert (len(golden), len(whole)) == (96, 95)  # the first has no orientation yet
    acc = np.array([v["acceleration"] for v in whole], np.float32)
    avel = np.array([v["rate_of_turn"] for v in whole], np.float32)
    rot = np.radians(np.array([v["euler_angles"] for v in whole], np.float64))
    np.testing.assert_array_equal(column(items, "acc"), acc)
    np.testing.assert_array_equal(column(items, "avel"), avel)
    np.testing.assert_array_equal(column(items, "rot"), rot.astype(np.float32))
    ticks = np.array([v["sample_time_fine"] for v in whole])
    np.testing.assert_array_equal(device_times(items), ticks * 100_000)
    assert not losses(items)
    assert isinstance(items[0], State)
    assert items[0].values == {"messages_without_orientation": 1}
    rows = [item for item in everything if item.stream == "imu_gnss"]
    placed = [v for v in golden if "latitude_longitude" in v]
    assert specs[1].rate_hz == 100 and not losses(rows)
    assert (column(rows, "source") == 2).all()
    expected = [(*v["latitude_longitude"], v["altitude_ellipsoid"]) for v in placed]
    np.testing.assert_array_equal(column(rows, "pos"), expected)
    east_north_up = np.array([v["velocity"] for v in placed], np.float32)
    np.testing.assert_array_equal(column(rows, "vel"), east_north_up[:, [1, 0, 2]] * (1, 1, -1))
    ticks = np.array([v["sample_time_fine"] for v in placed])
    np.testing.assert_array_equal(device_times(rows), ticks * 100_000)
    assert (column(rows, "fix") == 3).all() and (column(rows, "sats") >= 11).all()
    apart = column(rows, "pvt_pos") - column(rows, "pos")
    assert np.abs(apart[:, :2]).max() < 1e-5 and np.abs(apart[:, 2]).max() < 0.5


# --- made up logs -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coordinates", Coordinates)
@pytest.mark.parametrize("precision", Precision)
def test_encodings_and_orientations(
    path: Path, precision: Precision, coordinates: Coordinates, kind: str
) -> None:
    form: dict[str, Any] = {"precision": precision, "coordinates": coordinates, "kind": kind}
    spec, items = play(driver_of(write(path, *log(300, **form)), batch_ms=100))
    assert spec.finite and spec.device_clock and spec.rate_hz == 100.0
    assert spec.settings["coordinates"] == coordinates.name
    assert coordinates.name in spec.channel("rot").description
    assert ("quat" in [c.name for c in spec.channels]) == (kind == "quaternion")
    numbers = range(300)
    np.testing.assert_array_equal(column(items, "acc"), [acceleration_of(k) for k in numbers])
    np.testing.assert_array_equal(column(items, "avel"), [rate_of_turn_of(k) for k in numbers])
    np.testing.assert_allclose(column(items, "rot"), [angles_of(k) for k in numbers], atol=6e-6)
    if kind == "quaternion":
        expected = [quaternion(*angles_of(k)) for k in numbers]
        np.testing.assert_allclose(column(items, "quat"), expected, atol=2e-6)
    assert [s.count for s in samples(items)] == [10] * 30
    np.testing.assert_array_equal(times(items), 500_000_000_000 + PERIOD_NS * np.arange(300))


def test_extended_messages_and_more_channels(path: Path) -> None:
    more: dict[str, Any] = {"unknown": {0x7020: bytes(250)}, "magnetic_field": (0.5, -0.25, 1.0)}
    spec, items = play(driver_of(write(path, *log(20, **more))))
    assert [c.name for c in spec.channels] == ["acc", "avel", "rot", "quat", "mag"]
    np.testing.assert_array_equal(column(items, "mag"), [more["magnetic_field"]] * 20)
    assert "0x7020" in spec.settings["data_ids"]


def test_again_gives_the_same_bytes(path: Path) -> None:
    driver = driver_of(write(path, log(1)[0][9:], *log(50), *log(50, first=60)))
    spec, items = play(driver)
    again_spec, again = play(driver)
    assert spec == again_spec
    assert len(samples(items)) == len(samples(again)) == 100
    for name in ("acc", "avel", "rot", "quat"):
        assert column(items, name).tobytes() == column(again, name).tobytes()
    assert losses(items) == losses(again)


@pytest.mark.parametrize("chunk", [1, 44, 200_000])
def test_chunks_change_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    broken = bytearray(log(1, first=30)[0])
    broken[11] ^= 1
    write(path, log(1)[0][9:], *log(30), bytes(broken), *log(60, first=31), log(1)[0][:-5])
    spec, items = play(driver_of(path, batch_ms=70))
    monkeypatch.setattr(played, "_CHUNK", chunk)
    other_spec, others = play(driver_of(path, batch_ms=70))
    assert spec == other_spec
    assert [s.count for s in samples(items)] == [s.count for s in samples(others)]
    assert [s.count for s in samples(items)][:5] == [7, 7, 7, 7, 2]  # the loss ends a batch
    np.testing.assert_array_equal(column(items, "rot"), column(others, "rot"))
    assert losses(items) == losses(others)
    assert [(lost.cause, lost.count) for lost in losses(items)] == [("corrupt", 1)]


def test_gnss_between_is_no_sample_and_no_loss(path: Path) -> None:
    parts = []
    counter = 65_500
    for k in range(100):
        parts.append(sample(k, counter=counter % 65536, ticks=900_000 + 100 * k))
        counter += 1
        if k % 25 == 7:
            parts.append(gnss(counter % 65536, 870_000 + 2500 * k))
            counter += 1
    _, items = play(driver_of(write(path, *parts)))
    assert len(items) == 100
    assert (np.diff(times(items)) == PERIOD_NS).all()
    assert (np.diff(device_times(items)) == PERIOD_NS).all()


def test_clock_and_counter_wrap(path: Path) -> None:
    start = 2**32 - 5_000
    _, items = play(driver_of(write(path, *log(100, first=65_500, start_ticks=start - 6_550_000))))
    assert len(items) == 100
    assert (np.diff(device_times(items)) == PERIOD_NS).all()
    assert device_times(items)[-1] > 2**32 * 100_000


def test_device_gap(path: Path) -> None:
    _, items = play(driver_of(write(path, *log(10), *log(10, first=13)), batch_ms=1000))
    first, lost, second = items
    assert isinstance(first, Sample) and isinstance(lost, Lost) and isinstance(second, Sample)
    assert (first.count, second.count) == (10, 10)
    assert (lost.cause, lost.count, lost.estimate) == ("device", 3, None)
    assert lost.t_ns == second.t_ns[0]
    assert lost.detail == {"duration_ns": 4 * PERIOD_NS, "messages": 3}
    assert second.t_ns[0] - first.t_ns[-1] == 4 * PERIOD_NS


def test_corruption_is_counted_in_order(path: Path) -> None:
    messages = log(60)
    for k in (20, 21, 40):
        messages[k] = messages[k][:15] + b"\xaa\xaa\xaa" + messages[k][18:]
    _, items = play(driver_of(write(path, *messages)))
    assert [(lost.cause, lost.count) for lost in losses(items)] == [("corrupt", 2), ("corrupt", 1)]
    assert isinstance(items[20], Lost) and isinstance(items[39], Lost)
    received = sum(item.count for item in samples(items))
    assert received + sum(lost.count or 0 for lost in losses(items)) == 60


def test_corruption_without_counter_is_estimated(path: Path) -> None:
    messages = [sample(k, ticks=7000 + 100 * k) for k in range(20)]
    messages[9] = messages[10] = bytes(len(messages[9]))
    _, items = play(driver_of(write(path, *messages)))
    (lost,) = losses(items)
    assert (lost.cause, lost.count, lost.estimate) == ("corrupt", None, 2)
    assert len(samples(items)) == 18


def test_broken_end(path: Path) -> None:
    messages = log(12)
    tail = bytes(len(messages[0])) * 2
    _, items = play(driver_of(write(path, *messages, tail)))
    (lost,) = losses(items)
    assert items[-1] is lost
    assert (lost.cause, lost.count, lost.estimate) == ("corrupt", None, 2)
    _, items = play(driver_of(write(path, *messages, messages[0][:-1])))  # merely cut off
    assert not losses(items) and len(samples(items)) == 12


def test_good_message_behind_a_false_header_at_the_end(path: Path) -> None:
    messages = log(12)
    _, items = play(driver_of(write(path, *messages[:11], b"\xfa\xff\x36\xfe", messages[11])))
    assert len(samples(items)) == 12 and not losses(items)


def test_time_from_the_rate_where_the_device_gives_none(path: Path) -> None:
    messages = [sample(k, counter=k) for k in range(20)]
    del messages[5:8]
    _, items = play(driver_of(write(path, *messages), rate=50))
    expected = np.array([k for k in range(20) if not 5 <= k < 8]) * 20_000_000
    np.testing.assert_array_equal(times(items), expected)
    np.testing.assert_array_equal(device_times(items), expected)
    assert [lost.count for lost in losses(items)] == [3]
    _, items = play(driver_of(write(path, *[sample(k) for k in range(20)]), rate=200))
    np.testing.assert_array_equal(times(items), np.arange(20) * 5_000_000)


def test_restarted_device(path: Path) -> None:
    _, items = play(driver_of(write(path, *log(30, first=900), *log(30, start_ticks=40))))
    (lost,) = losses(items)
    assert (lost.cause, lost.count) == ("device", None)
    (state,) = [item for item in items if isinstance(item, State)]
    assert state.values == {"device_clock_step_ns": (40 - 5_000_000 - 92_900) * 100_000}
    assert (np.diff(times(items)) == PERIOD_NS).all()
    assert device_times(items)[30] == 40 * 100_000


def test_orientation_that_comes_late(path: Path) -> None:
    parts = [*log(3, kind=None), *log(10, first=3)]
    _, items = play(driver_of(write(path, *parts)))
    assert isinstance(items[0], State)
    assert items[0].values == {"messages_without_orientation": 3}
    assert len(samples(items)) == 10 and not losses(items)


def test_orientation_missing_once_is_a_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(played, "_SCANNED", 5)
    parts = [*log(10), *log(1, first=10, kind=None), *log(10, first=11)]
    _, items = play(driver_of(write(path, *parts)))
    (lost,) = losses(items)
    assert (lost.cause, lost.count, lost.detail["incomplete"]) == ("device", 1, 1)
    assert len(samples(items)) == 20


def test_orientation_in_some_messages(path: Path) -> None:
    parts = [
        sample(k, counter=k, ticks=25 * k, kind="euler_angles" if k % 4 == 0 else None)
        for k in range(400)
    ]
    spec, items = play(driver_of(write(path, *parts), rate=400))
    rot = column(items, "rot")
    assert len(rot) == 400 and not losses(items)
    given_ = np.arange(400) % 4 == 0
    assert np.isfinite(rot[given_]).all() and np.isnan(rot[~given_]).all()
    assert "NaN where not measured" in spec.channel("rot").description
    assert spec.settings["orientation"] == "some"
    assert spec.settings["device_rate_hz"] == 400.0
    assert [s.count for s in samples(items)] == [4] * 100


def test_no_orientation(path: Path) -> None:
    spec, items = play(driver_of(write(path, *log(20, kind=None))))
    assert np.isnan(column(items, "rot")).all() and len(column(items, "acc")) == 20
    assert "NaN" in spec.channel("rot").description
    assert spec.settings["orientation"] == "none"


@pytest.mark.parametrize("again", [0, 30])
def test_samples_in_another_frame_are_counted(path: Path, again: int) -> None:
    parts = [*log(1500), *log(5, first=1500, coordinates=Coordinates.NED)]
    parts += log(again, first=1505)
    _, items = play(driver_of(write(path, *parts), batch_ms=70))
    (lost,) = losses(items)
    assert (lost.cause, lost.count) == ("changed", 5)
    assert "'ENU' to 'NED' at packet counter 1500" in lost.detail["reason"]
    assert sum(item.count for item in samples(items)) == 1500 + again
    before = items[: items.index(lost)]
    assert sum(item.count for item in samples(before)) == 1500


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (b"", "nor any other Xbus message"),
        (b"no log at all" * 1000, "nor any other Xbus message"),
        (encode_message(0x32, bytes(20)) * 3, "3 of MID 0x32"),
        (gnss(1, 1) * 3, "hold gnss_pvt, packet_counter, sample_time_fine"),
    ],
)
def test_source_without_samples(path: Path, content: bytes, reported: str) -> None:
    with pytest.raises(SourceError, match=reported) as caught:
        driver_of(write(path, content)).open()
    assert str(path) in str(caught.value) and "imu: file:" in str(caught.value)


def test_source_that_cannot_be_read(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"imu\.bin: no such file"):
        driver_of(path).open()
    with pytest.raises(SourceError, match=str(tmp_path)):
        driver_of(tmp_path).open()
    with pytest.raises(SourceError, match="before open"):
        driver_of(path).read()


_LOG = log(40)


@given(st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=80)), max_size=5), st.booleans())
def test_damaged_logs_play_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, bytes]], insert: bool
) -> None:
    """Times keep increasing and shapes right (`play` looks), whatever the bytes are."""
    stream = bytearray(b"".join([*_LOG[:30], gnss(30, 7), *log(20, first=31)]))
    for at, noise in damage:
        stream[at : at if insert else at + len(noise)] = noise
    path = write(tmp_path_factory.mktemp("log") / "imu.bin", bytes(stream))
    try:
        play(driver_of(path))
    except SourceError as error:
        assert str(path) in str(error)


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(4, 50), st.integers(1, 255)), max_size=6))
def test_received_and_lost_are_what_was_sent(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int, int]]
) -> None:
    """Bytes behind the head of messages 1 to 38 are changed so that the checksum must notice."""
    messages = [bytearray(m) for m in _LOG]
    broken = set()
    for k, at, change in flips:
        if 0 < k < 39 and k not in broken:
            messages[k][at] ^= change
            broken.add(k)
    path = tmp_path_factory.mktemp("log") / "imu.bin"
    _, items = play(driver_of(write(path, *map(bytes, messages))))
    received = sum(item.count for item in samples(items))
    assert received == 40 - len(broken)
    assert sum(lost.count or 0 for lost in losses(items)) == len(broken)
    assert {lost.cause for lost in losses(items)} <= {"corrupt"}


def test_memory_stays_flat(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, *log(4_000))
    with opened(driver_of(path)) as driver:
        source = driver.source
        assert isinstance(source, played.LogSource)
        most = count = 0
        with pytest.raises(EndOfSource):
            while True:
                item = driver.read()
                assert isinstance(item, Sample)
                count += item.count
                most = max(most, len(source._items) + source._assembler.held)
    assert count == 4_000
    assert most < 1200  # what one chunk of 64 KiB holds


# --- positions --------------------------------------------------------------------------------


def test_a_lost_fix_is_counted_on_its_stream(path: Path) -> None:
    """One of the receiver's messages is lost, another one is damaged."""
    parts = []
    counter = 0
    for k in range(200):
        parts.append(sample(k, counter=counter, ticks=900_000 + 100 * k))
        counter += 1
        if k % 25 == 7:
            message = gnss(counter, 900_000 + 100 * k - 450)
            if k == 132:
                message = message[:20] + b"\xaa\xaa" + message[22:]
            if k != 57:
                parts.append(message)
            counter += 1
    specs, items = play_all(driver_of(write(path, *parts)))
    assert len(specs) == 2
    assert [(lost.stream, lost.cause, lost.count) for lost in losses(items)] == [
        ("imu_gnss", "device", 1), ("imu_gnss", "corrupt", 1),
    ]  # fmt: skip
    rows = [item for item in samples(items) if item.stream == "imu_gnss"]
    assert len(rows) == 6
    first = 900_000 * 100_000 + 7 * PERIOD_NS - 45_000_000
    assert (device_times(rows) - first).tolist() == [250_000_000 * k for k in (0, 1, 3, 4, 6, 7)]


def test_positions_may_be_left_out(path: Path) -> None:
    write(path, sample(0, counter=0, ticks=100), gnss(1, 150), sample(1, counter=2, ticks=200))
    specs, items = play_all(driver_of(path, gnss=False))
    assert len(specs) == 1 and len(items) == 2


# --- simulated --------------------------------------------------------------------------------
