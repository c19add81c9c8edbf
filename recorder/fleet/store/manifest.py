"""Manifest of an upload.  It is written last: an upload without a manifest is incomplete.

Keys of a store: the files of session NAME are ``NAME/PATH``, its manifest is
``_manifests/NAME.json``; of an archive that was packed from it, ``NAME/ARCHIVE/PATH`` and
``_manifests/NAME/ARCHIVE.json``.  An encrypted file has segments instead, whose keys the manifest
names: ``NAME/PATH.NUMBER-TOKEN.age``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from recorder.common.errors import FormatError, StorageError, UsageError
from recorder.common.struct_codec import prepare_type
from recorder.config.names import check_name
from recorder.fleet.store.base import Store, canonical_json, check_key, same_content

MANIFESTS: Final = "_manifests/"
VERSION: Final = 1
_KEY: Final = re.compile(rf"{MANIFESTS}([A-Za-z0-9][A-Za-z0-9._-]*)(?:/([A-Za-z0-9_-]+))?\.json")
ENCRYPTED: Final = 2
"""Version of a manifest with encrypted files; a reader that knows only version 1 refuses it."""

LEFT_SEGMENT: Final = re.compile(r"\.[0-9]{5}-[0-9a-f]{32}\.age\Z")
"""End of a segment's key, by which a segment without a manifest is recognized."""


class Segment(msgspec.Struct, frozen=True):
    """An age file: its path below the manifest's folder, size in bytes, and SHA-256 in hex."""

    path: str
    size: int
    sha256: str


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file: its path below the manifest's folder, size in bytes, and SHA-256 in hex.

    `segments`: age files that hold the file instead of an object of its path, in order; size and
    SHA-256 are those of the decrypted file.
    """

    path: str
    size: int
    sha256: str
    segments: tuple[Segment, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of an upload.

    Attributes:
        kind: ``session``, or ``archive``.
        name: name of the session.
        folder: key prefix of all paths.
        files: all files, sorted by path.
        about: the session's row of the catalog, or the sources and options of an archive.
        recipients: public keys for which the files are encrypted; empty: they are not encrypted.
        sealed: the whole row as JSON in an age file, if `about` has only a part of it.
        digest: SHA-256 of the manifest's bytes without it, in hex; empty in early versions.
    """

    kind: str
    name: str
    folder: str
    files: tuple[Entry, ...]
    about: Mapping[str, Any] = {}
    recipients: tuple[str, ...] = ()
    sealed: bytes = b""
    version: int = VERSION
    digest: str = ""

    def with_digest(self) -> Manifest:
        """Return the manifest with the digest of its content."""
        bare = msgspec.structs.replace(self, digest="")
        return msgspec.structs.replace(bare, digest=sha256(bare.encode()).hexdigest())

    @property
    def key(self) -> str:
        """Key of the manifest in the store; empty if name, kind and folder are inconsistent."""
        name, archive = self.name, self.folder.removeprefix(f"{self.name}/")
        if self.kind == "session" and self.folder == name:
            return session_manifest(name)
        is_archive = self.kind == "archive" and self.folder == f"{name}/{archive}"
        return archive_manifest(name, archive) if is_archive and "/" not in archive else ""

    def encode(self) -> bytes:
        """Encode the manifest; the same content gives the same bytes."""
        values = msgspec.to_builtins(self)
        if not self.digest:
            del values["digest"]
        if self.version == VERSION:
            del values["recipients"], values["sealed"]
        return canonical_json(values)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """Decode a manifest.

        Args:
            data: the bytes.
            where: name of the manifest in errors.

        Raises:
            FormatError: the bytes are not a manifest of a known version, or a path leads out of its
                folder.
        """
        try:
            manifest = msgspec.json.decode(data, type=prepare_type(cls))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise FormatError(f"{where}: is no manifest: {error}") from None
        if manifest.version not in (VERSION, ENCRYPTED):
            raise FormatError(
                f"{where}: is of version {manifest.version}, not {VERSION} or {ENCRYPTED}"
            )
        encrypted = manifest.version == ENCRYPTED
        states = {bool(manifest.recipients), *(bool(entry.segments) for entry in manifest.files)}
        if states != {encrypted}:
            raise FormatError(f"{where}: is no manifest: some of its files are encrypted, not all")
        try:
            check_name(manifest.name)
            for path in (manifest.folder, *(entry.path for entry in manifest.files)):
                check_key(path)
            for found in manifest.objects():
                check_key(found.path)
        except (StorageError, UsageError) as error:
            raise FormatError(f"{where}: is no manifest: {error}") from None
        if len({entry.path for entry in manifest.files}) != len(manifest.files):
            raise FormatError(f"{where}: is no manifest: it names a file twice")
        return manifest

    @classmethod
    def read(cls, store: Store, key: str) -> Manifest:
        """Read the manifest under a key of a store.

        Raises:
            FormatError: as `decode`, or the manifest belongs to another key.
            StorageError: the manifest cannot be read.
        """
        where = f"{store.url}/{key}"
        manifest = cls.decode(store.read(key), where)
        if manifest.key != key:
            raise FormatError(
                f"{where}: is no manifest: it is of another {manifest.kind}, {manifest.folder}"
            )
        return manifest

    def put(self, store: Store) -> None:
        """Create the manifest when the store has all objects; this completes the upload.

        A store may acknowledge an object that it does not keep.  The objects are therefore listed
        with their sizes first, and the manifest is read back.

        Raises:
            ObjectExistsError: there is a manifest with other content.
            StorageError: the store lacks an object, or the manifest.
        """
        sizes = {found.key: found.size for found in store.list(f"{self.folder}/")}
        for each in self.objects():
            if sizes.get(each.path) != each.size:
                raise StorageError(
                    f"{store.url}/{each.path}: the store acknowledged it, and does not list it "
                    f"with its {each.size} bytes; the upload is not complete; try again"
                )
        data = self.encode()
        store.put_new(self.key, data)
        if not same_content(store, self.key, len(data), sha256(data).hexdigest()):
            raise StorageError(
                f"{store.url}/{self.key}: the store acknowledged it, and does not have it as it "
                "was sent; the upload is not complete"
            )

    def objects(self) -> Iterator[Segment]:
        """Yield the stored objects of the files: keys, sizes and SHA-256."""
        for entry in self.files:
            for each in entry.segments or (Segment(entry.path, entry.size, entry.sha256),):
                yield Segment(f"{self.folder}/{each.path}", each.size, each.sha256)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)


def is_manifest(key: str) -> bool:
    """Check that a key has the form of a manifest's key; any other key has another owner."""
    return _KEY.fullmatch(key) is not None


def list_manifests(store: Store) -> Iterator[tuple[str, str, int]]:
    """Yield session, archive (or an empty text) and size of each manifest in a store."""
    for found in store.list(MANIFESTS):
        if match := _KEY.fullmatch(found.key):
            yield match[1], match[2] or "", found.size


def session_manifest(name: str) -> str:
    """Return the key of a session's manifest."""
    return f"{MANIFESTS}{name}.json"


def archive_manifest(name: str, archive: str) -> str:
    """Return the key of an archive's manifest."""
    return f"{MANIFESTS}{name}/{archive}.json"
