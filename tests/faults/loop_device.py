"""A disk whose device fails below the file system, while the kernel's page cache works on.

An ext4 on a loop device over a sparse file in a tmpfs of bounded size.  When the tmpfs is full the
device cannot store new blocks: appending succeeds, and the kernel finds out when it writes back.
What the file system itself needs (its journal, bitmaps, inode tables) was given space before, so
that it stays writable, as it does where single sectors of a disk fail.

A loop device reports a write that the tmpfs took in part as done.  So that none can be, requests
are of one block.

The mounts lie in a mount namespace that a process without any work holds open.  That process ends
when the test process does, however that ends, and the kernel then removes mounts, loop device and
tmpfs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

DEVICE_BYTES = 64 << 20
_BLOCK = 4096
_MARGIN_BYTES = 1 << 20
_TOOLS = ("unshare", "nsenter", "mount", "umount", "fsfreeze", "mkfs.ext4", "dumpe2fs")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_MKFS = ("-q", "-F", "-b", str(_BLOCK), "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0")
_OPTIONS = "errors=continue,noatime"
_PATIENCE_S = 60.0
_FILL = """
fsfreeze --freeze "$0" || exit
cat /dev/zero > "$1" 2> /dev/null
fsfreeze --unfreeze "$0"
"""
# Until its input ends; then the last setting that it was told of is put back.
_HOLD = """
echo ready
while read -r value setting; do set -- "$value" "$setting"; done
[ $# = 0 ] || echo "$1" > "$2"
"""

# linux/loop.h
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_LO_FLAGS_AUTOCLEAR = 4
_LOOP_CONFIG = "=II52xI176x64x"  # fd, block_size, loop_info64 with lo_flags, reserved
_BLKFLSBUF = 0x1261  # linux/fs.h


class LoopDeviceError(Exception):
    """This machine cannot make, or unmount, such a device."""


class LoopDevice:
    """An ext4 that can be made to lose what is written to it::

        with LoopDevice(tmp_path) as device:
            subprocess.run([*device.words, "recorder", "run", "c.yaml", "--root", device.root])
            device.break_device()                # new blocks: the page cache takes them, not this
            device.heal()
            device.remount()                     # without a reboot
            (device.here / "session").iterdir()  # the same folder, for this process

    Attributes:
        words: a command behind these words sees the mounts.
        root: the mounted file system, for such a command.
        here: the same for this process.  Links are not followed out of it: a path that is resolved
            loses its first part, and then names the empty folder below the mount.
        image: the file that holds it, for such a command; its name is unique.
        loop: the loop device.
    """

    def __init__(self, folder: Path, size: int = DEVICE_BYTES) -> None:
        self.root = folder / "disk"
        self._memory = folder / "memory"
        self._size = size
        self._loop_fd = -1
        self.loop = ""
        for path in (self.root, self._memory):
            path.mkdir()
        self._holder = subprocess.Popen(
            [_tool("unshare"), "--mount", "--propagation", "private", "sh", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # what kills the tests as a group leaves it to clean up
        )
        enter = (_tool("nsenter"), "--mount", "--target", str(self._holder.pid), "--")
        self.words = (*enter, "env", f"--chdir={Path.cwd()}")  # a namespace is entered at its root
        self._outside = Path(f"/proc/{self._holder.pid}/root")
        self.here = self._below(self.root)
        self.image = self._memory / f"image.{self._holder.pid}"
        try:
            if self._holder.stdout is None or not self._holder.stdout.readline():
                raise LoopDeviceError("no mount namespace of its own")
            self._make()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LoopDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def break_device(self) -> None:
        """From now on no new block can be stored; overwriting stored ones works.

        All that is dirty is stored before, and nobody can write meanwhile: the file system's own
        blocks are to stay writable.  Blocks of files that were deleted are stored ones, too.
        """
        self._run("sh", "-c", _FILL, self.root, self._memory / "fill")

    @property
    def is_broken(self) -> bool:
        """Whether it cannot store new blocks."""
        return (self._below(self._memory) / "fill").exists()

    @property
    def has_stopped(self) -> bool:
        """Whether the file system has stopped because a block of its own was lost."""
        probe = self.here / ".probe"
        try:
            probe.touch()
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EIO):
                raise
            return True
        probe.unlink()
        return False

    def heal(self) -> None:
        """The device stores new blocks again; the kernel does not try lost ones again."""
        (self._below(self._memory) / "fill").unlink()

    def write_back(self) -> None:
        """Let the kernel write back all that is dirty, as it does by itself in time.

        Unlike fsync this leaves an error for whoever syncs the file later.
        """
        words = [*self.words, "sync", "--file-system", str(self.root)]
        subprocess.run(words, stderr=subprocess.DEVNULL, check=False)

    def remount(self) -> None:
        """Unmount and mount again, as after a cable came loose.

        Raises:
            LoopDeviceError: a process has a file open in it.
        """
        self._unmount()
        fcntl.ioctl(self._loop_fd, _BLKFLSBUF, 0)
        self._mount()

    def drop_caches(self) -> None:
        """Drop clean pages of the whole machine, as it does by itself when memory is short."""
        Path("/proc/sys/vm/drop_caches").write_text("1\n")

    def close(self) -> None:
        """End what still runs on it, and remove it."""
        for pid in self._inhabitants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._holder.communicate()  # the end of its input: with it the namespace goes
        if self._loop_fd >= 0:
            os.close(self._loop_fd)
            self._loop_fd = -1

    def _make(self) -> None:
        size = f"size={self._size + _MARGIN_BYTES}"
        self._run("mount", "-t", "tmpfs", "-o", size, "none", self._memory)
        image = self._below(self.image)
        with image.open("xb") as file:
            file.truncate(self._size)
        self._run("mkfs.ext4", *_MKFS, self.image)
        with image.open("r+b") as file:
            for first, stop in _used(self._run("dumpe2fs", self.image), self._size):
                os.posix_fallocate(file.fileno(), first, stop - first)
            self._attach(file.fileno())
        self._limit_requests()
        self._mount()

    def _attach(self, image_fd: int) -> None:
        """Put a loop device over the image; it goes with the last descriptor and mount of it."""
        with Path("/dev/loop-control").open("rb") as control:
            deadline = time.monotonic() + _PATIENCE_S
            while self._loop_fd < 0:
                self.loop = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
                fd = os.open(self.loop, os.O_RDWR | os.O_CLOEXEC)
                config = struct.pack(_LOOP_CONFIG, image_fd, 0, _LO_FLAGS_AUTOCLEAR)
                try:
                    fcntl.ioctl(fd, _LOOP_CONFIGURE, config)
                except BlockingIOError as error:  # another process was faster
                    os.close(fd)
                    if time.monotonic() > deadline:
                        raise LoopDeviceError(f"no free loop device: {error}") from None
                except OSError:
                    os.close(fd)
                    raise
                else:
                    self._loop_fd = fd

    def _limit_requests(self) -> None:
        setting = Path(f"/sys/block/{Path(self.loop).name}/queue/max_sectors_kb")
        limit = str(_BLOCK >> 10)
        value = setting.read_text().strip()
        if value == limit:  # left by a test that could not clean up
            value = setting.with_name("max_hw_sectors_kb").read_text().strip()
        assert self._holder.stdin is not None
        self._holder.stdin.write(f"{value} {setting}\n")
        self._holder.stdin.flush()
        setting.write_text(limit)

    def _mount(self) -> None:
        self._run("mount", "-t", "ext4", "-o", _OPTIONS, self.loop, self.root)

    def _unmount(self) -> None:
        self._run("umount", self.root)

    def _below(self, path: Path) -> Path:
        return self._outside / path.relative_to("/")

    def _run(self, tool: str, *args: object) -> str:
        done = subprocess.run(
            [*self.words, _tool(tool), *map(str, args)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LoopDeviceError(f"{tool}: {done.stderr.strip()}")
        return done.stdout

    def _inhabitants(self) -> Iterator[int]:
        """Processes in the namespace, but for the one that holds it."""
        namespace = _namespace(self._holder.pid)
        if namespace is None or namespace == _namespace(os.getpid()):
            return
        for path in Path("/proc").glob("[0-9]*"):
            pid = int(path.name)
            if pid != self._holder.pid and _namespace(pid) == namespace:
                yield pid


@cache
def refusal() -> str | None:
    """Why this machine cannot have such a device; None where it can."""
    needs = "fault injection below the file system needs root, loop devices and e2fsprogs"
    if os.geteuid() != 0:
        return f"{needs}: not root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool, path=_PATH) is None]:
        return f"{needs}: no {', '.join(missing)}"
    try:
        with TemporaryDirectory(prefix="recorder-loop-") as folder, LoopDevice(Path(folder)):
            pass
    except (OSError, LoopDeviceError) as error:
        return f"{needs}: {error}"
    return None


def _tool(name: str) -> str:
    return shutil.which(name, path=_PATH) or name


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115 - names no file
    except OSError:  # it has just ended
        return None


def _used(dump: str, size: int) -> Iterator[tuple[int, int]]:
    """Byte ranges that mkfs has taken into use, from what dumpe2fs prints of the free ones."""
    first = 0
    for line in re.findall(r"^  Free blocks: (.*)$", dump, re.MULTILINE):
        for text in filter(None, line.split(", ")):
            begin, _, last = text.partition("-")
            if first < int(begin):
                yield first * _BLOCK, int(begin) * _BLOCK
            first = int(last or begin) + 1
    if first * _BLOCK < size:
        yield first * _BLOCK, size
