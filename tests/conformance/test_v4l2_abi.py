"""V4L2's structures and calls as the C compiler reads them in the kernel's own header."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from drivers.camera.raw_pictures import RAW_FORMATS
from drivers.camera.v4l2 import abi

pytestmark = pytest.mark.conformance

HEADER = Path("/usr/include/linux/videodev2.h")
STRUCTURES = {
    "v4l2_capability": abi.Capability,
    "v4l2_fmtdesc": abi.FormatDescription,
    "v4l2_frmsizeenum": abi.FrameSize,
    "v4l2_pix_format": abi.PixelFormat,
    "v4l2_plane_pix_format": abi.PlaneFormat,
    "v4l2_pix_format_mplane": abi.PlanesFormat,
    "v4l2_format": abi.Format,
    "v4l2_fract": abi.Fraction,
    "v4l2_captureparm": abi.CaptureParameters,
    "v4l2_streamparm": abi.StreamParameters,
    "v4l2_control": abi.Control,
    "v4l2_queryctrl": abi.QueryControl,
    "v4l2_querymenu": abi.QueryMenu,
    "v4l2_requestbuffers": abi.RequestBuffers,
    "v4l2_timecode": abi.TimeCode,
    "v4l2_plane": abi.Plane,
    "v4l2_buffer": abi.Buffer,
}
# Where ours names a field otherwise than the header, or leaves a union's arms out.
NAMES = {
    ("v4l2_frmsizeenum", "size"): "discrete",
    ("v4l2_querymenu", "item"): "name",
    ("v4l2_timecode", "values"): "frames",
}
CONSTANTS = {
    "V4L2_BUF_TYPE_VIDEO_CAPTURE": abi.CAPTURE,
    "V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE": abi.CAPTURE_PLANES,
    "V4L2_MEMORY_MMAP": abi.MMAP,
    "VIDEO_MAX_PLANES": abi.MOST_PLANES,
    "V4L2_CAP_VIDEO_CAPTURE": abi.CAP_VIDEO_CAPTURE,
    "V4L2_CAP_VIDEO_CAPTURE_MPLANE": abi.CAP_VIDEO_CAPTURE_MPLANE,
    "V4L2_CAP_STREAMING": abi.CAP_STREAMING,
    "V4L2_CAP_DEVICE_CAPS": abi.CAP_DEVICE_CAPS,
    "V4L2_CAP_TIMEPERFRAME": abi.CAP_TIMEPERFRAME,
    "V4L2_BUF_FLAG_ERROR": abi.BUF_ERROR,
    "V4L2_BUF_FLAG_TIMESTAMP_MASK": abi.BUF_STAMP_MASK,
    "V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC": abi.BUF_STAMP_MONOTONIC,
    "V4L2_BUF_FLAG_TSTAMP_SRC_MASK": abi.BUF_SOURCE_MASK,
    "V4L2_BUF_FLAG_TSTAMP_SRC_SOE": abi.BUF_SOURCE_EXPOSURE,
    "V4L2_CTRL_FLAG_DISABLED": abi.CTRL_DISABLED,
    "V4L2_CTRL_FLAG_READ_ONLY": abi.CTRL_READ_ONLY,
    "V4L2_CTRL_FLAG_WRITE_ONLY": abi.CTRL_WRITE_ONLY,
    "V4L2_CTRL_FLAG_NEXT_CTRL": abi.CTRL_NEXT,
    "V4L2_CTRL_TYPE_INTEGER": abi.TYPE_INTEGER,
    "V4L2_CTRL_TYPE_BOOLEAN": abi.TYPE_BOOLEAN,
    "V4L2_CTRL_TYPE_MENU": abi.TYPE_MENU,
    "V4L2_CTRL_TYPE_INTEGER_MENU": abi.TYPE_INTEGER_MENU,
    "V4L2_CID_EXPOSURE_AUTO": abi.EXPOSURE_AUTO,
    "V4L2_EXPOSURE_AUTO": abi.EXPOSURE_AUTOMATIC,
    "V4L2_EXPOSURE_APERTURE_PRIORITY": abi.EXPOSURE_APERTURE_PRIORITY,
    "V4L2_CID_EXPOSURE_ABSOLUTE": abi.EXPOSURE_ABSOLUTE,
    "V4L2_FRMSIZE_TYPE_DISCRETE": abi.FRAME_SIZE_DISCRETE,
    "V4L2_PIX_FMT_MJPEG": abi.fourcc("MJPG"),
    "V4L2_PIX_FMT_JPEG": abi.fourcc("JPEG"),
    "V4L2_PIX_FMT_YUYV": abi.fourcc("YUYV"),
    "V4L2_PIX_FMT_UYVY": abi.fourcc("UYVY"),
    "V4L2_PIX_FMT_NV12": abi.fourcc("NV12"),
    "V4L2_PIX_FMT_YUV420": abi.fourcc("YU12"),
    "V4L2_PIX_FMT_NV12M": abi.fourcc("NM12"),
    "V4L2_PIX_FMT_YUV420M": abi.fourcc("YM12"),
    "V4L2_PIX_FMT_BGR24": abi.fourcc("BGR3"),
    "V4L2_PIX_FMT_RGB24": abi.fourcc("RGB3"),
    "V4L2_PIX_FMT_GREY": abi.fourcc("GREY"),
    **{
        f"V4L2_PIX_FMT_{name}": abi.fourcc(form.code)
        for name, form in RAW_FORMATS.items()
        if name not in ("Y12P", "Y14P")  # newer than the headers of many systems
    },
    "V4L2_PIX_FMT_Y16_BE": abi.fourcc("Y16") | abi.BIG_ENDIAN,
    **{name: request for request, name in abi.REQUEST_NAMES.items()},
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a compiled program says, by expression."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not HEADER.exists():
        pytest.skip(f"no C compiler, or no {HEADER}: V4L2's layouts are not checked")
    expressions = list(CONSTANTS)
    for name, structure in STRUCTURES.items():
        expressions.append(f"sizeof(struct {name})")
        for field in structure._fields_:
            theirs = NAMES.get((name, field[0]), field[0])
            expressions.append(f"__builtin_offsetof(struct {name}, {theirs})")
    lines = "".join(
        f'    printf("%lld\\n", (long long)(unsigned long long)({text}));\n' for text in expressions
    )
    folder = tmp_path_factory.mktemp("abi")
    source = folder / "abi.c"
    source.write_text(
        "#include <stdio.h>\n#include <sys/time.h>\n#include <linux/videodev2.h>\n"
        f"int main(void) {{\n{lines}    return 0;\n}}\n"
    )
    program = folder / "abi"
    subprocess.run([compiler, "-o", str(program), str(source)], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(zip(expressions, map(int, printed.split()), strict=True))


def test_every_structure_is_as_the_compiler_lays_it_out(reported: dict[str, int]) -> None:
    for name, structure in STRUCTURES.items():
        assert reported[f"sizeof(struct {name})"] == ctypes.sizeof(structure), name
        for field in structure._fields_:
            theirs = NAMES.get((name, field[0]), field[0])
            place = reported[f"__builtin_offsetof(struct {name}, {theirs})"]
            assert place == getattr(structure, field[0]).offset, f"{name}.{field[0]}"


def test_every_constant_and_call_is_the_headers(reported: dict[str, int]) -> None:
    assert len(abi.REQUEST_NAMES) == 17
    for name, value in CONSTANTS.items():
        assert reported[name] & 0xFFFFFFFF == value, name


def test_no_structure_is_left_out() -> None:
    used = {
        value
        for value in vars(abi).values()
        if isinstance(value, type)
        and issubclass(value, ctypes.Structure)
        and value.__module__ == abi.__name__
    }
    # An int, and the C library's timeval, which a session could not do without.
    assert used - set(STRUCTURES.values()) == {abi.BufferType, abi.TimeValue}
    assert all(re.fullmatch(r"VIDIOC_[A-Z_]+", name) for name in abi.REQUEST_NAMES.values())
