"""zarr-python 2 on what the emitter writes: structures, chunks, orders, consolidated metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.formats.zarr2 import ArraySpec, Blosc, FolderStore, Hierarchy, RowsSpec

zarr: Any = pytest.importorskip("zarr", reason="needs zarr (below 3), which is not installed")
if int(zarr.__version__.split(".")[0]) >= 3:
    pytest.skip("needs zarr below 3", allow_module_level=True)

pytestmark = pytest.mark.conformance
# As L5Kit has them: packed structures with arrays, byte shuffle.
AGENT = np.dtype(
    [("centroid", "<f8", (2,)), ("extent", "<f4", (3,)), ("yaw", "<f4"), ("id", "<u8"),
     ("probabilities", "<f4", (17,))]
)  # fmt: skip


def agents(count: int) -> np.ndarray[Any, np.dtype[Any]]:
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 127, count * AGENT.itemsize, dtype=np.uint8)
    return raw.view(AGENT)


@pytest.mark.parametrize("count", [0, 1, 19_999, 20_000, 45_001])
def test_structures_appended_in_streams(tmp_path: Path, count: int) -> None:
    rows = agents(count)
    with Hierarchy(FolderStore(tmp_path / "a.zarr"), attributes={"format_version": 2}) as made:
        spec = RowsSpec(AGENT, chunk_rows=20_000, compressor=Blosc(shuffle=1))
        writer = made.root.rows("agents", spec)
        for start in range(0, count, 7_001):
            writer.append(rows[start : start + 7_001])
        writer.close()
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")
    assert group.attrs.asdict() == {"format_version": 2}
    array = group["agents"]
    assert (array.dtype, array.shape, array.chunks) == (AGENT, (count,), (20_000,))
    assert array[:].tobytes() == rows.tobytes()
    assert array.compressor.get_config()["shuffle"] == 1


def test_metadata_is_what_zarr_itself_would_write(tmp_path: Path) -> None:
    rows = agents(10)
    theirs = zarr.open_group(str(tmp_path / "theirs"), mode="w")
    theirs.create_dataset(
        "agents", data=rows, chunks=(20,), compressor=zarr.Blosc("lz4", 5, zarr.Blosc.SHUFFLE)
    )
    theirs.create_dataset("image", data=np.asarray(b"abc"), compressor=None)
    theirs.create_dataset("empty", data=np.zeros((0, 3), "<f4"), chunks=(1, 3), compressor=None)
    with Hierarchy(FolderStore(tmp_path / "ours")) as made:
        made.root.array("agents", rows, ArraySpec((20,), Blosc(shuffle=1)))
        made.root.text("image", b"abc")
        made.root.array("empty", np.zeros((0, 3), "<f4"), ArraySpec(compressor=None))
    ours = zarr.open_group(str(tmp_path / "ours"), mode="r")
    for name in ("agents", "image", "empty"):
        written = [json.loads(group.store[f"{name}/.zarray"]) for group in (ours, theirs)]
        assert written[0] == written[1]
    assert ours["image"][()] == b"abc"


@pytest.mark.parametrize("order", ["C", "F"])
def test_chunks_orders_and_zarrs_own_consolidated_metadata(tmp_path: Path, order: Any) -> None:
    array = np.arange(60, dtype=">i4").reshape(5, 4, 3)
    spec = ArraySpec((2, 3, 3), fill_value=-1, order=order)
    with Hierarchy(FolderStore(tmp_path / "a"), consolidation="json") as made:
        made.root.group("g", {"long": np.arange(9.0)}).array("a", array, spec, {"unit": "m"})
    group = zarr.open_consolidated(str(tmp_path / "a"))
    assert np.array_equal(group["g/a"][:], array)
    assert group["g/a"].attrs["unit"] == "m"
    assert group["g"].attrs["long"] == list(range(9))
