"""Whether a path is encrypted: by trees of sysfs as the kernel makes them, and by this kernel."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recorder.config.settings import RingSettings, StorageSettings
from recorder.recording import preflight
from recorder.recording.host import disk_encryption
from recorder.recording.host.disk import FileSystem
from recorder.recording.host.disk_encryption import find_unencrypted, find_unencrypted_swap

STORAGE = StorageSettings(200, 0.0, 256.0, require_encrypted=True)
CRYPT = "CRYPT-LUKS2-0123456789abcdef0123456789abcdef-recordings"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


class Sysfs:
    """Devices below a folder as in /sys: folders, and links from dev/block and slaves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "dev/block").mkdir(parents=True)

    def add(
        self, name: str, number: int, *below: str, uuid: str | None = None, disk: str = ""
    ) -> None:
        """A device; a partition is in the folder of its disk, and has no slaves."""
        folder = self.root / "devices" / disk / name
        folder.mkdir(parents=True)
        if not disk:
            (folder / "slaves").mkdir()
        for other in below:
            (target,) = (self.root / "devices").rglob(other)
            (folder / "slaves" / other).symlink_to(target)
        if uuid is not None:
            (folder / "dm").mkdir()
            (folder / "dm/uuid").write_text(f"{uuid}\n")
        link = self.root / f"dev/block/{os.major(number)}:{os.minor(number)}"
        link.unlink(missing_ok=True)
        link.symlink_to(folder)


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sysfs:
    """The root below it is on a file system with a device of its own."""
    found = FileSystem(tmp_path, "ext4", "/dev/x", None)
    monkeypatch.setattr(disk_encryption, "file_system", lambda path: found)
    monkeypatch.setattr(os, "major", lambda number: number >> 8 or 8)
    return Sysfs(tmp_path / "sys")


def why(sysfs: Sysfs, path: Path) -> str | None:
    return find_unencrypted(path, sysfs.root, lambda _: False)


def test_a_bare_disk_and_a_partition(sysfs: Sysfs, tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    sysfs.add("sda", 1)
    assert why(sysfs, tmp_path) == (
        f"is on device {os.major(number)}:{os.minor(number)}, which is not encrypted"
    )
    sysfs.add("sda1", number, disk="sda")
    assert why(sysfs, tmp_path) == "is on /dev/sda1, which is not encrypted"
    assert why(sysfs, tmp_path / "not/there yet") == "is on /dev/sda1, which is not encrypted"


def test_luks_on_a_partition_and_above_lvm(sysfs: Sysfs, tmp_path: Path) -> None:
    sysfs.add("sda", 1)
    sysfs.add("sda1", 2, disk="sda")
    sysfs.add("dm-0", tmp_path.stat().st_dev, "sda1", uuid=CRYPT)
    assert why(sysfs, tmp_path) is None
    sysfs.add("dm-1", 3, "sda", uuid="LVM-0123")
    sysfs.add("dm-2", tmp_path.stat().st_dev, "dm-1", uuid=CRYPT)
    assert why(sysfs, tmp_path) is None


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (CRYPT, "CRYPT-PLAIN-swap", None),
        (CRYPT, None, "is on /dev/sdb, which is not encrypted"),
        (None, CRYPT, "is on /dev/sda, which is not encrypted"),
        ("LVM-abc", CRYPT, "is on /dev/sda, which is not encrypted"),
        ("CRYPT-INTEGRITY-x", CRYPT, "is on /dev/sda, which is not encrypted"),
        ("CRYPT-VERITY-0123-x", CRYPT, "is on /dev/sda, which is not encrypted"),
        ("mpath-CRYPT-LUKS2-", CRYPT, "is on /dev/sda, which is not encrypted"),
    ],
)
def test_every_disk_below_lvm_on_raid_counts(
    sysfs: Sysfs, tmp_path: Path, first: str | None, second: str | None, wanted: str | None
) -> None:
    sysfs.add("sda", 1)
    sysfs.add("sdb", 2)
    sysfs.add("dm-0", 3, "sda", uuid=first)
    sysfs.add("dm-1", 4, "sdb", uuid=second)
    sysfs.add("md0", 5, "dm-0", "dm-1")
    sysfs.add("dm-2", tmp_path.stat().st_dev, "md0", uuid="LVM-0123")
    assert why(sysfs, tmp_path) == wanted


def test_a_folder_of_fscrypt(sysfs: Sysfs, tmp_path: Path) -> None:
    sysfs.add("sda", tmp_path.stat().st_dev)
    asked: list[Path] = []

    def has_policy(path: Path) -> bool:
        asked.append(path)
        return True

    assert find_unencrypted(tmp_path / "a/b", sysfs.root, has_policy) is None
    assert asked == [tmp_path]


