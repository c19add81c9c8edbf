"""Signals by DBC: the bits of a batch are what cantools decodes of each frame."""

from __future__ import annotations

import builtins
import json
import math
from pathlib import Path
from typing import Any

import cantools
import numpy as np
import pytest
from cantools.database.can.signal import Signal
from cantools.database.conversion import BaseConversion
from hypothesis import given
from hypothesis import strategies as st

from drivers.can.frames import ERROR, EXTENDED, REMOTE, Frame, collect_frames
from drivers.can.signals import MessageDecoder, Place, SignalTable, format_signals
from drivers.can.simulated import DATABASE
from recorder.common.errors import FormatError, SourceError

HEAD = 'VERSION ""\n\nNS_ :\n\nBS_:\n\nBU_: A\n\n'


def table(tmp_path: Path, text: str, *chosen: str, name: str = "a.dbc") -> SignalTable:
    path = tmp_path / name
    path.write_text(HEAD + text, "cp1252")
    return SignalTable(path, chosen or ["*"])


def decode(message: MessageDecoder, *data: bytes, width: int = 8) -> dict[str, list[float]]:
    frames = collect_frames([Frame(k, message.frame_id, d) for k, d in enumerate(data)], width)
    _, columns, _ = message.decode(frames)
    return {name: values.tolist() for name, values in columns.items()}


@st.composite
def signals(draw: st.DrawFn) -> Signal:
    """Signals of every place, order, sign, length and scale in 64 bytes."""
    is_float = draw(st.booleans())
    bits = draw(st.sampled_from((16, 32, 64)) if is_float else st.integers(1, 64))
    little = draw(st.booleans())
    first = draw(st.integers(0, 512 - bits))
    scale = draw(st.sampled_from((1, 2, -3, 0.1, 0.0001, 1e6)))
    offset = draw(st.sampled_from((0, 5, -40, 0.25)))
    return Signal(
        "S",
        first if little else 8 * (first // 8) + 7 - first % 8,
        bits,
        "little_endian" if little else "big_endian",
        is_signed=draw(st.booleans()),
        conversion=BaseConversion.factory(scale, offset, is_float=is_float),
    )


@given(signals(), st.lists(st.binary(min_size=64, max_size=64), min_size=1, max_size=4))
def test_every_place_is_as_cantools_reads_it(signal: Signal, rows: list[bytes]) -> None:
    message = cantools.database.can.Message(1, "M", 64, [signal], is_fd=True)
    place = Place.of(signal)
    data = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 64)
    ours = place.values(place.raw(data)).tolist()
    theirs = [float(message.decode(row, decode_choices=False)["S"]) for row in rows]
    if signal.conversion.is_float:
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other or (math.isnan(mine) and math.isnan(other))
    else:  # Python's integers have more than the 53 bits of a float
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == pytest.approx(other, rel=1e-15, abs=1e-15)


@pytest.mark.parametrize("data", ["0000a07f", "010080ff", "ffff7f7f"])
def test_floats_that_are_no_values_warn_of_nothing(data: str) -> None:
    """Signaling NaNs, and the largest float, whose physical value is infinite as a f8 of f8."""
    signal = Signal("S", 0, 32, conversion=BaseConversion.factory(1e300, is_float=True))
    place = Place.of(signal)
    (value,) = place.values(place.raw(np.frombuffer(bytes.fromhex(data), np.uint8)[None]))
    assert not math.isfinite(value)


@given(st.lists(st.binary(max_size=24), min_size=1, max_size=20), st.booleans())
def test_whole_messages_are_as_cantools_reads_them(rows: list[bytes], wide: bool) -> None:
    """Also truncated ones, and multiplexed ones."""
    database = cantools.database.load_file(DATABASE)
    for decoder in SignalTable(DATABASE, ["*"]).messages:
        width = 64 if wide else 8
        data = [row[:width] for row in rows]
        frames = collect_frames([Frame(k, 0, row) for k, row in enumerate(data)], width)
        some, columns, short = decoder.decode(frames)
        message = database.get_message_by_name(decoder.name)
        expected: list[dict[str, float]] = []
        truncated = 0
        for row in data:
            try:
                found = message.decode(row, decode_choices=False, allow_truncated=True)
            except cantools.database.DecodeError:  # a page that is not defined
                found = {"Page": row[0]}
            except KeyError:  # the multiplexer itself is not in the frame
                found = {}
            assert isinstance(found, dict)
            expected.append({name: float(value) for name, value in found.items()})
            whole = (
                message.decode(row.ljust(24, b"\0"), decode_choices=False)
                if not (decoder.name == "Service" and row and row[0] > 1)
                else {"Page": 0}
            )
            truncated += len(found) < len(whole)
        assert some.tolist() == [bool(found) for found in expected]
        assert short == truncated
        kept = [found for found in expected if found]
        for signal in decoder.signals:
            got = columns[signal.channel].tolist()
            want = [found.get(str(signal.about["signal"]), math.nan) for found in kept]
            assert np.array_equal(got, want, equal_nan=True)


