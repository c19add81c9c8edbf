"""Multipart streams as cameras send them, whole, in pieces, and damaged."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.http import multipart
from drivers.camera.http.multipart import Damage, MultipartParser, Part, parse_boundary
from recorder.common.errors import ProtocolError


def sized(body: bytes, name: str = "frame", end: bytes = b"\r\n") -> bytes:
    head = b"--%s%sContent-Type: image/jpeg%sContent-Length: %d%s%s" % (
        name.encode(), end, end, len(body), end, end,
    )  # fmt: skip
    return head + body + end


def unsized(body: bytes, end: bytes = b"\r\n") -> bytes:
    return b"--frame" + end + b"Content-Type: image/jpeg" + end + end + body + end


def bodies(found: list[Part | Damage]) -> list[bytes]:
    assert all(isinstance(part, Part) for part in found)
    return [part.body for part in found if isinstance(part, Part)]


def in_chunks(data: bytes, size: int, boundary: str = "frame") -> list[Part | Damage]:
    parser = MultipartParser(boundary)
    found: list[Part | Damage] = []
    for at in range(0, len(data), size):
        found += parser.feed(data[at : at + size])
    return found


JPEGS = [b"\xff\xd8" + bytes([k]) * (40 + 17 * k) + b"\r\n--\xff\xd9" for k in range(5)]


@pytest.mark.parametrize("size", [1, 2, 7, 44, 500, 200_000])
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
@pytest.mark.parametrize("kind", ["sized", "unsized", "mixed"])
def test_parts_in_chunks_of_any_size(size: int, end: bytes, kind: str) -> None:
    makers = {"sized": [True], "unsized": [False], "mixed": [True, False]}[kind]
    stream = b"".join(
        sized(body, end=end) if makers[k % len(makers)] else unsized(body, end)
        for k, body in enumerate(JPEGS)
    )
    found = in_chunks(stream + b"--frame" + end, size)
    assert bodies(found) == JPEGS
    for part in found:  # where the body ends in the stream
        assert isinstance(part, Part)
        assert stream[part.end - len(part.body) : part.end] == part.body
        assert part.headers["content-type"] == "image/jpeg"


def test_a_sized_part_is_given_with_its_last_byte() -> None:
    parser = MultipartParser("frame")
    stream = sized(JPEGS[0])[:-2]
    assert parser.feed(stream[:-1]) == []
    assert bodies(parser.feed(stream[-1:])) == [JPEGS[0]]


@pytest.mark.parametrize("quirk", ["named with dashes", "three dashes", "doubled", "no line end"])
def test_what_cameras_do_beyond_the_rfc(quirk: str) -> None:
    stream = b"".join(sized(body) for body in JPEGS)
    match quirk:
        case "named with dashes":  # the name holds the dashes that come before it
            assert bodies(in_chunks(stream, 50, "--frame")) == JPEGS
        case "three dashes":  # ... and the delimiter has two more
            stream = b"".join(sized(body, "--frame") for body in JPEGS)
            assert bodies(in_chunks(stream, 50, "--frame")) == JPEGS
        case "doubled":
            stream = b"".join(b"--frame\r\n" + sized(body) for body in JPEGS)
            assert bodies(in_chunks(stream, 50)) == JPEGS
        case _:
            stream = b"".join(sized(body)[:-2] for body in JPEGS)
            assert bodies(in_chunks(stream, 50)) == JPEGS


def test_a_preamble_is_passed_over_and_the_closing_delimiter_ends_all() -> None:
    parser = MultipartParser("frame")
    found = parser.feed(b"\r\n" + sized(JPEGS[0]) + b"--frame--\r\n" + sized(JPEGS[1]))
    assert bodies(found) == JPEGS[:1]
    assert parser.ended
    assert parser.feed(sized(JPEGS[2])) == []


def test_a_part_cut_by_its_sender_is_one_damage() -> None:
    cut = sized(JPEGS[1])[:-30]
    stream = sized(JPEGS[0]) + cut + b"\r\n" + sized(JPEGS[2]) + sized(JPEGS[3])
    for size in (1, 33, 5000):
        found = in_chunks(stream, size)
        assert [type(part) for part in found] == [Part, Damage, Part, Part]
        assert isinstance(found[1], Damage)
        assert "less than" in found[1].reason
        assert found[1].headers["content-type"] == "image/jpeg"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"--frame\r\nContent-Length: 12x\r\n\r\n" + b"a" * 90, "'12x'"),
        (b"--frame\r\nContent-Length: 99999999999999\r\n\r\nabc", "'99999999999999'"),
        (b"--frame\r\nX: " + b"a" * 20_000, "do not end"),
        (b"--fr\xffme\r\nContent-Length: 3\r\n\r\nabc", "no part"),
    ],
)
def test_damage_is_told_once_and_the_next_part_comes(bad: bytes, reason: str) -> None:
    stream = sized(JPEGS[0]) + bad + b"\r\n" + sized(JPEGS[1])
    for size in (1, 64, 50_000):
        found = in_chunks(stream, size)
        assert [type(part) for part in found] == [Part, Damage, Part]
        assert isinstance(found[1], Damage)
        assert reason in found[1].reason


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "MAX_PART_BYTES", 100_000)
    parser = MultipartParser("frame")
    parser.feed(b"--frame\r\n\r\n")
    found = [damage for _ in range(100) for damage in parser.feed(bytes(10_000))]
    assert [type(part) for part in found] == [Damage]
    assert len(parser._buffer) < 120_000
    assert bodies(parser.feed(b"\r\n" + sized(JPEGS[0]))) == [JPEGS[0]]


@given(st.lists(st.binary(max_size=200), max_size=6), st.integers(1, 300), st.randoms())
def test_any_bodies_in_any_pieces(contents: list[bytes], most: int, source: random.Random) -> None:
    stream = b"".join(sized(body) for body in contents)
    parser = MultipartParser("frame")
    found: list[Part | Damage] = []
    while stream:
        size = source.randint(1, most)
        found += parser.feed(stream[:size])
        stream = stream[size:]
    assert bodies(found) == contents


def test_boundaries() -> None:
    assert parse_boundary("multipart/x-mixed-replace;boundary=frame") == "frame"
    assert parse_boundary('Multipart/X-Mixed-Replace; charset=x; Boundary="a b"; q=1') == "a b"
    assert parse_boundary("multipart/x-mixed-replace; boundary=--x") == "--x"
    for bad in ("image/jpeg", "", "multipart/x-mixed-replace", "multipart/mixed; boundary="):
        with pytest.raises(ProtocolError):
            parse_boundary(bad)
