"""The channel format ``bytes``: the contract suite, and what is special to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.storage import measure
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, ProtocolError, StorageError
from tests.codecs.storage_contract import ChannelContract, Message

MOST = 40


def padded(samples: list[bytes]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(s.ljust(MOST, b"\0") for s in samples), np.uint8).reshape(
        -1, MOST
    )


class TestBytes(ChannelContract):
    spec = ChannelSpec("payload", "bytes", "u1", (MOST,))

    def message(self, count: int, rng: np.random.Generator) -> Message:
        encoded = [
            rng.integers(1, 256, rng.choice([0, 1, 7, MOST])).astype(np.uint8).tobytes()
            for _ in range(count)
        ]
        sizes = np.array([len(e) for e in encoded], np.uint32)
        return Message(b"".join(encoded), sizes, padded(encoded), encoded)

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        data = (folder / "payload").read_bytes()
        rows = np.fromfile(folder / "payload_i", "<u8").reshape(-1, 2).tolist()
        assert sum(size for _, size in rows) == len(data)
        return padded([data[at : at + size] for at, size in rows])

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        if file == "payload_i":
            return cut // 16
        ends = np.cumsum([len(e) for m in messages for e in m.encoded])
        return int((ends <= cut).sum())

    def test_codec_names_the_frame_that_does_not_decode(self) -> None:
        decode = CHANNEL_FORMATS["bytes"].decoder()
        out = np.ones(MOST, np.uint8)
        with pytest.raises(FormatError, match="here: 41 bytes where at most 40 are declared"):
            decode(bytes(41), out, "here")
        decode(b"", out, "here")
        assert not out.any()


def write(folder: Path) -> TestBytes:
    suite = TestBytes()
    suite.write(folder, suite.messages())
    return suite


def test_encoded_samples_have_their_own_lengths(tmp_path: Path) -> None:
    suite = write(tmp_path)
    sent = [e for m in suite.messages() for e in m.encoded]
    assert {0, 7, MOST} <= {len(e) for e in sent}
    with suite.open(tmp_path) as channel:
        assert [channel.encoded(k) for k in range(len(channel))] == sent
        assert channel.encoded_range(0, len(sent)) == sent
        assert channel.encoded_range(3, 6) == sent[3:6]
        assert channel.encoded_range(4, 4) == []


@pytest.mark.parametrize(
    ("row", "values"), [(0, (1, 3)), (4, (0, 7)), (4, (999, 1)), (10, (2**63, 2**63))]
)
def test_a_wrong_index_is_named(tmp_path: Path, row: int, values: tuple[int, int]) -> None:
    suite = write(tmp_path)
    rows = np.fromfile(tmp_path / "payload_i", "<u8").reshape(-1, 2)
    rows[row] = values
    rows.tofile(tmp_path / "payload_i")
    with pytest.raises(FormatError, match=rf"payload_i: row {row} is \[{values[0]}, {values[1]}\]"):
        suite.open(tmp_path)
    assert measure(tmp_path, suite.spec, 0).samples == row


def test_a_sample_is_no_longer_than_declared(tmp_path: Path) -> None:
    suite = write(tmp_path)
    rows = np.fromfile(tmp_path / "payload_i", "<u8").reshape(-1, 2)
    rows[-1, 1] = MOST + 1
    rows.tofile(tmp_path / "payload_i")
    with pytest.raises(FormatError, match=r"row 10 .*bytes \(at most 40\)"):
        suite.open(tmp_path)


def test_an_index_that_the_data_do_not_fill_is_named(tmp_path: Path) -> None:
    suite = write(tmp_path)
    data = (tmp_path / "payload").read_bytes()
    (tmp_path / "payload").write_bytes(data + b"x")
    with pytest.raises(FormatError, match="1 bytes after the last whole sample"):
        suite.open(tmp_path)
    (tmp_path / "payload").write_bytes(data[:-1])
    with pytest.raises(FormatError, match="its index ends at"):
        suite.open(tmp_path)
    (tmp_path / "payload_i").write_bytes(b"12345")
    with pytest.raises(FormatError, match="5 bytes are not rows of 16"):
        suite.open(tmp_path)


def test_lengths_of_different_samples_cannot_be_resumed(tmp_path: Path) -> None:
    suite = TestBytes()
    encoded = [b"one", b"", b"three"]
    sizes = np.array([len(e) for e in encoded], np.uint32)
    suite.write(tmp_path, [Message(b"".join(encoded), sizes, padded(encoded), encoded)])
    lengths = {"payload": 8, "payload_i": 48}
    for wrong in ({"payload": 7}, {"payload_i": 32}, {"payload_i": 47}, {"payload_i": 0}):
        with pytest.raises(StorageError, match=r"payload.* do not belong to one sample"):
            suite.resume(tmp_path, lengths | wrong)
    suite.close(suite.resume(tmp_path, lengths | {"payload": 3, "payload_i": 32}))
    with suite.open(tmp_path) as channel:
        assert channel.encoded_range(0, 2) == [b"one", b""]


@pytest.mark.parametrize(("dtype", "shape"), [("u2", (4,)), ("u1", ()), ("u1", (2, 2))])
def test_only_bytes_are_held(dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match="bytes holds u1"):
        ChannelSpec("payload", "bytes", dtype, shape)


def test_the_declaration_names_the_index_alone() -> None:
    """roverd refuses a trace with a format that it does not know."""
    found = CHANNEL_FORMATS["bytes"]
    declared = found.make_entries(TestBytes.spec)
    assert declared["payload_i"] | {"desc": ""} == {
        "format": "raw", "type": "u8", "shape": [2], "desc": "",
    }  # fmt: skip
    assert list(declared) == ["payload_i"]
    assert found.side_files("payload") == ("payload.json",)
