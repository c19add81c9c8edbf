"""JPEG over RTP (RFC 2435): restored headers, which RTP omits, around unchanged data."""

from __future__ import annotations

from drivers.camera.rtsp.rtp import MAX_UNIT_BYTES
from recorder.common.errors import ProtocolError

# RFC 2435, appendix A: the tables of T.81, K.1, in zigzag order.
_LUMINANCE = bytes.fromhex(
    "100b0c0e0c0a100e0d0e1211101318281a181616183123251d283a333d3c3933"
    "383740485c4e404457453738506d51575f626768673e4d71797064785c656763"
)
_CHROMINANCE = bytes.fromhex("1112121815182f1a1a2f63423842") + b"\x63" * 50
# T.81, K.3: class and destination, counts, values.
_HUFFMAN = tuple(
    bytes.fromhex(table)
    for table in (
        "0000010501010101010100000000000000000102030405060708090a0b",
        "100002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c1"
        "1552d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a535455565758595a"
        "636465666768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4"
        "b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa",
        "0100030101010101010101010000000000000102030405060708090a0b",
        "1100020102040403040705040400010277000102031104052131061241510761711322328108144291a1b1c109"
        "233352f0156272d10a162434e125f11718191a262728292a35363738393a434445464748494a53545556575859"
        "5a636465666768696a737475767778797a82838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2"
        "b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa",
    )
)


class JpegAssembler:
    """Assembler of JPEGs; every picture is decodable alone."""

    def __init__(self) -> None:
        self._tables: dict[int, bytes] = {}  # by Q, for cameras that send them once (3.1.8)
        self.reset()

    def reset(self) -> None:
        self._head = b""
        self._data = bytearray()
        self.has_picture, self.key = False, True

    def begins(self, payload: bytes) -> bool:
        return len(payload) > 8 and payload[1:4] == b"\0\0\0"

    def add(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise ProtocolError(f"a payload of {len(payload)} bytes")
        offset = int.from_bytes(payload[1:4], "big")
        kind, quality, width, height = payload[4:8]
        if offset != len(self._data) or (offset == 0) == self.has_picture:
            raise ProtocolError(f"a fragment for byte {offset} after {len(self._data)} bytes")
        at, interval = 8, b""
        if 64 <= kind < 128:  # 3.1.7
            interval, at = payload[8:10], 12
        if offset == 0:
            self.has_picture = True
            if not width or not height:
                raise ProtocolError("a JPEG of more than 2040 pixels, which RTP cannot describe")
            if quality >= 128:
                at = self._read_tables(payload, at, quality)
            tables = self._tables.get(quality) if quality >= 128 else _scale_tables(quality)
            if tables is None or kind & 63 > 1 or kind >= 128:
                raise ProtocolError(f"a JPEG of type {kind} with quality {quality}, without tables")
            self._head = _header(kind & 1, tables, width * 8, height * 8, interval)
        if len(payload) < at:
            raise ProtocolError(f"a payload of {len(payload)} bytes that ends in its header")
        self._data += payload[at:]
        if len(self._data) > MAX_UNIT_BYTES:
            raise ProtocolError(f"a picture of more than {MAX_UNIT_BYTES} bytes")

    def finish(self) -> bytes:
        end = b"" if self._data.endswith(b"\xff\xd9") else b"\xff\xd9"
        return self._head + self._data + end

    def _read_tables(self, payload: bytes, at: int, quality: int) -> int:
        """Store the tables at `at`; return the position after them (3.1.8)."""
        length = int.from_bytes(payload[at + 2 : at + 4], "big")
        tables = payload[at + 4 : at + 4 + length]
        if len(payload) < at + 4 + length or payload[at + 1] or length not in (0, 64, 128):
            raise ProtocolError(f"quantization tables of {length} bytes")
        if length:
            self._tables[quality] = tables
        elif quality == 255:  # 255 declares that the tables change with every picture
            raise ProtocolError("a JPEG of quality 255 without tables")
        return at + 4 + length


def _scale_tables(quality: int) -> bytes | None:
    """Return both tables for a quality of 1 to 99 (appendix A); None for another quality."""
    if not 1 <= quality <= 99:
        return None
    factor = 5000 // quality if quality < 50 else 200 - 2 * quality
    return bytes(
        min(max((value * factor + 50) // 100, 1), 255) for value in _LUMINANCE + _CHROMINANCE
    )


def _header(sampling: int, tables: bytes, width: int, height: int, interval: bytes) -> bytes:
    """Return a JPEG up to its entropy-coded data (appendix B).

    Args:
        sampling: 0: 4:2:2, 1: 4:2:0.
        tables: one or two quantization tables, in zigzag order.
        width, height: pixels.
        interval: restart interval, two bytes; empty: none.
    """
    parts = [b"\xff\xd8"]
    for index in range(len(tables) // 64):
        parts.append(_segment(0xDB, bytes((index,)) + tables[index * 64 : index * 64 + 64]))
    if interval:
        parts.append(_segment(0xDD, interval))
    chroma = 1 if len(tables) > 64 else 0
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    components = bytes((3, 1, 0x21 + sampling, 0, 2, 0x11, chroma, 3, 0x11, chroma))
    parts.append(_segment(0xC0, b"\x08" + size + components))
    parts += [_segment(0xC4, table) for table in _HUFFMAN]
    parts.append(_segment(0xDA, b"\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00"))
    return b"".join(parts)


def _segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + (len(data) + 2).to_bytes(2, "big") + data
