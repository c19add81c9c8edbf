"""What a report shows is what the session holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.files import PosixDisk
from recorder.perception.camera.camera_pictures import Pictures
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.maps import RadarMaps
from recorder.perception.radar.radar import RadarProcessor
from recorder.session.event_clips import KeptEvent, Shortfall, write_events
from recorder.session.events import make_event
from recorder.session.reader import Session
from recorder.session.stream import Stream
from recorder.viewers.report import lidars, write_report
from recorder.viewers.report import report_context as module
from recorder.viewers.report.rasters import BACKGROUND, TABLE, apply_colours, data_uri
from recorder.viewers.report.rates import find_gaps
from recorder.viewers.report.report_context import ReportContext
from recorder.viewers.report.series import _ALL, Envelope, ranges_to_read
from recorder.viewers.report.session_scan import scan_session
from tests.session.build import (
    START_MONO_NS,
    START_NS,
    Builder,
    full_session,
    imu_session,
    imu_spec,
)
from tests.viewers.report.golden import whole
from tests.viewers.report.reading import Page

S = 1_000_000_000


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole(tmp_path_factory.mktemp("sections") / "rig")


@pytest.fixture(scope="module")
def page(rig: Path) -> Page:
    return Page(write_report(rig))


@pytest.fixture
def material(rig: Path) -> Iterator[ReportContext]:
    with Session(rig, virtual=True, partial=True) as session:
        yield ReportContext(scan_session(rig), session)


def test_all_is_well(page: Page) -> None:
    assert "PASS" in page.sections["verdict"]
    assert page.sections.keys() >= {
        *("timeline", "cameras", "lidars", "radars", "tracks", "series", "streams"),
        *("clocks", "archives", "setup"),
    }
    assert len(page.pictures) == 2 * 12 + 4 + 1 + 4
    assert len(page.source) < 500_000


def test_pictures_are_those_of_their_moments(
    rig: Path, page: Page, material: ReportContext
) -> None:
    streams = [material.session.streams[name] for name in ("camera", "rear")]
    shown = iter(page.pictures)
    for stream in streams:
        pictures = Pictures(stream)
        moments = material.moments(stream, 12)
        assert len(moments) == 12
        span = material.span_ns[1] - material.span_ns[0]
        for k, index in enumerate(moments):
            wanted = material.span_ns[0] + (k + 0.5) * span / 12
            assert index == int(np.argmin(np.abs(stream.t_ns - wanted)))
            given_ = cv2.imdecode(np.frombuffer(next(shown), np.uint8), cv2.IMREAD_COLOR)
            assert given_ is not None
            recorded = pictures.picture(index).astype(float)
            others = pictures.picture((index + 40) % len(stream)).astype(float)
            near, far = (np.abs(given_ - other).mean() for other in (recorded, others))
            assert near < 16 and near < far


def test_a_sweep_from_above_has_forward_up_and_left_at_the_left() -> None:
    points = np.array([[10, 0, 0], [0, 5, 1], [-12, 0, 2]], np.float32)
    picture, extent_m = lidars.draw_from_above(points)
    assert extent_m == 15
    rows, columns, _ = np.nonzero(picture != BACKGROUND)
    scale = picture.shape[0] / 2 / extent_m
    middle = picture.shape[0] / 2
    found = {(round((middle - r) / scale), round((middle - c) / scale))
             for r, c in zip(rows, columns, strict=True)}  # fmt: skip
    assert found == {(10, 0), (0, 5), (-12, 0)}
    brightness = [picture[round(middle - x * scale), round(middle - y * scale)].astype(int).sum()
                  for x, y, _ in points]  # fmt: skip
    assert brightness == sorted(brightness), "brighter is higher"


def test_the_highest_point_of_a_pixel_is_shown() -> None:
    ground = [[x, y, 0] for x in (-5.0, 0.0, 5.0) for y in (-5.0, 5.0)]
    for points in ([[3, 0, 2], [3, 0, 0]], [[3, 0, 0], [3, 0, 2]]):
        picture, extent_m = lidars.draw_from_above(np.array(ground + points, np.float32))
        row = round(len(picture) / 2 - 3 * len(picture) / 2 / extent_m)
        assert (picture[row, len(picture) // 2] == TABLE[255]).all()


def test_a_sweep_without_a_return() -> None:
    picture, _ = lidars.draw_from_above(np.empty((0, 3), np.float32))
    assert (picture == BACKGROUND).all()


def test_points_of_a_sweep_are_those_of_the_vendor(
    rig: Path, page: Page, material: ReportContext
) -> None:
    from ouster.sdk.core import SensorInfo, XYZLut

    stream = material.session.streams["lidar"]
    sample = stream.sample(3)
    ranges = sample["rng"].astype(np.uint32) + sample["rng_far"]
    grid = lidars.sweep_grid(stream)
    points = lidars.compute_points(grid, grid.cut(ranges), None)
    theirs = XYZLut(SensorInfo((rig / "lidar" / "lidar.json").read_text()), use_extrinsics=False)(
        ranges
    )
    expected = theirs.reshape(-1, 3)[ranges.reshape(-1) > 0]
    order = [np.lexsort(np.round(each.astype(float), 3).T) for each in (points, expected)]
    assert np.abs(points[order[0]] - expected[order[1]]).max() < 2e-3
    assert f"{len(points)} points" in page.sections["lidars"]


def radar_of(material: ReportContext) -> tuple[Stream, RadarGeometry]:
    stream = material.session.streams["radar"]
    text = (stream.path / "radar.json").read_text()
    return stream, RadarGeometry.of_metadata(text, "", stream.meta["iq"]["shape"])


def test_the_strongest_targets_are_those_of_the_processor(
    page: Page, material: ReportContext
) -> None:
    stream, geometry = radar_of(material)
    processor = RadarProcessor(geometry)
    found = processor.detect(stream.sample(3)["iq"])
    each = zip(found.range_m, found.velocity_m_s, found.snr_db, strict=True)
    words = [f"{r:.1f} m, {v:+.1f} m/s, {s:.0f} dB" for r, v, s in each]
    listed = page.sections["radars"]
    assert "; ".join(words[:4]) in listed and len(words) > 4
    assert "; ".join(words[:5]) not in listed


def test_speeds_rise_upwards_and_ranges_to_the_right(page: Page, material: ReportContext) -> None:
    stream, geometry = radar_of(material)
    spectra = RadarProcessor(geometry).spectra(stream.sample(3)["iq"])
    level_db, _ = RadarMaps(geometry).range_doppler(spectra)
    shown = cv2.imdecode(np.frombuffer(page.pictures[-1], np.uint8), cv2.IMREAD_COLOR)
    assert shown is not None and shown.shape[:2] == level_db.shape
    brightness = shown.astype(float).sum(axis=2)
    strong = np.argwhere(level_db[::-1] > 40)
    assert len(strong) > 3
    # A weak cell is dark; the encoding blurs by a pixel or two.
    assert np.mean([brightness[r, c] for r, c in strong]) > 2 * np.median(brightness)


def test_the_track_is_as_long_as_the_way(page: Page) -> None:
    # 0.001 degrees of latitude are 111.2 m at 48 degrees.
    assert "imu_gnss" in page.sections["tracks"] and " 111 m long" in page.sections["tracks"]
    assert "8 % without a position" in page.sections["tracks"]
    assert "from 48.000000°, 11.000000°, 500.0 m" in page.sections["tracks"]
    (way,) = re.findall(r'<path d="([^"]*)" class="s s0"/><circle', page.source)
    assert way.count("M") == 2, "the line is interrupted where there is no position"


def test_events_are_listed_but_for_states_of_clocks(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", 1.0)
    for k in range(1000):
        builder.events.append(make_event("mark", START_NS + k, text=f"mark number {k}."))
    builder.events.append(make_event("clock", START_NS, cause="state"))
    page = Page(write_report(builder.close()))
    text = page.sections["events"]
    assert "mark 1000" in text and "600 events between the first and the last 200" in text
    listed = [k for k in range(1000) if f"mark number {k}." in text]
    assert listed == [*range(200), *range(800, 1000)]
    assert len(page.source) < 300_000


def test_many_losses_are_drawn_as_one_shape(tmp_path: Path) -> None:
    shapes = {}
    for count in (3, 90):
        builder = Builder(tmp_path / f"rig{count}")
        seq = np.array([k for k in range(2000) if k % 20 or k // 20 >= count or not k])
        builder.add(imu_spec(), seq=seq.tolist())
        page = Page(write_report(builder.close()))
        shapes[count] = page.source.count('class="lost"') - 1  # without that of the key
        areas = re.findall(r'<path d="([^"]*)" class="lost"', page.source)
    assert shapes == {3: 2, 90: 1} and areas[0].count("z") == 89


def test_passwords_in_the_config_are_masked(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", 1.0)
    builder.sensors["imu"]["source"] = "rtsp://me:secret@10.0.0.5/a"
    path = builder.close()
    (path / "config.yaml").write_text("version: 1\n# rtsp://me:secret@10.0.0.5/b\n")
    page = Page(write_report(path))
    assert "secret" not in page.source and page.text.count("rtsp://me:***@10.0.0.5/") == 2


def test_archives_with_their_notes(tmp_path: Path) -> None:
    path = full_session(tmp_path / "rig", 0.2).path
    folder = path / "_archives" / "ncore"
    folder.mkdir(parents=True)
    (folder / "rig.json").write_text("{}")
    record = {"notes": ["lidar: is odd"], "summary": {"frames": {"camera": 6}}, "seconds": 1.5,
              "packed_ns": START_NS, "options": {"store": "itar"}}  # fmt: skip
    (path / "_archives" / "ncore.json").write_text(json.dumps(record))
    (path / "_archives" / "gone.json").write_text("{}")
    (path / "_archives" / "vrs").mkdir()
    text = Page(write_report(path)).sections["archives"]
    for words in ("lidar: is odd", "camera 6", "rig.json", "packed 2024-06-01", '"store": "itar"'):
        assert words in text
    assert "is not there any more" in text and "Its notes were not recorded." in text


def test_times_between_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = imu_session(tmp_path / "rig", 3.0).close()
    stamps = np.fromfile(path / "imu" / "t_mono", "<u8")
    stamps[170:] += 3 * S
    stamps.tofile(path / "imu" / "t_mono")
    steps = np.diff(stamps.astype(np.int64))
    for window in (65_536, 64, 1):
        monkeypatch.setattr("recorder.perception.frames.time_windows.__defaults__", (window,))
        with Session(path) as session:
            gaps = find_gaps(session.streams["imu"])
        assert gaps is not None and gaps.period_ns == 1e7
        assert (gaps.least_ns, gaps.longest_ns) == (steps.min(), steps.max())
        assert gaps.longest_at == 170 and gaps.counts.sum() == len(steps)
        assert gaps.counts[-1] == 1 and gaps.longest_since_ns == (
            int(stamps[169]) + START_NS - START_MONO_NS
        )


@given(st.integers(0, 4_000_000))
def test_long_streams_are_read_in_pieces(length: int) -> None:
    ranges = list(ranges_to_read(length))
    assert all(0 <= start < stop <= length for start, stop in ranges)
    assert all(a[1] <= b[0] for a, b in pairwise(ranges))
    total = sum(stop - start for start, stop in ranges)
    assert total == length if length <= _ALL else total <= _ALL


def test_an_envelope_is_least_mean_and_greatest() -> None:
    rng = np.random.default_rng(1)
    t_ns = np.sort(rng.integers(0, 1000, 5000))
    values = rng.normal(size=(5000, 2))
    values[100:110, 0] = np.nan
    values[200, 1] = np.inf
    envelope = Envelope(0, 1000, 2)
    for at in range(0, 5000, 700):
        envelope.add(t_ns[at : at + 700], values[at : at + 700])
    column = np.minimum(t_ns * len(envelope.low) // 1000, len(envelope.low) - 1)
    for k in range(len(envelope.low)):
        mine = np.where(np.isfinite(values[column == k]), values[column == k], np.nan)
        assert np.allclose(envelope.low[k], np.nanmin(mine, axis=0))
        assert np.allclose(envelope.high[k], np.nanmax(mine, axis=0))
        assert np.allclose(envelope.mean[k], np.nanmean(mine, axis=0))


def test_an_envelope_of_nothing() -> None:
    envelope = Envelope(0, 10, 1)
    assert np.isnan(envelope.extent).all() and np.isnan(envelope.mean).all()


@pytest.mark.parametrize("most", [200, 3000, 100_000])
def test_a_picture_fits_its_room(most: int) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (180, 320, 3), np.uint8)
    address, size = data_uri(noise, most)
    assert size <= most and address.startswith("data:image/webp;base64,")
    decoded = cv2.imdecode(np.frombuffer(_bytes(address), np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None and decoded.shape[0] <= 180


def _bytes(address: str) -> bytes:
    import base64

    return base64.b64decode(address.partition(",")[2])


def test_many_noisy_pictures_share_the_room(
    material: ReportContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (60, 100, 3), np.uint8)
    monkeypatch.setattr(module, "ROOM", 100_000)
    material.pictures = 40
    for _ in range(40):
        material.picture(noise)
    assert 50_000 < material.used <= 100_000


def test_colours_rise_in_brightness() -> None:
    weights = np.array([0.114, 0.587, 0.299])
    brightness = TABLE @ weights
    assert (np.diff(brightness) > -0.5).all() and brightness[-1] > 5 * brightness[0]
    shades = apply_colours(np.array([-9.0, 0, 1, 9, np.nan]), 0, 1)
    assert (shades[0] == shades[1]).all() and (shades[2] == shades[3]).all()


def test_kept_events_are_shown_with_what_is_missing(tmp_path: Path) -> None:
    path = imu_session(tmp_path / "s", 1.0).close()
    missing = Shortfall(START_NS, START_NS + S, None, "start")
    event = KeptEvent(
        "e", "<b>", None, START_NS + S, START_NS, START_NS + 3 * S, "short", ("s",), (missing,)
    )
    write_events(PosixDisk(), path, [event])
    shown = Page(write_report(path)).sections["kept"]
    assert "1 s before, 2 s after" in shown and "short" in shown
    assert "all streams, -1.0 s to +0.0 s: the recording began later" in shown
