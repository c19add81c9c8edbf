"""Check that the data of a path is encrypted on its disk.

The kernel's information identifies two kinds of encryption.  dm-crypt, also below LVM and RAID, is
identified by the UUIDs that cryptsetup gives to its devices (``CRYPT-LUKS2-...``; the UUIDs of
dm-integrity and dm-verity also begin with CRYPT, but these encrypt nothing).  fscrypt is identified
by the policy of a folder (``FS_IOC_GET_ENCRYPTION_POLICY_EX``; Linux,
Documentation/filesystems/fscrypt.rst).
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from recorder.recording.host.disk import file_system, nearest

_SYSTEM: Final = Path("/sys")
_SWAPS: Final = Path("/proc/swaps")
_IN_MEMORY: Final = ("tmpfs", "ramfs")
_ENCRYPTS: Final = re.compile(r"CRYPT-(LUKS1|LUKS2|PLAIN|LOOPAES|TCRYPT|BITLK|FVAULT2)-")
_GET_POLICY_EX: Final = 0xC0096616  # _IOWR('f', 22, __u8[9]), of linux/fscrypt.h
_POLICY_BYTES: Final = 24  # of fscrypt_policy_v2, the largest
_NO_POLICY: Final = (errno.ENODATA, errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL)


def find_unencrypted(
    path: Path,
    system: Path = _SYSTEM,
    has_policy: Callable[[Path], bool] | None = None,
    swaps: Path = _SWAPS,
) -> str | None:
    """Return why the data of a path is not encrypted on its disk; None if it is.

    A file system in memory reaches a disk only by swapping, so all swap areas must be encrypted.

    Args:
        path: a folder, which need not exist yet.
        system: mount point of sysfs.
        has_policy: returns whether a folder has an fscrypt policy; asks the kernel if it is None.
        swaps: the kernel's list of swap areas.

    Raises:
        OSError: the path cannot be read.
    """
    place = nearest(path)
    found = file_system(place)
    if found is not None and found.kind in _IN_MEMORY:
        swap = find_unencrypted_swap(system, swaps)
        return None if swap is None else f"is in memory, which is swapped out to {swap}"
    if (has_policy or _has_policy)(place):
        return None
    device = place.stat().st_dev
    if not os.major(device):  # btrfs, ZFS, NFS and overlays: the number is of no device
        source = Path(found.source) if found is not None else place
        if not source.is_block_device():
            kind = "an unknown file system" if found is None else f"{found.kind} ({found.source})"
            return f"is on {kind}, whose encryption cannot be determined"
        device = source.stat().st_rdev
    bare = _bare_device(device, system)
    return None if bare is None else f"is on {bare}, which is not encrypted"


def find_unencrypted_swap(system: Path = _SYSTEM, swaps: Path = _SWAPS) -> str | None:
    """Return the first swap area that is not encrypted; None if all are encrypted.

    A zram device compresses memory and uses no disk.  A swap file is encrypted if its disk is.
    """
    try:
        areas = [line.split()[0] for line in swaps.read_text().splitlines()[1:]]
    except OSError:
        return None  # a kernel without swap
    for area in areas:
        path = Path(area.replace("\\040", " "))
        try:
            found = path.stat()
        except OSError:
            return f"{path}, which cannot be read"
        if not path.is_block_device():
            bare = _bare_device(found.st_dev, system)
        elif path.name.startswith("zram"):
            continue
        else:
            bare = _bare_device(found.st_rdev, system)
        if bare is not None:
            return f"{path} (swap), which is not encrypted"
    return None


def _bare_device(number: int, system: Path) -> str | None:
    """Return the first unencrypted device below that of a number; None if all are encrypted."""
    place = system / f"dev/block/{os.major(number)}:{os.minor(number)}"
    return _bare(place.resolve()) if place.exists() else f"device {place.name}"


def _bare(place: Path) -> str | None:
    if _ENCRYPTS.match(_text(place / "dm/uuid")):
        return None
    try:
        below = sorted((place / "slaves").iterdir())
    except OSError:  # a partition has none
        below = []
    if not below:
        return f"/dev/{place.name}"
    return next((bare for each in below if (bare := _bare(each.resolve())) is not None), None)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _has_policy(folder: Path) -> bool:
    """Return whether the kernel encrypts new files in a folder."""
    argument = array.array("B", _POLICY_BYTES.to_bytes(8, "little") + bytes(_POLICY_BYTES))
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _GET_POLICY_EX, argument)
    except OSError as error:
        if error.errno in _NO_POLICY:
            return False
        raise
    finally:
        os.close(fd)
    return True
