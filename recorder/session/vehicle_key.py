"""The key of a vehicle, which signs its sessions: Ed25519 (RFC 8032).

A folder has three files:

=================  ==========================================================================
vehicle.key        the private key, PKCS #8 in PEM (RFC 8410), mode 0600
vehicle.pub        the public key, SubjectPublicKeyInfo in PEM (RFC 8410), for everybody
vehicle.counter    a `Counter` as JSON: the last signature; the next one has the next number
=================  ==========================================================================

::

    make_key(folder)
    key = VehicleKey(folder / KEY)
    with key.counting() as counter:
        key.count(Counter(key.signed(statement), counter.deleted))
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.contract.errors import StorageError, UsageError
from recorder.contract.extras import need_extra
from recorder.contract.private_files import check_private
from recorder.contract.wire_struct import ready
from recorder.formats.disk import PosixDisk, make_folders

KEY: Final = "vehicle.key"
_PUBLIC, _COUNTER = ".pub", ".counter"
_PRIVATE_HEAD = bytes.fromhex("302e020100300506032b657004220420")
_PUBLIC_HEAD = bytes.fromhex("302a300506032b6570032100")
_FINGERPRINT = re.compile("[0-9a-fA-F]{64}")
_KEY_BYTES = 32
_MOST_BYTES = 64 << 10  # of a file of keys


class Signed(msgspec.Struct, frozen=True):
    """A signed statement.

    Attributes:
        statement: what is signed, JSON; the signature is of its UTF-8 bytes.
        signature: 64 bytes, in hex.
        public_key: the 32 bytes of the key that signed, in hex.
    """

    statement: str
    signature: str
    public_key: str

    @classmethod
    def from_record(cls, values: Any) -> Signed:
        """Of a record's values; UsageError if they are none."""
        try:
            return msgspec.convert(values, ready(cls))
        except msgspec.ValidationError as error:
            raise UsageError(f"is no signature: {error}") from None

    def to_record(self) -> dict[str, str]:
        """Values of a record; JSON and msgpack can hold them."""
        return msgspec.structs.asdict(self)

    @property
    def values(self) -> dict[str, Any]:
        """The statement's values; empty if it is no JSON object."""
        try:
            values = msgspec.json.decode(self.statement)
        except (msgspec.DecodeError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}

    @property
    def digest(self) -> str:
        """SHA-256 of the statement and the 64 bytes of the signature, in hex."""
        return hashlib.sha256(self.statement.encode() + bytes.fromhex(self.signature)).hexdigest()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key that signed."""
        return fingerprint(bytes.fromhex(self.public_key))

    def check(self) -> None:
        """Check the signature.

        Raises:
            UsageError: it is not this key's signature of this statement; PyNaCl is missing.
        """
        nacl = _nacl()
        try:
            key, signature = bytes.fromhex(self.public_key), bytes.fromhex(self.signature)
            nacl.signing.VerifyKey(key).verify(self.statement.encode(), signature)
            if (key.hex(), signature.hex()) != (self.public_key, self.signature):
                raise ValueError("upper-case digits")  # a record has one form only
        except (ValueError, nacl.exceptions.CryptoError):
            raise UsageError("the signature is not of this statement") from None


class Counter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a vehicle has signed.

    Attributes:
        last: the last signature; None before the first.
        deleted: numbers of signatures whose sessions the recorder deleted, as ranges
            ``[first, last]``, sorted.
    """

    last: Signed | None = None
    deleted: tuple[tuple[int, int], ...] = ()

    def without(self, numbers: Iterable[int]) -> Counter:
        """The counter after the sessions with these signatures were deleted."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted([*self.deleted, *((n, n) for n in numbers)]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = ranges[-1][0], max(last, ranges[-1][1])
            else:
                ranges.append((first, last))
        return Counter(self.last, tuple(ranges))


def fingerprint(public: bytes) -> str:
    """SHA-256 of a public key's SubjectPublicKeyInfo (DER), in hex.

    ``openssl pkey -pubin -in vehicle.pub -outform DER | sha256sum`` prints the same.
    """
    return hashlib.sha256(_PUBLIC_HEAD + public).hexdigest()


def read_anchor(text: str) -> str:
    """The fingerprint of a key that a user trusts.

    Args:
        text: the fingerprint, or the path of the file with the public key.

    Raises:
        UsageError: it is neither.
    """
    if _FINGERPRINT.fullmatch(text):
        return text.lower()
    return fingerprint(_read_pem(Path(text), "PUBLIC KEY", _PUBLIC_HEAD))


def make_key(folder: Path) -> Path:
    """Make a key; never replaces one.

    Returns:
        The file of the private key.

    Raises:
        UsageError: there is a key already, or PyNaCl is missing.
        StorageError: the folder cannot be written to.
    """
    made, path = _nacl().signing.SigningKey.generate(), folder / KEY
    try:
        make_folders(folder.parent)
        folder.mkdir(0o700, exist_ok=True)
        PosixDisk().sync_folder(folder.parent)
        for suffix in (_PUBLIC, _COUNTER):  # of a key that was deleted: old signatures need them
            if not path.exists() and path.with_suffix(suffix).exists():
                raise UsageError(f"{path.with_suffix(suffix)}: is of another key; use a new folder")
        with contextlib.ExitStack() as undo:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            undo.callback(path.unlink)
            with os.fdopen(fd, "wb") as file:
                file.write(_pem("PRIVATE KEY", _PRIVATE_HEAD + bytes(made)))
                file.flush()
                os.fsync(file.fileno())
            public = _pem("PUBLIC KEY", _PUBLIC_HEAD + bytes(made.verify_key))
            PosixDisk().write_file(path.with_suffix(_PUBLIC), public)
            path.with_suffix(_PUBLIC).chmod(0o644)
            PosixDisk().write_file(path.with_suffix(_COUNTER), msgspec.json.encode(Counter()))
            undo.pop_all()
    except FileExistsError:
        raise UsageError(f"{path}: there is a key already; nothing was changed") from None
    except OSError as error:
        raise StorageError(f"{folder}: no key can be made there: {error.strerror}") from None
    return path


class VehicleKey:
    """A key that signs.

    Attributes:
        path: of the private key.
        public: the public key, 32 bytes.

    Args:
        path: of the private key.

    Raises:
        UsageError: the file is missing or no key, belongs to another user, or others can read it;
            PyNaCl is missing.
    """

    def __init__(self, path: Path) -> None:
        nacl = _nacl()
        check_private(path)
        self.path = path
        self._key = nacl.signing.SigningKey(_read_pem(path, "PRIVATE KEY", _PRIVATE_HEAD))
        self.public = bytes(self._key.verify_key)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public)

    def public_pem(self) -> str:
        """The public key as ``vehicle.pub`` has it."""
        return _pem("PUBLIC KEY", _PUBLIC_HEAD + self.public).decode()

    def signed(self, statement: dict[str, Any]) -> Signed:
        """Sign a statement."""
        text = msgspec.json.encode(statement, order="sorted")
        signature: bytes = self._key.sign(text).signature
        return Signed(text.decode(), signature.hex(), self.public.hex())

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counter]:
        """Keep other processes from counting; yields the counter.

        Raises:
            UsageError: the counter is missing or damaged.
        """
        with self.path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.counter()

    def counter(self) -> Counter:
        """What was counted; errors as `counting`."""
        path = self.path.with_suffix(_COUNTER)
        try:
            counter = msgspec.json.decode(path.read_bytes(), type=ready(Counter))
            if counter.last is not None:
                counter.last.check()
            return counter
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
        except (msgspec.MsgspecError, UnicodeDecodeError, UsageError):
            why = "is damaged"
        raise UsageError(f"{path}: {why}; make a new key: docs/custody.md") from None

    def count(self, counter: Counter) -> None:
        """Replace the counter, durably; within `counting`."""
        PosixDisk().write_file(self.path.with_suffix(_COUNTER), msgspec.json.encode(counter))


def _pem(kind: str, der: bytes) -> bytes:
    body = base64.b64encode(der).decode()  # one line: it has fewer than 64 characters
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n".encode()


def _read_pem(path: Path, kind: str, head: bytes) -> bytes:
    """The 32 bytes of a key; UsageError, which shows nothing of the file."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("ascii")
        found = re.search(rf"-----BEGIN {kind}-----(.*?)-----END {kind}-----", text, re.DOTALL)
        der = base64.b64decode("".join(found[1].split()), validate=True) if found else b""
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        der = b""
    if len(der) != len(head) + _KEY_BYTES or not der.startswith(head):
        raise UsageError(f"{path}: holds no Ed25519 {kind.lower()} in PEM")
    return der[len(head) :]


def _nacl() -> Any:
    try:
        import nacl.exceptions
        import nacl.signing
    except ModuleNotFoundError:
        raise UsageError(f"a signature {need_extra('custody')}: no PyNaCl") from None
    return nacl
