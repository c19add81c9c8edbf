"""The files of samples: point clouds, cubes as pictures, EXIF, projections."""

from __future__ import annotations

import struct
import zlib
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.archives.edgefirst.cameras import depth_picture, quantize_distances
from recorder.archives.edgefirst.sensors import LIDAR, encode_pcd, quantize
from recorder.common.errors import ArchiveError, ConfigError, FormatError
from recorder.formats import exif as exif_
from recorder.formats import png
from recorder.formats.exif import Exif, encode_exif
from recorder.formats.png import cube_of_picture, cube_picture, encode_png, store_png
from recorder.perception.calibration import Calibration, SensorCalibration, read_calibration
from recorder.perception.geometry import rotation_of_rpy, transform
from recorder.perception.projection import Projection
from recorder.perception.radar.radar import RadarGeometry, RadarProcessor
from tests.archives.edgefirst.rig import Array, decode, exif_of
from tests.examples import examples

T_NS = 1_717_236_000_123_456_789


def test_pcd_holds_points_and_viewpoint() -> None:
    points = np.zeros(3, LIDAR)
    points["x"], points["intensity"] = [1, 2, 3], [0, 128, 255]
    pose = transform(rotation_of_rpy([0, 0, np.pi / 2]), [1.5, 0, 2])
    header, data = bytes(encode_pcd(points, pose)).split(b"DATA binary\n")
    lines = dict(line.split(" ", 1) for line in header.decode().splitlines())
    assert (lines["FIELDS"], lines["SIZE"], lines["TYPE"]) == (
        "x y z intensity",
        "4 4 4 4",
        "F F F F",
    )
    assert (lines["WIDTH"], lines["HEIGHT"], lines["POINTS"]) == ("3", "1", "3")
    expected = [1.5, 0, 2, np.sqrt(0.5), 0, 0, np.sqrt(0.5)]
    assert np.allclose([float(v) for v in lines["VIEWPOINT"].split()], expected)
    assert np.array_equal(np.frombuffer(data, LIDAR), points)


def test_pcd_refuses_what_it_has_no_type_for() -> None:
    with pytest.raises(FormatError, match="field t has type datetime64"):
        encode_pcd(np.zeros(1, [("t", "<M8[ns]")]))


@pytest.mark.parametrize("shape", [(2, 4, 20, 16), (3, 4, 8, 5), (1, 1, 1, 1), (4, 2, 7, 8)])
def test_a_cube_comes_back_from_its_picture(shape: tuple[int, ...]) -> None:
    cube = np.random.default_rng(1).integers(-32768, 32768, (*shape, 2)).astype(np.int16)
    for level in (0, 6):
        picture: Array = decode(encode_png(cube_picture(cube), level=level))
        sequences, receivers, ranges, doppler = shape
        assert picture.shape == (sequences * ranges, receivers * doppler * 2)
        assert np.array_equal(cube_of_picture(picture, sequences, receivers), cube)


