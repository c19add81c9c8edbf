"""Libraries of a desktop on a machine without one."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from drivers.ouster.sdk import make_empty_library, provide_library
from tests.acceptance.command import namespace


def test_an_empty_library_takes_a_missing_ones_place() -> None:
    name = "librecorder-test-of-an-absent-desktop.so.7"
    with pytest.raises(OSError, match="cannot open shared object file"):
        ctypes.CDLL(name)
    assert provide_library(name)
    ctypes.CDLL(name)  # found by its name now, though no such file exists
    assert not provide_library(name)


def test_a_library_that_is_there_is_taken() -> None:
    assert not provide_library("libc.so.6")


@pytest.mark.parametrize("machine", [62, 183])
def test_the_object_is_whole(machine: int) -> None:
    data = make_empty_library("libx.so.1", machine)
    assert data[:7] == b"\x7fELF\x02\x01\x01" and data.endswith(b"\0libx.so.1\0")
    assert int.from_bytes(data[18:20], "little") == machine


def test_the_objects_tables_lie_where_its_headers_say() -> None:
    """As chapter 5 of the System V ABI has them; other loaders may ask for more than glibc's."""
    name = "libx.so.1"
    data = make_empty_library(name, 62)
    head = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
    kind, _, version, entry, segments, sections, _, header, each, count, *_ = head
    assert (kind, version, entry, segments, sections, header, each) == (3, 1, 0, 64, 0, 64, 56)
    found = {}
    for n in range(count):
        segment, flags, offset, address, _, size, memory, align = struct.unpack_from(
            "<IIQQQQQQ", data, segments + n * each
        )
        assert (flags, address, memory) == (6, offset, size)  # not executable
        found[segment] = (offset, size, align)
    assert sorted(found) == [1, 2, 0x6474E551]
    assert found[1] == (0, len(data), 0x10000)  # all of it is loaded
    offset, size, align = found[2]
    assert offset % align == 0
    pairs = [struct.unpack_from("<QQ", data, offset + k) for k in range(0, size, 16)]
    assert pairs[-1] == (0, 0) and all(tag for tag, _ in pairs[:-1])
    table = dict(pairs)
    strings = data[table[5] : table[5] + table[10]]
    assert table[5] + table[10] == len(data) == table[5] + len(strings)
    assert strings == b"\0" + name.encode() + b"\0"
    assert strings[table[14] :] == name.encode() + b"\0"
    assert table[11] == 24 and data[table[6] : table[6] + 24] == bytes(24)
    assert struct.unpack_from("<4I", data, table[4]) == (1, 1, 0, 0)  # a bucket, a chain, empty


@pytest.mark.campaign
def test_the_lidar_opens_without_libgl(tmp_path: Path) -> None:
    """With the file hidden, as on a machine that has no desktop."""
    words = namespace()
    if words is None:
        pytest.skip("needs to hide libGL by mounting over it, which is refused here")
    hide = (
        "for file in $(ldconfig -p | sed -n 's/.*libGL\\.so\\.1 .*=> //p'); do "
        'mount --bind /dev/null "$file" || exit 99; done; exec "$@"'
    )
    entry = '{"name": "lidar", "scheme": "sim", "address": "", "options": {}}'
    done = subprocess.run(
        [*words, "sh", "-c", hide, "sh", sys.executable, "-m", "drivers.ouster", "check"],
        input=entry,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"lidar_imu"' in done.stdout
