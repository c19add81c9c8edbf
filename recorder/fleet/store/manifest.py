"""What an upload consists of.  A manifest is written last: what has none is not there yet.

Keys of a store: the files of session NAME are ``NAME/PATH``, its manifest is
``_manifests/NAME.json``; of an archive that was packed from it, ``NAME/ARCHIVE/PATH`` and
``_manifests/NAME/ARCHIVE.json``.  An encrypted file has segments instead, whose keys the manifest
names: ``NAME/PATH.NUMBER-TOKEN.age``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from recorder.contract.errors import FormatError, UsageError
from recorder.contract.session_names import check_name
from recorder.fleet.store.base import canonical_json, check_key

MANIFESTS: Final = "_manifests/"
VERSION: Final = 1
ENCRYPTED: Final = 2
"""Version of a manifest whose files are encrypted; a reader that knows 1 only refuses it."""


class Segment(msgspec.Struct, frozen=True):
    """An age file: its path below the manifest's folder, bytes, and SHA-256 in hex."""

    path: str
    size: int
    sha256: str


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file: its path below the manifest's folder, bytes, and SHA-256 in hex.

    `segments`: the age files that hold it instead of an object of its path, in their order; the
    bytes and the SHA-256 are those of the decrypted file.
    """

    path: str
    size: int
    sha256: str
    segments: tuple[Segment, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was uploaded.

    Attributes:
        kind: ``session``, or ``archive``.
        name: of the session.
        folder: key that all paths are below.
        files: all of them, in the order of their paths.
        about: the session's row of the catalog, or what an archive was made from and how.
        recipients: public keys of those who can decrypt the files; none: they are not encrypted.
        sealed: the whole row as JSON in an age file, where `about` has only a part of it.
    """

    kind: str
    name: str
    folder: str
    files: tuple[Entry, ...]
    about: Mapping[str, Any] = {}
    recipients: tuple[str, ...] = ()
    sealed: bytes = b""
    version: int = VERSION

    def encode(self) -> bytes:
        """The same bytes for the same content."""
        values = msgspec.to_builtins(self)
        if self.version == VERSION:
            del values["recipients"], values["sealed"]
        return canonical_json(values)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """A manifest from its bytes.

        Args:
            data: the bytes.
            where: names them in errors.

        Raises:
            FormatError: it is none of this version, or a path leads out of its folder.
        """
        try:
            manifest = msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise FormatError(f"{where}: is no manifest: {error}") from None
        if manifest.version not in (VERSION, ENCRYPTED):
            raise FormatError(
                f"{where}: is of version {manifest.version}, not {VERSION} or {ENCRYPTED}"
            )
        encrypted = manifest.version == ENCRYPTED
        told = {bool(manifest.recipients), *(bool(entry.segments) for entry in manifest.files)}
        if told != {encrypted}:
            raise FormatError(f"{where}: is no manifest: some of its files are encrypted, not all")
        try:
            check_name(manifest.name)
        except UsageError as error:
            raise FormatError(f"{where}: is no manifest: {error}") from None
        for path in (manifest.folder, *(entry.path for entry in manifest.files)):
            check_key(path)
        for found in manifest.objects():
            check_key(found.path)
        return manifest

    def objects(self) -> Iterator[Segment]:
        """What the store has of the files: keys, bytes and SHA-256."""
        for entry in self.files:
            for each in entry.segments or (Segment(entry.path, entry.size, entry.sha256),):
                yield Segment(f"{self.folder}/{each.path}", each.size, each.sha256)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)


def session_manifest(name: str) -> str:
    """Key of a session's manifest."""
    return f"{MANIFESTS}{name}.json"


def archive_manifest(name: str, archive: str) -> str:
    """Key of an archive's manifest."""
    return f"{MANIFESTS}{name}/{archive}.json"
