"""Positions of a GNSS/INS device: real messages, made up ones, losses."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.satellite_navigation import geodetic
from drivers.xsens.mtdata2 import Coordinates, MtData2, Precision, decode_mtdata2, encode_mtdata2
from drivers.xsens.packets import XbusParser
from drivers.xsens.positions import (
    FILTER,
    RECEIVER,
    Position,
    PositionRate,
    Positions,
    Pvt,
    epoch_ns,
    gnss_stream,
    north_east_down,
)
from recorder.perception.earth import earth_points
from tests.drivers.xsens.xsens_logs import read_golden

MS = 1_000_000
TICKS = 5_000_000
PVT = Pvt(*[0] * len(Pvt._fields))._replace(
    year=2019, month=1, day=20, hour=13, minute=47, second=24, valid=0x37, nanosecond=249_768_484,
    fix_type=3, flags=1, satellites=11, longitude_e7=118825704, latitude_e7=576794453,
    height_mm=81777, height_msl_mm=43306, horizontal_accuracy_mm=2259, vertical_accuracy_mm=2072,
    velocity_north_mm_s=-27, velocity_east_mm_s=10, velocity_down_mm_s=-2, gdop_e2=154, edop_e2=62,
)  # fmt: skip
PVT_NS = int(datetime(2019, 1, 20, 13, 47, 24, tzinfo=UTC).timestamp()) * 10**9 + 249_768_484


class Device:
    """Messages at 100 Hz, with a position of the filter in every tenth."""

    def __init__(self, rate_hz: float = 10.0, filtered: bool = True) -> None:
        self.positions = Positions(PositionRate(rate_hz, filtered), 100.0)
        self.k = 0
        self.counter = 65_530  # wraps soon
        self.rows: list[Position] = []

    def _add(self, values: MtData2, skipped: int = 0) -> Position | None:
        values.packet_counter = self.counter % 65_536
        decoded = decode_mtdata2(encode_mtdata2(values, Precision.FLOAT64))
        t_ns = self.k * 10 * MS
        row = self.positions.add(decoded, skipped, (t_ns, t_ns + 7, TICKS + 100 * self.k))
        if row is not None:
            self.rows.append(row)
        return row

    def sample(self, skipped: int = 0, lost: bool = False, **more: Any) -> Position | None:
        self.k, self.counter = self.k + 1, self.counter + 1
        if self.k % 10 == 0:
            more = {"latitude_longitude": (48.0 + self.k * 1e-6, 11.0), **more}
        if lost:
            return None
        return self._add(MtData2(sample_time_fine=TICKS + 100 * self.k, **more), skipped)

    def pvt(self, age_ticks: int = 420, pvt: Pvt = PVT, **more: Any) -> Position | None:
        self.counter += 1
        ticks = TICKS + 100 * self.k - age_ticks
        return self._add(MtData2(sample_time_fine=ticks, gnss_pvt=tuple(pvt), **more))


def value(row: Position | None, name: str) -> Any:
    assert row is not None
    return row.data[name][0].tolist()


# --- real messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mti_g710_1", "mti_g710_2"])
def test_real_messages_of_the_receiver(shared_data: Path, name: str) -> None:
    """Values that the golden file gives, in the units of the stream."""
    folder = shared_data / "imu" / name
    golden = [v for v in read_golden(folder / "output.golden") if "gnss_pvt" in v]
    messages = XbusParser().feed((folder / "output.bin").read_bytes())
    decoded = [decode_mtdata2(m.data) for m in messages]
    positions, rows = Positions(PositionRate(4.0, False), 100.0), []
    sample = None
    for values in decoded:
        if values.acceleration is not None:
            ticks = values.sample_time_fine or 0
            sample = ticks * 100_000 - 50, ticks * 100_000, ticks
        if values.gnss_pvt is not None:
            row = positions.add(values, 0, sample)
            assert row is not None and row.t_dev_ns - row.t_ns == 50
            rows.append(row)
    assert len(rows) == len(golden) == 4
    assert [row.t_dev_ns for row in rows] == [v["sample_time_fine"] * 100_000 for v in golden]
    for row, expected in zip(rows, golden, strict=True):
        pvt = Pvt._make(expected["gnss_pvt"])
        assert value(row, "pos") == [
            pytest.approx(57.67944, abs=1e-5), pytest.approx(11.88257, abs=1e-5),
            pytest.approx(81.7, abs=0.11),
        ]  # fmt: skip
        assert value(row, "pos") == [
            pvt.latitude_e7 / 1e7,
            pvt.longitude_e7 / 1e7,
            pvt.height_mm / 1e3,
        ]
        assert value(row, "vel")[1] == pytest.approx(pvt.velocity_east_mm_s / 1e3)
        assert (value(row, "fix"), value(row, "sats")) == (3, pvt.satellites)
        assert np.sqrt(value(row, "cov")[2][2]) == pytest.approx(pvt.vertical_accuracy_mm / 1e3)
        # The device rounds its UtcTime to its clock's ticks.
        assert abs(value(row, "utc") - value(row, "pvt_utc")) < MS
        assert value(row, "source") == RECEIVER
    first = datetime(2019, 1, 20, 13, 47, 24 if name[-1] == "1" else 25, 250_000, tzinfo=UTC)
    assert value(rows[0], "utc") == round(first.timestamp() * 1000) * MS


def test_real_messages_without_a_fix(shared_data: Path) -> None:
    """Old firmware: the receiver's messages have another time base than the samples."""
    parser = XbusParser()
    positions, rows, sample, k = Positions(PositionRate(4.0, False), 100.0), [], None, 0
    for message in parser.feed((shared_data / "imu/xsens_mti_g700_47s.bin").read_bytes()):
        if message.mid != 0x36:
            continue
        values = decode_mtdata2(message.data)
        if values.acceleration is not None:
            k += 1
            sample = k * 10 * MS, k * 10 * MS, values.sample_time_fine
        if (row := positions.add(values, 0, sample)) is not None:
            assert sample is not None and row.t_ns == sample[0]
            rows.append(row)
    assert len(rows) == 190 and not any(row.lost for row in rows)
    for row in rows:
        assert np.isnan(value(row, "pos")).all() and np.isnan(value(row, "cov")).all()
        assert [value(row, name) for name in ("fix", "sats", "utc")] == [0, 0, 0]


