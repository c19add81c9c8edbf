"""Empty substitutes for desktop libraries that are linked against but not used here.

ouster-sdk keeps its viewer in the same library as its decoder, so it requires ``libGL.so.1``
although it calls no function of it before a window is opened.  A computer in a vehicle, or a
container, does not have this file.  The dynamic linker accepts any loaded object of that name, so
this module makes an empty one in memory (System V ABI, ELF-64, chapter 5, "Dynamic Linking").
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_READ_WRITE = 6
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_PAGE = 0x10000  # largest page size of all kernels

_kept: list[ctypes.CDLL] = []


def provide_library(name: str) -> bool:
    """Load the shared library `name`, or an empty library of that name where it is missing.

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
