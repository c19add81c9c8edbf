"""``recorder export``: what is in the files, read by other software, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from recorder.archives.export import FORMATS, Wanted, export
from recorder.cli import export as verb
from recorder.cli import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.session.reader import Session
from tests.session.build import Builder, camera_spec, imu_spec
from tests.session.simulated import simulated_session

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return simulated_session(tmp_path_factory.mktemp("root") / "rig", 0.5)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def run(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> dict[str, Any]:
    """The JSON of ``recorder export``; its ``stderr`` is what it said besides."""
    assert main(["export", *map(str, argv), "--format", "json"]) == code
    captured = capsys.readouterr()
    made: dict[str, Any] = json.loads(captured.out) if captured.out else {}
    return {**made, "stderr": captured.err}


@contextmanager
def signals_ignored(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def table(path: str) -> list[dict[str, str]]:
    """The rows of a CSV by their titles."""
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def read_picture(path: str | Path) -> Array:
    """A picture as OpenCV reads it, with its own depth."""
    found = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert found is not None
    return np.asarray(found)


def refused(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 2) -> str:
    """The message of an export that makes no file."""
    before = sorted(Path().rglob("*"))
    made = run(capsys, *argv, code=code)
    assert made.keys() == {"stderr"}
    assert made["stderr"].startswith("recorder export: ") and made["stderr"].count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    return str(made["stderr"])


def test_the_command_knows_all_formats() -> None:
    assert (*FORMATS, "blocks") == verb._FORMATS


@pytest.mark.parametrize(
    ("stream", "format_name"), [("imu", "csv"), ("lidar", "npz"), ("lidar", "pcd")]
)
def test_progress_ends_with_all_samples(built: Builder, stream: str, format_name: str) -> None:
    seen: list[tuple[float, int]] = []
    with Session(built.path, virtual=True, partial=True) as session:
        made = export(session, Wanted(stream, format_name), progress=lambda *at: seen.append(at))
    done = [part for part, _ in seen]
    assert {count for _, count in seen} == {made.samples}
    assert done == sorted(done) and done[-1] == pytest.approx(made.samples)


# --- csv


def test_csv_has_every_number_exactly(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(capsys, built.path, "imu", "--to", "csv")
    imu = built.streams["imu"]
    assert (made["samples"], made["damaged"], made["files"]) == (50, 0, ["rig_imu.csv"])
    assert made["bytes"] == Path("rig_imu.csv").stat().st_size and made["stderr"] == ""
    with Path("rig_imu.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:4] == ["ts (s)", "seq", "t_dev (ns)", "acc[0] (m/s^2)"]
    assert header[-1] == "rot[2] (rad)" and len(header) == 3 + 9
    assert [int(Decimal(row[0]) * 10**9) for row in rows] == imu.t_ns.tolist()
    assert [int(row[1]) for row in rows] == imu.seq.tolist()
    assert imu.t_dev_ns is not None
    assert [int(row[2]) for row in rows] == imu.t_dev_ns.tolist()
    values = np.array([[float(cell) for cell in row[3:]] for row in rows], np.float32)
    assert np.array_equal(values[:, 6:], imu.data["rot"])
    assert np.array_equal(values[:, :3], imu.data["acc"])


def test_csv_of_every_kind_of_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values: dict[str, Array] = {
        "f8": np.array([[np.nan, -np.inf], [0.1 + 0.2, 5e-324], [-0.0, 1.7976931348623157e308]]),
        "f4": np.array([3.4028235e38, 1e-45, 16777216], np.float32),
        "u8": np.array([0, 2**64 - 1, 2**63], np.uint64),
        "i8": np.array([-(2**63), 0, 2**63 - 1], np.int64),
        "i1": np.array([[[-128, 127]], [[0, 1]], [[2, 3]]], np.int8),
    }
    channels = [ChannelSpec(n, "raw", n, v.shape[1:], unit="") for n, v in values.items()]
    builder = Builder(tmp_path / "rig")
    builder.add(StreamSpec("odd", tuple(channels), rate_hz=10.0), count=3, data=values)
    run(capsys, builder.close(), "odd", "--to", "csv", "--out", "a.csv")
    rows = table("a.csv")
    for k, row in enumerate(rows):
        pairs = np.array([float(row["f8[0]"]), float(row["f8[1]"])])
        assert pairs.tobytes() == values["f8"][k].tobytes()  # the sign of a zero, too
        assert np.float32(row["f4"]) == values["f4"][k]
        assert (int(row["u8"]), int(row["i8"])) == (values["u8"][k], values["i8"][k])
        assert [int(row["i1[0][0]"]), int(row["i1[0][1]"])] == values["i1"][k, 0].tolist()


def test_csv_leaves_out_large_channels(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(capsys, built.path, "radar", "--to", "csv", "--every", "4")
    assert made["notes"] == ["left out: iq: more than 64 values each"]
    rows = table("rig_radar.csv")
    assert [(row["seq"], row["valid"]) for row in rows] == [("0", "1"), ("4", "1"), ("8", "1")]
    text = refused(capsys, built.path, "radar", "--to", "csv", "--channels", "iq")
    assert "iq has" in text and "--to npz" in text


def test_csv_titles_are_no_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = Builder(tmp_path / "rig", plain=True)
    builder.add(imu_spec(), count=3)
    meta = builder.path / "imu" / "meta.json"
    entries = json.loads(meta.read_text())
    for name, bad in (("acc", '=cmd("a")'), ("avel", "+1,2")):
        (builder.path / "imu" / name).rename(builder.path / "imu" / bad)
        entries[bad] = entries.pop(name)
    meta.write_text(json.dumps(entries))
    run(capsys, builder.close(), "imu", "--to", "csv")
    header = list(table("rig_imu.csv")[0])
    assert header[0] == "ts (s)" and len(header) == 1 + 9
    assert '\'=cmd("a")[0] (m/s^2)' in header and "'+1,2[2] (rad/s)" in header


# --- npz


@pytest.mark.parametrize("name", ["camera", "lidar", "radar", "imu"])
def test_npz_has_every_channel(
    built: Builder, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(capsys, built.path, name, "--to", "npz")
    recorded = built.streams[name]
    assert made["samples"] == len(recorded.t_ns)
    with np.load(f"rig_{name}.npz") as arrays:
        names = {"ts", "t_ns", "seq", "t_mono", *recorded.data}
        assert set(arrays.files) == names | ({"t_dev"} if recorded.spec.device_clock else set())
        assert np.array_equal(arrays["t_ns"], recorded.t_ns)
        assert np.array_equal(arrays["seq"], recorded.seq)
        assert np.array_equal(arrays["ts"], recorded.t_ns / 1e9)
        for channel, values in recorded.data.items():
            found = arrays[channel]
            assert found.shape == values.shape and found.dtype == values.dtype
            if channel == "video.avi":  # RGB, what the JPEGs hold
                jpegs = run(capsys, built.path, name, "--to", "jpg")["files"]
                pictures = [read_picture(path)[..., ::-1] for path in jpegs]
                assert np.array_equal(found, np.stack(pictures))
            else:
                assert np.array_equal(found, values)


def test_npz_that_is_too_large_is_refused(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    most = ("--max-gb", "0.001")
    text = refused(capsys, built.path, "radar", "--to", "npz", *most)
    assert "arrays of 10 samples have 0.00197 GB, and may have 0.001 GB" in text
    assert "choose fewer samples (--from, --until, --every)" in text
    run(capsys, built.path, "radar", "--to", "npz", *most, "--channels", "valid")
    with np.load("rig_radar.npz") as arrays:
        assert set(arrays.files) == {"ts", "t_ns", "seq", "t_mono", "valid"}


# --- pictures


@pytest.mark.parametrize(
    ("stream", "wrong", "fits"),
    [
        ("camera", "pcd", "csv, npz, png, jpg"),
        ("lidar", "jpg", "csv, npz, png, pcd"),
        ("radar", "jpg", "csv, npz, png, pcd"),
        ("imu", "png", "csv, npz"),
        ("imu", "pcd", "csv, npz"),
    ],
)
def test_a_format_that_does_not_fit(
    built: Builder, stream: str, wrong: str, fits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(capsys, built.path, stream, "--to", wrong)
    assert text.endswith(f"{stream}: cannot be exported as {wrong}; fits: {fits}\n")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["gnss", "--to", "csv"], 1, "has no stream 'gnss'; its streams: camera, imu"),
        (["imu", "--to", "csv", "--every", "0"], 2, "--every 0: needs a whole number"),
        (["imu", "--to", "csv", "--from", "soon"], 2, "--from: 'soon': needs seconds"),
        (["imu", "--to", "csv", "--from", "2", "--until", "1"], 2, "--until 1: needs a time after"),
        (["imu", "--to", "csv", "--from", "9"], 1, "its samples are from 0.001 s to 0.491 s"),
        (["imu", "--to", "csv", "--channels", "acc,"], 2, "--channels: 'acc,' has an empty name"),
        (["imu", "--to", "csv", "--channels", "iq"], 2, "has no channel 'iq'; its channels: acc"),
        (["camera", "--to", "jpg", "--channels", "video.avi"], 2, "--channels: is for csv, npz"),
        (["imu", "--to", "npz", "--max-gb", "0"], 2, "--max-gb 0: needs a number above 0"),
    ],
)
def test_wrong_usage(
    built: Builder, argv: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, built.path, *argv, code=code)


def test_an_interval_is_half_open_and_may_be_in_utc(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    t_ns = built.streams["imu"].t_ns
    begin, end = (f"2024-06-01T10:00:00.{int(t_ns[k]) % 10**9:09d}Z" for k in (10, 20))
    run(capsys, built.path, "imu", "--to", "npz", "--from", begin, "--until", end, "--every", "3")
    with np.load("rig_imu.npz") as arrays:
        assert arrays["seq"].tolist() == [10, 13, 16, 19]
        assert np.array_equal(arrays["acc"], built.streams["imu"].data["acc"][10:20:3])


def test_what_exists_stays(built: Builder, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("mine")
    text = refused(capsys, built.path, "imu", "--to", "csv", "--out", "a.csv")
    assert "a.csv: exists; remove it" in text and Path("a.csv").read_text() == "mine"
    Path("full").mkdir()
    Path("full/mine").touch()
    text = refused(capsys, built.path, "camera", "--to", "jpg", "--out", "full")
    assert "full: is not empty; empty it, or name another folder" in text
    text = refused(capsys, built.path, "camera", "--to", "jpg", "--out", "a.csv")
    assert "a.csv: is a file; the pictures or points need a folder" in text
    text = refused(capsys, built.path, "camera", "--to", "jpg", "--out", "b.jpg")
    assert "b.jpg: names one file; the 5 files need a folder" in text
    # A folder gets what is one file, and an empty one is used.
    assert run(capsys, built.path, "imu", "--to", "csv", "--out", "full")["files"] == [
        "full/rig_imu.csv"
    ]
    Path("empty").mkdir()
    run(capsys, built.path, "camera", "--to", "jpg", "--out", "empty")
    assert len(list(Path("empty").iterdir())) == 5
    run(capsys, built.path, "camera", "--to", "jpg", "--out", "new/folders/looks")
    assert len(list(Path("new/folders/looks").iterdir())) == 5
    assert not list(here.rglob(".*"))


def test_nothing_is_written_into_the_session(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link").symlink_to(built.path)
    (Path("other") / "imu").mkdir(parents=True)
    Path("other/config.yaml").write_text("version: 1\n")
    for place in (built.path / "a.csv", Path("link/imu/a.csv"), built.path, "other/imu/a.csv"):
        text = refused(capsys, built.path, "imu", "--to", "csv", "--out", place)
        assert "is in the session" in text and "name another place" in text


def test_a_failure_leaves_nothing(
    built: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("recorder.archives.export.job.write_new", full)
    text = refused(capsys, built.path, "camera", "--to", "jpg", code=1)
    assert "No space left on device" in text


@pytest.mark.parametrize(("stream", "form"), [("imu", "csv"), ("imu", "npz"), ("camera", "jpg")])
def test_a_full_disk_is_one_error_that_names_the_place(
    built: Builder,
    capsys: pytest.CaptureFixture[str],
    here: Path,
    stream: str,
    form: str,
) -> None:
    """As the kernel reports a failed write: without a file's name."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with signals_ignored(signal.SIGXFSZ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            text = refused(capsys, built.path, stream, "--to", form, "--out", "x", code=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert text == "recorder export: x: File too large\n"
    assert not list(here.iterdir())


