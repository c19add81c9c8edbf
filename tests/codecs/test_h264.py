"""NAL units, keyframes and sizes of H.264, against FFmpeg."""

from __future__ import annotations

import random
from typing import Any

import av
import numpy as np
import pytest

from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.h264 import (
    PPS,
    SPS,
    START_CODE,
    H264Decoder,
    ParameterSets,
    has_picture,
    is_key,
    nal_units,
    parameter_sets,
    picture_size,
    read_nal_type,
    rgb_pixels,
)
from recorder.common.errors import FormatError, StreamChangedError
from tests.h264 import GROUP, SIZE, encode, number_of


def _without_sets(unit: bytes) -> bytes:
    kept = [nal for nal in nal_units(unit) if read_nal_type(nal) not in (SPS, PPS)]
    return b"".join(START_CODE + nal for nal in kept)


def test_nal_units_are_those_of_ffmpeg() -> None:
    """FFmpeg splits a stream of bytes into the same access units; `nal_units` loses no byte."""
    units = encode(12, x264="slices=3:log-level=none:aud=1")
    parser = av.CodecContext.create("h264", "r")
    found = [bytes(p) for p in [*parser.parse(b"".join(units)), *parser.parse(b"")]]
    assert found == units
    for unit in units:
        nals = list(nal_units(unit))
        assert sum(map(len, nals)) + 4 * len(nals) - len(unit) in range(len(nals) + 1)
        assert sum(1 for nal in nals if read_nal_type(nal) in (1, 5)) == 3
        assert read_nal_type(nals[0]) == 9


def test_nal_units_with_any_start_code_and_padding() -> None:
    nals = [b"\x67\x01", b"\x68\x02\x00\x01", b"\x65\x88"]
    assert list(nal_units(b"\0\0\1" + (b"\0\0\0\1").join(nals) + b"\0\0")) == nals
    assert list(nal_units(b"\0\0\0\1")) == []
    assert list(nal_units(b"")) == []
    assert list(nal_units(b"no start code")) == []


@pytest.mark.parametrize("x264", ["log-level=none", "slices=2:log-level=none:aud=1"])
def test_keyframes_are_those_of_the_encoder(x264: str) -> None:
    units = encode(12, x264=x264)
    assert [is_key(unit) for unit in units] == [k % GROUP == 0 for k in range(12)]
    assert all(has_picture(unit) for unit in units)
    assert not has_picture(b"".join(START_CODE + n for n in parameter_sets(units[0])[SPS]))


def test_an_open_group_begins_with_a_recovery_point() -> None:
    units = encode(12, x264="open-gop=1:bframes=0:keyint=5:scenecut=0:log-level=none")
    keys = [k for k, unit in enumerate(units) if is_key(unit)]
    assert keys == [0, 5, 10]
    kinds = [{read_nal_type(nal) for nal in nal_units(units[k])} for k in keys]
    assert 5 in kinds[0]
    decoder = H264Decoder()
    for k in range(5, 12):
        assert number_of(rgb_pixels(decoder.decode(units[k], "here"))) == k


def test_gradual_refresh_is_no_keyframe() -> None:
    """Intra refresh: FFmpeg gives pictures only after the recovery's number of frames."""
    units = encode(12, x264="intra-refresh=1:keyint=5:bframes=0:log-level=none")
    assert [k for k, unit in enumerate(units) if is_key(unit)] == [0]
    assert any(read_nal_type(nal) == 6 for unit in units[1:] for nal in nal_units(unit))


@pytest.mark.parametrize("size", [(96, 64), (100, 62), (160, 122), (98, 66), (1920, 1080)])
@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le"])
def test_size_is_that_of_the_encoder(size: tuple[int, int], pixels: str) -> None:
    if size == (1920, 1080) and pixels != "yuv420p":
        pytest.skip("one large picture is enough")
    assert picture_size(encode(1, size, pix_fmt=pixels)[0]) == size


def _other_pps(pps: bytes) -> bytes:
    """A picture parameter set with the number 1 instead of 0 (ue: 010 instead of 1)."""
    bits = "".join(f"{byte:08b}" for byte in pps[1:]).rstrip("0")
    assert bits[0] == "1"
    bits = "010" + bits[1:]
    bits += "0" * (-len(bits) % 8)
    return pps[:1] + bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


@pytest.mark.parametrize("aud", [0, 1])
def test_a_keyframe_gets_each_set_that_it_needs(aud: int) -> None:
    """Some encoders send picture parameter sets of several numbers, or only some of the sets."""
    unit, *others = encode(6, x264=f"aud={aud}:log-level=none")
    (sps,), (pps,) = parameter_sets(unit).values()
    alone = _without_sets(unit)
    head = START_CODE + b"\x09\x10" if aud else b""
    with_sps = head + START_CODE + sps + alone.removeprefix(head)
    second = START_CODE + _other_pps(pps)
    for before, bare in (
        ([unit, second + others[0]], alone),
        ([unit], with_sps),
        ([START_CODE + sps, START_CODE + pps], alone),
        ([second + unit], alone),
    ):
        sets = ParameterSets()
        for one in before:
            sets.complete(one)
        made = sets.complete(bare)
        assert number_of(rgb_pixels(H264Decoder().decode(made, "here"))) == 0
        kinds = [read_nal_type(nal) for nal in nal_units(made)]
        assert kinds[: 2 + aud] == [9, 7, 8][1 - aud :]
        assert {sps, pps} <= set(nal_units(made))
        assert sets.complete(made) == made


