"""Writer of a sequence: its stores, its components and its JSON file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from recorder.archives.ncore.format.cameras import CameraWriter, IntrinsicsWriter, MasksWriter
from recorder.archives.ncore.format.component import (
    ComponentWriter,
    Interval,
    Metadata,
    Place,
    check_name,
)
from recorder.archives.ncore.format.cuboids import CuboidsWriter
from recorder.archives.ncore.format.extra_stores import GROUP, find_group
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.labels import CameraLabelsWriter, LabelDescriptor
from recorder.archives.ncore.format.manifest import Components, Manifest, StoreEntry, read_sequence
from recorder.archives.ncore.format.point_clouds import Attribute, CoordinateUnit, PointCloudsWriter
from recorder.archives.ncore.format.poses import PosesWriter
from recorder.archives.ncore.format.rays import LidarWriter, RadarWriter
from recorder.common.errors import ArchiveError
from recorder.common.files import PosixDisk, make_folders
from recorder.formats.zarr2 import (
    FolderStore,
    Group,
    Hierarchy,
    ItarStore,
    Store,
    require_numcodecs,
)
from recorder.formats.zarr2.stores import OutputGuard, remove, storage_errors

StoreKind = Literal["itar", "folder"]
DEFAULT = "default"
GROUP_NAME = re.compile(r"[A-Za-z0-9._@-]*\Z")
_CUSTOM_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){2,}\Z")
_Writer = TypeVar("_Writer", bound=ComponentWriter)
_Sensor = TypeVar("_Sensor", bound=FrameWriter)


class Placing(TypedDict, total=False):
    """Optional arguments of all components.

    Attributes:
        group: the component group.
        metadata: generic metadata of the instance.
    """

    group: str | None
    metadata: Metadata | None


@dataclass(frozen=True)
class PackedSequence:
    """Files of a finished sequence.

    Attributes:
        meta: the JSON file that names all stores.
        stores: the stores written by this writer.
        omitted: sensors without a frame (``cameras/front``); they are not stored.
    """

    meta: Path
    stores: tuple[Path, ...]
    omitted: tuple[str, ...]


@dataclass
class _OpenStore:
    final: Path
    hierarchy: Hierarchy
    components: dict[str, Group] = field(default_factory=dict)
    placed: bool = False


def _instances(stores: Iterable[StoreEntry]) -> dict[tuple[str, str], str]:
    """Return the store of each instance, by component and instance."""
    return {
        (component, instance): entry.path
        for entry in stores
        for component, instances in entry.components.items()
        for instance in instances
    }


class SequenceWriter(OutputGuard):
    """Writer of the stores of a sequence in one pass.

    Stores are written under temporary names (``.part``).  `finish` completes, syncs and renames
    the stores, then writes the JSON file.  As a context manager the writer finishes at the end of
    the block, and removes its files when the block fails.

    Attributes:
        interval: the sequence's interval in whole microseconds.
        packed: the written files, after `finish`.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        interval_ns: tuple[int, int],
        sequence_id: str | None = None,
        metadata: Metadata | None = None,
        store: StoreKind = "itar",
        beside: Sequence[StoreEntry] = (),
        kept: Sequence[StoreEntry] = (),
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Prepare a new sequence; make each store when its first component is written.

        Args:
            folder: folder for the stores and the JSON file; made if it is missing.
            name: prefix of the file names: ``NAME.ncore4.zarr.itar``, ``NAME.json``.
            interval_ns: start and stop (exclusive) of the sequence.
            sequence_id: identity of the sequence; default: `name`.
            metadata: generic metadata of the sequence.
            store: ``itar``, or ``folder`` for a file per key.
            beside: existing stores of the sequence (see `find_extra_stores`), which the new JSON
                file also names.
            kept: existing stores with components that are not packed again; see `keeps`.
            groups: components by the group into which they are written; others are written into
                the main store.

        Raises:
            UsageError: numcodecs is not installed.
            ArchiveError: the name is invalid, or the interval is empty.
            FormatError: JSON cannot represent the metadata.
        """
        require_numcodecs()
        start_ns, stop_ns = interval_ns
        interval, document = Interval.from_ns(start_ns, stop_ns), dict(metadata or {})
        stores = [*kept, *beside]
        manifest = Manifest(sequence_id or name, interval, document, stores=stores)
        manifest.document()  # raises for metadata that JSON cannot represent
        self._setup(folder, name, manifest, store)
        self._extends = False
        self._kept.update(_instances(kept))
        self._components_by_group |= {g: list(names) for g, names in (groups or {}).items()}

    @classmethod
    def extend(
        cls, paths: Path | Sequence[Path], *, name: str | None = None, store: StoreKind = "itar"
    ) -> SequenceWriter:
        """Write new components into new stores beside the stores of a packed sequence.

        The old stores are not changed.  A new JSON file that names all stores replaces the old
        one.

        Args:
            paths: the sequence's JSON file; or its stores if the JSON file is missing.
            name: prefix of the names of the new stores and of the JSON file; default: the prefix
                of the first path.
            store: kind of the new stores.
        """
        require_numcodecs()
        given = [paths] if isinstance(paths, Path) else list(paths)
        manifest = read_sequence(given)
        writer = cls.__new__(cls)
        base = name or re.sub(r"(\.ncore4.*)?(\.json)?\Z", "", given[0].name)
        writer._setup(given[0].parent, base, manifest, store)
        writer._extends = True
        return writer

    def _setup(self, folder: Path, name: str, manifest: Manifest, store: StoreKind) -> None:
        check_name(name, "a sequence")
        if store not in ("itar", "folder"):
            raise ArchiveError(f"store {store!r} is neither itar nor folder")
        self.interval = manifest.interval
        self.packed: PackedSequence | None = None
        self._folder = folder
        self._name = name
        self._kind = store
        self._manifest = manifest
        self._stores: dict[str, _OpenStore] = {}
        self._writers: dict[tuple[str, str], ComponentWriter] = {}
        self._groups: dict[tuple[str, str], str] = {}
        self._taken = _instances(manifest.stores)
        self._kept = set[tuple[str, str]]()
        self._components_by_group: dict[str, list[str]] = {}
        with storage_errors(folder):
            make_folders(folder)

    def keeps(self, component: str, instance: str) -> bool:
        """Return whether an instance is in a store that is kept, so that it cannot be written."""
        return (component, instance) in self._kept

    def group_of(self, component: str) -> str:
        """Return the group into which a component is written by default."""
        groups = self._components_by_group.items()
        return next((group for group, names in groups if component in names), "")

    # Components.  Those that usually have one instance return the same writer at every call.

    def poses(self, instance: str = DEFAULT, **placing: Unpack[Placing]) -> PosesWriter:
        """Return the writer of the poses; the loader reads the instance ``default`` by default."""
        return self._add_shared(PosesWriter, instance, **placing)

    def intrinsics(self, instance: str = DEFAULT, **placing: Unpack[Placing]) -> IntrinsicsWriter:
        """Return the writer of the intrinsics."""
        return self._add_shared(IntrinsicsWriter, instance, **placing)

    def masks(self, instance: str = DEFAULT, **placing: Unpack[Placing]) -> MasksWriter:
        """Return the writer of the masks."""
        return self._add_shared(MasksWriter, instance, **placing)

    def cuboids(self, instance: str = DEFAULT, **placing: Unpack[Placing]) -> CuboidsWriter:
        """Return the writer of the cuboids."""
        return self._add_shared(CuboidsWriter, instance, **placing)

    def camera(self, camera_id: str, **placing: Unpack[Placing]) -> CameraWriter:
        """Add a camera; return its writer."""
        return self._new(CameraWriter, camera_id, **placing)

    def lidar(self, lidar_id: str, **placing: Unpack[Placing]) -> LidarWriter:
        """Add a lidar; return its writer."""
        return self._new(LidarWriter, lidar_id, **placing)

    def radar(self, radar_id: str, **placing: Unpack[Placing]) -> RadarWriter:
        """Add a radar; return its writer."""
        return self._new(RadarWriter, radar_id, **placing)

    def point_clouds(
        self,
        instance: str,
        *,
        unit: CoordinateUnit = "METERS",
        attributes: Mapping[str, Attribute] | None = None,
        **placing: Unpack[Placing],
    ) -> PointCloudsWriter:
        """Add a source of point clouds; `attributes` are the values of a point besides xyz."""
        options = {"unit": unit, "attributes": attributes}
        return self._new(PointCloudsWriter, instance, options, **placing)

    def camera_labels(
        self, descriptor: LabelDescriptor, instance: str | None = None, **placing: Unpack[Placing]
    ) -> CameraLabelsWriter:
        """Add labels of a camera; default instance: `LabelDescriptor.instance`."""
        name = instance or descriptor.instance
        return self._new(CameraLabelsWriter, name, {"descriptor": descriptor}, **placing)

    def custom(
        self, component: str, instance: str, *, version: str = "v1", **placing: Unpack[Placing]
    ) -> ComponentWriter:
        """Add a custom component.

        Args:
            component: name, a reverse domain name such as ``com.example.velocity``.
            instance: name of the instance.
            version: version of the component's layout.
            placing: see `Placing`.

        Returns:
            a writer; the caller writes into its `group`.
        """
        if not _CUSTOM_NAME.match(component):
            raise ArchiveError(
                f"{component!r} is not a reverse domain name such as com.example.velocity"
            )

        class Custom(ComponentWriter):
            COMPONENT = component
            VERSION = version

        return self._new(Custom, instance, **placing)

    def _add_shared(
        self,
        kind: type[_Writer],
        instance: str,
        group: str | None = None,
        metadata: Metadata | None = None,
    ) -> _Writer:
        known = self._writers.get((kind.COMPONENT, instance))
        if known is None:
            return self._new(kind, instance, group=group, metadata=metadata)
        assert isinstance(known, kind)
        if group is not None and group != self._groups[kind.COMPONENT, instance]:
            raise ArchiveError(f"{known.full_name}: it is already in another component group")
        known.metadata.update(metadata or {})
        return known

    def _new(
        self,
        kind: type[_Writer],
        instance: str,
        options: Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        metadata: Metadata | None = None,
    ) -> _Writer:
        component = kind.COMPONENT
        check_name(instance, f"an instance of {component}")
        if self.packed is not None:
            raise ArchiveError(f"{component}/{instance}: the sequence is finished")
        identity = (component, instance)
        if identity in self._writers or identity in self._taken:
            where = f", in {self._taken[identity]}" if identity in self._taken else ""
            raise ArchiveError(
                f"{component}/{instance}: the sequence has this instance already{where}"
            )
        group = self.group_of(component) if group is None else group
        if group in self._packed_groups():
            raise ArchiveError(
                f"{component}/{instance}: component group {group!r} exists already; choose another"
            )
        if not GROUP_NAME.match(group):
            raise ArchiveError(f"{component}/{instance}: {group!r} cannot name a component group")
        place = Place(
            self.interval, self._folder, lambda: self._make_group(group, component, instance)
        )
        writer = kind(place, instance, metadata, **(options or {}))
        if group in self._components_by_group:
            own = {"name": group, "components": self._components_by_group[group]}
            writer.metadata[GROUP] = own
        self._writers[identity] = writer
        self._groups[identity] = group
        return writer

    def _packed_groups(self) -> set[str]:
        """Return the component groups of the existing stores."""
        return {find_group(entry.path) for entry in self._manifest.stores}

    # Stores

    def _make_group(self, group: str, component: str, instance: str) -> Group:
        store = self._stores.get(group)
        if store is None:
            store = self._stores[group] = self._open_store(group)
        if component not in store.components:
            store.components[component] = store.hierarchy.root.group(component)
        return store.components[component].group(instance)

    def _open_store(self, group: str) -> _OpenStore:
        suffix = ".zarr.itar" if self._kind == "itar" else ".zarr"
        final = self._folder / f"{self._name}.ncore4{'-' if group else ''}{group}{suffix}"
        if final.exists():
            raise ArchiveError(f"{final} exists already; choose another group or another name")
        part = final.with_name(final.name + ".part")
        with storage_errors(part):
            remove(part)  # left by an interrupted run
        store: Store = (ItarStore if self._kind == "itar" else FolderStore)(part, digest=True)
        attributes = self._manifest.root_attributes(group)
        hierarchy = Hierarchy(store, consolidation="cbor.xz", attributes=attributes)
        return _OpenStore(final, hierarchy)

    # OutputGuard

    def finish(self) -> PackedSequence:
        """Complete, sync and rename the stores, and write the JSON file.

        Raises:
            ArchiveError: the loader could not open the sequence; the message names what is
                missing.  No store is renamed.
        """
        if self.packed is not None:
            return self.packed
        if not self._extends:
            self._complete()
        self._check()
        omitted = self._finish_writers()
        entries = []
        for group, store in self._stores.items():
            store.hierarchy.close()
            md5 = store.hierarchy.store.md5
            assert md5 is not None
            entries.append(StoreEntry(store.final.name, md5, self._components(group)))
        disk = PosixDisk()
        for store in self._stores.values():
            with storage_errors(store.final):
                disk.rename(store.hierarchy.store.path, store.final)
            store.placed = True
        known = self._manifest.stores
        self._manifest.stores = [*known, *entries] if self._extends else [*entries, *known]
        meta = self._folder / f"{self._name}.json"
        self._manifest.write(meta)
        stores = tuple(store.final for store in self._stores.values())
        self.packed = PackedSequence(meta, stores, tuple(omitted))
        return self.packed

    def _complete(self) -> None:
        """Add the components that the loader requires, even if they are empty."""
        for kind in (PosesWriter, IntrinsicsWriter, MasksWriter, CuboidsWriter):
            if (kind.COMPONENT, DEFAULT) not in self._taken:
                self._add_shared(kind, DEFAULT)
        for camera in self._sensors(CameraWriter):
            masks = self.masks()
            if camera.instance not in masks.cameras:
                masks.camera(camera.instance, {})

    def _check(self) -> None:
        for writer in self._writers.values():
            if isinstance(writer, PosesWriter):
                writer.check_tree()
        if self._extends:
            return
        for camera in self._sensors(CameraWriter):
            if camera.instance not in self.intrinsics().cameras:
                raise ArchiveError(
                    f"{camera.full_name}: it has no intrinsics;"
                    " IntrinsicsWriter.placeholder adds a placeholder model"
                )
        for sensor in self._sensors(FrameWriter):
            if not self.poses().reaches_world(sensor.instance):
                raise ArchiveError(f"{sensor.full_name}: no pose connects it to world")

    def _sensors(self, kind: type[_Sensor]) -> list[_Sensor]:
        """Return the sensors of a kind that have at least one frame."""
        return [w for w in self._writers.values() if isinstance(w, kind) and w.frame_count]

    def _finish_writers(self) -> list[str]:
        omitted = []
        for identity, writer in list(self._writers.items()):
            if isinstance(writer, FrameWriter) and not writer.frame_count:
                omitted.append(writer.full_name)
                del self._writers[identity]
            else:
                writer.finish()
        return omitted

    def _components(self, group: str) -> Components:
        components: Components = {}
        for (component, instance), writer in self._writers.items():
            if self._groups[component, instance] == group:
                components.setdefault(component, {})[instance] = {
                    "version": writer.version,
                    "generic_meta_data": writer.metadata,
                }
        return components

    def discard(self) -> None:
        """Remove all files that were written, unless the sequence is finished."""
        if self.packed is not None:
            return
        for writer in self._writers.values():
            writer.discard()
        for store in self._stores.values():
            store.hierarchy.discard()
            if store.placed:
                with storage_errors(store.final):
                    remove(store.final)
        self._stores.clear()