def test_file_systems_without_a_device(
    sysfs: Sysfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "major", lambda number: 0)
    for kind, source in (("nfs4", "nas:/x"), ("zfs", "pool/x"), ("overlay", "overlay")):
        found = FileSystem(tmp_path, kind, source, None)
        monkeypatch.setattr(disk_encryption, "file_system", lambda path, found=found: found)
        assert why(sysfs, tmp_path) == (
            f"is on {kind} ({source}), whose encryption cannot be determined"
        )


def test_memory_counts_by_its_swap(
    sysfs: Sysfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FileSystem(tmp_path, "tmpfs", "tmpfs", None)
    monkeypatch.setattr(disk_encryption, "file_system", lambda path: found)
    swaps = tmp_path / "swaps"

    def problem() -> str | None:
        return find_unencrypted(tmp_path, sysfs.root, lambda _: False, swaps)

    assert problem() is None  # a kernel without swap
    swaps.write_text(SWAPS)
    assert problem() is None
    area = tmp_path / "swap file"
    area.touch()
    swaps.write_text(f"{SWAPS}{str(area).replace(' ', chr(92) + '040')} file 8 0 -2\n")
    sysfs.add("sda", area.stat().st_dev)
    assert problem() == (
        f"is in memory, which is swapped out to {area} (swap), which is not encrypted"
    )
    sysfs.add("dm-0", area.stat().st_dev, "sda", uuid=CRYPT)
    assert problem() is None
    area.unlink()
    assert find_unencrypted_swap(sysfs.root, swaps) == f"{area}, which cannot be read"


@pytest.mark.parametrize("number", [errno.ENODATA, errno.ENOTTY, errno.EOPNOTSUPP])
def test_a_kernel_that_knows_no_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def answer(fd: int, request: int, argument: Any) -> int:
        assert request == 3 << 30 | 9 << 16 | ord("f") << 8 | 22  # _IOWR('f', 22, __u8[9])
        assert bytes(argument) == (24).to_bytes(8, "little") + bytes(24)
        raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "ioctl", answer)
    assert not disk_encryption._has_policy(tmp_path)
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: 0)
    assert disk_encryption._has_policy(tmp_path)


def test_this_kernel_answers(tmp_path: Path) -> None:
    assert disk_encryption._has_policy(Path("/proc")) is False
    assert isinstance(disk_encryption._has_policy(tmp_path), bool)


def test_nothing_is_recorded_without_encryption_where_it_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "is on /dev/sda1, which is not encrypted"
    monkeypatch.setattr(preflight, "find_unencrypted", lambda folder: text)
    said = f"{tmp_path} {text}, and storage.require_encrypted is set"
    assert preflight.check_root(tmp_path, STORAGE).problem == said
    assert preflight.mount_problem(tmp_path, STORAGE) == said
    monkeypatch.setattr(Path, "is_mount", lambda path: True)
    found = FileSystem(tmp_path, "ext4", "/dev/x", None)
    monkeypatch.setattr(preflight, "file_system", lambda path: found)
    both = StorageSettings(200, 0.0, 256.0, require_mount=True, require_encrypted=True)
    assert preflight.mount_problem(tmp_path, both) == said
    ring = RingSettings(medium="ram", folder=tmp_path)
    assert preflight.ring_problem(ring, STORAGE) == said
    assert preflight.ring_problem(RingSettings(), STORAGE) is None  # it lies in the root
    loose = StorageSettings(200, 0.0, 256.0)
    assert preflight.check_root(tmp_path, loose).problem is None
    assert preflight.ring_problem(ring, loose) is None
    monkeypatch.setattr(preflight, "find_unencrypted", lambda folder: None)
    assert preflight.check_root(tmp_path, STORAGE).problem is None


@pytest.mark.conformance
def test_a_real_folder_of_fscrypt_on_ext4(tmp_path: Path) -> None:
    """A new ext4 on a loop device; the structures are those of linux/fscrypt.h."""
    image, mounted = tmp_path / "disk", tmp_path / "mounted"
    image.write_bytes(bytes(32 << 20))
    mounted.mkdir()
    try:
        subprocess.run(["mkfs.ext4", "-q", "-O", "encrypt", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"NOT TESTED: no ext4 can be mounted here: {error}")
    try:
        (mounted / "secret").mkdir()
        key = bytearray(struct.pack("II32sII32s64s", 2, 0, b"", 64, 0, b"", os.urandom(64)))
        with _opened(mounted) as fd:
            fcntl.ioctl(fd, 3 << 30 | 80 << 16 | ord("f") << 8 | 23, key)  # ADD_ENCRYPTION_KEY
        policy = struct.pack("BBBB4x16s", 2, 1, 4, 0, bytes(key[8:24]))
        with _opened(mounted / "secret") as fd:
            fcntl.ioctl(fd, 2 << 30 | 12 << 16 | ord("f") << 8 | 19, policy)  # SET_..._POLICY
        assert find_unencrypted(mounted / "secret/sessions") is None
        assert "/dev/loop" in str(find_unencrypted(mounted / "sessions"))
    except OSError as error:
        pytest.skip(f"NOT TESTED: this kernel has no fscrypt: {error}")
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)
