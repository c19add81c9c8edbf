"""What an upload consists of.  A manifest is written last: what has none is not there yet.

Keys of a store: the files of session NAME are ``NAME/PATH``, its manifest is
``_manifests/NAME.json``; of an archive that was packed from it, ``NAME/ARCHIVE/PATH`` and
``_manifests/NAME/ARCHIVE.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from recorder.contract.errors import FormatError, UsageError
from recorder.contract.session_names import check_name
from recorder.fleet.store.base import canonical_json, check_key

MANIFESTS: Final = "_manifests/"
VERSION: Final = 1


class Entry(msgspec.Struct, frozen=True):
    """A file: its path below the manifest's folder, bytes, and SHA-256 in hex."""

    path: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was uploaded.

    Attributes:
        kind: ``session``, or ``archive``.
        name: of the session.
        folder: key that all paths are below.
        files: all of them, in the order of their paths.
        about: the session's row of the catalog, or what an archive was made from and how.
    """

    kind: str
    name: str
    folder: str
    files: tuple[Entry, ...]
    about: Mapping[str, Any] = {}
    version: int = VERSION

    def encode(self) -> bytes:
        """The same bytes for the same content."""
        return canonical_json(msgspec.to_builtins(self))

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
        if manifest.version != VERSION:
            raise FormatError(f"{where}: is of version {manifest.version}, not {VERSION}")
        try:
            check_name(manifest.name)
        except UsageError as error:
            raise FormatError(f"{where}: is no manifest: {error}") from None
        for path in (manifest.folder, *(entry.path for entry in manifest.files)):
            check_key(path)
        return manifest

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
