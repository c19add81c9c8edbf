"""Sessions with poses and boxes, and what became of them, read by the test's own reader."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.sim import truth
from drivers.world import World
from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize
from tests.archives.ncore.packer_rig import add_poses, lidar
from tests.formats.zarr2.kit import decode, keys_of
from tests.session.build import START_MONO_NS, START_NS, Builder

S = 1_000_000_000
BOX: dict[str, Any] = {
    "track": "car_1", "class": "car", "frame": "rig", "center_m": [5, 0, 1],
    "size_m": [4, 2, 1.5], "quaternion_xyzw": [0, 0, 0, 1], "velocity_m_s": [0, 0, 0],
}  # fmt: skip
HEADER = {"format": "recorder-cuboids", "version": 1, "source": "manual"}


@dataclass
class Dataset:
    """A dataset, key by key."""

    result: PackedArchive
    keys: dict[str, bytes]

    @classmethod
    def of(cls, result: PackedArchive) -> Dataset:
        (path,) = result.files
        return cls(result, keys_of(path))

    @property
    def attributes(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.keys[".zattrs"])
        return values

    @property
    def sessions(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.attributes["recorder"]["sessions"]
        return entries

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        """`scenes`, `frames`, `agents`, `traffic_light_faces`."""
        if f"{name}/.zarray" not in self.keys:
            raise AttributeError(name)
        return decode(self.keys, name)

    def agents_of(self, frame: int) -> npt.NDArray[Any]:
        start, stop = self.frames["agent_index_interval"][frame]
        found: npt.NDArray[Any] = self.agents[start:stop]
        return found

    def noted(self, *words: str) -> int:
        """How many notes have all of the words."""
        return sum(all(word in note for word in words) for note in self.result.notes)


def pack(path: Path, **options: Any) -> Dataset:
    """Finalize, and read what came of it."""
    (result,) = finalize(path, [ArchiveRequest("l5kit", options)])
    return Dataset.of(result)


def sweeps(path: Path, seconds: float = 1.0, **more: Any) -> tuple[Path, npt.NDArray[np.int64]]:
    """A session of a lidar, closed; and the sweeps' stamps."""
    builder = Builder(path)
    made = builder.add(lidar(), seconds, **more)
    return builder.close(), made.t_ns


def still(path: Path) -> None:
    """Poses that neither move nor turn, long enough for all."""
    add_poses(path, START_NS + np.array([-9, 90]) * S, np.zeros((2, 3)), "_pose")


def write_boxes(
    path: Path, lines: Iterable[dict[str, Any]], name: str = "hand", **header: Any
) -> None:
    """A set of boxes; each line completes `BOX`."""
    (path / "_cuboids").mkdir(exist_ok=True)
    texts = [json.dumps({**HEADER, **header}), *(json.dumps({**BOX, **line}) for line in lines)]
    (path / "_cuboids" / f"{name}.jsonl").write_text("".join(text + "\n" for text in texts))


def write_truth(path: Path, world: World, t_ns: npt.NDArray[np.int64], times_of: str) -> None:
    """Boxes at these times and the trajectory, as the simulation writes them."""
    lines = truth.cuboids(world, t_ns - START_NS, t_ns.tolist())
    header = json.dumps({**HEADER, "source": "simulated", "times_of": times_of})
    (path / "_cuboids").mkdir()
    (path / "_cuboids/truth.jsonl").write_text("\n".join([header, *lines]) + "\n")
    at = np.arange(0, int(t_ns[-1]) - START_NS + S, S // 100)
    (path / "_pose").mkdir()
    meta = {}
    values = {
        "ts": (at + START_NS) / 1e9,
        "t_mono": (at + START_MONO_NS).astype("<u8"),
        **truth.poses(world, at),
    }
    for channel, array in values.items():
        array.tofile(path / "_pose" / channel)
        kind, shape = array.dtype.str[1:], list(array.shape[1:])
        meta[channel] = {"format": "raw", "type": kind, "shape": shape, "desc": ""}
    (path / "_pose/meta.json").write_text(json.dumps(meta))
