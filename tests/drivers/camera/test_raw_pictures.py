"""Raw formats: golden bytes by the tables of the kernel's documentation, and any values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.model_output import pack_pixels
from drivers.camera.raw_pictures import RAW_FORMATS, unpack_pixels

# Two rows of four values each, and their bytes in the order of the kernel's tables: pixfmt-srggb10p
# (fifth byte: bits 7-6 are the fourth value's, 1-0 the first's), -12p (third byte: bits 7-4 the
# second value's), -14p (fifth byte: bits 7-6 the second value's bits 1-0, bits 5-0 the first's; and
# so on), pixfmt-yuv-luma and pixfmt-srggb10 (the low byte first).
GOLDEN = {
    "SRGGB8": ([[0x12, 0xFF, 0x00, 0x81]] * 2, "12 ff 00 81" * 2),
    "SRGGB10": (
        [[0x000, 0x3FF, 0x155, 0x201], [0x001, 0x002, 0x003, 0x100]],
        "00 00  ff 03  55 01  01 02   01 00  02 00  03 00  00 01",
    ),
    "Y16": (
        [[0x0001, 0xFFFE, 0x1234, 0x8000], [0, 1, 2, 3]],
        "01 00  fe ff  34 12  00 80   00 00  01 00  02 00  03 00",
    ),
    # 0b0000000001, 0b1111111110, 0b0101010111, 0b1000000000; low bits 01, 10, 11, 00.
    "SGRBG10P": (
        [[0x001, 0x3FE, 0x157, 0x200], [0x3FF, 0, 0, 0x003]],
        "00 ff 55 80 39   ff 00 00 00 c3",
    ),
    "Y10P": ([[0x004, 0x001, 0x002, 0x003], [0, 0, 0, 0x3FF]], "01 00 00 00 e4   00 00 00 ff c0"),
    "SBGGR12P": (
        [[0xABC, 0x123, 0x00F, 0xF00], [0, 0xFFF, 0x001, 0x010]],
        "ab 12 3c  00 f0 0f   00 ff f0  00 01 01",
    ),
    # Low six bits: 000001, 111110, 010101, 100011.
    "SRGGB14P": (
        [[0x0041, 0x3FFE, 0x0015, 0x2023], [0x3FFF, 0, 0, 0]],
        "01 ff 00 80  81 5f 8d   ff 00 00 00  3f 00 00",
    ),
    "Y14P": ([[0, 0x3F, 0, 0], [0, 0, 0x3F, 0]], "00 00 00 00 c0 0f 00   00 00 00 00 00 f0 03"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name: str) -> None:
    form = RAW_FORMATS[name]
    values, text = GOLDEN[name]
    data = bytes.fromhex(text)
    rows = np.frombuffer(data, np.uint8).reshape(2, form.row_bytes(4))
    got = unpack_pixels(rows, form)
    assert got.dtype == np.dtype("<" + form.pixels.dtype)
    assert got.tolist() == values
    assert pack_pixels(np.array(values), form) == data


@given(st.data())
def test_any_values_come_back(data: st.DataObject) -> None:
    form = RAW_FORMATS[data.draw(st.sampled_from(sorted(RAW_FORMATS)))]
    height = data.draw(st.integers(1, 4))
    width = data.draw(st.integers(1, 5)) * form.group
    most = (1 << form.pixels.bits) - 1
    flat = data.draw(
        st.lists(st.integers(0, most), min_size=height * width, max_size=height * width)
    )
    values = np.array(flat, form.pixels.dtype).reshape(height, width)
    rows = np.frombuffer(pack_pixels(values, form), np.uint8).reshape(height, form.row_bytes(width))
    np.testing.assert_array_equal(unpack_pixels(rows, form), values)


@given(st.data())
def test_any_bytes_are_values_of_the_bits(data: st.DataObject) -> None:
    """Every byte of a packed row belongs to a value: packing again gives the same bytes."""
    packing = sorted(name for name, form in RAW_FORMATS.items() if form.packed)
    form = RAW_FORMATS[data.draw(st.sampled_from(packing))]
    size = form.row_bytes(2 * form.group)
    rows = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    values = unpack_pixels(rows[None], form)
    assert values.max() < 1 << form.pixels.bits
    assert pack_pixels(values, form) == rows.tobytes()


@pytest.mark.parametrize("name", ["Y10P", "Y12P", "Y14P"])
def test_large_pictures(name: str) -> None:
    """Of several blocks, the last one short."""
    form = RAW_FORMATS[name]
    values = np.random.default_rng(5).integers(0, 1 << form.pixels.bits, (700, 1000), "u2")
    rows = np.frombuffer(pack_pixels(values, form), np.uint8).reshape(700, -1)
    np.testing.assert_array_equal(unpack_pixels(rows, form), values)


def test_names_are_the_kernels() -> None:
    assert {"Y10", "Y12P", "Y16", "SRGGB8", "SGRBG10P", "SGBRG12", "SBGGR16"} <= RAW_FORMATS.keys()
    assert len(RAW_FORMATS) == 39
    assert len({form.code for form in RAW_FORMATS.values()}) == 39
    assert [form.code for form in RAW_FORMATS.values() if form.pixels.name == "SRGGB10"] == [
        "RG10",
        "pRAA",
    ]
