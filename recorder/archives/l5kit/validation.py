"""Checks of an L5Kit dataset by our own reader, by zarr 2, and by L5Kit's ``ChunkedDataset``."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from recorder.archives.l5kit.dataset import ARRAYS, DatasetReader
from recorder.archives.validation import ArchiveCheck, ArchiveReport, MissingSoftwareError, need
from recorder.common.errors import ArchiveError

_INTERVALS = (
    ("scenes", "frame_index_interval", "frames"),
    ("frames", "agent_index_interval", "agents"),
    ("frames", "traffic_light_faces_index_interval", "traffic_light_faces"),
)


class L5kitCheck(ArchiveCheck):
    """Check that reads every row and checks that the intervals of rows join."""

    software: ClassVar[str] = "zarr"
    left: ClassVar[str] = "whether zarr and L5Kit's ChunkedDataset read it"

    def find(self, path: Path) -> Path | None:
        return path if (path / "traffic_light_faces/.zarray").is_file() else None

    def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        reader = DatasetReader(path)
        lengths = {name: reader.length(name) for name in ARRAYS}
        done, total = 0, sum(lengths.values()) or 1
        ends = {name: 0 for _, _, name in _INTERVALS}
        for name, length in lengths.items():
            for rows in reader.rows(name, 0, length):
                for array, column, target in _INTERVALS:
                    if array == name:
                        ends[target] = _join(path, array, column, rows[column], ends[target])
                done += len(rows)
                yield done / total
        for name, end in ends.items():
            if end != lengths[name]:
                raise ArchiveError(f"{path}: intervals end at {end} of {lengths[name]} {name}")
        counts = ", ".join(f"{length} {name}" for name, length in lengths.items())
        report.checked.append(f"{counts}; dtypes, labels and intervals")
        try:
            reader.sessions()
        except ArchiveError as error:
            report.remarks.append(str(error))

    def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        zarr = need("zarr")
        if int(zarr.__version__.split(".")[0]) >= 3:
            raise MissingSoftwareError(f"zarr is {zarr.__version__}, and must be below 3")
        root = zarr.open_group(str(path), mode="r")
        for name, (dtype, _) in ARRAYS.items():
            if root[name].dtype != dtype:
                raise ArchiveError(f"zarr: {name} has dtype {root[name].dtype}")
            for start in range(0, len(root[name]), root[name].chunks[0]):
                _ = root[name][start : start + root[name].chunks[0]]
            yield 0.5
        report.checked.append(f"zarr {zarr.__version__}: all rows of {', '.join(ARRAYS)}")
        try:
            with l5kit_data() as module:
                dataset = module.ChunkedDataset(str(path)).open()
                counts = f"{len(dataset.scenes)} scenes, {len(dataset.frames)} frames"
                if len(dataset.scenes):
                    dataset.get_scene_dataset(0)
            report.checked.append(f"l5kit: ChunkedDataset opens {counts}, and the first scene")
        except MissingSoftwareError as error:
            report.unchecked.append(f"whether L5Kit's ChunkedDataset reads it: {error}")
        yield 1.0


def _join(path: Path, array: str, column: str, intervals: Any, end: int) -> int:
    """Return the end of the last interval; raise an ArchiveError if intervals do not join."""
    if not len(intervals):
        return end
    before = np.concatenate([[end], intervals[:-1, 1]])
    bad = (intervals[:, 0] != before) | (intervals[:, 1] < intervals[:, 0])
    if bad.any():
        at = int(np.argmax(bad))
        raise ArchiveError(f"{path}: {array}: {column} {intervals[at].tolist()} does not join")
    return int(intervals[-1, 1])


@contextmanager
def l5kit_data() -> Iterator[Any]:
    """Import ``l5kit.data.zarr_dataset`` without the package's other imports, such as torch."""
    spec = importlib.util.find_spec("l5kit")
    if spec is None or spec.submodule_search_locations is None:
        raise MissingSoftwareError("l5kit is not installed")
    (root,) = spec.submodule_search_locations
    before = {name: module for name, module in sys.modules.items() if _is_l5kit(name)}
    try:
        for name, folder in (("l5kit", Path(root)), ("l5kit.data", Path(root) / "data")):
            package = types.ModuleType(name)
            package.__path__ = [str(folder)]
            sys.modules[name] = package
        yield need("l5kit.data.zarr_dataset")
    finally:
        for name in [name for name in sys.modules if _is_l5kit(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_l5kit(module: str) -> bool:
    return module == "l5kit" or module.startswith("l5kit.")


CHECK = L5kitCheck()
