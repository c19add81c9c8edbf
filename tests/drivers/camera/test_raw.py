"""Raw pictures of a V4L2 device and of the simulated camera, through the driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.camera.driver import CameraDriver
from drivers.camera.http.emulator import CameraEmulator
from drivers.camera.model_output import pack_pixels
from drivers.camera.pictures import Missing, Shot
from drivers.camera.raw_pictures import RAW_FORMATS
from drivers.camera.v4l2 import abi
from drivers.kit.driver import Sample, State
from recorder.common.errors import ConfigError, SourceError
from recorder.config.options import check_options
from recorder.perception.camera.camera_pictures import picture_maker
from tests.drivers.camera.http_rig import entry
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.camera.rig import driver, take
from tests.drivers.camera.v4l2_kernel import DEVICE, FakeDevice, Frame, camera, record
from tests.support.devices import opened, streaming

WIDTH, HEIGHT = 64, 48
NAMES = ["SRGGB8", "Y10", "SGRBG10P", "SBGGR12", "Y12P", "SGBRG14P", "Y16", "SRGGB16"]


def values_of(name: str, seed: int = 0) -> npt.NDArray[Any]:
    pixels = RAW_FORMATS[name].pixels
    made = np.random.default_rng(seed).integers(0, 1 << pixels.bits, (HEIGHT, WIDTH))
    made[0, :2] = 0, (1 << pixels.bits) - 1
    return made.astype("<" + pixels.dtype)


def device(name: str, *frames: Frame, padding: int = 0) -> FakeDevice:
    made = FakeDevice(*frames)
    made.formats = {RAW_FORMATS[name].code: [(WIDTH, HEIGHT)]}
    made.current, made.stride_padding = (WIDTH, HEIGHT, RAW_FORMATS[name].code), padding
    return made


def data_of(name: str, padding: int = 0) -> bytes:
    form = RAW_FORMATS[name]
    rows = np.frombuffer(pack_pixels(values_of(name), form), np.uint8).reshape(HEIGHT, -1)
    return np.pad(rows, ((0, 0), (0, padding)), constant_values=99).tobytes()


# A device


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("padding", [0, 32])
def test_all_bits_of_a_device_are_recorded(name: str, padding: int) -> None:
    data = data_of(name, padding)
    made = device(name, Frame(data), Frame(data[:-1]), Frame(data), padding=padding)
    shots = [event.picture for event in record(made) if isinstance(event, Shot)]
    whole, short, again = shots
    for picture in (whole, again):
        assert isinstance(picture, np.ndarray)
        assert picture.dtype == np.dtype("<" + RAW_FORMATS[name].pixels.dtype)
        np.testing.assert_array_equal(picture, values_of(name))
    assert isinstance(short, Missing)
    assert short.reason == f"{len(data) - 1} bytes of a picture of {len(data)}"


def test_a_multi_planar_device() -> None:
    name = "SRGGB10P"
    made = device(name, Frame(planes=(data_of(name),), data_offset=128))
    made.capabilities = abi.CAP_VIDEO_CAPTURE_MPLANE | abi.CAP_STREAMING
    made.planes = (RAW_FORMATS[name].row_bytes(WIDTH),)
    (shot,) = record(made)
    assert isinstance(shot, Shot)
    np.testing.assert_array_equal(np.asarray(shot.picture), values_of(name))


def test_the_declaration_names_what_the_values_are(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "SRGGB10P"
    made = device(name, *(Frame(data_of(name)) for _ in range(3)))
    monkeypatch.setattr(abi, "LinuxKernel", lambda: made)
    with streaming(
        driver(DEVICE, "v4l2", pixel_format=name, black_level=64, white_balance=[1.9, 1.5])
    ) as (front, spec):
        (channel,) = spec.channels
        assert (channel.name, channel.format, channel.dtype) == ("image.srggb10", "raw", "u2")
        assert channel.shape == (HEIGHT, WIDTH)
        assert channel.description == "camera image, the sensor's values (SRGGB10)"
        assert spec.bytes_per_sample == HEIGHT * WIDTH * 2
        expected = {
            "pixel_format": name,
            "bits_per_pixel": 10,
            "bayer_pattern": "RGGB",
            "black_level": 64,
            "white_balance": [1.9, 1.5],
        }
        assert expected.items() <= spec.settings.items()
        assert "white_level" not in spec.settings
        assert isinstance(take(front), State)
        sample = take(front)
        assert isinstance(sample, Sample)
        np.testing.assert_array_equal(np.asarray(sample.data["image.srggb10"])[0], values_of(name))


def test_pictures_of_eight_bits_are_preferred() -> None:
    """A camera of such a device is recorded as before; a raw format is named in the config."""
    made = device("Y16", Frame(bytes(WIDTH * HEIGHT)))
    made.formats = {"Y16": [(WIDTH, HEIGHT)], "GREY": [(WIDTH, HEIGHT)]}
    with opened(camera(made)) as front:
        assert (front.settings["pixel_format"], front.raw) == ("GREY", None)
    made.frames.append(Frame(data_of("Y16")))
    with opened(camera(made, pixel_format="Y16")) as again:
        assert again.raw == RAW_FORMATS["Y16"].pixels


def test_formats_that_are_not_supported(device_: FakeDevice) -> None:
    """Big-endian values, compressed (DPCM) and Intel's packing, beside a supported format."""
    device_.formats = {"bBA8": [(64, 48)], "ip3r": [(64, 48)], "RG12": [(64, 48)]}
    expected = "offers bBA8, ip3r, SRGGB12, but not SRGGB10"
    with pytest.raises(SourceError, match=expected):
        camera(device_, pixel_format="SRGGB10").open()
    del device_.formats["RG12"]
    with pytest.raises(SourceError, match=r"offers bBA8, ip3r, but not MJPG .* nor a sup"):
        camera(device_).open()


