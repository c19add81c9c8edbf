"""Processes measured from outside, and pictures whose noise is known."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from benchmarks.harness import BenchmarkError, run_measured, succeed
from benchmarks.measure import Memory, TreeMemory
from benchmarks.pictures import equal_quality, jpeg_psnr_db, psnr_db, video_psnr_db
from benchmarks.rig_drivers.lidar import FIELDS, make_dense

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"


def _python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_a_process_is_measured() -> None:
    done = run_measured(_python(f"{BURN}print('out')\nimport sys; sys.exit(3)"))
    assert done.code == 3
    assert done.stdout == "out\n"
    assert 0.3 <= done.cpu_s < 2.0
    assert done.wall_s >= 0.3
    assert done.tree_mb == 0


def test_processes_that_outlive_their_parent_count() -> None:
    # As a server of worker processes does.
    child = f"import os, time\nwhile os.getppid() == %d: time.sleep(0.01)\n{BURN}"
    script = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r} % os.getpid()])\n"
    )
    done = run_measured(_python(script))
    assert done.cpu_s >= 0.3


def test_memory_is_that_of_all_processes() -> None:
    fill = "data = bytearray(b'x' * 60_000_000)\n"
    script = (
        f"import subprocess, sys, time\n{fill}"
        f"child = subprocess.Popen([sys.executable, '-c', {fill + 'input()'!r}],"
        " stdin=subprocess.PIPE)\ntime.sleep(1.2)\nchild.communicate(b'x')\n"
    )
    assert 120 < run_measured(_python(script), tree=True).tree_mb < 300


def test_a_process_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="took longer than"):
        run_measured(_python("import time; time.sleep(600)"), timeout_s=0.2)


def test_an_exit_code_is_told_with_the_last_line() -> None:
    done = run_measured(_python("import sys; print('one\\ntwo', file=sys.stderr); sys.exit(4)"))
    with pytest.raises(BenchmarkError, match=r"^exit code 4: two$"):
        succeed(done)
    assert succeed(done, (0, 4)) is done


def test_the_memory_of_a_process_that_is_gone_is_nothing() -> None:
    memory = TreeMemory(2**22 + 1)  # beyond the largest process id
    time.sleep(0.3)
    assert memory.close() == 0


def test_the_slope_is_that_of_the_later_half() -> None:
    memory = Memory()
    for second in range(20):
        memory.add(second, 50_000_000 if second < 10 else 50_000_000 + (second - 10) * 100_000)
    assert memory.slope_mb_per_minute == pytest.approx(6.0)
    assert memory.max_mb == pytest.approx(50.9)


@pytest.fixture(scope="module")
def pictures() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    rng = np.random.default_rng(3)
    rough = rng.integers(0, 256, (3, 12, 16, 3)).astype(np.uint8)
    return np.stack([cv2.resize(image, (160, 120)) for image in rough]).astype(np.uint8)


def test_psnr_is_that_of_its_definition() -> None:
    black = np.zeros((8, 8, 3), np.uint8)
    other = black.copy()
    other[0, 0, 0] = 255  # one value of 192 is off by the peak
    assert psnr_db(black, other) == pytest.approx(10 * np.log10(192), abs=1e-6)


@pytest.mark.parametrize("wanted", [20, 49, 70, 90, 99])
def test_the_equal_quality_is_the_lowest_that_is_as_good(
    wanted: int, pictures: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
) -> None:
    quality = equal_quality(pictures, jpeg_psnr_db(pictures, wanted))
    assert quality <= wanted
    assert jpeg_psnr_db(pictures, quality) >= jpeg_psnr_db(pictures, wanted)
    assert jpeg_psnr_db(pictures, quality - 1) < jpeg_psnr_db(pictures, wanted)


def test_a_psnr_that_no_quality_has_takes_the_best(
    pictures: np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
) -> None:
    assert equal_quality(pictures, 1000.0) == 100


def test_a_video_is_held_against_its_pictures(
    pictures: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], tmp_path: Path
) -> None:
    path = tmp_path / "video.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (160, 120))
    for picture in pictures:
        writer.write(picture)
    writer.release()
    assert 25 < video_psnr_db(path, pictures) < 60
    assert video_psnr_db(path, pictures) > video_psnr_db(path, pictures[::-1]) + 5
    with pytest.raises(ValueError, match="3 pictures of 6"):
        video_psnr_db(path, np.concatenate([pictures, pictures]))


def test_dense_sweeps_have_the_columns_of_two_in_turns() -> None:
    sweeps: dict[str, Any]
    sweeps = {name: np.arange(24).reshape(3, 2, 4).astype(t) for name, (t, _) in FIELDS.items()}
    sweeps["t_col"] = np.arange(12).reshape(3, 4)
    dense = make_dense(sweeps)
    assert dense["RANGE"].shape == (3, 2, 8)
    assert dense["RANGE"][0, 0].tolist() == [0, 8, 1, 9, 2, 10, 3, 11]
    assert dense["RANGE2"][0].tolist() == dense["RANGE"][1].tolist()
    assert dense["REFLECTIVITY2"].dtype == np.uint8
    assert dense["t_col"].shape == (3, 8)
