"""The key of a vehicle, which signs its sessions: Ed25519 (RFC 8032).

A folder has three files:

=================  ==========================================================================
vehicle.key        the private key, PKCS #8 in PEM (RFC 8410), mode 0600
vehicle.pub        the public key, SubjectPublicKeyInfo in PEM (RFC 8410), readable for all
vehicle.register   the sessions that it began, signed and deleted, by number
=================  ==========================================================================

::

    make_key(folder)
    key = VehicleKey(folder / KEY)
    signed = key.sign(statement)
    with key.register.lock_entries() as entries:
        entries.append(OPEN, first, {"folder": "/data/sessions/drive-1"})
        entries.of(first)

The register is an SQLite database to which entries are only appended.  An entry names its session
by the BLAKE3 of the first record of the session's journal.  Each has a link, the BLAKE3 of the link
before it and of its own content, so that a damaged entry is found; signatures state the link of the
last entry.

=========  =====================================================================================
entry      content
=========  =====================================================================================
open       ``folder``: a writer with the key began the session there
sign       a `Signed`: the session is closed, and stays as it is
delete     ``numbers`` of its signatures and their ``digests``: the recorder deletes the session
=========  =====================================================================================
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.common.errors import StorageError, UsageError, need_extra
from recorder.common.files import FILE_MODE, PosixDisk, check_private, make_folders
from recorder.common.struct_codec import prepare_type
from recorder.session.journal.digests import digest

OPEN, SIGN, DELETE = "open", "sign", "delete"
_WAIT_S: Final = 5.0  # an entry takes milliseconds
_MAKE: Final = """
CREATE TABLE entries (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, first TEXT NOT NULL, content TEXT NOT NULL,
  link TEXT NOT NULL
);
CREATE INDEX of_session ON entries (first);
CREATE TRIGGER kept BEFORE DELETE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are only appended'); END;
CREATE TRIGGER unchanged BEFORE UPDATE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are only appended'); END;
"""
_ROWS: Final = """
SELECT one.kind, one.first, one.content, one.link, coalesce(before.link, '')
FROM entries AS one LEFT JOIN entries AS before ON before.number = one.number - 1
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; see the module.

    Attributes:
        kind: `OPEN`, `SIGN` or `DELETE`.
        first: the session: BLAKE3 of the first record of its journal, in hex.
        content: what happened to it.
    """

    kind: str
    first: str
    content: dict[str, Any]


class Register:
    """The register in a file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make an empty register, durably; OSError, StorageError."""
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        with self._connect() as connection:
            connection.executescript(_MAKE)
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        PosixDisk().sync_folder(self.path.parent)

    @contextlib.contextmanager
    def lock_entries(self) -> Iterator[Entries]:
        """Lock the register for appending; entries are durable at the end, or discarded.

        Raises:
            UsageError: the register is missing or damaged.
            StorageError: it cannot be written, or another process holds it too long.
        """
        with self._connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Entries(connection, self.path)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def open_entries(self) -> Iterator[Entries]:
        """Read the entries without a lock; errors as `lock_entries`."""
        with self._connect() as connection:
            yield Entries(connection, self.path)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            raise UsageError(f"{self.path}: is missing; make a new key: docs/security.md")
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            connection = sqlite3.connect(uri, _WAIT_S, isolation_level=None, uri=True)
            with contextlib.closing(connection):
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self.path}: cannot be used: {error}") from None
        except sqlite3.Error:
            raise _create_damage_error(self.path) from None


class Entries:
    """The entries of a register that is open."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    @property
    def link(self) -> str:
        """The link of the last entry; empty without one."""
        found = self._connection.execute("SELECT link FROM entries ORDER BY number DESC LIMIT 1")
        row = found.fetchone()
        return "" if row is None else str(row[0])

    def of(self, first: str) -> list[Entry]:
        """Return the entries of a session, in order; UsageError if one is damaged."""
        rows = self._connection.execute(f"{_ROWS} WHERE one.first = ? ORDER BY one.number", [first])
        return [self._check_row(row) for row in rows]

    def since_signature(self) -> list[Entry]:
        """Return the entries from the last `SIGN` entry on; before the first signature, all."""
        found: list[Entry] = []
        for row in self._connection.execute(f"{_ROWS} ORDER BY one.number DESC"):
            found.append(self._check_row(row))
            if found[-1].kind == SIGN:
                break
        return found[::-1]

    def append(self, kind: str, first: str, content: dict[str, Any]) -> None:
        """Append an entry; within `Register.lock_entries`."""
        text = json.dumps(content, sort_keys=True)
        link = _compute_link(self.link, kind, first, text)
        self._connection.execute(
            "INSERT INTO entries (number, kind, first, content, link)"
            " SELECT coalesce(max(number), 0) + 1, ?, ?, ?, ? FROM entries",
            [kind, first, text, link],
        )

    def _check_row(self, row: Any) -> Entry:
        kind, first, text, link, before = row
        is_text = all(isinstance(value, str) for value in row)
        if not is_text or _compute_link(before, kind, first, text) != link:
            raise _create_damage_error(self._path)
        return Entry(kind, first, json.loads(text))


def _compute_link(before: str, kind: str, first: str, text: str) -> str:
    return digest("\0".join((before, kind, first, text)).encode()).hex()


def _create_damage_error(path: Path) -> UsageError:
    return UsageError(f"{path}: is damaged; make a new key: docs/security.md")


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
    secret, path = _import_nacl().signing.SigningKey.generate(), folder / KEY
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
                file.write(_encode_pem("PRIVATE KEY", _PRIVATE_HEAD + bytes(secret)))
                file.flush()
                os.fsync(file.fileno())
            public = _encode_pem("PUBLIC KEY", _PUBLIC_HEAD + bytes(secret.verify_key))
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
