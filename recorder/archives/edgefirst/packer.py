"""Packer of sessions as an EdgeFirst dataset.

The dataset is ``NAME/NAME.arrow`` beside ``NAME/NAME.zip`` or a folder.
docs/edgefirst.md maps sessions to datasets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from recorder.archives.base import PackedFiles, Packer
from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.dataset_index import DatasetIndex
from recorder.archives.edgefirst.pipeline import ALL, INPUTS, NEAREST
from recorder.archives.edgefirst.rows import DERIVED, STATED
from recorder.archives.edgefirst.schema import (
    CURRENT,
    EXTRA_TYPES,
    MISSION,
    require_packages,
    spool_schema,
    use_system_memory,
)
from recorder.archives.edgefirst.sensors import LIDAR_PICTURES
from recorder.archives.edgefirst.session import SessionPacker, class_names
from recorder.archives.edgefirst.table import Table
from recorder.archives.edgefirst.table_files import ExistingTable, find_table
from recorder.archives.sample_workers import tune_for_packing
from recorder.archives.shared_options import CUBOID_SET, LABEL_SET, RADAR_OPTIONS
from recorder.common.errors import ArchiveError, ConfigError
from recorder.common.files import FOLDER_MODE, PosixDisk
from recorder.config.options import Option, OptionTable
from recorder.formats.zip.writer import Container, FolderContainer, ZipContainer
from recorder.perception.camera.camera_pictures import JPEG_QUALITY
from recorder.perception.frames import kind_of

ZIP, FOLDER = "zip", "folder"


class EdgeFirstPacker(Packer):
    """Packer of sessions as one EdgeFirst dataset."""

    collects: ClassVar[bool] = True
    worker_modules = ("recorder.archives.edgefirst.sensors",)
    options: ClassVar[OptionTable] = {
        "container": Option("str", ZIP, "container of the files", choices=(ZIP, FOLDER)),
        "schema": Option("str", CURRENT, "schema of the table", choices=(CURRENT, MISSION)),
        "images": Option("str", "jpeg", "format: as recorded, or PNG", choices=("jpeg", "png")),
        "jpeg_quality": JPEG_QUALITY,
        "every": Option("int", 1, "take every Nth picture", minimum=1),
        "max_rate": Option("float", None, "largest rate of pictures [Hz]", minimum=0.001),
        "tolerance_ms": Option(
            "float", 50.0, "largest time from a picture to another sensor [ms]", minimum=0
        ),
        "accompany": Option(
            "str", NEAREST, "pictures that get a sweep or cube", choices=(NEAREST, ALL)
        ),
        "lidar": Option("str", None, "lidar for the points; default: the first one"),
        "radar": Option("str", None, "radar for cube and points; default: the first one"),
        "returns": Option("int", 1, "returns of the lidar", choices=(1, 2)),
        "lidar_images": Option(
            "list", [], f"pictures: any of {', '.join(LIDAR_PICTURES)}", items="str"
        ),
        **RADAR_OPTIONS,
        "radar_gain": Option("float", 16.0, "cube values per step", minimum=1e-3, maximum=1e6),
        "png_level": Option(
            "int", 1, "compression of PNGs with 16 bits; 0 stores them", minimum=0, maximum=9
        ),
        "split": Option(
            "str", "sequence", "units of the split", choices=("sequence", "block", "none")
        ),
        "val": Option("float", 0.2, "share for validation", minimum=0, maximum=1),
        "test": Option("float", 0.0, "share for testing", minimum=0, maximum=1),
        "masks": Option(
            "str", "binary", "masks in the table", choices=("binary", "classes", "none")
        ),
        "cuboids": CUBOID_SET,
        "labels": LABEL_SET,
        "status": Option(
            "str",
            None,
            "status of labels that state none; default: stated, in the mission's schema derived",
            choices=(STATED, DERIVED),
        ),
        "columns": Option(
            "map", {}, f"further columns: entries of metadata, each {', '.join(EXTRA_TYPES)}"
        ),
        "inputs": Option(
            "list", [], f"pack only pictures with these: any of {', '.join(INPUTS)}", items="str"
        ),
        "poses": Option("str", "auto", "source: auto, imu, identity, or a sensor's name"),
    }

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super().check(options)
        require_packages()
        for name in checked["lidar_images"]:
            if name not in LIDAR_PICTURES:
                raise ConfigError(
                    f"{name!r} is not one of {', '.join(LIDAR_PICTURES)}",
                    key="edgefirst.lidar_images",
                )
        if checked["val"] + checked["test"] > 1:
            raise ConfigError("the sum of val and test exceeds 1", key="edgefirst.val")
        for name in checked["inputs"]:
            if name not in INPUTS:
                raise ConfigError(
                    f"{name!r} is not one of {', '.join(INPUTS)}", key="edgefirst.inputs"
                )
        own = spool_schema().names
        for name, kind in checked["columns"].items():
            if not isinstance(name, str) or name in own or kind not in EXTRA_TYPES:
                known = f"one of {', '.join(EXTRA_TYPES)}"
                raise ConfigError(
                    "the format has this column itself" if name in own else f"needs {known}",
                    key=f"edgefirst.columns.{name}",
                )
        if checked["status"] is None:
            checked["status"] = DERIVED if checked["schema"] == MISSION else STATED
        return checked

    def ticks(self, context: PackingContext) -> float:
        return sum(len(s) for s in context.streams if s.has_times and kind_of(s) == "camera")

    def pack_all(
        self, contexts: Sequence[PackingContext], name: str, existing: Path | None
    ) -> PackedFiles:
        tune_for_packing()
        use_system_memory()
        return _DatasetPacker(contexts, name, existing).pack()


PACKER = EdgeFirstPacker()


class _DatasetPacker:
    """Packer of one dataset."""

    def __init__(
        self, contexts: Sequence[PackingContext], name: str, existing: Path | None
    ) -> None:
        self._contexts, self._name = contexts, name
        self._options = contexts[0].options
        self._root = contexts[0].folder / name
        old = None if existing is None else existing / name
        self._old = old if old is not None and old.exists() else None

    def pack(self) -> PackedFiles:
        options, disk = self._options, PosixDisk()
        before = self._read_existing()
        catalog = DatasetIndex.build([context.session for context in self._contexts], before)
        self._root.mkdir(FOLDER_MODE)
        counts: dict[str, int] = {}
        with (
            self._container() as container,
            Table(self._root, options["schema"], options["columns"]) as table,
        ):
            if self._old is not None:
                assert before is not None
                self._keep(container, table, catalog, before)
            for context, entry in zip(self._contexts, catalog.new, strict=True):
                with context.fault_scope():
                    counts |= SessionPacker(context, entry, container, table).pack()
                context.close()
            container.finish()
            metadata = catalog.metadata(dict(options)) | class_names(before, catalog.new)
            arrow = self._root / f"{self._name}.arrow"
            table.finish(arrow, metadata)
            rows = table.count
        with arrow.open("rb") as file:
            os.fsync(file.fileno())
        disk.sync_folder(self._root)
        written = {"sessions": len(catalog.kept) + len(catalog.new), "rows": rows}
        return PackedFiles((self._name,), (), {"dataset": self._name, "frames": counts, **written})

    def _read_existing(self) -> ExistingTable | None:
        """Read the older table, and check that it has the requested schema, container and masks."""
        if self._old is None:
            return None
        options, arrow = self._options, find_table(self._old)
        before = ExistingTable.read(arrow)
        if before.schema != options["schema"]:
            raise ArchiveError(
                f"{arrow}: cannot be extended: its schema is {before.schema}; "
                f"set edgefirst.schema={before.schema}"
            )
        wanted = self._place(self._old, options["container"])
        if not wanted.exists():
            other = FOLDER if options["container"] == ZIP else ZIP
            raise ArchiveError(
                f"{self._old}: cannot be extended: has no {wanted.name} ({options['container']}); "
                f"set edgefirst.container={other}"
            )
        masks = {"binary": "binary", "classes": "class_index"}.get(options["masks"])
        written = before.metadata.get("mask_interpretation", "binary")
        if "mask" in before.columns and before.schema == CURRENT and masks not in (None, written):
            raise ArchiveError(f"{arrow}: cannot be extended: its masks are {written}, not {masks}")
        return before

    def _keep(
        self, container: Container, table: Table, catalog: DatasetIndex, before: ExistingTable
    ) -> None:
        assert self._old is not None
        container.keep(
            self._place(self._old, self._options["container"]),
            lambda sequence: sequence not in catalog.dropped,
        )
        table.keep(before, catalog.dropped)

    def _container(self) -> Container:
        kind = self._options["container"]
        place = self._place(self._root, kind)
        return ZipContainer(place) if kind == ZIP else FolderContainer(place)

    def _place(self, root: Path, kind: str) -> Path:
        return root / (f"{self._name}.zip" if kind == ZIP else self._name)
