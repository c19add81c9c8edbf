"""Sessions of every state have a report; what cannot be read is in it as such."""

from __future__ import annotations

import fcntl
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.common.errors import SessionError, StorageError
from recorder.session.checksums import write_checksums
from recorder.session.journal.journal import JournalWriter
from recorder.session.validation import validate
from recorder.viewers.report import write_report
from tests.archives.ncore.packer_rig import add_poses
from tests.campaigns import Selector
from tests.session.build import (
    Builder,
    camera_spec,
    full_session,
    imu_session,
    imu_spec,
    raw_camera_spec,
    rewrite_header,
)
from tests.viewers.report.reading import Page

S = 1_000_000_000
SECTIONS = {"timeline", "cameras", "lidars", "radars", "series", "streams", "clocks", "setup"}


def report(path: Path) -> Page:
    return Page(write_report(path))


def test_a_clean_session(tmp_path: Path) -> None:
    path = full_session(tmp_path / "rig").path
    told: list[tuple[str, float]] = []
    made = write_report(path, progress=lambda *words: told.append(words))
    assert made == path / "report.html" and made.stat().st_mode & 0o777 == 0o640
    page = Page(made)
    assert page.sections.keys() >= SECTIONS
    # The builder's lidar.json has no azimuths, so that its sweeps cannot be drawn.
    assert "FAIL" in page.sections["verdict"] and "lidar.json: is not usable" in page.text
    for fact in (
        "rig",
        "vehicle",
        "rig-1",
        "2024-06-01 10:00:00.123 UTC",
        "1.0 s",
        "clean",
        "0.1.0",
    ):
        assert fact in page.text
    shares = [share for _, share in told]
    assert shares == sorted(shares) and (shares[0], shares[-1]) == (0.0, 1.0)
    assert [p.name for p in path.iterdir() if p.name.endswith(".tmp")] == []


def test_a_session_that_passes(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(camera_spec(), 1.0)
    builder.add(imu_spec(), 1.0)
    path = builder.close()
    write_checksums(path)
    assert "✓ PASS" in report(path).sections["verdict"]
    assert report(path).source.startswith('<!DOCTYPE html>\n<html lang="en">'), "made again"
    checked = validate(path, deep=True)
    assert checked.sound and checked.problems == [], "the report is no damage"


def test_the_file_may_be_elsewhere(tmp_path: Path) -> None:
    path = full_session(tmp_path / "rig", 0.2).path
    out = tmp_path / "other.html"
    assert write_report(path, out) == out and not (path / "report.html").exists()
    with pytest.raises(StorageError, match="cannot be written"):
        write_report(path, tmp_path / "missing" / "other.html")


def test_a_plain_trace(tmp_path: Path) -> None:
    page = report(full_session(tmp_path / "rig", plain=True).path)
    assert "a roverd trace of another recorder" in page.text
    assert page.sections.keys() >= SECTIONS - {"clocks"} and "archives" not in page.sections


def test_a_session_that_is_being_recorded(tmp_path: Path) -> None:
    path = imu_session(tmp_path / "rig", 1.0).close("recording")
    with (path / "imu" / "acc").open("ab") as file:
        file.write(b"half")
    with (path / "_recorder" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        page = report(path)
    assert "● PASS so far" in page.sections["verdict"] and "being recorded" in page.text


def test_parts_of_a_split_session_link_to_each_other(tmp_path: Path) -> None:
    for name, previous, following in (
        ("drive_p001", None, "drive_p002"),
        ("drive_p002", "drive_p001", "drive_p003"),
    ):
        path = imu_session(tmp_path / name, 1.0).close()
        rewrite_header(path, previous=previous)
        _tell_next(path, following)
    page = report(path)
    assert page.links[0] == "../drive_p001/report.html"
    assert "Continued in" in page.text and "drive_p003" in page.text
    assert "← drive_p001" in page.sections["timeline"]
    assert "drive_p003 →" in page.sections["timeline"]
    assert not any("p003" in link for link in page.links), "there is no such session"
    out = tmp_path / "other.html"
    write_report(path, out)
    assert not any(link.startswith("..") for link in Page(out).links)


def _tell_next(path: Path, name: str) -> None:
    from recorder.common.files import PosixDisk
    from recorder.session.journal.journal import read_journal

    journal = path / "_recorder" / "commits"
    state = read_journal(journal)
    writer = JournalWriter(PosixDisk().reopen(journal, state.length), state)
    writer.append("split", next=name, first=b"")
    writer.close()


def test_a_link_never_leads_out_of_the_root(tmp_path: Path) -> None:
    path = imu_session(tmp_path / "rig", 1.0).close()
    for previous in ("../../etc", "javascript:alert(1)", "/etc", "\0", "x" * 5000, 3):
        rewrite_header(path, previous=previous)
        assert all(link.startswith("#") for link in report(path).links)


def test_a_link_stays_beside_the_session(tmp_path: Path) -> None:
    for name in ("here/rig", "there/drive"):
        imu_session(tmp_path / name, 1.0).close()
    path = tmp_path / "here" / "rig"
    rewrite_header(path, previous="../there/drive")
    assert all(link.startswith("#") for link in report(path).links)


def test_a_damaged_stream_is_drawn_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    path = imu_session(tmp_path / "rig", 1.0).close()
    with (path / "imu" / "acc").open("r+b") as file:
        file.truncate(601)  # 50 samples, and a byte
    page = report(path)
    assert "imu/acc" in page.sections["verdict"] or "imu/acc" in page.text
    assert (
        "50 samples" in page.sections["timeline"]
        and "acc\n acceleration" in page.sections["series"]
    )


def test_a_session_without_a_stream(tmp_path: Path) -> None:
    page = report(Builder(tmp_path / "rig").close())
    assert "PASS" in page.sections["verdict"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_samples(tmp_path: Path, count: int) -> None:
    builder = imu_session(tmp_path / "rig", count=count)
    builder.add(raw_camera_spec("rear"), count=count)
    builder.add(camera_spec(), count=count)
    page = report(builder.close())
    assert len(page.pictures) == 2 * count
    if not count:
        assert "has no picture" in page.sections["cameras"]


Damage = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: (p / "camera/video.avi").write_bytes(b"x"), "camera/video.avi: not an AVI"),
        (lambda p: (p / "camera/video.avi").unlink(), "camera/video.avi"),
        (lambda p: (p / "imu/meta.json").write_text("{"), "imu/meta.json: not JSON"),
        (lambda p: (p / "imu/acc").write_bytes(b"1234567"), "imu/acc"),
        (lambda p: (p / "radar/radar.json").write_text("{}"), "radar/radar.json: lacks"),
        (lambda p: (p / "radar/radar.json").unlink(), "radar/radar.json: cannot be read"),
        (lambda p: (p / "lidar/lidar.json").unlink(), "lidar/lidar.json: cannot be read"),
        (lambda p: (p / "lidar/rng").write_bytes(b"\0" * 9999), "lidar/rng"),
        (lambda p: (p / "_recorder/session.json").write_text("{"), "session.json: is damaged"),
        (lambda p: (p / "_recorder/events.jsonl").write_text("{\n"), "events.jsonl:1: not JSON"),
        (lambda p: (p / "_recorder/commits").write_bytes(b"x"), "commits: not one whole record"),
        (lambda p: (p / "calibration.yaml").write_text("sensors: 3"), "sensors: needs a mapping"),
        (lambda p: (p / "config.yaml").unlink(), "config.yaml: is missing"),
    ],
)  # fmt: skip
def test_damage_is_shown_and_the_rest_too(tmp_path: Path, damage: Damage, words: str) -> None:
    path = full_session(tmp_path / "rig", 0.3).path
    damage(path)
    page = report(path)
    assert "FAIL" in page.sections["verdict"] and words in page.text
    # Where the report itself reads it, its place says so, and stands out.
    read_here = "video.avi|radar.json|lidar.json|events.jsonl|commits|sensors|config.yaml"
    file = re.search(read_here, words)
    assert file is None or any(file[0] in text for text in page.odd)
    if "session.json" not in words:
        assert page.sections.keys() >= {"timeline", "streams", "setup"}


