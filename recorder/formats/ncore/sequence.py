"""The stores of an NCore V4 sequence, and the components in them.

::

    with NcoreSequence(Path("drive.json")) as sequence:      # or an .itar, a .zarr, their folder
        sequence.instances("cameras")                        # ["front", ...]
        front = sequence.instance("cameras", "front")
        front.attributes("frames")["frames_timestamps_us"]
        front.array("frames/17/image")

Definition: NVIDIA/ncore, docs/data/formats.rst.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.zarr2.reading import StoreReader, open_store, read_array

if TYPE_CHECKING:
    from recorder.formats.datasets import RecordedStream

VERSION: Final = "v4"
NS_PER_US: Final = 1000
STORE: Final = re.compile(r"(?P<name>.+)\.ncore4(-[^/]+)?\.zarr(\.itar)?")
_COMPONENT_VERSION: Final = "v1"
_SHARED: Final = ("intrinsics/", "poses/")
_LATEST_US: Final = 2**63 // NS_PER_US - 1
_DAMAGE: Final = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError,
    MemoryError, lzma.LZMAError,
)  # fmt: skip
"""What reading a damaged array or document may raise."""


class Instance:
    """One instance of a component: a group in a store.

    Attributes:
        name: component and instance, such as ``cameras/front``.
    """

    def __init__(self, store: StoreReader, name: str) -> None:
        self._store, self.name = store, name

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The instance's generic metadata."""
        found = self.attributes().get("generic_meta_data")
        return found if isinstance(found, dict) else {}

    def where(self, path: str = "") -> str:
        """Return the place of a group or array, for messages."""
        return f"{self._store.path}: {self._key(path)}"

    def _key(self, path: str) -> str:
        return f"{self.name}/{path}" if path else self.name

    def __contains__(self, path: str) -> bool:
        """Return whether there is an array or a group of that path."""
        key = self._key(path)
        return f"{key}/.zarray" in self._store or f"{key}/.zgroup" in self._store

    def attributes(self, path: str = "") -> dict[str, Any]:
        """Return the attributes of a group or array; {} without any.

        Raises:
            FormatError: they are damaged.
        """
        return _read_attributes(self._store, f"{self._key(path)}/")

    def children(self, path: str) -> list[str]:
        """Return the names of the groups and arrays in a group, sorted."""
        return sorted(self._store.children(self._key(path)))

    def array(self, path: str) -> npt.NDArray[Any]:
        """Read a whole array; raise a FormatError if it is missing or damaged."""
        try:
            return read_array(self._store, self._key(path))
        except FormatError:
            raise
        except _DAMAGE as error:
            raise FormatError(f"{self.where(path)}: is missing or damaged: {error}") from None

    def rows(self, path: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows of an array, of whose chunks only those are decoded; raises as `array`."""
        try:
            return read_array(self._store, self._key(path), slice(start, stop))
        except FormatError:
            raise
        except _DAMAGE as error:
            raise FormatError(f"{self.where(path)}: is missing or damaged: {error}") from None

    def length(self, path: str) -> int:
        """Return the number of rows of an array, by its description alone."""
        try:
            return int(json.loads(self._store[f"{self._key(path)}/.zarray"])["shape"][0])
        except _DAMAGE as error:
            raise FormatError(f"{self.where(path)}: is missing or damaged: {error}") from None

    def encoded(self, path: str) -> tuple[bytes, str]:
        """Return an encoded image with all its bytes, and its format in lower case.

        Raises:
            FormatError: it is missing or damaged, or no such image.
        """
        key = self._key(path)
        try:
            about = json.loads(self._store[f"{key}/.zarray"])
            plain = about["compressor"] is None and not about["filters"]
            image = self._store[f"{key}/0"] if plain else read_array(self._store, key).tobytes()
        except FormatError:
            raise
        except _DAMAGE as error:
            raise FormatError(f"{self.where(path)}: is missing or damaged: {error}") from None
        return image, str(self.attributes(path).get("format") or "").lower()

    def frames_us(self) -> npt.NDArray[np.int64]:
        """Return starts and ends of a sensor's frames in order of their ends, i8 [n, 2].

        Raises:
            FormatError: they are missing or damaged.
        """
        given = self.attributes("frames").get("frames_timestamps_us")
        times = self._times(given, "frames", 2)
        if (times[:, 0] > times[:, 1]).any():
            raise FormatError(f"{self.where('frames')}: a frame ends before its start")
        return times[np.argsort(times[:, 1], kind="stable")]

    def times_us(self, path: str) -> npt.NDArray[np.int64]:
        """Return an array of times, i8 [n]; raise a FormatError if it is missing or damaged."""
        return self._times(self.array(path), path, 0)

    def _times(self, given: Any, path: str, columns: int) -> npt.NDArray[np.int64]:
        try:
            times = np.asarray(given)
            if columns:
                times = times.reshape(-1, columns)
            sound = times.size == 0 or (
                times.dtype.kind in "iu" and 0 <= times.min() <= times.max() <= _LATEST_US
            )
        except _DAMAGE:
            sound = False
        if not sound:
            raise FormatError(f"{self.where(path)}: its timestamps are missing or damaged")
        return times.astype(np.int64)


class NcoreSequence(Closeable):
    """Reader of a sequence, whose memory does not grow with the samples but with their index.

    Args:
        path: the JSON file, a store, or the folder of one sequence.
        part: the instance that is read, such as ``cameras/front``; "": all.

    Attributes:
        path: as given.
        id: identity of the sequence.
        start_ns, stop_ns: its interval.
        metadata: generic metadata.

    Raises:
        FormatError: it is no sequence of this version, a store is missing or is of another
            sequence, or the JSON file names a place outside of its folder.
        StorageError: a file cannot be read.
    """

    def __init__(self, path: Path, part: str = "") -> None:
        self.path = path
        self._instances: dict[str, dict[str, Instance]] = {}
        prefixes = (f"{part}/", *_SHARED) if part else ("",)
        first: dict[str, Any] | None = None
        for place in find_stores(path):
            store = open_store(place, prefixes)
            root = _read_attributes(store, "")
            if root.get("version") != VERSION:
                found = root.get("version")
                raise FormatError(f"{place}: is no NCore {VERSION} store: its version is {found!r}")
            known = ("sequence_id", "sequence_timestamp_interval_us", "generic_meta_data")
            if first is not None and any(root.get(key) != first.get(key) for key in known):
                raise FormatError(f"{place}: is a store of another sequence")
            first = first or root
            self._add(store)
        assert first is not None
        self.id, self.metadata = str(first.get("sequence_id")), first.get("generic_meta_data") or {}
        interval = first.get("sequence_timestamp_interval_us")
        try:
            start, stop = interval["start"], interval["stop"]  # type: ignore[index]
            if not (type(start) is type(stop) is int and 0 <= start < stop <= _LATEST_US):
                raise ValueError
        except _DAMAGE:
            raise FormatError(f"{path}: its interval is damaged: {interval!r:.100}") from None
        self.start_ns, self.stop_ns = start * NS_PER_US, stop * NS_PER_US

    def _add(self, store: StoreReader) -> None:
        for component in store.children(""):
            for name in store.children(component):
                found = self._instances.setdefault(component, {})
                if name in found:
                    raise FormatError(f"{store.path}: {component}/{name}: is in two stores")
                found[name] = Instance(store, f"{component}/{name}")

    @property
    def components(self) -> list[str]:
        """Names of the components."""
        return sorted(self._instances)

    def instances(self, component: str) -> dict[str, Instance]:
        """Return the instances of a component by name."""
        return dict(sorted(self._instances.get(component, {}).items()))

    def instance(self, component: str, name: str = "default") -> Instance | None:
        """Return an instance; None without it.

        Raises:
            FormatError: its layout is of another version.
        """
        found = self._instances.get(component, {}).get(name)
        if found is not None:
            version = found.attributes().get("component_version")
            if version != _COMPONENT_VERSION:
                raise FormatError(
                    f"{found.where()}: has version {version!r}, not {_COMPONENT_VERSION}"
                )
        return found

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def stream(self, part: str) -> RecordedStream:
        from recorder.formats.ncore.streams import make_stream

        return make_stream(self, part)


def find_stores(path: Path) -> list[Path]:
    """Return the stores of the sequence that a path names.

    Raises:
        FormatError: the path names none or several sequences, or a store is missing.
        StorageError: a file cannot be read.
    """
    if not path.exists():
        raise FormatError(f"{path}: no such file")
    if path.is_file() and path.suffix == ".json":
        return _read_manifest(path)
    if (named := STORE.fullmatch(path.name)) is not None:
        described = path.with_name(f"{named['name']}.json")
        if described.is_file() and is_manifest(described):
            return _read_manifest(described)
        return _list_stores(path.parent)[named["name"]]
    found = _list_stores(path) if path.is_dir() else {}
    if len(found) != 1:
        names = ", ".join(sorted(found)) or "none"
        raise FormatError(f"{path}: needs one sequence; those in it: {names:.300}")
    ((name, stores),) = found.items()
    described = path / f"{name}.json"
    return _read_manifest(described) if described.is_file() else stores


def _list_stores(folder: Path) -> dict[str, list[Path]]:
    """Return the stores in a folder, by sequence; the main store of each first."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir(), key=lambda one: ("ncore4-" in one.name, one.name)):
        if (match := STORE.fullmatch(path.name)) is not None:
            found.setdefault(match["name"], []).append(path)
    return found


def is_manifest(path: Path) -> bool:
    """Return whether a JSON file describes a sequence."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "component_stores" in document


def _read_manifest(path: Path) -> list[Path]:
    document = _parse(path.read_bytes(), str(path))
    if document.get("version") != VERSION:
        found = document.get("version")
        raise FormatError(f"{path}: is no NCore {VERSION} sequence: its version is {found!r:.60}")
    stores = document.get("component_stores")
    if not isinstance(stores, list) or not stores:
        raise FormatError(f"{path}: names no store")
    return list(_check_places(path, stores))


def _check_places(path: Path, stores: list[Any]) -> Iterator[Path]:
    for entry in stores:
        name = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
            raise FormatError(f"{path}: names a store outside of its folder: {name!r:.100}")
        place = path.with_name(name)
        if not place.exists():
            raise FormatError(f"{path}: its store {name} is missing")
        yield place


def _read_attributes(store: StoreReader, prefix: str) -> dict[str, Any]:
    key = f"{prefix}.zattrs"
    return _parse(store[key], f"{store.path}: {key}") if key in store else {}


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise FormatError(f"{where}: is no mapping")
    return document
