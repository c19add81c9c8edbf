"""The key of a vehicle, which signs its sessions: Ed25519 (RFC 8032).

A folder has three files:

=================  ==========================================================================
vehicle.key        the private key, PKCS #8 in PEM (RFC 8410), mode 0600
vehicle.pub        the public key, SubjectPublicKeyInfo in PEM (RFC 8410), readable for all
vehicle.register   signed and deleted sessions: see `recorder.integrity.key_register`
=================  ==========================================================================

::

    make_key(folder)
    key = VehicleKey(folder / KEY)
    signed = key.sign(statement)
    with key.register.lock_entries() as entries: ...
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.common.errors import StorageError, UsageError, need_extra
from recorder.common.files import PosixDisk, check_private, make_folders
from recorder.common.struct_codec import prepare_type
from recorder.integrity.key_register import SIGN, Entry, Register

KEY: Final = "vehicle.key"
_PUBLIC, _REGISTER = ".pub", ".register"
_PRIVATE_HEAD = bytes.fromhex("302e020100300506032b657004220420")
_PUBLIC_HEAD = bytes.fromhex("302a300506032b6570032100")
_FINGERPRINT = re.compile("[0-9a-fA-F]{64}")
_KEY_BYTES = 32
_MOST_BYTES = 64 << 10  # of a file of keys


class Signed(msgspec.Struct, frozen=True):
    """A signed statement.

    Attributes:
        statement: the signed JSON; the signature is of its UTF-8 bytes.
        signature: 64 bytes, in hex.
        public_key: the 32 bytes of the key that signed, in hex.
    """

    statement: str
    signature: str
    public_key: str

    @classmethod
    def from_record(cls, values: Any) -> Signed:
        """Convert a record's values; UsageError if they are no signature."""
        try:
            return msgspec.convert(values, prepare_type(cls))
        except msgspec.ValidationError as error:
            raise UsageError(f"is no signature: {error}") from None

    def to_record(self) -> dict[str, str]:
        """Return values of a record; JSON and msgpack can hold them."""
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
        nacl = _import_nacl()
        try:
            key, signature = bytes.fromhex(self.public_key), bytes.fromhex(self.signature)
            nacl.signing.VerifyKey(key).verify(self.statement.encode(), signature)
            if (key.hex(), signature.hex()) != (self.public_key, self.signature):
                raise ValueError("upper-case digits")  # a record has one form only
        except (ValueError, nacl.exceptions.CryptoError):
            raise UsageError("the signature is not of this statement") from None


def fingerprint(public: bytes) -> str:
    """Return the SHA-256 of a public key's SubjectPublicKeyInfo (DER), in hex.

    ``openssl pkey -pubin -in vehicle.pub -outform DER | sha256sum`` prints the same.
    """
    return hashlib.sha256(_PUBLIC_HEAD + public).hexdigest()


def read_anchor(text: str) -> str:
    """Return the fingerprint of a key that a user trusts.

    Args:
        text: the fingerprint, or the path of the file with the public key.

    Raises:
        UsageError: it is neither.
    """
    if _FINGERPRINT.fullmatch(text):
        return text.lower()
    return fingerprint(_read_pem(Path(text), "PUBLIC KEY", _PUBLIC_HEAD))


def make_key(folder: Path) -> Path:
    """Create a key; never replace one.

    Returns:
        The file of the private key.

    Raises:
        UsageError: there is a key already, or PyNaCl is missing.
        StorageError: the folder cannot be written to.
    """
    made, path = _import_nacl().signing.SigningKey.generate(), folder / KEY
    try:
        make_folders(folder.parent)
        folder.mkdir(0o700, exist_ok=True)
        PosixDisk().sync_folder(folder.parent)
        for suffix in (_PUBLIC, _REGISTER):  # of a key that was deleted: old signatures need them
            if not path.exists() and path.with_suffix(suffix).exists():
                raise UsageError(f"{path.with_suffix(suffix)}: is of another key; use a new folder")
        with contextlib.ExitStack() as undo:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            undo.callback(path.unlink)
            with os.fdopen(fd, "wb") as file:
                file.write(_encode_pem("PRIVATE KEY", _PRIVATE_HEAD + bytes(made)))
                file.flush()
                os.fsync(file.fileno())
            public = _encode_pem("PUBLIC KEY", _PUBLIC_HEAD + bytes(made.verify_key))
            PosixDisk().write_file(path.with_suffix(_PUBLIC), public)
            path.with_suffix(_PUBLIC).chmod(0o644)
            Register(path.with_suffix(_REGISTER)).make()
            undo.pop_all()
    except FileExistsError:
        raise UsageError(f"{path}: there is a key already; nothing was changed") from None
    except OSError as error:
        raise StorageError(f"{folder}: no key can be made there: {error.strerror}") from None
    return path


class VehicleKey:
    """A private key that signs statements.

    Attributes:
        path: of the private key.
        public: the public key, 32 bytes.
        register: the register of its signatures.

    Args:
        path: of the private key.

    Raises:
        UsageError: the file is missing or no key, belongs to another user, or others can read it;
            PyNaCl is missing.
    """

    def __init__(self, path: Path) -> None:
        nacl = _import_nacl()
        check_private(path)
        self.path = path
        self._key = nacl.signing.SigningKey(_read_pem(path, "PRIVATE KEY", _PRIVATE_HEAD))
        self.public = bytes(self._key.verify_key)
        self.register = Register(path.with_suffix(_REGISTER))

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public)

    def public_pem(self) -> str:
        """Return the public key as ``vehicle.pub`` has it."""
        return _encode_pem("PUBLIC KEY", _PUBLIC_HEAD + self.public).decode()

    def sign(self, statement: dict[str, Any]) -> Signed:
        """Sign a statement."""
        text = msgspec.json.encode(statement, order="sorted")
        signature: bytes = self._key.sign(text).signature
        return Signed(text.decode(), signature.hex(), self.public.hex())

    def last_signature(self) -> Signed | None:
        """Return the last signature of a session; None before the first.

        Raises:
            UsageError: the register is missing or damaged.
            StorageError: it cannot be read.
        """
        with self.register.open_entries() as entries:
            return find_latest_signature(entries.since_signature())


def find_latest_signature(entries: Iterable[Entry]) -> Signed | None:
    """Return the last signature of some entries; None without one."""
    found = [Signed.from_record(entry.content) for entry in entries if entry.kind == SIGN]
    return found[-1] if found else None


def _encode_pem(kind: str, der: bytes) -> bytes:
    body = base64.b64encode(der).decode()  # one line: it has fewer than 64 characters
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n".encode()


def _read_pem(path: Path, kind: str, head: bytes) -> bytes:
    """Return the 32 bytes of a key; UsageError, without any content of the file."""
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


def _import_nacl() -> Any:
    try:
        import nacl.exceptions
        import nacl.signing
    except ModuleNotFoundError:
        raise UsageError(f"a signature {need_extra('custody')}: no PyNaCl") from None
    return nacl
