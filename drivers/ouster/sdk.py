"""Loading of ouster-sdk, and reading of metadata files and captures.

ouster-sdk is heavy, so it is only imported when a source is opened.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from drivers.ouster.packets import SensorPackets
from recorder.common.errors import FormatError, SourceError

SDK_ERRORS = (RuntimeError, ValueError, IndexError, TypeError)
"""Exceptions that ouster-sdk raises for invalid data."""


def load_sdk() -> Any:
    """Load ouster-sdk's core without its console messages, which would mix with other output."""
    provide_library("libGL.so.1")  # needed by the SDK's viewer; missing without a desktop
    from ouster.sdk import core

    core.init_logger("off")
    return core


def one_line(error: Exception) -> str:
    """Return an error's text, shortened to one line."""
    return " ".join(str(error).split())[:200]


def load_info(core: Any, path: Path) -> tuple[Any, str]:
    """Return the SensorInfo and the text of a metadata file.

    Raises:
        SourceError: the file cannot be read, or is not metadata.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SourceError(f"{path}: cannot read the sensor's metadata: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not Ouster sensor metadata: {one_line(error)}") from None
    return parse_info(core, text, str(path)), text


def parse_info(core: Any, text: str, where: str) -> Any:
    """Parse a sensor's metadata; a SourceError names `where`."""
    try:
        return core.SensorInfo(text)
    except SDK_ERRORS as error:
        raise SourceError(f"{where}: is not Ouster sensor metadata: {one_line(error)}") from None


def open_capture(
    core: Any, info: Any, options: Mapping[str, Any], path: Path
) -> tuple[BinaryIO, SensorPackets]:
    """Open a capture and find the sensor in it; return the file, at its start, and the packets.

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo; gives the UDP ports that the options do not set.
        options: ``lidar_port`` and ``imu_port``.
        path: of the capture.

    Raises:
        SourceError: the file cannot be read, or does not contain the sensor.
    """
    lidar_port = options["lidar_port"] or info.config.udp_port_lidar or 7502
    imu_port = options["imu_port"] or info.config.udp_port_imu or 7503
    packets = SensorPackets(core, info, lidar_port, imu_port)
    try:
        file = path.open("rb", buffering=1 << 18)
        try:
            packets.find(file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    except FormatError as error:
        raise SourceError(f"{path}: {error}") from None
    return file, packets


_MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_READ_WRITE = 6
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_PAGE = 0x10000  # largest page size of all kernels

_kept: list[ctypes.CDLL] = []


def provide_library(name: str) -> bool:
    """Load the shared library `name`, or an empty library of that name where it is missing.

    ouster-sdk keeps its viewer in the same library as its decoder, so it requires ``libGL.so.1``
    although it calls no function of it before a window is opened.  A computer in a vehicle, or a
    container, does not have this file.  The dynamic linker accepts any loaded object of that name,
    so an empty one is made in memory (System V ABI, ELF-64, chapter 5, "Dynamic Linking").

    Call it before the import that needs the library.  An empty library is only made for the
    architectures x86-64 and AArch64.

    Returns:
        True if an empty library was loaded.
    """
    try:
        _kept.append(ctypes.CDLL(name))
        return False
    except OSError:
        pass  # not installed, as expected; the import fails if an empty library is not enough
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    fd = os.memfd_create(name)
    try:
        os.write(fd, make_empty_library(name, machine))
        _kept.append(ctypes.CDLL(f"/proc/self/fd/{fd}"))
    finally:
        os.close(fd)
    return True


def make_empty_library(name: str, machine: int) -> bytes:
    """Make an ELF-64 shared object, little endian, with a name (DT_SONAME) and no content."""
    strings = b"\0" + name.encode() + b"\0"
    headers = 64 + 3 * 56
    symbols = headers  # the first symbol of every table, all zeros
    hashes = symbols + 24  # one bucket, one chain, both empty
    dynamic = hashes + 16
    entries = [
        (_DT_SONAME, 1),
        (_DT_HASH, hashes),
        (_DT_SYMTAB, symbols),
        (_DT_SYMENT, 24),
        (_DT_STRTAB, dynamic + 7 * 16),
        (_DT_STRSZ, len(strings)),
        (0, 0),
    ]
    body = bytes(24) + struct.pack("<4I", 1, 1, 0, 0)
    body += b"".join(struct.pack("<QQ", *entry) for entry in entries)
    size = headers + len(body) + len(strings)
    # e_ident: class 64, little endian, version 1; e_type 3 is a shared object.
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    segments = [
        (_PT_LOAD, 0, size, _PAGE),
        (_PT_DYNAMIC, dynamic, 16 * len(entries), 8),
        (_PT_GNU_STACK, 0, 0, 16),  # without it an executable stack would be asked for
    ]
    for kind, at, length, align in segments:
        header += struct.pack("<IIQQQQQQ", kind, _READ_WRITE, at, at, at, length, length, align)
    return header + body + strings