def test_size_of_interlaced_video_and_of_scaling_matrices() -> None:
    options = "interlaced=1:cqm=jvt:log-level=none:8x8dct=1"
    unit = encode(1, (96, 88), preset="medium", x264=options)[0]
    assert picture_size(unit) == (96, 88)
    assert picture_size(_without_sets(unit)) is None


def test_a_cut_or_damaged_parameter_set_is_an_error() -> None:
    sps = parameter_sets(encode(1)[0])[SPS][0]
    with pytest.raises(FormatError, match="cut short"):
        picture_size(START_CODE + sps[:6])
    with pytest.raises(FormatError, match=r"invalid number|cut short|pixels"):
        picture_size(START_CODE + sps[:4] + bytes(3) + b"\1")


@pytest.mark.parametrize(
    "count", [20_000, pytest.param(100_000, marks=pytest.mark.campaign(weight=5))]
)
def test_parsers_take_any_bytes(count: int) -> None:
    """Mutated access units: a value or a `FormatError`, nothing else."""
    rng, units = random.Random(4), encode(6)
    seeds = [unit[:400] for unit in units]
    sets = ParameterSets(units[0])
    refused = 0
    for number in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = data[: rng.randrange(len(data) + 1)] if number % 3 == 0 else data[:60]
        unit = bytes(data)
        try:
            size = picture_size(unit)
            assert size is None or min(size) > 0
        except FormatError:
            refused += 1
        assert is_key(unit) in (True, False)
        if number % 10 == 0:
            assert unit[-20:] in sets.complete(unit) or not unit
            assert sum(map(len, nal_units(unit))) <= len(unit)
    assert refused > 3 * count / 1000


class TestParameterSets:
    def test_a_keyframe_gets_what_it_lacks(self) -> None:
        units = encode(11)
        sets = ParameterSets()
        made = [sets.complete(unit if k == 0 else _without_sets(unit)) for k, unit in
                enumerate(units)]  # fmt: skip
        for k, unit in enumerate(made):
            found = parameter_sets(unit)
            assert len(found[SPS]) == len(found[PPS]) == (k % GROUP == 0)
        assert made[0] == units[0]
        decoder = H264Decoder()
        assert number_of(rgb_pixels(decoder.decode(made[GROUP], "here"))) == GROUP

    def test_they_come_after_a_delimiter(self) -> None:
        unit = encode(1, x264="aud=1:log-level=none")[0]
        stripped = _without_sets(unit)
        kinds = [read_nal_type(n) for n in nal_units(ParameterSets(unit).complete(stripped))]
        assert kinds[:3] == [9, SPS, PPS]
        assert [k for k in kinds if k not in (SPS, PPS)] == [
            read_nal_type(n) for n in nal_units(stripped)
        ]

    def test_declared_ones_are_known_from_the_start(self) -> None:
        unit = encode(1)[0]
        assert parameter_sets(ParameterSets(unit).complete(_without_sets(unit)))[SPS]


def test_the_decoder_gives_each_picture_at_once() -> None:
    decoder = H264Decoder()
    for k, unit in enumerate(encode(12)):
        rgb = rgb_pixels(decoder.decode(unit, "here"))
        assert rgb.shape == (SIZE[1], SIZE[0], 3)
        assert number_of(rgb) == k


def test_the_codec_decodes_keyframes_only() -> None:
    codec, units = CHANNEL_FORMATS["h264"], encode(2)
    out: Any = np.empty((SIZE[1], SIZE[0], 3), np.uint8)
    codec.decoder()(units[0], out, "here")
    assert number_of(out) == 0
    for wrong, fault in ((units[1], "no keyframe"), (b"", "no keyframe"), (b"no frame", "no key")):
        with pytest.raises(FormatError, match=f"here: is {fault}"):
            codec.decoder()(wrong, out, "here")
    with pytest.raises(FormatError, match="the channel's is"):
        codec.decoder()(units[0], np.empty((8, 8, 3), np.uint8), "here")
    with pytest.raises(StreamChangedError, match="not encoded"):
        codec.encode(out[None])
    assert codec.shape_fault(units[0], (64, 96, 3)) is None
    assert codec.shape_fault(units[1], (64, 97, 3)) is None
    assert "(96, 64)" in str(codec.shape_fault(units[0], (64, 97, 3)))
