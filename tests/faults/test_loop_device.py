"""A loop device that loses writes: what was lost shows behind the cache, and nothing is left.

Seen on ext4, and relied on by recovery: an error is reported once per descriptor, pages that were
lost look clean, and bytes appended to such a page are lost although the sync says they are not.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.loop_device import LoopDevice, refusal
from tests.support.waiting import wait_until

BLOCK = 4096
OLD, NEW, LOST = b"A" * 16 * BLOCK, b"B" * 16 * BLOCK, bytes(16 * BLOCK)
FAILURES = (errno.EIO, errno.ENOSPC)  # ENOSPC where the device itself can tell


def put(path: Path, data: bytes) -> int:
    """Append without a sync; the descriptor."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    assert os.write(fd, data) == len(data)
    return fd


def failed(fd: int) -> bool:
    """Whether a sync reports that something was lost."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        assert error.errno in FAILURES, error
        return True
    return False


def read_device(path: Path) -> bytes:
    """A file's bytes past the page cache (open(2), O_DIRECT)."""
    size = path.stat().st_size
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, -(-size // BLOCK) * BLOCK) as buffer:
            assert os.preadv(fd, [buffer], 0) == size
            return buffer[:size]
    finally:
        os.close(fd)


@pytest.fixture
def lost(device: LoopDevice) -> Path:
    """A file whose second half no sync could store; the device works again."""
    path = device.here / "file"
    fd = put(path, OLD)
    assert not failed(fd)
    device.break_device()
    os.write(fd, NEW)
    assert failed(fd)
    assert not failed(fd)  # the same bytes, and this time nothing is wrong
    os.close(fd)
    device.heal()
    return path


def test_what_was_lost_shows_in_the_cache_alone(device: LoopDevice, lost: Path) -> None:
    assert lost.read_bytes() == OLD + NEW
    assert read_device(lost) == OLD + LOST
    assert lost.read_bytes() == OLD + NEW  # a look past the cache leaves it as it is
    device.drop_caches()
    assert lost.read_bytes() == OLD + LOST


# Cleaning up

KILLED = """
import sys
from pathlib import Path
from tests.faults.loop_device import LoopDevice
device = LoopDevice(Path(sys.argv[1]))
print(device.loop, device.image.name, flush=True)
sys.stdin.read()
"""


def is_limited(loop: str) -> bool:
    """Whether its requests are still of one block, as no user of it but these tests wants."""
    limit = Path(f"/sys/block/{Path(loop).name}/queue/max_sectors_kb")
    return int(limit.read_text()) == BLOCK >> 10


def image_of(loop: str) -> str:
    """The name of the file that it shows, empty where it is free."""
    try:
        shown = Path(f"/sys/block/{Path(loop).name}/loop/backing_file").read_text()
    except OSError:
        return ""
    return Path(shown.removesuffix("(deleted)\n").strip()).name


def is_put_back(loop: str, image: str) -> bool:
    """Whether it is free and has no limit, or another test has it by now."""
    return image_of(loop) not in ("", image) or not (image_of(loop) or is_limited(loop))


def test_a_device_is_gone_after_its_test(tmp_path: Path) -> None:
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with LoopDevice(tmp_path) as device:
        loop, image = device.loop, device.image.name
        assert is_limited(loop) and image_of(loop) == image
        words = [*device.words, "sh", "-c", 'cd "$0" && echo && exec sleep 1000', str(device.root)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as user:
            assert user.stdout is not None and user.stdout.readline()
            device.close()
            assert user.wait() == -signal.SIGKILL
    wait_until("a free loop device", lambda: is_put_back(loop, image))
    assert not any((tmp_path / "disk").iterdir()) and not any((tmp_path / "memory").iterdir())


def test_a_device_is_gone_when_its_test_is_killed(tmp_path: Path) -> None:
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        loop, image = owner.stdout.readline().split()
        assert is_limited(loop) and image_of(loop) == image
        os.killpg(owner.pid, signal.SIGKILL)  # as a time limit of all tests does
    wait_until("a free loop device", lambda: is_put_back(loop, image))


def test_a_limit_that_a_killed_test_left_is_put_back(tmp_path: Path) -> None:
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with LoopDevice(tmp_path) as left:
        loop = left.loop
        os.kill(left._holder.pid, signal.SIGKILL)
    (again := tmp_path / "again").mkdir()
    with LoopDevice(again) as device:
        if device.loop != loop:
            pytest.skip("another test has the loop device by now")
        image = device.image.name
    wait_until("a free loop device", lambda: is_put_back(loop, image))