# --- rows -------------------------------------------------------------------------------------


def test_a_row_is_the_filters_position_with_the_receivers_data() -> None:
    device = Device()
    for _ in range(9):
        assert device.sample() is None
    assert value(device.sample(), "fix") == 0  # nothing of the receiver yet
    for _ in range(5):
        device.sample()
    device.pvt(age_ticks=450)
    more: dict[str, Any] = {
        "altitude_ellipsoid": 500.5,
        "velocity": (1.0, 2.0, 3.0),
        "status_word": 0x0180_0007,
    }
    for _ in range(4):
        device.sample()
    row = device.sample(**more)
    assert row is not None and (row.t_ns, row.t_dev_ns) == (200 * MS, 200 * MS + 7)
    assert value(row, "pos") == [48.00002, 11.0, 500.5]
    assert value(row, "vel") == [2.0, 1.0, -3.0]
    assert value(row, "pvt_pos") == [57.6794453, 11.8825704, 81.777]
    assert value(row, "pvt_vel") == pytest.approx([-0.027, 0.010, -0.002])
    assert (
        value(row, "cov") == np.diag(np.array([5.103081, 5.103081, 4.293184], np.float32)).tolist()
    )
    assert (value(row, "fix"), value(row, "sats"), value(row, "source")) == (3, 11, FILTER)
    assert value(row, "status") == 0x0180_0007
    assert value(row, "dop")[::6] == pytest.approx([1.54, 0.62])
    assert value(row, "pvt_utc") == PVT_NS
    assert value(row, "utc") == PVT_NS + 95 * MS  # it was valid 45 ms before sample 15
    assert [row.t_ns // MS for row in device.rows] == [100, 200]


def test_every_row_is_as_declared() -> None:
    device = Device()
    for k in range(100):
        device.sample(velocity=(1e300, 0.0, 0.0))
        if k % 25 == 0:
            device.pvt(pvt=PVT if k else Pvt(*[0] * len(Pvt._fields)))
    spec = gnss_stream("imu", 10.0, finite=False)
    assert spec.name == "imu_gnss" and spec.channels[0].unit == "deg, m"
    for row in device.rows:
        assert list(row.data) == [channel.name for channel in spec.channels]
        for channel in spec.channels:
            assert row.data[channel.name].dtype == channel.np_dtype
            assert row.data[channel.name].shape == (1, *channel.shape)


def test_old_data_of_the_receiver_are_unknown() -> None:
    device = Device()
    device.sample()
    device.pvt()
    for _ in range(120):
        device.sample(status_byte=0x05)
    fixes = {row.t_ns // MS: value(row, "fix") for row in device.rows}
    sats = [value(row, "sats") for row in device.rows]
    assert fixes[0 if 0 in fixes else 100] == 3 and sats[0] == 11
    assert (fixes[1200], sats[-1]) == (3, 0)  # the device's status alone tells of a fix
    assert np.isnan(value(device.rows[-1], "pvt_pos")).all()


def test_a_receiver_without_a_date_gives_no_time() -> None:
    device = Device()
    device.pvt(pvt=PVT._replace(valid=0))
    for _ in range(10):
        device.sample()
    assert [value(row, "utc") for row in device.rows] == [0] * len(device.rows) != []


def test_the_receiver_fills_in_where_the_filter_is_silent() -> None:
    device = Device()
    sources = []
    for k in range(1000):
        more: dict[str, Any] = {"latitude_longitude": None} if 300 <= k < 800 else {}
        row = device.sample(**more)
        if k % 25 == 0:
            row = device.pvt() or row
        if row is not None:
            sources.append((k, value(row, "source")))
    receiver = [k for k, source in sources if source == RECEIVER]
    assert receiver == list(range(525, 825, 25))  # after two seconds
    assert not any(row.lost for row in device.rows)
    assert (np.diff([row.t_ns for row in device.rows]) > 0).all()


# --- losses -----------------------------------------------------------------------------------


def test_lost_messages_are_lost_rows_where_rows_were_due() -> None:
    device = Device()
    for k in range(1, 101):
        device.sample(lost=k in (25, 26, 40, 59, 60, 61), skipped=13 if k == 62 else 0)
    lost = {
        row.t_ns // MS: (row.lost, row.messages, row.skipped_bytes)
        for row in device.rows
        if row.messages
    }
    assert lost == {300: (0, 2, 0), 500: (1, 1, 0), 700: (1, 3, 13)}
    assert {row.duration_ns // MS for row in device.rows if row.lost} == {200}


def test_a_lost_message_of_the_receiver_is_a_lost_row() -> None:
    device = Device(4.0, filtered=False)
    for k in range(200):
        device.sample(latitude_longitude=None, lost=k == 30)
        if k % 25 == 0:
            if k in (50, 75):
                device.counter += 1
            else:
                device.pvt()
    assert [(row.t_ns // MS, row.lost) for row in device.rows if row.lost] == [(968, 2)]


def test_a_restart_loses_nothing() -> None:
    device = Device()
    for _ in range(10):
        device.sample()
    device.counter = 65_536
    for _ in range(10):
        device.sample()
    assert [row.lost for row in device.rows] == [0, 0]


# --- conversions ------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", Coordinates)
def test_velocities_of_every_frame(frame: Coordinates) -> None:
    sent = {
        Coordinates.ENU: (2.0, 1.0, -3.0),
        Coordinates.NED: (1.0, 2.0, 3.0),
        Coordinates.NWU: (1.0, -2.0, -3.0),
    }[frame]
    data = encode_mtdata2(MtData2(velocity=sent), Precision.FP16_32, frame)
    assert north_east_down(decode_mtdata2(data)) == (1.0, 2.0, 3.0)


def test_geodetic_is_the_inverse_of_earth_points() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        position = rng.uniform(-90, 90), rng.uniform(-180, 180), rng.uniform(-500, 20_000)
        assert geodetic(tuple(earth_points(position))) == pytest.approx(position, abs=1e-7)
    assert geodetic((0.0, 0.0, 6_356_752.314245)) == pytest.approx((90, 0, 0), abs=1e-6)
    device = Device()
    x, y, z = earth_points((57.6, 11.9, 80.0)).tolist()
    for _ in range(10):
        row = device.sample(latitude_longitude=None, position_ecef=(x, y, z))
    assert value(device.rows[-1], "pos") == pytest.approx([57.6, 11.9, 80.0], abs=1e-7)
    assert row is None or math.isfinite(value(row, "pos")[0])


@pytest.mark.parametrize(
    ("date", "valid", "expected"),
    [
        ((1970, 1, 1, 0, 0, 1), 3, 1_000_000_005),
        ((2016, 12, 31, 23, 59, 60), 7, 1_483_228_800_000_000_005),  # a leap second
        ((2019, 1, 20, 13, 47, 24), 1, 0),
        ((1980, 13, 6, 0, 9, 17), 7, 0),
    ],
)
def test_dates(date: tuple[int, ...], valid: int, expected: int) -> None:
    assert epoch_ns(date, 5, valid) == expected