@pytest.fixture
def device_() -> FakeDevice:
    return FakeDevice()


def test_big_endian_values_are_another_format() -> None:
    code = abi.fourcc("Y16") | abi.BIG_ENDIAN
    assert abi.fourcc_name(code) == "Y16-BE"
    assert abi.fourcc_name(abi.fourcc("Y16")) == "Y16"


def test_a_width_that_is_not_of_whole_groups() -> None:
    made = device("SRGGB10P")
    made.formats = {"pRAA": [(62, HEIGHT)]}
    with pytest.raises(SourceError, match=r"SRGGB10P of 62x48, 77 bytes a row"):
        camera(made).open()
    assert (made.mapped, made.opened) == (0, 0)


# The simulated camera


@pytest.mark.parametrize("name", ["SRGGB10P", "SGBRG12", "Y12P", "SBGGR8", "Y16"])
def test_the_simulated_camera_sees_the_world(name: str) -> None:
    """Shown with 8 bits, the values are the picture that the camera draws as JPEG."""
    options: dict[str, Any] = {"pixel_format": name, "width": 320, "height": 180}
    options |= {"black_level": 16, "white_level": 250, "white_balance": [1.8, 1.4]}
    with streaming(driver("", "sim", **options)) as (front, spec):
        (channel,) = spec.channels
        assert channel.pixels == RAW_FORMATS[name].pixels
        assert spec.settings["pixel_format"] == name
        show = picture_maker(channel.name, channel.meta(), spec.settings)
        for index in range(2):
            sample = take(front)
            assert isinstance(sample, Sample)
            values = np.asarray(sample.data[channel.name])
            assert values.shape == (1, 180, 320)
            assert values.dtype == channel.np_dtype
            assert 16 <= values.min() < values.max() <= 250
            assert read_frame_number(show(values.tobytes())) == index


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pixel_format": "YUYV"}, "pixel_format: a simulated camera offers MJPG, SRGGB16"),
        ({"pixel_format": "Y10P", "width": 642}, "width: Y10P needs a multiple of 4"),
        ({"pixel_format": "Y10", "white_level": 1024}, "black_level 0 and white_level 1024"),
        ({"pixel_format": "Y10", "white_balance": [1.0]}, "white_balance: 1 numbers"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=f"camera: {message}"):
        driver("", "sim", **{"width": 64, "height": 48} | options).open()


def test_an_unknown_format_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"pixel_format: .*SRGGB10P"):
        check_options(CameraDriver.options, {"pixel_format": "RG10"})


def test_an_emulated_camera_sends_jpegs() -> None:
    with pytest.raises(SourceError, match="pixel_format: an emulated camera sends JPEGs"):
        CameraEmulator(entry(pixel_format="Y10"))
