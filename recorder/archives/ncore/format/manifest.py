"""JSON file of a sequence: its stores with their checksums and components."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from recorder.archives.ncore.format.component import Interval
from recorder.common.errors import ArchiveError, FormatError
from recorder.common.files import PosixDisk
from recorder.common.struct_codec import prepare_type
from recorder.formats.zarr2 import open_store, read_metadata
from recorder.formats.zarr2.documents import dump_json
from recorder.formats.zarr2.stores import compute_md5, storage_errors

VERSION: Final = "v4"
ROOT_KEYS = (
    "sequence_id",
    "sequence_timestamp_interval_us",
    "generic_meta_data",
    "version",
    "component_group_name",
)
Components = dict[str, dict[str, dict[str, Any]]]


class StoreEntry(Struct):
    """Entry of one store.

    Attributes:
        path: name of the store, in the folder of the JSON file.
        md5: checksum of the file, or of the folder's names and contents.
        components: version and generic metadata by component and instance.
    """

    path: str
    md5: str
    components: Components


class Manifest(Struct):
    """Content of a sequence's JSON file."""

    sequence_id: str
    interval: Interval = field(name="sequence_timestamp_interval_us")
    metadata: dict[str, Any] = field(name="generic_meta_data")
    version: Literal["v4"] = VERSION
    stores: list[StoreEntry] = field(name="component_stores", default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        dump_json(self.metadata)  # FormatError for values that JSON cannot represent
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    def root_attributes(self, group: str) -> dict[str, Any]:
        """Return the attributes of the root of a store."""
        document = self.document()
        del document["component_stores"]
        return document | {"component_group_name": group}

    def write(self, path: Path) -> None:
        """Write the JSON file atomically; it replaces an older one."""
        text = json.dumps(self.document(), indent=2)
        with storage_errors(path):
            PosixDisk().write_file(path, text.encode())


def read_manifest(path: Path) -> Manifest:
    """Read a sequence's JSON file; raise a FormatError if it is invalid."""
    with storage_errors(path):
        text = path.read_bytes()
    try:
        return msgspec.convert(json.loads(text), prepare_type(Manifest))
    except ValueError as error:
        raise FormatError(f"{path}: is not an NCore sequence ({error})") from None


def describe_store(path: Path, md5: str | None = None) -> tuple[Manifest, str]:
    """Read a single store; return a manifest with only its entry, and its group's name."""
    metadata = read_metadata(open_store(path))
    root = metadata.get(".zattrs", {})
    missing = [key for key in ROOT_KEYS if key not in root]
    if missing or root["version"] != VERSION:
        raise FormatError(f"{path}: is not an NCore {VERSION} store, its root lacks {missing}")
    components: Components = {}
    for key, attributes in metadata.items():
        component, _, instance = key.removesuffix("/.zattrs").partition("/")
        if key.endswith("/.zattrs") and instance and "/" not in instance:
            components.setdefault(component, {})[instance] = {
                "version": attributes["component_version"],
                "generic_meta_data": attributes["generic_meta_data"],
            }
    try:
        manifest = msgspec.convert(root, prepare_type(Manifest))
    except ValueError as error:
        raise FormatError(f"{path}: is not an NCore {VERSION} store ({error})") from None
    manifest.stores = [StoreEntry(path.name, store_md5(path) if md5 is None else md5, components)]
    return manifest, root["component_group_name"]


def read_sequence(paths: list[Path]) -> Manifest:
    """Read a sequence from its JSON file or its stores; raise an ArchiveError if they differ."""
    manifest: Manifest | None = None
    for path in paths:
        one = read_manifest(path) if path.suffix == ".json" else describe_store(path)[0]
        if manifest is None:
            manifest = one
        elif (manifest.sequence_id, manifest.interval, manifest.metadata) != (
            one.sequence_id,
            one.interval,
            one.metadata,
        ):
            raise ArchiveError(f"{path} belongs to a different sequence than {paths[0]}")
        else:
            manifest.stores += one.stores
    if manifest is None:
        raise ArchiveError("no stores are given")
    return manifest


def store_md5(path: Path) -> str:
    """Return NCore's MD5 of a file, or of a folder's files in the order of their names."""
    with storage_errors(path):
        return compute_md5(path)
