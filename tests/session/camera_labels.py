"""Labels with a value per pixel, as a labeller writes them: with numpy and json alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HEIGHT, WIDTH = 24, 32
Values = npt.NDArray[Any] | bytes


def make_values(dtype: str, shape: tuple[int, ...] = (), seed: int = 0) -> npt.NDArray[Any]:
    """Values that a label may have: [24, 32, *shape], different for each seed."""
    full = (HEIGHT, WIDTH, *shape)
    numbers = (np.arange(np.prod(full)) * 7 + seed * 31).reshape(full)
    if np.dtype(dtype).kind == "f":
        return ((numbers % 255 - 127) / 127).astype(dtype)
    return (numbers % 251).astype(dtype)


KINDS: Mapping[str, dict[str, Any]] = {
    "depth.z": {"unit": "meters", "dtype": "f4",
                "quantization": {"dtype": "u2", "scale": 0.00390625, "offset": -2.0}},
    "depth.ray@lidar": {"unit": "meters", "dtype": "f4", "source": "GT_SYNTHETIC"},
    "flow.optical_forward": {"unit": "pixels", "dtype": "f2", "shape": [2]},
    "segmentation.semantic@human_verified": {
        "unit": "unitless", "dtype": "u1", "encoding": "png", "classes": {"7": "road"},
        "source": "GT_ANNOTATION"},
    "segmentation.instance": {"unit": "unitless", "dtype": "u2", "encoding": "png",
                              "source": "manual"},
    "mask.dynamic": {"unit": "unitless", "dtype": "u1", "encoding": "png", "source": "AUTOLABEL"},
    "geometry.normal_camera": {"unit": "unitless", "dtype": "f4", "shape": [3],
                               "quantization": {"dtype": "i1", "scale": 1 / 127}},
    "material.albedo": {"unit": "unitless", "dtype": "u1", "shape": [3], "encoding": "png",
                        "source": "simulated"},
    "feature.dinov2": {"unit": None, "dtype": "f2", "shape": [5]},
    "other.wetness": {"unit": "unitless", "dtype": "i4"},
}  # fmt: skip
"""Every category of NCore: the header's keys by the folder's name."""


def make_header(name: str, **changes: Any) -> dict[str, Any]:
    """The header of a folder of `KINDS`, with changes."""
    category, _, qualifier = name.partition("@")[0].partition(".")
    return {
        "format": "recorder-camera-labels", "version": 1, "category": category,
        "qualifier": qualifier, "source": "EXTERNAL", "maker": "test 1.0", **KINDS.get(name, {}),
        **changes,
    }  # fmt: skip


def write_folder(
    session: Path,
    name: str,
    labels: Sequence[tuple[dict[str, Any], Values]],
    *,
    camera: str = "camera",
    **changes: Any,
) -> Path:
    """Write ``_labels/CAMERA/NAME``: a line and a file for each label; return the folder."""
    folder = session / "_labels" / camera / name
    folder.mkdir(parents=True)
    header = make_header(name, **changes)
    lines: list[dict[str, Any]] = [header]
    for number, (line, values) in enumerate(labels):
        ending = "npy" if isinstance(values, np.ndarray) else header["encoding"]
        file = folder / f"{number:06}.{ending}"
        lines.append({"file": file.name, **line})
        if isinstance(values, np.ndarray):
            np.save(file, values)
        else:
            file.write_bytes(values)
    write_index(folder, lines)
    return folder


def write_index(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write ``index.jsonl``."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "index.jsonl").write_text(text)