def test_a_picture_that_does_not_decode_leaves_the_others(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(camera_spec(), 1.0)
    path = builder.close()
    video = path / "camera" / "video.avi"
    data = video.read_bytes()
    starts = [k for k in range(len(data) - 2) if data[k : k + 3] == b"\xff\xd8\xff"]
    at = starts[len(starts) // 24]  # of the first of twelve pictures
    video.write_bytes(data[:at] + b"\0" * 300 + data[at + 300 :])
    page = report(path)
    assert len(page.pictures) == 11 and "camera, picture 1: " in page.sections["cameras"]
    assert "camera, picture 1" in page.text and "FAIL" in page.sections["verdict"]


def test_values_that_numbers_cannot_follow_are_no_warnings(tmp_path: Path) -> None:
    """What damage leaves: signalling NaNs, and poses whose squares are infinite."""
    builder = Builder(tmp_path / "rig")
    made = builder.add(imu_spec())
    path = builder.close()
    acc = path / "imu" / "acc"
    acc.write_bytes(np.full(acc.stat().st_size // 4, 0x7FA00001, "<u4").tobytes())
    far = np.zeros((len(made.t_ns), 3))
    far[::2] = 1e300
    add_poses(path, made.t_ns, far, "_pose")
    assert {"series", "tracks", "streams"} <= report(path).sections.keys()


def test_no_session(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SessionError):
            write_report(path)
    assert list(tmp_path.iterdir()) == []


def test_random_damage_never_raises(tmp_path: Path, select: Selector) -> None:
    whole = full_session(tmp_path / "rig", 0.2).path
    (whole / "_recorder" / "finalize.json").write_text('{"version": 1, "steps": {"a": {}}}')
    files = sorted(p.relative_to(whole) for p in whole.rglob("*") if p.is_file())
    rng = random.Random(3)
    for number in select(range(15), 5):
        path = tmp_path / "damaged"
        shutil.copytree(whole, path)
        for file in rng.sample(files, 2):
            data = bytearray((path / file).read_bytes())
            if rng.random() < 0.4:
                del data[rng.randrange(len(data) + 1) :]
            else:
                for _ in range(min(len(data), 3)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            (path / file).write_bytes(data)
        try:
            report(path)
        except Exception as error:
            raise AssertionError(f"damage number {number}") from error
        shutil.rmtree(path)
