"""Packer of sessions as an L5Kit dataset: ``NAME.zarr``, one scene or more per session.

docs/l5kit.md maps sessions to datasets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from recorder.archives.base import PackedFiles, Packer
from recorder.archives.context import PackingContext
from recorder.archives.l5kit.dataset import DatasetReader, DatasetWriter
from recorder.archives.l5kit.frames import choose_frames
from recorder.archives.l5kit.session import SessionPacker, read_classes
from recorder.archives.shared_options import CUBOID_SET, LABEL_SET, ODOMETRY, POSES, require_poses
from recorder.common.errors import ArchiveError, RecorderError
from recorder.config.options import Option, OptionTable
from recorder.formats.zarr2 import require_numcodecs

_Key = tuple[Any, Any]


class L5kitPacker(Packer):
    """Packer of sessions as scenes of one L5Kit dataset."""

    collects: ClassVar[bool] = True
    has_pictures: ClassVar[bool] = False
    options: ClassVar[OptionTable] = {
        "lidar": Option("str", None, "the lidar (or other sensor) whose samples are the frames"),
        "scene_s": Option("float", None, "split sessions into scenes of this length [s]",
                          minimum=0.1, maximum=1e9),
        "poses": POSES,
        "cuboids": CUBOID_SET,
        "labels": LABEL_SET,
        "classes": Option("map", {}, "L5Kit label by class, such as {forklift: other_vehicle}"),
        "bridge_s": Option("float", 0.6, "longest gap in a track that is interpolated [s]",
                           minimum=0, maximum=60),
        "ego_center_m": Option("float", 0.0, "distance of the ego ahead of the rig's origin [m]"),
    }  # fmt: skip

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super().check(options)
        read_classes(checked["classes"])
        require_numcodecs()
        require_poses(checked)
        return checked

    def ticks(self, context: PackingContext) -> float:
        try:
            count = choose_frames(context).count
        except RecorderError:
            return 1  # pack_all raises the error
        return count * (2 if context.options["poses"] == ODOMETRY else 1)

    def pack_all(
        self, contexts: Sequence[PackingContext], name: str, existing: Path | None
    ) -> PackedFiles:
        waiting = _index_by_key(contexts)
        place = f"{name}.zarr"
        with DatasetWriter(contexts[0].folder / place) as dataset:
            if existing is not None and (existing / place).exists():
                old = DatasetReader(existing / place)
                for entry in old.sessions():
                    context = waiting.pop((entry["name"], entry["start_ns"]), None)
                    if context is None:
                        dataset.copy(old, entry)
                    else:
                        _pack(context, dataset)
            for context in waiting.values():
                _pack(context, dataset)
        counts = dataset.counts
        summary = {
            "dataset": name,
            "sessions": [entry["name"] for entry in dataset.sessions],
            "frames": {key: counts[key] for key in ("scenes", "frames", "agents")},
        }
        return PackedFiles((place,), (), summary)


PACKER = L5kitPacker()


def _pack(context: PackingContext, dataset: DatasetWriter) -> None:
    with context.fault_scope():
        SessionPacker(context, dataset).pack()
    context.close()


def _index_by_key(contexts: Sequence[PackingContext]) -> dict[_Key, PackingContext]:
    """Return the contexts by the session's identity: name and start."""
    found: dict[_Key, PackingContext] = {}
    for context in contexts:
        with context.fault_scope():
            key = context.session.name, context.session.start_ns
            if key in found:
                other = found[key].session.path
                raise ArchiveError(f"{context.session.path}: is the same session as {other}")
        found[key] = context
    return found