def test_names_of_channels_and_streams(tmp_path: Path) -> None:
    text = "BO_ 1 EngineRPM: 8 A\n"
    names = ("Speed", "speed", "SPEED", "VehSpd2", "ABSActive", "T", "seq", "ts", "x__Y_", "_9a")
    text += "".join(f' SG_ {n} : {k}|1@1+ (1,0) [0|0] "" A\n' for k, n in enumerate(names))
    (message,) = table(tmp_path, text).messages
    assert message.suffix == "engine_rpm"
    channels = {str(s.about["signal"]): s.channel for s in message.signals}
    assert channels == {
        "Speed": "speed", "speed": "speed_2", "SPEED": "speed_3", "VehSpd2": "veh_spd2",
        "ABSActive": "abs_active", "T": "t", "seq": "seq_2", "ts": "ts_2", "x__Y_": "x_y",
        "_9a": "s_9a",
    }  # fmt: skip
    (message,) = table(tmp_path, text, "SPEED").messages
    assert [s.channel for s in message.signals] == ["speed_3"], "whatever else is chosen"


def test_names_that_are_too_long_are_cut(tmp_path: Path) -> None:
    signals = "".join(f' SG_ {"a" * 70}{k} : {k}|1@1+ (1,0) [0|0] "" A\n' for k in range(3))
    (message,) = table(tmp_path, f"BO_ 1 M: 8 A\n{signals}").messages
    names = [s.channel for s in message.signals]
    assert names == ["a" * 60, "a" * 58 + "_2", "a" * 58 + "_3"]


TWO = """BO_ 1 One: 8 A
 SG_ Speed : 0|8@1+ (1,0) [0|0] "km/h" A
 SG_ Only : 8|8@1+ (1,0) [0|0] "°" A

BO_ 2147483649 Two: 8 A
 SG_ Speed : 0|8@1+ (2,0) [0|0] "km/h" A
"""


def test_signals_are_chosen(tmp_path: Path) -> None:
    def chosen(*names: str) -> list[str]:
        found = table(tmp_path, TWO, *names)
        return [f"{m.name}.{s.channel}" for m in found.messages for s in m.signals]

    assert chosen("*") == ["One.speed", "One.only", "Two.speed"]
    assert chosen("Two.*", "Only") == ["One.only", "Two.speed"]
    assert chosen("One.Speed", "One.Speed") == ["One.speed"]
    with pytest.raises(FormatError, match=r"'Speed': 2 signals have the name; choose from One\.Sp"):
        chosen("Speed")
    (signal,) = table(tmp_path, TWO, "Only").messages[0].signals
    assert signal.about["unit"] == "°", "DBC is cp1252"


def test_an_identifier_of_29_bits_is_another_one(tmp_path: Path) -> None:
    found = table(tmp_path, TWO)
    rows = [
        Frame(0, 1, b"\5"), Frame(1, 1 | EXTENDED, b"\6"), Frame(2, 2, b"\7"),
        Frame(3, 1 | REMOTE, b"", 0, 8), Frame(4, 1 | ERROR, bytes(8)), Frame(5, 1, b"\x08"),
        Frame(6, 0x1FFFFFFF | EXTENDED, b""),
    ]  # fmt: skip
    split = found.split(collect_frames(rows, 8))
    got = {m.name: (part.t_ns.tolist(), part.data[:, 0].tolist()) for m, part in split}
    assert got == {"One": ([0, 5], [5, 8]), "Two": ([1], [6])}
    assert found.split(collect_frames([], 8)) == []


def test_messages_with_one_identifier_are_refused(tmp_path: Path) -> None:
    text = TWO.replace("2147483649", "1")
    with pytest.raises(FormatError, match="the messages 'One' and 'Two' have one identifier 0x1;"):
        table(tmp_path, text)
    (message,) = table(tmp_path, text, "Two.*").messages
    assert decode(message, b"\5") == {"speed": [10.0]}


def test_a_name_that_is_twice_in_a_message(tmp_path: Path) -> None:
    text = """BO_ 1 M: 8 A
 SG_ S : 0|8@1+ (1,0) [0|0] "" A
 SG_ S : 8|8@1+ (1,0) [0|0] "" A
"""
    (message,) = table(tmp_path, text, "M.S").messages
    assert decode(message, b"\1\2") == {"s": [1.0], "s_2": [2.0]}
    with pytest.raises(FormatError, match="'S': 2 signals have the name"):
        table(tmp_path, text, "S")


