"""Encryption of a store's objects with age: recipients encrypt, identities decrypt.

The format is that of https://age-encryption.org/v1; the library is pyrage, whose recipients are
X25519 keys (``age1...``) and SSH keys.  The programs age and rage decrypt the files of this module.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from recorder.common.errors import StorageError, UsageError, need_extra
from recorder.common.files import check_private

_SECRET: Final = re.compile(r"AGE-SECRET-KEY-", re.IGNORECASE)
_MOST_BYTES: Final = 64 << 10  # of a file of identities


class Readable(Protocol):
    """Readable source of plain bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; empty at the end."""


class Recipients:
    """Public keys for encryption; the owners of the secret keys can decrypt.

    Attributes:
        names: the public keys, sorted.

    Args:
        texts: public keys, ``age1...``, ``ssh-ed25519 ...`` or ``ssh-rsa ...``.

    Raises:
        UsageError: there is no key, a text is not a public key, or pyrage is missing; the message
            shows no secret key.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.names = tuple(sorted(dict.fromkeys(text.strip() for text in texts)))
        if not self.names:
            raise UsageError("there is no recipient")
        self._keys = [_parse_recipient(name) for name in self.names]

    def encrypt(self, plain: Readable, cipher: BinaryIO) -> tuple[int, str]:
        """Write one age file; return its size in bytes and its SHA-256 in hex."""
        tee = Tee(cipher)
        _import_pyrage().encrypt_io(plain, tee, self._keys)
        return tee.size, tee.sha256

    def encrypt_bytes(self, plain: bytes) -> bytes:
        """Return one age file of a few bytes."""
        cipher: bytes = _import_pyrage().encrypt(plain, self._keys)
        return cipher


class Identity:
    """Secret keys of a file, for decryption; no message shows them.

    Args:
        path: a file as age-keygen writes it, or an SSH private key without a passphrase.

    Raises:
        UsageError: the file cannot be read, is readable by other users, or holds no such key; or
            pyrage is missing.
    """

    def __init__(self, path: Path) -> None:
        check_private(path)
        self._path, self._keys = path, _read_identities(path)

    def decrypt(self, cipher: Path, plain: BinaryIO | Tee, where: str) -> None:
        """Write the content of an age file.

        Args:
            cipher: the file.
            plain: receives the content.
            where: name of the file in errors.

        Raises:
            StorageError: the file is not for this identity, or is damaged; a part may be written.
        """
        rage = _import_pyrage()
        try:
            with cipher.open("rb") as file:
                rage.decrypt_io(file, plain, self._keys)
        except (rage.DecryptError, OSError) as error:
            raise StorageError(f"{where}: {self._describe_failure(error)}") from None

    def decrypt_bytes(self, cipher: bytes, where: str) -> bytes:
        """Return the content of a small age file; raise the same errors as `decrypt`."""
        rage = _import_pyrage()
        try:
            plain: bytes = rage.decrypt(cipher, self._keys)
        except rage.DecryptError as error:
            raise StorageError(f"{where}: {self._describe_failure(error)}") from None
        return plain

    def _describe_failure(self, error: Exception) -> str:
        return f"cannot be decrypted with {self._path}: {error}"


class Tee:
    """Output file that counts the written bytes and computes their digest.

    Attributes:
        size: written bytes so far.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def sha256(self) -> str:
        """SHA-256 of the written bytes so far, in hex."""
        return self._digest.hexdigest()


def _parse_recipient(text: str) -> Any:
    rage = _import_pyrage()
    if _SECRET.search(text) or "PRIVATE KEY" in text:
        raise UsageError("a recipient is a secret key; give the public one, which begins with age1")
    kind = rage.ssh.Recipient if text.startswith("ssh-") else rage.x25519.Recipient
    try:
        return kind.from_str(text)
    except rage.RecipientError as error:
        raise UsageError(f"{text[:80]!r} is no recipient of age: {error}") from None


def _read_identities(path: Path) -> list[Any]:
    rage = _import_pyrage()
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
        if b"PRIVATE KEY-----" in data:
            return [rage.ssh.Identity.from_buffer(data)]
        lines = [line.strip() for line in io.StringIO(data.decode())]
        keys = [line for line in lines if line and not line.startswith("#")]
        found = [rage.x25519.Identity.from_str(key) for key in keys]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (rage.IdentityError, ValueError):  # whose text may show the key
        found = []
    if not found:
        raise UsageError(f"{path}: holds no secret keys of age (age-keygen makes one)")
    return found


def _import_pyrage() -> Any:
    try:
        import pyrage
    except ModuleNotFoundError:
        raise UsageError(f"encryption {need_extra('encryption')}: no pyrage") from None
    return pyrage