def test_what_a_killed_export_left_is_removed_by_the_next(
    built: Builder, capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    host = os.uname().nodename
    left = [here / f".x.{host}.{gone.pid}.part", here / f".y.{host}.{gone.pid}.part"]
    kept = [
        here / f".x.{host}.{os.getppid()}.part",  # a process that runs
        here / f".x.elsewhere.{gone.pid}.part",  # of another machine
        here / f".other.{host}.{gone.pid}.part",
    ]
    for folder in (left[1], kept[0]):
        folder.mkdir()
        (folder / "a.jpg").touch()
    for file in (left[0], *kept[1:]):
        file.touch()
    run(capsys, built.path, "imu", "--to", "csv", "--out", "x")
    run(capsys, built.path, "camera", "--to", "jpg", "--out", "y")
    assert {path.name for path in here.iterdir()} == {"x", "y", *(path.name for path in kept)}


# --- damage


def damaged_session(path: Path) -> Builder:
    """Its camera lacks the end of picture 2, and sweep 1's `rfl` is no xz stream."""
    builder = simulated_session(path, 0.5, streams=["camera", "lidar"])
    video = builder.path / "camera" / "video.avi"
    data = bytearray(video.read_bytes())
    at = -1
    for _ in range(3):
        at = data.index(b"\xff\xd9", at + 1)
    data[at : at + 2] = b"\0\0"
    video.write_bytes(data)
    offsets = np.fromfile(builder.path / "lidar" / "rfl_i", "<u8")
    with (builder.path / "lidar" / "rfl").open("r+b") as file:
        file.seek(int(offsets[1]))
        file.write(b"damage")
    return builder


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return damaged_session(tmp_path_factory.mktemp("damaged") / "rig")


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_damaged_pictures_are_left_out(
    damaged: Builder, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(capsys, damaged.path, "camera", "--to", ending, code=3)
    assert (made["samples"], made["damaged"], len(made["files"])) == (4, 1, 4)
    assert len(made["problems"]) == 1
    assert "sample 2: the JPEG is cut short" in made["problems"][0]
    assert made["stderr"] == f"recorder export: left out: {made['problems'][0]}\n"


def test_damaged_sweeps_are_left_out_of_all_arrays(
    damaged: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(capsys, damaged.path, "lidar", "--to", "npz", code=3)
    assert (made["samples"], made["damaged"]) == (4, 1) and "rfl: sample 1" in made["problems"][0]
    with np.load("rig_lidar.npz") as arrays:
        for name in ("rng", "rfl", "nir"):
            kept = damaged.streams["lidar"].data[name][[0, 2, 3, 4]]
            assert np.array_equal(arrays[name], kept)
        assert arrays["seq"].tolist() == [0, 2, 3, 4]


def test_channels_that_are_not_needed_may_be_damaged(
    damaged: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, damaged.path, "lidar", "--to", "png")["samples"] == 5
    made = run(capsys, damaged.path, "lidar", "--to", "pcd", code=3)
    assert (made["samples"], made["damaged"]) == (4, 1)
    (damaged.path / "lidar" / "nir").rename(damaged.path / "lidar" / "gone")
    assert run(capsys, damaged.path, "lidar", "--to", "png", "--out", "again")["samples"] == 5
    text = refused(capsys, damaged.path, "lidar", "--to", "npz", code=1)
    assert "lidar/nir: no such file" in text
    (damaged.path / "lidar" / "gone").rename(damaged.path / "lidar" / "nir")


def test_without_a_readable_sample_there_is_no_file(
    damaged: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ("--from", "0.2", "--until", "0.25")
    text = refused(capsys, damaged.path, "camera", "--to", "jpg", *only, code=1)
    assert "no sample can be read: " in text and "sample 2: the JPEG is cut short" in text
    only = ("--from", "0.1", "--until", "0.15")
    for ending in ("npz", "pcd"):
        text = refused(capsys, damaged.path, "lidar", "--to", ending, *only, code=1)
        assert "rfl: sample 1" in text


def test_a_file_that_ends_early_in_a_closed_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), count=20)
    os.truncate(builder.close() / "imu" / "acc", 12 * 15 + 5)
    made = run(capsys, builder.path, "imu", "--to", "csv", code=3)
    assert (made["samples"], made["damaged"]) == (15, 5)
    assert "imu/acc: ends after sample 14; 5 more were recorded" in made["problems"][0]
    part = run(capsys, builder.path, "imu", "--to", "npz", "--until", "0.1")
    assert (part["samples"], part["damaged"]) == (10, 0)


def test_many_problems_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(camera_spec(), count=60)
    video = builder.close() / "camera" / "video.avi"
    data = video.read_bytes()
    first = data.index(b"\xff\xd9") + 2
    video.write_bytes(data[:first] + data[first:].replace(b"\xff\xd9", b"\0\0"))
    made = run(capsys, builder.path, "camera", "--to", "jpg", "--out", "one", code=3)
    assert (made["samples"], made["damaged"], len(made["problems"])) == (1, 59, 59)
    *lines, last = made["stderr"].splitlines()
    assert len(lines) == 20
    assert last == "recorder export: left out: 59 samples in all; not all are listed"


def test_open_and_unclosed_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), count=20)
    builder.add(camera_spec(), count=6)
    path = builder.close("recording")
    os.truncate(path / "imu" / "avel", 12 * 17 + 3)  # being written
    made = run(capsys, path, "imu", "--to", "csv")
    assert (made["samples"], made["damaged"], made["problems"]) == (17, 0, [])
    assert run(capsys, path, "camera", "--to", "jpg")["samples"] == 6


def test_text_output(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(built.path), "lidar", "--to", "png", "--until", "0.2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("lidar: 2 samples, ")
    assert out[1] == "  rig_lidar_png (2 files)"
    assert out[2].startswith("  note: ") and out[2].endswith(" are 65535 in the pictures")