def test_multiplexers_of_multiplexers(tmp_path: Path) -> None:
    """Extended multiplexing, SG_MUL_VAL_; the oracle is cantools."""
    text = """BO_ 1 M: 8 A
 SG_ Outer M : 0|8@1+ (1,0) [0|0] "" A
 SG_ Inner m1M : 8|8@1+ (1,0) [0|0] "" A
 SG_ Deep m3 : 16|8@1+ (1,0) [0|0] "" A
 SG_ Flat m2 : 8|8@1+ (1,0) [0|0] "" A

SG_MUL_VAL_ 1 Inner Outer 1-1;
SG_MUL_VAL_ 1 Deep Inner 3-5;
SG_MUL_VAL_ 1 Flat Outer 2-2, 7-8;
"""
    found = table(tmp_path, text, "M.Deep", "M.Flat", "M.Inner")
    (message,) = found.messages
    rows = [b"\1\3\x09", b"\1\4\x0a", b"\1\6\x0b", b"\2\3\x0c", b"\x08\5\x0d", b"\x09\3\x0e", b"\1"]
    frames = collect_frames([Frame(k, 1, row) for k, row in enumerate(rows)], 8)
    some, columns, short = message.decode(frames)
    nan = math.nan
    assert some.tolist() == [True, True, True, True, True, False, False]
    expected = {
        "deep": [9, 10, nan, nan, nan],
        "inner": [3, 4, 6, nan, nan],
        "flat": [nan, nan, nan, 3, 5],
    }
    for name, want in expected.items():
        assert np.array_equal(columns[name], want, equal_nan=True), name
    assert short == 1, "the last one has its multiplexer only"


def test_short_frames_are_counted_and_keep_what_they_have(tmp_path: Path) -> None:
    text = """BO_ 1 M: 8 A
 SG_ A : 0|8@1+ (1,0) [0|0] "" A
 SG_ B : 8|16@1+ (1,0) [0|0] "" A
"""
    (message,) = table(tmp_path, text).messages
    frames = collect_frames([Frame(0, 1, b"\1\2\3"), Frame(1, 1, b"\1\2"), Frame(2, 1)], 8)
    some, columns, short = message.decode(frames)
    assert some.tolist() == [True, True, False] and short == 2
    assert columns["a"].tolist() == [1, 1] and columns["b"][0] == 0x302
    assert math.isnan(columns["b"][1])


def test_a_signal_beyond_eight_bytes_of_a_classic_bus(tmp_path: Path) -> None:
    text = 'BO_ 1 M: 64 A\n SG_ A : 256|8@1+ (1,0) [0|0] "" A\n SG_ B : 0|8@1+ (1,0) [0|0] "" A\n'
    (message,) = table(tmp_path, text).messages
    got = decode(message, b"\7" * 8)
    assert got["b"] == [7.0] and math.isnan(got["a"][0])
    assert decode(message, b"\7" * 64, width=64) == {"b": [7.0], "a": [7.0]}


def test_signals_that_cannot_be_decoded_are_named(tmp_path: Path) -> None:
    text = 'BO_ 1 M: 64 A\n SG_ S : 0|65@1+ (1,0) [0|0] "" A\n'
    with pytest.raises(FormatError, match=r"M\.S: has 65 bits, which is not decoded"):
        table(tmp_path, text)


def test_definitions_are_kept() -> None:
    found = SignalTable(DATABASE, ["Brake.*", "Service.UpTime", "WheelSpeeds.RearLeft"])
    brake, service, wheels = found.messages
    about = json.loads(format_signals(brake))
    assert about["message"] == "Brake" and about["id"] == 230
    assert about["signals"]["brake_pedal"]["choices"] == {"0": "released", "1": "pressed"}
    assert brake.period_s == 0.02 and len(found.sha256) == 64
    multiplexed = json.loads(format_signals(service))["signals"]["up_time"]
    assert (multiplexed["multiplexer"], multiplexed["multiplexer_ids"]) == ("Page", [1])
    assert json.loads(format_signals(wheels))["id"] == 0x18FEF100
    assert wheels.frame_id == 0x18FEF100 | EXTENDED


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.dbc", b"", "is no DBC that cantools reads|has no message"),
        (
            "a.dbc",
            b"BO_ nonsense",
            "is no DBC that cantools reads: Invalid syntax at line 1",
        ),
        ("a.dbc", HEAD.encode(), "a.dbc: has no message"),
        ("a.kcd", b"<x", "a.kcd: is no KCD that cantools reads"),
        ("a.txt", b"", r"a.txt: is not \.dbc, \.arxml, \.kcd or \.sym"),
    ],
)
def test_databases_that_are_none_are_named(
    tmp_path: Path, name: str, data: bytes, text: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=text):
        SignalTable(tmp_path / name, ["*"])


def test_without_cantools_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cantools"):
            raise ImportError("No module named 'cantools'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SourceError, match=r"needs the extra can \(.* -m pip install '.*\[can\]'\)"):
        SignalTable(DATABASE, ["*"])
