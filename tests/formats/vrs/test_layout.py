"""Layouts: bytes, declarations, and reading what another version of a layout wrote."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.vrs import (
    Array,
    DataLayout,
    Enum,
    LayoutSpec,
    Optional,
    String,
    StringMap,
    Struct,
    Value,
    Vector,
)
from recorder.formats.vrs.layout import (
    ARRAY,
    ELEMENT_TYPES,
    POD_TYPES,
    STRING_MAP,
    TEXT,
    VALUE,
    VECTOR,
    Bool,
    Piece,
    Point3Df,
    float32,
    float64,
    int16,
    string,
    uint8,
    uint16,
    uint32,
)
from tests.formats.vrs import kit
from tests.formats.vrs.kit import CameraData, Mode, Pose


class Small(DataLayout):
    number = Value(uint16, "number")
    text = String("text")
    flag = Value(Bool, "flag")
    pair = Array(int16, "pair", 2)
    names = Vector(string, "names")
    levels = StringMap(float32, "levels")


def test_bytes_are_those_of_the_format() -> None:
    values = Small(
        number=0x0102, text="hé", flag=True, pair=[-1, 2], names=["a", ""], levels={"b": 1, "a": 2}
    )
    text, names = b"h\xc3\xa9", struct.pack("<II1sI", 2, 1, b"a", 0)
    levels = struct.pack("<I1sfI1sf", 1, b"a", 2.0, 1, b"b", 1.0)
    expected = struct.pack("<H?hh", 0x0102, True, -1, 2)
    expected += struct.pack("<IIIIII", 0, 3, 3, len(names), 3 + len(names), len(levels))
    assert values.encode() == expected + text + names + levels
    assert Small.spec.fixed_size == 7 + 24
    assert Small.spec.size is None


def test_declaration_is_that_of_the_format() -> None:
    assert json.loads(Small.spec.to_json()) == {
        "data_layout": [
            {"name": "number", "type": "DataPieceValue<uint16_t>", "offset": 0},
            {"name": "flag", "type": "DataPieceValue<Bool>", "offset": 2},
            {"name": "pair", "type": "DataPieceArray<int16_t>", "offset": 3, "size": 2},
            {"name": "text", "type": "DataPieceString", "index": 0},
            {"name": "names", "type": "DataPieceVector<string>", "index": 1},
            {"name": "levels", "type": "DataPieceStringMap<float>", "index": 2},
        ]
    }


def test_declaration_with_all_that_can_be_said() -> None:
    class About(DataLayout):
        speed = Value(float64, default=1.5, unit="m/s", properties={"max": 80, "min": 0})
        points = Vector(Point3Df, "points", default=[[1, 2, 3]], required=True)
        words = StringMap(string, "words", default={"b": "x", "a": "y"})

    entries = json.loads(About.spec.to_json())["data_layout"]
    assert entries[0] == {
        "name": "speed",
        "type": "DataPieceValue<double>",
        "offset": 0,
        "tags": {"unit": "m/s"},
        "default": 1.5,
        "properties": {"max": 80.0, "min": 0.0},
    }
    assert entries[1]["default"] == [[1.0, 2.0, 3.0]] and entries[1]["required"] is True
    again = LayoutSpec.from_json(About.spec.to_json())
    assert again == About.spec and again.to_json() == About.spec.to_json()
    assert About().words == {"a": "y", "b": "x"}


def test_order_counts_in_declarations_and_offsets_do_not() -> None:
    entries = json.loads(Small.spec.to_json())["data_layout"]
    mixed = [entries[3], *entries[:3], *entries[4:]]
    for entry in mixed:
        entry["offset"] = 77
    assert LayoutSpec.from_json(json.dumps({"data_layout": mixed})) == Small.spec


def test_defaults_and_zeros() -> None:
    data = CameraData()
    assert data.mode is Mode.AUTO and data.exposure_s == 0.0
    assert data.roi.tolist() == [0, 0, 8, 6]
    assert len(data.poses) == 2 and data.poses[0].rotation.shape == (3, 3)
    data.roi[0] = 5
    data.poses[0].history = [[1, 2, 3]]
    assert CameraData().roi[0] == 0 and len(CameraData().poses[0].history) == 0


def test_structs_are_paths_in_labels() -> None:
    labels = [piece.label for piece in CameraData.spec.pieces]
    assert labels[3:7] == [
        "poses/0/position",
        "poses/0/rotation",
        "poses/1/position",
        "poses/1/rotation",
    ]

    class Rig(DataLayout):
        left = Struct(CameraData)

    assert "left/poses/1/history" in [piece.label for piece in Rig.spec.pieces]
    rig = Rig()
    rig.left.poses[1].history = np.ones((2, 3))
    rig.left.mode = Mode.MANUAL
    back = Rig.decode(rig.encode())
    assert back.left.poses[1].history.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert back.left.mode is Mode.MANUAL and back.missing == frozenset()


def test_optional_pieces() -> None:
    class Gps(DataLayout):
        latitude = Value(float64, "latitude")

    class Data(DataLayout):
        number = Value(uint32, "number")
        gps = Optional(Gps)

    with_gps = Data.having("gps")
    assert [p.label for p in Data.spec.pieces] == ["number"]
    assert [p.label for p in with_gps.spec.pieces] == ["number", "latitude"]
    assert Data().gps is None
    assert Data.having("gps") is with_gps
    data = with_gps(number=3)
    data.gps.latitude = 48.1
    read = Data.map(*values_of(with_gps.spec, data.encode()))
    assert read.number == 3 and read.gps.latitude == 48.1
    assert Data.decode(Data(number=4).encode()).gps is None
    with pytest.raises(FormatError, match="number"):
        Data.having("number")


def values_of(spec: LayoutSpec, data: bytes) -> tuple[LayoutSpec, list[Any]]:
    return spec, spec.decode(data)[0]


class Old(DataLayout):
    first = Value(uint32, "first", default=9)
    gone = Value(uint32, "gone")
    text = String("text")
    mode = Enum(Mode, uint8, "mode")


class New(DataLayout):
    text = String("text")
    added = Vector(float32, "added", default=[1, 2])
    mode = Value(uint16, "mode", default=7)  # another type: another piece
    words = StringMap(string, "text")  # the same label, another kind
    first = Value(uint32, "first", default=9)
    size = Array(uint32, "size", 3, default=[1, 2, 3])


def test_added_removed_and_reordered_pieces() -> None:
    old = Old(first=1, gone=2, text="t", mode=Mode.AUTO)
    new = New.map(*values_of(Old.spec, old.encode()))
    assert (new.first, new.text, new.mode, new.words) == (1, "t", 7, {})
    assert new.added.tolist() == [1, 2] and new.size.tolist() == [1, 2, 3]
    assert new.missing == {"added", "mode", "words", "size"}
    back = Old.map(*values_of(New.spec, New(first=5, text="x").encode()))
    assert (back.first, back.text, back.gone) == (5, "x", 0)
    assert back.missing == {"gone", "mode"}


def test_a_required_piece_that_is_missing() -> None:
    class Wants(DataLayout):
        size = Array(uint32, "size", 4, required=True)

    with pytest.raises(FormatError, match=r"Wants requires DataPieceArray<uint32_t> 'size'"):
        Wants.map(*values_of(New.spec, New().encode()))  # three there, four wanted


def test_an_unknown_member_of_an_enumeration_is_its_number() -> None:
    old = Old(mode=12)
    assert Old.decode(old.encode()).mode == 12


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", -1),
        ("number", 65536),
        ("number", 1.5),
        ("number", "1"),
        ("number", None),
        ("pair", [1, 2, 3]),
        ("pair", 1),
        ("pair", [1, 40000]),
        ("pair", [0.5, 1]),
        ("pair", ["a", "b"]),
        ("text", b"bytes"),
        ("text", None),
        ("names", "name"),
        ("names", [1]),
        ("levels", [1]),
        ("levels", {1: 2}),
        ("levels", {"a": "b"}),
        ("levels", {"a": 1e300}),
    ],
)
def test_values_that_do_not_fit(name: str, value: Any) -> None:
    with pytest.raises(FormatError, match=f"Small: piece '{name}': wants"):
        Small(**{name: value}).encode()


def test_points_of_another_shape() -> None:
    for wrong in ([1, 2], [[1, 2, 3]], 5):
        with pytest.raises(FormatError, match="position"):
            Pose(position_m=wrong).encode()
    with pytest.raises(FormatError, match="history"):
        Pose(history=[1, 2, 3]).encode()


def test_mistakes_in_a_class() -> None:
    with pytest.raises(FormatError, match=r"Twice: two pieces DataPieceValue<uint8_t> 'a'"):

        class Twice(DataLayout):
            a = Value(uint8, "a")
            b = Value(uint8, "a")

    with pytest.raises(FormatError, match="no piece 'tpyo'"):
        Small(tpyo=1)
    with pytest.raises(FormatError, match="uint8_t"):
        Value(uint8, "a", default=300)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("[]", "data_layout"),
        ('{"data_layout": 5}', "data_layout"),
        ('{"data_layout": [5]}', "without a name"),
        ('{"data_layout": [{"name": "a"}]}', "no type"),
        ('{"data_layout": [{"name": "a", "type": "DataPieceValue<int>"}]}', "DataPieceValue<int>"),
        ('{"data_layout": [{"name": "a", "type": "DataPieceValue<string>"}]}', "unknown type"),
        ('{"data_layout": [{"name": "a", "type": "DataPieceString<string>"}]}', "unknown type"),
        ('{"data_layout": [{"name": "a", "type": "uint8_t"}]}', "unknown type"),
        (
            '{"data_layout": [{"name": "a", "type": "DataPieceArray<double>", "size": -1}]}',
            "array of size -1",
        ),
        (
            '{"data_layout": [{"name": "a", "type": "DataPieceArray<double>", "size": 268435456}]}',
            "2147483648 bytes",
        ),
    ],
)
def test_declarations_that_are_none(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        LayoutSpec.from_json(text)


def test_a_default_of_another_type_is_none() -> None:
    entry = {"name": "a", "type": "DataPieceValue<uint8_t>", "default": "x", "properties": [1]}
    spec = LayoutSpec.from_json(json.dumps({"data_layout": [entry]}))
    assert spec.pieces[0].make_default() == 0


def test_layouts_that_end_early() -> None:
    data = Small(text="hello", names=["a"]).encode()
    for end in range(len(data)):
        with pytest.raises(FormatError, match="are there"):
            Small.decode(data[:end])


@given(st.data())
def test_flipped_bytes_give_values_or_one_clear_error(data: st.DataObject) -> None:
    spec = kit.every_piece()
    whole = bytearray(spec.encode(kit.some_values(spec, np.random.default_rng(2))))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    try:
        values, size = spec.decode(bytes(whole))
    except FormatError as error:
        assert "piece" in str(error) or "layout" in str(error)
    else:
        assert size <= len(whole) and len(values) == len(spec.pieces)


def texts() -> st.SearchStrategy[str]:
    return st.text(max_size=12).filter(lambda t: not any("\ud800" <= c <= "\udfff" for c in t))


def pieces() -> st.SearchStrategy[Piece]:
    element = st.sampled_from(POD_TYPES)
    any_element = st.sampled_from(list(ELEMENT_TYPES.values()))
    return st.one_of(
        st.builds(Piece, st.just(VALUE), element, texts()),
        st.builds(Piece, st.just(ARRAY), element, texts(), st.integers(0, 5)),
        st.builds(Piece, st.just(VECTOR), any_element, texts()),
        st.builds(Piece, st.just(STRING_MAP), any_element, texts()),
        st.builds(Piece, st.just(TEXT), st.just(string), texts()),
    )


@given(st.lists(pieces(), max_size=8, unique_by=lambda p: p.key), st.integers(0, 2**32 - 1))
def test_any_layout_and_any_values_come_back(declared: list[Piece], seed: int) -> None:
    spec = LayoutSpec(declared)
    assert LayoutSpec.from_json(spec.to_json()) == spec
    values = kit.some_values(spec, np.random.default_rng(seed))
    data = spec.encode(values)
    read, size = spec.decode(data)
    assert size == len(data)
    assert all(kit.same(a, b) for a, b in zip(values, read, strict=True))


@given(st.lists(pieces(), max_size=6, unique_by=lambda p: p.key), st.randoms())
def test_reordered_pieces_keep_their_values(declared: list[Piece], random: Any) -> None:
    spec = LayoutSpec(declared)
    shuffled = list(spec.pieces)
    random.shuffle(shuffled)
    other = LayoutSpec(shuffled)
    values = kit.some_values(spec, np.random.default_rng(1))
    read, _ = spec.decode(spec.encode(values))
    for piece in other.pieces:
        place = spec.place(piece)
        assert place is not None and kit.same(read[place], values[place])


@given(st.binary(max_size=20))
def test_texts_that_are_no_utf8_come_back(data: bytes) -> None:
    spec = LayoutSpec([Piece(TEXT, string, "text")])
    stored = struct.pack("<II", 0, len(data)) + data
    values, _ = spec.decode(stored)
    assert spec.encode(values) == stored