def test_a_cubes_picture_has_the_formats_grid() -> None:
    """DATASET_FORMAT.md: columns are receivers, rows sequences; 2048x400 for 2, 4, 200, 256."""
    cube = np.zeros((2, 4, 200, 256, 2), np.int16)
    cube[1, 3, 7, 5] = (-3, 9)
    picture = cube_picture(cube)
    assert picture.shape[::-1] == (2048, 400)
    column = 3 * 512 + 2 * 5
    assert picture[207, column : column + 2].tolist() == [32765, 32777]
    assert np.count_nonzero(picture != 32768) == 2
    with pytest.raises(ArchiveError, match="is not a grid of 3x2 cells"):
        cube_of_picture(picture, 2, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_grey_pictures(dtype: type) -> None:
    random = np.random.default_rng(2)
    picture: Array = random.integers(0, np.iinfo(dtype).max, (5, 13)).astype(dtype)
    read = decode(encode_png(picture))
    assert np.array_equal(read, picture)
    mask = decode(encode_png(picture, bits=1))
    assert np.array_equal(mask != 0, picture != 0)


PICTURES = st.tuples(
    st.integers(1, 300), st.integers(1, 40) | st.integers(30_000, 34_000), st.booleans()
)


@given(shape=PICTURES, seed=st.integers(0, 99))
def test_stored_pictures(shape: tuple[int, int, bool], seed: int) -> None:
    """Of several blocks, of one, and of lines that no block has room for."""
    height, width, wide = shape
    if width > 1000:
        height = 1 + height % 4
    dtype = np.uint16 if wide else np.uint8
    random = np.random.default_rng(seed)
    picture: Array = random.integers(0, np.iinfo(dtype).max, (height, width)).astype(dtype)
    payload = store_png(picture, text={"shape": f"{height} {width}"})
    assert payload.crc in (None, zlib.crc32(payload.data))
    chunks = chunks_of(bytes(payload.data))
    assert [kind for kind, _ in chunks] == [b"IHDR", b"tEXt", b"IDAT", b"IEND"]
    assert chunks[1][1] == f"shape\0{height} {width}".encode()
    lines = picture.astype(picture.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    inflater = zlib.decompressobj()
    found = inflater.decompress(chunks[2][1]) + inflater.flush()
    assert found == b"".join(b"\0" + line.tobytes() for line in lines)
    assert inflater.eof and not inflater.unused_data
    assert np.array_equal(decode(bytes(payload.data)), picture)


def chunks_of(png_: bytes) -> list[tuple[bytes, bytes]]:
    """Kinds and contents, whose checksums are right."""
    at, found = 8, []
    while at < len(png_):
        size = int.from_bytes(png_[at : at + 4], "big")
        whole = png_[at + 4 : at + 8 + size]
        assert zlib.crc32(whole) == int.from_bytes(png_[at + 8 + size : at + 12 + size], "big")
        found.append((whole[:4], whole[4:]))
        at += 12 + size
    return found


def jpeg(*segments: bytes) -> bytes:
    done, data = cv2.imencode(".jpeg", np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
    assert done
    whole = data.tobytes()
    return whole[:2] + b"".join(segments) + whole[2:]


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content


def test_exif_leaves_the_coded_picture_as_it_is() -> None:
    plain = jpeg()
    tags = encode_exif(Exif(T_NS, description="rig_000"))
    tags_read = bytes(exif_.insert_exif(plain, tags))
    jfif = 2 + 2 + int.from_bytes(plain[4:6], "big")
    assert tags_read.startswith(plain[:jfif])
    assert tags_read.endswith(plain[jfif:])
    assert len(tags_read) == len(plain) + 4 + 6 + len(tags)


def test_exif_takes_the_place_of_older_exif() -> None:
    old = segment(0xE1, b"Exif\0\0" + b"old tags")
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>")
    tags_read = bytes(exif_.insert_exif(jpeg(old, xmp), encode_exif(Exif(T_NS))))
    assert tags_read.count(b"Exif\0\0") == 1
    assert b"old tags" not in tags_read
    assert xmp in tags_read
    assert np.array_equal(
        decode(tags_read),
        decode(jpeg()),
    )


def test_exif_behind_other_segments_is_replaced_too() -> None:
    """As of cameras that put their colour profile or a comment before it."""
    plain, tags = jpeg(), encode_exif(Exif(T_NS))
    jfif = 2 + 2 + int.from_bytes(plain[4:6], "big")
    before = segment(0xE2, b"ICC_PROFILE\0...") + segment(0xFE, b"a comment")
    old, behind = segment(0xE1, b"Exif\0\0" + b"old tags"), segment(0xED, b"IPTC")
    tags_read = bytes(exif_.insert_exif(plain[:jfif] + before + old + behind + plain[jfif:], tags))
    assert (
        tags_read
        == plain[:jfif] + segment(0xE1, b"Exif\0\0" + tags) + before + behind + plain[jfif:]
    )


def test_a_fraction_of_a_second_has_all_its_digits() -> None:
    tags_read = exif_of(
        bytes(exif_.insert_exif(jpeg(), encode_exif(Exif(T_NS // 10**9 * 10**9 + 5))))
    )
    assert tags_read["exif"][0x9291] == "000000005"
    assert tags_read["0"][0x0132] == "2024:06:01 10:00:00"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not a JPEG"),
        (b"\x89PNG", "is not a JPEG"),
        (b"\xff\xd8\xff\xe0\x00\x10JF", "broken"),
    ],
)
def test_exif_into_what_is_no_jpeg(data: bytes, words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        exif_.insert_exif(data, encode_exif(Exif(T_NS)))


NUMBERS = st.floats(0, 4000) | st.floats(0, 1e-4) | st.integers(0, 4 * 10**7).map(lambda n: n / 1e4)


@given(value=NUMBERS)
@examples(1.5)
def test_fractions_are_the_nearest(value: float) -> None:
    share = Fraction(value).limit_denominator(1_000_000)
    assert fraction_of(value) == (share.numerator, share.denominator)


@given(value=st.floats(4000, 0xFFFFFFFF))
def test_fractions_of_large_numbers_fit(value: float) -> None:
    above, below = fraction_of(value)
    assert above / below == pytest.approx(value, rel=1e-9)


def test_what_no_fraction_reaches_is_bounded() -> None:
    assert fraction_of(1e12) == (0xFFFFFFFF, 1)
    assert fraction_of(float(1 << 32)) == (0xFFFFFFFF, 1)


def fraction_of(value: float) -> tuple[int, ...]:
    tag, kind, count, data = exif_._rationals(7, [value])
    assert (tag, kind, count) == (7, 5, 1)
    return struct.unpack("<II", data)


def test_what_a_cameras_pictures_share_is_not_mixed_up() -> None:
    abouts = [
        Exif(T_NS + number, 52.0 + number, 13.0, description=f"rig_{number}", serial=serial)
        for number in range(2)
        for serial in ("7", "8")
    ]
    alone = []
    for about in abouts:
        exif_._device.cache_clear()
        exif_._camera.cache_clear()
        alone.append(encode_exif(about))
    assert [encode_exif(about) for about in abouts] == alone
    assert len(set(alone)) == len(abouts)


@pytest.mark.parametrize(
    ("focal_px", "shown"),
    [
        (64.0, 36),
        (1e-9, 1),
        (64.0 / 36 * 65_535, 65_535),
        (64.0 / 36 * 65_536, 65_535),
        (1e12, 65_535),
    ],
)
def test_a_focal_length_of_any_lens_fits_its_tag(focal_px: float, shown: int) -> None:
    """FocalLengthIn35mmFilm (0xA405) has 16 bits."""
    picture = bytes(
        exif_.insert_exif(jpeg(), encode_exif(Exif(T_NS, size=(64, 48), focal_px=focal_px)))
    )
    assert exif_of(picture)["exif"][0xA405] == shown


def test_exif_that_does_not_fit() -> None:
    with pytest.raises(ArchiveError, match="does not fit"):
        encode_exif(Exif(T_NS, comment="x" * 40_000))


def test_exif_in_a_png() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(3, 4)
    tags_read = png.insert_exif(encode_png(picture), encode_exif(Exif(T_NS)))
    assert np.array_equal(decode(tags_read), picture)
    at = tags_read.index(b"eXIf")
    size = int.from_bytes(tags_read[at - 4 : at], "big")
    assert zlib.crc32(tags_read[at : at + 4 + size]) == int.from_bytes(
        tags_read[at + 4 + size : at + 8 + size], "big"
    )
    with pytest.raises(ArchiveError, match="is not a PNG"):
        png.insert_exif(jpeg(), b"")


def geometry(order: str | None, shape: tuple[int, int, int, int] = (16, 3, 4, 32)) -> RadarGeometry:
    tx = shape[1]
    return RadarGeometry(
        shape, order, 0.1, 0.2, 0.004, 1e-4, 1e-2, 0.0, None, None, np.zeros(tx), {}
    )


@pytest.mark.parametrize("order", ["qqii", "iiqq", None])
@pytest.mark.parametrize("chirps", [16, 15])
def test_cubes_are_the_spectra(order: str | None, chirps: int) -> None:
    what = geometry(order, (chirps, 3, 4, 32))
    values = 32 if order is None else 64
    iq = np.random.default_rng(3).integers(-900, 900, (chirps, 3, 4, values)).astype(np.int16)
    processor = RadarProcessor(what)
    cube, cut = quantize(processor.spectra(iq), 8.0)
    assert (cut, cube.shape) == (0, (3, 4, what.ranges, chirps, 2))
    turned = np.fft.fftshift(processor.cube(iq), axes=0).transpose(1, 2, 3, 0) * 8
    assert np.abs(cube[..., 0] - turned.real).max() <= 0.51
    assert np.abs(cube[..., 1] - turned.imag).max() <= 0.51


def test_values_beyond_int16_are_cut_and_counted() -> None:
    spectrum = np.zeros((1, 1, 4, 2), np.complex64)
    spectrum[0, 0, 0, 1] = 3000 - 20_000j
    cube, cut = quantize(spectrum, 16.0)
    assert cut == 2
    assert cube[0, 0, 1, 2].tolist() == [32767, -32767]


def calibrated(model: str, **parameters: object) -> Projection:
    sensor = SensorCalibration(None, model, parameters, (640, 480))
    return Projection(Calibration(sensors={"camera": sensor}), "camera")


LENS = {"fx": 500.0, "fy": 510.0, "cx": 322.0, "cy": 236.0}
POINTS = np.array([[0.3, -0.2, 2.0], [-1.0, 0.6, 3.0], [0.0, 0.0, 5.0], [0.4, 0.5, 1.5]])


def test_pinhole_is_opencvs() -> None:
    bent = {"k1": -0.12, "k2": 0.03, "p1": 6e-4, "p2": -4e-4, "k3": 0.01, "k4": 0.02, "s1": 1e-3}
    places, seen = calibrated("opencv-pinhole", **LENS, **bent).pixels(POINTS)
    matrix = np.array([[500, 0, 322], [0, 510, 236], [0, 0, 1]], float)
    terms = np.array([-0.12, 0.03, 6e-4, -4e-4, 0.01, 0.02, 0, 0, 1e-3, 0, 0, 0])
    expected, _ = cv2.projectPoints(POINTS, np.zeros(3), np.zeros(3), matrix, terms)
    assert np.allclose(places, expected[:, 0], atol=1e-6)
    assert seen.all()


def test_fisheye_is_opencvs() -> None:
    bent = {"k1": -0.02, "k2": 0.003, "k3": -1e-3, "k4": 2e-4}
    places, _ = calibrated("opencv-fisheye", **LENS, **bent).pixels(POINTS)
    matrix = np.array([[500, 0, 322], [0, 510, 236], [0, 0, 1]], float)
    terms = np.array([-0.02, 0.003, -1e-3, 2e-4])
    expected, _ = cv2.fisheye.projectPoints(POINTS[None], np.zeros(3), np.zeros(3), matrix, terms)
    assert np.allclose(places, expected[0], atol=1e-6)


@pytest.mark.parametrize(
    "terms", [{"angle_to_pixel": [0, 400.0]}, {"pixel_to_angle": [0, 1 / 400.0]}]
)
def test_ftheta_maps_angles(terms: dict[str, list[float]]) -> None:
    lens = calibrated("ftheta", cx=320.0, cy=240.0, max_angle=1.2, **terms)
    angle = 0.4
    point = np.array([[np.sin(angle), 0, np.cos(angle)], [0, np.sin(1.3), np.cos(1.3)]])
    places, seen = lens.pixels(point)
    assert np.allclose(places[0], [320 + 400 * angle, 240], atol=1e-3)
    assert seen.tolist() == [True, False]
    assert lens.focal_px == pytest.approx(400)


def test_points_outside_are_not_seen() -> None:
    lens = calibrated("opencv-pinhole", **LENS, k1=-0.3)
    points = np.array([[0, 0, -2.0], [9.0, 0, 1.0], [0, 0, 0.01], [0, -3, 1.0], [0, 0, 4.0]])
    assert lens.pixels(points)[1].tolist() == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("model", "parameters", "key"),
    [
        ("opencv-pinhole", "{fx: 1, fy: 1, cx: 1}", "cy"),
        ("opencv-pinhole", "{fx: x, fy: 1, cx: 1, cy: 1}", "fx"),
        ("opencv-pinhole", "{fx: 1, fy: 0, cx: 1, cy: 1}", "fy: needs a number above 0"),
        ("opencv-fisheye", "{fx: 1, fy: 1, cx: .nan, cy: 1}", "cx: needs a number"),
        ("ftheta", "{cx: 1, cy: 1, pixel_to_angle: [0, 0]}", "pixel_to_angle: does not rise"),
        ("ftheta", "{cx: 1, cy: 1, angle_to_pixel: 3}", "angle_to_pixel: needs numbers, not 3"),
        ("ftheta", "{cx: 1, cy: 1}", "needs angle_to_pixel or pixel_to_angle"),
    ],
)
def test_wrong_parameters_are_named(tmp_path: Path, model: str, parameters: str, key: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"sensors:\n  cam: {{model: {model}, resolution: [4, 4], parameters: {parameters}}}\n"
    )
    with pytest.raises(ConfigError, match=rf"c.yaml:2: sensors.cam.parameters.*{key}"):
        Projection(read_calibration(path), "cam")


def test_the_nearest_point_of_a_pixel_counts() -> None:
    places = np.array([[1.2, 0.4], [0.9, -0.4], [3.0, 1.0]])
    picture = depth_picture(places, np.array([7.5, 5.0, 300.0]), (4, 2))
    assert picture.tolist() == [[0, 1280, 0, 0], [0, 0, 0, 65535]]
    assert quantize_distances(np.array([0.0, 1.0])).tolist() == [0, 256]
