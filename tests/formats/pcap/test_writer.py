"""Captures that are written: read by another parser, by ouster-sdk's libpcap, and byte by byte."""

from __future__ import annotations

import io
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from recorder.common.errors import FormatError
from recorder.formats.pcap.datagrams import Datagram, read_datagrams
from recorder.formats.pcap.writer import MAPPED, PcapWriter, _compute_checksum

T_NS = 1_700_000_000_123_456_789
A, B = MAPPED + b"\x0a\0\0\5", MAPPED + b"\xef\xff\0\1"
SIX = bytes.fromhex("fe80000000000000020000fffe000001")


def written(*rows: tuple[int, bytes, int, bytes, int, bytes]) -> bytes:
    file = io.BytesIO()
    writer = PcapWriter(file)
    for row in rows:
        writer.write(*row)
    return file.getvalue()


def test_bytes_of_one_datagram() -> None:
    """Made by hand from RFC 768 and 791; tcpdump reports both checksums as correct."""
    data = written((T_NS, A, 40000, B, 2368, b"abc"))
    assert data[:24] == bytes.fromhex("4d3cb2a10200040000000000000000000000040001000000")
    assert struct.unpack("<IIII", data[24:40]) == (1_700_000_000, 123_456_789, 45, 45)
    assert data[40:54] == bytes(12) + b"\x08\x00"
    ip = data[54:74]
    assert ip[:10] == bytes.fromhex("4500001f000040004011")
    assert ip[12:] == b"\x0a\0\0\5\xef\xff\0\1"
    assert sum(struct.unpack(">10H", ip)) % 0xFFFF == 0
    body = data[74:]
    assert struct.unpack(">HHH", body[:6]) == (40000, 2368, 11) and body[8:] == b"abc"
    pseudo = ip[12:] + struct.pack(">HH", 17, 11) + body + b"\0"
    assert sum(struct.unpack(f">{len(pseudo) // 2}H", pseudo)) % 0xFFFF == 0


@pytest.mark.parametrize("size", [0, 1, 2, 1206, 9000, 65507])
def test_our_parser_reads_what_was_written(size: int) -> None:
    payload = bytes(k * 31 & 0xFF for k in range(size))
    rows = ((T_NS, A, 1, B, 65535, payload), (T_NS + 1, SIX, 5, SIX, 6, payload))
    assert list(read_datagrams(io.BytesIO(written(*rows)))) == [
        Datagram(T_NS, A[12:], 65535, payload, 1, B[12:]),
        Datagram(T_NS + 1, SIX, 6, payload, 5, SIX),
    ]


def test_ipv4_and_ipv6_together_are_ipv6() -> None:
    (one,) = read_datagrams(io.BytesIO(written((T_NS, SIX, 1, B, 2, b"x"))))
    assert (one.source, one.destination) == (SIX, B)


@pytest.mark.parametrize(("source", "most"), [(A, 65507), (SIX, 65527)])
def test_a_payload_that_is_too_long_is_refused(source: bytes, most: int) -> None:
    assert len(written((T_NS, source, 1, source, 2, bytes(most)))) > most
    with pytest.raises(FormatError, match=f"{most + 1} bytes do not fit into a datagram"):
        written((T_NS, source, 1, source, 2, bytes(most + 1)))
    for t_ns in (-1, 1 << 62):
        with pytest.raises(FormatError, match="out of the range"):
            written((t_ns, source, 1, source, 2, b""))


def test_a_checksum_of_zero_is_sent_as_ones() -> None:
    """RFC 768: zero means that there is none."""
    for word in range(0x10000):
        data = written((T_NS, A, 0, A, 0, word.to_bytes(2, "big"))) if word % 4099 == 0 else b""
        assert data == b"" or data[80:82] != b"\0\0"
    rest = written((T_NS, A, 0, A, 0, b"\0\0"))[80:82]
    data = written((T_NS, A, 0, A, 0, rest))
    assert data[80:82] == b"\xff\xff"


@pytest.mark.parametrize("size", [2, 6, 65535, 131071])
def test_checksums_of_large_sums_are_folded_twice(size: int) -> None:
    """RFC 1071: all words and the checksum add up to a multiple of 0xFFFF."""
    for data in (b"\xff" * size, b"\xff\xff\xff\xff\0\1".ljust(size, b"\0"), bytes(size)):
        words = struct.unpack(f">{(size + 1) // 2}H", data[:size].ljust(size + size % 2, b"\0"))
        checksum = _compute_checksum(data[:size])
        assert 0 <= checksum <= 0xFFFF and (sum(words) + checksum) % 0xFFFF == 0


def test_ouster_sdk_finds_the_streams(tmp_path: Path) -> None:
    """By libpcap and libtins: addresses, ports and lengths."""
    sdk = pytest.importorskip("ouster.sdk._bindings.pcap")
    path, sizes = tmp_path / "a.pcap", (1, 1206, 1472)
    rows = [(T_NS + 1000 * k, A, 7, B, 7502, bytes(n)) for k, n in enumerate(sizes)]
    path.write_bytes(written(*rows, (T_NS, B, 8, A, 9, b"other")))
    info = sdk.get_stream_info(str(path))
    assert info.total_packets == 4
    found = {
        (key.src_ip, key.src_port, key.dst_ip, key.dst_port): dict(data.payload_size_counts)
        for key, data in info.udp_streams.items()
    }
    assert found == {
        ("10.0.0.5", 7, "239.255.0.1", 7502): dict.fromkeys(sizes, 1),
        ("239.255.0.1", 8, "10.0.0.5", 9): {5: 1},
    }


def test_tcpdump_reads_it(tmp_path: Path) -> None:
    """Its checksums, stamps and lengths; tcpdump is not on every machine."""
    program = shutil.which("tcpdump")
    if program is None:
        pytest.skip("needs tcpdump, which is not installed")
    path, sizes = tmp_path / "a.pcap", (0, 1, 1206, 9000)
    ends = ((A, B), (SIX, SIX))
    rows = [(T_NS, a, 7, b, 7502, bytes([255]) * n) for a, b in ends for n in sizes]
    path.write_bytes(written(*rows))
    # -s 0: whole packets; -vv: checksums.  tcpdump drops its rights, and may not read our folder.
    with path.open("rb") as file:
        command = [program, "-nn", "-vv", "-tt", "-s", "0", "--nano", "-r", "-"]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    assert done.stdout.count("[udp sum ok]") == len(rows) and "bad" not in done.stdout
    assert re.findall(r"UDP, length (\d+)", done.stdout) == [str(n) for n in sizes] * 2
    assert done.stdout.count("1700000000.123456789 IP") == len(rows)
