"""The reader of protobuf against Google's own encoder, and against garbage."""

from __future__ import annotations

from typing import Any

import pytest
from foxglove import messages as foxglove
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.bags.messages import DECODERS, ProtobufReader
from recorder.formats.ros2.messages import CompressedImage, Image

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
DOUBLES = st.floats(width=64)


def message_class(kind: Any) -> Any:
    """Google's class of a message of Foxglove, made from the schema that its SDK embeds."""
    schema = kind.get_schema()
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(schema.data)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))


CompressedImageType = message_class(foxglove.CompressedImage)
RawImageType = message_class(foxglove.RawImage)
CalibrationType = message_class(foxglove.CameraCalibration)
TransformsType = message_class(foxglove.FrameTransforms)


def decode(name: str, data: bytes) -> Any:
    return DECODERS["protobuf", name][1](data)


@given(
    st.integers(-(10**10), 10**10), st.integers(0, 999_999_999), st.text(), st.binary(), st.text()
)
def test_compressed_images(sec: int, nsec: int, frame: str, data: bytes, form: str) -> None:
    image = CompressedImageType(frame_id=frame, data=data, format=form)
    image.timestamp.seconds, image.timestamp.nanos = sec, nsec
    got = decode("foxglove.CompressedImage", image.SerializeToString())
    assert isinstance(got, CompressedImage)
    assert got.header.stamp_ns == sec * 10**9 + nsec and got.header.frame_id == frame
    assert bytes(got.data) == data and got.format == form


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.text())
def test_raw_images(width: int, height: int, step: int, encoding: str) -> None:
    image = RawImageType(width=width, height=height, step=step, encoding=encoding, data=b"xy")
    got = decode("foxglove.RawImage", image.SerializeToString())
    assert isinstance(got, Image)
    assert (got.width, got.height, got.step, got.encoding) == (width, height, step, encoding)
    assert bytes(got.data) == b"xy" and got.header.stamp_ns == 0


@given(st.lists(DOUBLES, max_size=12), st.lists(DOUBLES, min_size=9, max_size=9))
def test_calibrations(d: list[float], k: list[float]) -> None:
    info = CalibrationType(width=3, height=4, distortion_model="plumb_bob", D=d, K=k)
    got = decode("foxglove.CameraCalibration", info.SerializeToString())
    assert (got.width, got.height, got.distortion_model) == (3, 4, "plumb_bob")
    for values, wanted in ((got.d, d), (got.k, k)):
        assert list(map(repr, values)) == list(map(repr, wanted))


@given(st.lists(st.tuples(st.text(), st.text(), DOUBLES, DOUBLES), max_size=4))
def test_transforms(rows: list[tuple[str, str, float, float]]) -> None:
    message = TransformsType()
    for parent, child, x, w in rows:
        each = message.transforms.add(parent_frame_id=parent, child_frame_id=child)
        each.translation.x, each.rotation.w = x, w
    got = decode("foxglove.FrameTransforms", message.SerializeToString())
    assert [(t.header.frame_id, t.child_frame_id) for t in got] == [row[:2] for row in rows]
    for each, (_, _, x, w) in zip(got, rows, strict=True):
        assert repr(each.translation) == repr((x, 0.0, 0.0))
        assert repr(each.rotation) == repr((0.0, 0.0, 0.0, w))


@given(NUMBERS)
def test_negative_numbers(number: int) -> None:
    image = CompressedImageType()
    image.timestamp.seconds = number
    reader = ProtobufReader(image.SerializeToString(), "x").message(1)
    assert reader.integer(1) == number


def test_bits_beyond_64_are_dropped() -> None:
    assert ProtobufReader(b"\x08" + b"\xff" * 9 + b"\x7f", "x").integer(1) == -1


def test_unknown_fields_are_skipped_and_the_last_value_counts() -> None:
    data = CompressedImageType(format="a").SerializeToString()
    unknown = b"\xf8\x07\x05" + b"\xfa\x07\x02zz" + b"\xfd\x07abcd" + b"\xf9\x07abcdefgh"
    reader = ProtobufReader(
        data + unknown + CompressedImageType(format="b").SerializeToString(), "x"
    )
    assert reader.text(3) == "b" and bytes(reader.blob(2)) == b""


def test_lists_of_doubles_may_be_packed_or_not() -> None:
    one = b"\x29" + b"\0\0\0\0\0\0\xf0\x3f"
    both = one + b"\x2a\x08" + b"\0\0\0\0\0\0\0\x40"
    assert ProtobufReader(both, "x").doubles(5) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x08", "ends in the number at byte 1"),
        (b"\x08" + b"\xff" * 10 + b"\0", "has more than 10 bytes"),
        (b"\x12\x05abcd", "byte 2: 5 bytes are needed, 4 are left"),
        (b"\x09abc", "byte 1: 8 bytes are needed, 3 are left"),
        (b"\x0b", "field 1 has the wire type 3"),
    ],
)
def test_what_is_no_message_is_an_error(data: bytes, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        ProtobufReader(data, "x")


def test_a_field_of_another_type_is_an_error() -> None:
    reader = ProtobufReader(b"\x08\x01" + b"\x12\x03abc" + b"\x19abcdefgh", "x")
    for read, text in (
        (lambda: reader.blob(1), "field 1 is varint, not bytes"),
        (lambda: reader.integer(2), "field 2 is bytes, not varint"),
        (lambda: reader.fixed32(3), "field 3 is fixed64, not fixed32"),
        (lambda: reader.doubles(2), "field 2: 3 bytes of doubles"),
        (lambda: reader.messages(1), "field 1 is varint, not a list of messages"),
    ):
        with pytest.raises(FormatError, match=text):
            read()


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=300))
def test_garbage_is_a_message_or_one_error(key: tuple[str, str], data: bytes) -> None:
    try:
        DECODERS[key][1](data)
    except FormatError as error:
        assert "\n" not in str(error)


REAL = [
    ("foxglove.CompressedImage", CompressedImageType(frame_id="a", data=b"x" * 40, format="jpeg")),
    ("foxglove.CameraCalibration", CalibrationType(K=[1.0] * 9, D=[0.5] * 5, width=3)),
]


@given(st.sampled_from(REAL), st.integers(0, 200), st.integers(0, 255), st.booleans())
def test_damaged_messages_are_messages_or_one_error(
    real: tuple[str, Any], at: int, value: int, cut: bool
) -> None:
    data = bytearray(real[1].SerializeToString())
    at %= len(data)
    if cut:
        del data[at:]
    else:
        data[at] = value
    try:
        decode(real[0], bytes(data))
    except FormatError as error:
        assert real[0] in str(error)
