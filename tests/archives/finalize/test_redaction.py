"""Archives with redacted pictures: what is in them, and that nothing else is."""

from __future__ import annotations

import hashlib
import html
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from mcap.reader import make_reader
from PIL import Image

from recorder.archives.context import PackingContext
from recorder.archives.finalize import ORIGINALS, ArchiveRequest, PackedArchive, collect, finalize
from recorder.archives.sample_workers import SampleEncoder, SampleWorkers, WorkerContext
from recorder.cli import main
from recorder.common.errors import FormatError, RedactionError, SessionError, StorageError
from recorder.config.loading import asks_for_redaction
from recorder.config.settings import RedactSettings
from recorder.formats.vrs import RecordType, VrsReader
from recorder.perception.calibration import Calibration
from recorder.perception.camera.camera_pictures import Pictures
from recorder.perception.redaction.pictures import paint, redact_session
from recorder.session.outputs import read_records
from recorder.session.part import WHOLE, Moment, Part
from recorder.session.reader import Session
from recorder.session.session_part import SessionPart
from tests.archives.edgefirst.rig import read as read_edgefirst
from tests.archives.mcap.bags import received
from tests.archives.mcap.reading import read as read_mcap
from tests.formats.zarr2.kit import keys_of
from tests.perception.redaction.programs import GOOD, program
from tests.perception.redaction.test_redactor import is_running
from tests.recording.writer.vrs_session import stream_of
from tests.session.build import Builder, camera_spec, imu_spec, raw_camera_spec, video_camera_spec
from tests.session.camera_labels import KINDS, make_values, write_folder

Array = npt.NDArray[Any]
COUNT = 7
BOX = np.s_[3:12, 2:10]  # what `GOOD` answers: (2, 3, 9.5, 12)
ALL = [ArchiveRequest(name) for name in ("ncore", "edgefirst", "vrs", "mcap", "l5kit")]


def build(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec("front"), count=COUNT)
    builder.add(video_camera_spec("rear"), count=COUNT)
    builder.add(raw_camera_spec("side"), count=COUNT)
    builder.add(imu_spec(), 0.3)
    return builder.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build(tmp_path / "drive")


def redactor(tmp_path: Path, body: str = GOOD, **more: Any) -> list[RedactSettings]:
    command = tuple(program(tmp_path / "blur.py", body))
    return [RedactSettings("*", tmp_path, command, **more)]


def recorded(path: Path) -> dict[str, list[Array]]:
    """The pictures of the session, BGR."""
    with Session(path) as session:
        cameras = {n: Pictures(s) for n, s in session.streams.items() if n != "imu"}
        return {n: [p.picture(k).copy() for k in range(COUNT)] for n, p in cameras.items()}


def jpegs_of(result: PackedArchive) -> dict[str, list[bytes]]:
    """The pictures in an archive, by camera, as its own reader gives them."""
    file = result.files[0]
    if result.archive == "ncore":
        keys = keys_of(file)
        return {
            name: [
                keys[k]
                for k in sorted(keys)
                if k.startswith(f"cameras/{name}/frames/") and k.endswith("/image/0")
            ]
            for name in ("front", "rear", "side")
        }
    if result.archive == "edgefirst":
        data = read_edgefirst(result)
        found: dict[str, list[bytes]] = {}
        for name, content in data.files.items():
            if name.endswith(".camera.jpeg"):
                found.setdefault(name.partition("/")[0].rpartition("_")[2], []).append(content)
        return found
    if result.archive == "vrs":
        with VrsReader(file) as vrs:
            return {
                name: [
                    jpeg_of(record) for record in vrs.records(stream_of(vrs, name), RecordType.DATA)
                ]
                for name in ("front", "rear", "side")
            }
    if file.is_dir():
        topics = received(file)
        names = {n: f"/{n}/image/compressed" for n in ("front", "rear", "side")}
        return {n: [bytes(m.data) for _, m in topics[t]] for n, t in names.items()}
    messages = read_mcap(file).messages
    assert not any("video" in topic for topic in messages)
    return {n: [m.value.data for m in messages[f"/{n}/image"]] for n in ("front", "rear", "side")}


def jpeg_of(record: Any) -> bytes:
    _, block = record.blocks()
    assert block.content.format == "jpg"
    return bytes(block.data)


def check(found: Mapping[str, list[bytes]], pictures: Mapping[str, list[Array]]) -> None:
    """The box is black, all else is the recorded picture but for JPEG's loss."""
    assert found.keys() == pictures.keys()
    for name, jpegs in found.items():
        assert len(jpegs) == len(pictures[name])
        for jpeg, picture in zip(jpegs, pictures[name], strict=True):
            shown = np.array(Image.open(io.BytesIO(jpeg)).convert("RGB"))[..., ::-1]
            want = picture.copy()
            want[BOX] = 0
            again = cv2.imencode(".jpg", want, [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
            same = np.array(Image.open(io.BytesIO(again.tobytes())))[..., ::-1]
            np.testing.assert_array_equal(shown, same)
            assert shown[4:11, 3:9].max() < 60
            far = np.ones(picture.shape[:2], bool)
            far[:24, :24] = False
            if name != "side":  # noise, which no JPEG keeps
                error = np.abs(shown.astype(int) - picture)[far]
                assert np.mean(error) < 6


def everything(path: Path) -> bytes:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.parametrize("processes", [0, 2])
def test_every_archive_has_redacted_pictures_only(
    path: Path, tmp_path: Path, processes: int
) -> None:
    pictures = recorded(path)
    with Session(path) as session:
        originals = [
            session.streams[n].channels[c].encoded(k)
            for n, c in (("front", "video.avi"), ("rear", "video.h264"))
            for k in range(COUNT)
        ]
    entries = redactor(tmp_path, quality=95)
    before = everything(path)
    results = [
        *finalize(path, ALL, redact=entries, out=tmp_path / "a", processes=processes),
        *finalize(
            path, [ArchiveRequest("mcap", {"profile": "ros2"})], redact=entries, out=tmp_path / "b"
        ),
    ]
    assert [result.archive for result in results] == [*(s.archive for s in ALL), "mcap"]
    for result in results:
        if result.archive != "l5kit":
            check(jpegs_of(result), pictures)
        content = b"".join(map(everything, result.files))
        assert not any(original[-60:] in content for original in originals)
    assert everything(path) == before
    assert not list(tmp_path.rglob("*.part"))


def test_archives_name_what_redacted_them(path: Path, tmp_path: Path) -> None:
    entries = redactor(tmp_path, quality=80)
    made = {r.archive: r for r in finalize(path, ALL, redact=entries)}
    script = tmp_path / "blur.py"
    about: dict[str, Any] = {
        "command": [sys.executable, "-S", str(script)],
        "files": {
            str(p): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in (Path(sys.executable), script)
        },
        "quality": 80,
        "protocol": 1,
        "pictures": COUNT,
        "boxes": COUNT,
        "masks": 0,
    }
    want = {"front": about, "rear": about, "side": about}
    records = read_records(path)
    assert "redaction" not in records["l5kit"]
    assert not any("redact" in note for note in made["l5kit"].notes)
    for name in ("ncore", "edgefirst", "vrs", "mcap"):
        assert records[name]["redaction"] == {"drive": want}
        statement = json.loads(records[name]["custody"]["statement"])
        assert statement["about"]["redaction"] == {"drive": want}
        notes = [note for note in records[name]["notes"] if ": redacted: 7 boxes in 7 " in note]
        assert [note.partition(":")[0] for note in notes] == ["front", "rear", "side"]
        assert all(about["files"][str(script)] in note for note in notes)
    assert main(["report", str(path)]) == 0
    page = html.unescape((path / "report.html").read_text())
    assert page.count(": redacted: 7 boxes in 7 pictures, found by") == 4 * 3
    meta = json.loads(made["ncore"].files[-1].read_bytes())
    assert meta["generic_meta_data"]["redaction"] == want
    assert read_edgefirst(made["edgefirst"]).reported["sessions"]
    with VrsReader(made["vrs"].files[0]) as vrs:
        assert json.loads(vrs.tags["redaction"]) == want
    with made["mcap"].files[0].open("rb") as file:
        values = {m.name: m.metadata for m in make_reader(file).iter_metadata()}
    assert json.loads(values["recorder"]["redaction"]) == want


def test_masks_are_painted(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[Path] = []

    def workers(*args: Any, redacted: Path, **more: Any) -> SampleWorkers:
        shared.append(redacted)
        return SampleWorkers(*args, redacted=redacted, **more)

    monkeypatch.setattr("recorder.archives.finalize.SampleWorkers", workers)
    body = """
    for number, width, height, data in pictures():
        row = bytes(x >= 16 for x in range(width))
        answer(number, height, width, row * height, b"RMSK")
    """
    (made,) = finalize(path, [ArchiveRequest("mcap")], redact=redactor(tmp_path, body))
    pictures = recorded(path)
    for name, jpegs in jpegs_of(made).items():
        for jpeg, picture in zip(jpegs, pictures[name], strict=True):
            shown = np.array(Image.open(io.BytesIO(jpeg)))[..., ::-1]
            assert shown[:, 18:].max() < 60
            want = picture.copy()
            want[:, 16:] = 0
            again = cv2.imencode(".jpg", want, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
            assert jpeg == again.tobytes()
    assert shared == [path / "_archives/.drive.redacted.part"]
    about = made.redaction["drive"]["rear"]
    assert (about["boxes"], about["masks"], about["quality"]) == (0, COUNT, 90)
    assert any("0 boxes and 7 masks in 7 pictures" in note for note in made.notes)
    with made.files[0].open("rb") as file:
        names = [attachment.name for attachment in make_reader(file).iter_attachments()]
    assert names == ["config.yaml"]  # not what describes the recorded video


def index_reader(worker: WorkerContext) -> SampleEncoder:
    stream = worker.session.streams["front"]
    return lambda indices: [stream.channels["video.avi"].encoded(k) for k in indices]


@pytest.mark.parametrize("processes", [0, 1])
def test_workers_have_no_recorded_picture(path: Path, tmp_path: Path, processes: int) -> None:
    folder = tmp_path / "redacted"
    folder.mkdir()
    with Session(path, virtual=True) as session:
        redact_session(session, redactor(tmp_path), folder, lambda *_: None)
    with Session(path, virtual=True, redacted=folder) as session:
        want = [session.streams["front"].channels["video.avi"].encoded(k) for k in range(COUNT)]
        context = PackingContext(session, tmp_path, {}, Calibration())
        try:
            assert (
                list(context.encode_samples("front", index_reader, range(COUNT), group=2)) == want
            )
        finally:
            context.close()
    with SampleWorkers(path, WHOLE, processes, redacted=folder) as workers:
        assert list(workers.encode_samples("front", index_reader, range(COUNT), group=2)) == want


def test_archives_without_redaction_stay_as_they_are(path: Path, tmp_path: Path) -> None:
    def packed(out: str, **more: Any) -> tuple[dict[str, bytes], str]:
        made = list(finalize(path, ALL, out=tmp_path / out, **more))
        files = {p.name: p.read_bytes() for r in made for f in r.files for p in [f] if p.is_file()}
        return files, json.dumps([[r.notes, dict(r.redaction)] for r in made])

    plain = packed("a")
    (path / "config.yaml").write_text("version: 1\nsensors: {}\nredact: {front: keep}\n")
    originals = packed("b", redact=ORIGINALS)
    (path / "config.yaml").write_text("version: 1\nsensors: {}\n")
    assert "redact" not in plain[1]
    assert originals[1] == plain[1]
    for name, content in packed("c", redact=ORIGINALS)[0].items():
        assert content == plain[0][name]
        assert b"redact" not in content
    assert "redaction" not in read_records(tmp_path)


DIES = """
for count, (number, *_) in enumerate(pictures()):
    if count == 5: sys.exit("no memory")
    answer(number, 0)
"""


@pytest.mark.parametrize("step", ["ncore", "edgefirst", "vrs", "mcap"])
def test_a_dead_redactor_leaves_nothing(path: Path, tmp_path: Path, step: str) -> None:
    (older,) = finalize(path, [ArchiveRequest(step)], out=tmp_path / "out")
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    failed: list[Exception] = []
    with pytest.raises(RedactionError) as caught:
        list(
            finalize(
                path, [ArchiveRequest(step), ArchiveRequest("l5kit")],
                redact=redactor(tmp_path, DIES), out=tmp_path / "out", failed=failed.append,
            )
        )  # fmt: skip
    command = f"redactor `{sys.executable} -S {tmp_path / 'blur.py'}`"
    assert str(caught.value) == (
        f"{path}: front, sample 5: {command} ended with exit code 1; it reported: no memory"
    )
    assert not failed
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before
    assert older.files[0].exists()


def test_an_error_after_the_last_answer_is_one(path: Path, tmp_path: Path) -> None:
    entries = redactor(tmp_path, f"{GOOD}\nsys.exit(8)")
    with pytest.raises(RedactionError, match=r"front: redactor .* exit code 8 after its last"):
        list(finalize(path, [ArchiveRequest("vrs")], redact=entries))
    assert not list(path.glob("_archives/vrs/*"))


def test_painting_covers_every_pixel_that_is_touched() -> None:
    boxes = np.array([[-5, -3, 2.1, 3.9], [29.9, 20, 99, 99], [10.5, 10.5, 12, 12]], np.float32)
    picture = np.full((24, 32, 3), 200, np.uint8)
    paint(picture, boxes)
    want = np.full((24, 32, 3), 200, np.uint8)
    want[0:4, 0:3] = want[20:, 29:] = want[10:12, 10:12] = 0
    np.testing.assert_array_equal(picture, want)


def test_a_dataset_of_several_is_not_packed_without_the_session(tmp_path: Path) -> None:
    paths = [build(tmp_path / "a"), build(tmp_path / "b")]
    body = """
    for count, (number, *_) in enumerate(pictures()):
        if os.path.exists("once") and count == 2: sys.exit(9)
        answer(number, 0)
    open("once", "w")
    """
    with pytest.raises(RedactionError, match=r"/b: front, sample 2: .* exit code 9"):
        list(
            collect(
                paths, [ArchiveRequest("edgefirst")], tmp_path / "out",
                redact=redactor(tmp_path, body), refused=lambda *_: pytest.fail("left out"),
            )
        )  # fmt: skip
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    (made,) = collect(
        paths, [ArchiveRequest("edgefirst")], tmp_path / "out", redact=redactor(tmp_path)
    )
    assert made.redaction.keys() == {"a", "b"}
    data = read_edgefirst(made)
    jpegs = [content for name, content in data.files.items() if name.endswith(".camera.jpeg")]
    assert len(jpegs) == 2 * 3 * COUNT
    for jpeg in jpegs:
        assert np.array(Image.open(io.BytesIO(jpeg)))[4:11, 3:9].max() < 60


def test_a_part_is_redacted_and_nothing_else(path: Path, tmp_path: Path) -> None:
    body = (
        f"log = open('log', 'a')\n{GOOD.replace(':', ': print(number, file=log, flush=True),', 1)}"
    )
    part = Part(Moment.parse("0.08"), Moment.parse("0.15"))
    pictures = recorded(path)
    (made,) = finalize(path, [ArchiveRequest("vrs")], redact=redactor(tmp_path, body), part=part)
    with Session(path) as session:
        start_ns = session.start_ns or 0
        inside = {
            n: session.streams[n].between(start_ns + 80_000_000, start_ns + 150_000_000)
            for n in pictures
        }
    found = jpegs_of(made)
    for name, indices in inside.items():
        assert 0 < len(indices) < COUNT
        assert len(found[name]) == len(indices)
        for jpeg, index in zip(found[name], indices, strict=True):
            shown = np.asarray(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR))
            assert shown[BOX][1:-1, 1:-1].max() < 60
            want = pictures[name][index].copy()
            want[BOX] = 0
            assert jpeg == cv2.imencode(".jpg", want, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
    asked = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert asked == [index for indices in inside.values() for index in indices]
    assert made.redaction["drive"]["front"]["pictures"] == len(inside["front"])


def test_pictures_outside_of_the_part_cannot_be_read(path: Path, tmp_path: Path) -> None:
    part, folder = Part(Moment.parse("0.08"), Moment.parse("0.15")), tmp_path / "redacted"
    folder.mkdir()
    with SessionPart(path, part) as session:
        redact_session(session, redactor(tmp_path), folder, lambda *_: None)
        indices = session.streams["front"].first, len(session.streams["front"])
    with SessionPart(path, part, redacted=folder) as session:
        for source in (session.whole, session.streams["front"].whole, session):
            stream = source.streams["front"] if isinstance(source, Session) else source
            assert stream.meta["video.avi"]["format"] == "mjpg"
            for index in range(len(stream)):
                jpeg = stream.channels["video.avi"].encoded(index)
                place = index + stream.first
                assert (jpeg != b"\0") == (indices[0] <= place < sum(indices))
        rear = session.whole.streams["rear"]
        assert (rear.meta["video.h264"]["format"], rear.spec and rear.spec.keyed) == ("mjpg", False)
        assert session.declared["rear"].channels[0].format == "mjpg"


def test_each_camera_needs_an_entry(path: Path, tmp_path: Path) -> None:
    (entry,) = redactor(tmp_path)
    front = RedactSettings("front", entry.folder, entry.command)
    with pytest.raises(RedactionError, match=r"rear: has pictures, and redact has no entry for it"):
        list(finalize(path, [ArchiveRequest("vrs")], redact=[front]))
    kept = [front, *(RedactSettings(name, tmp_path) for name in ("rear", "side"))]
    (made,) = finalize(path, [ArchiveRequest("mcap")], redact=kept)
    assert [m.value.data for m in read_mcap(made.files[0]).messages["/rear/video"]]
    assert made.redaction["drive"]["rear"] == {"kept": True}
    assert any(note.startswith("rear: not redacted: ") for note in made.notes)


def test_a_session_that_asks_for_redaction(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.common.syscalls.be_idle", lambda: None)
    command = json.dumps(program(tmp_path / "blur.py", GOOD))
    config = tmp_path / "rig.yaml"
    config.write_text(f'redact: {{"*": {{command: {command}}}}}\n')
    (path / "config.yaml").write_text(f"version: 1\n{config.read_text()}")
    words = ["finalize", str(path), "--to", "vrs,ncore"]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert f"{path}: its config asks for redacted pictures (redact)" in error
    assert "--redact FILE" in error and "--originals" in error
    assert not list(path.glob("_archives/*/*"))
    assert main(["finalize", str(path), "--to", "l5kit"]) == 0  # it has no pictures
    assert main([*words, "--redact", str(config)]) == 0
    assert read_records(path)["vrs"]["redaction"]
    assert main([*words, "--originals"]) == 0
    assert "redaction" not in read_records(path)["vrs"]
    assert main([*words, "--originals", "--redact", str(config)]) == 2
    (path / "config.yaml").write_text("version: 1\nredact: {a: b}\n\tbroken: [\n")
    assert asks_for_redaction(path / "config.yaml")
    with pytest.raises((SessionError, RedactionError)):
        list(finalize(path, [ArchiveRequest("vrs")]))
    (path / "config.yaml").write_text("version: 1\n\tbroken: [\n")
    assert not asks_for_redaction(path / "config.yaml")
    assert not asks_for_redaction(path / "none.yaml")


def test_what_cannot_be_decoded_is_not_packed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = path / "front/video.avi"
    with Session(path) as session:
        jpeg = session.streams["front"].channels["video.avi"].encoded(2)
    file.write_bytes(file.read_bytes().replace(jpeg, bytes(len(jpeg))))
    monkeypatch.setattr("recorder.archives.finalize.sessions._find_warnings", lambda _: [])
    with pytest.raises(FormatError, match=r"front, sample 2: .*decode as JPEG"):
        list(finalize(path, [ArchiveRequest("vrs")], redact=redactor(tmp_path)))


def test_a_full_disk(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "video.avi")

    monkeypatch.setattr("recorder.perception.redaction.pictures._append", full)
    with pytest.raises(StorageError, match=r"front: video.avi: No space left on device"):
        list(finalize(path, [ArchiveRequest("vrs")], redact=redactor(tmp_path)))
    assert not list(path.glob("_archives/**/*.*"))


HANGS = """
open("new", "w").write(str(os.getpid()))
os.rename("new", "pid")
time.sleep(600)
"""


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.campaign), signal.SIGKILL]
)
def test_killed_packing_leaves_no_redactor(path: Path, tmp_path: Path, number: int) -> None:
    command = json.dumps(program(tmp_path / "blur.py", HANGS))
    config = tmp_path / "rig.yaml"
    config.write_text(f'redact: {{"*": {{command: {command}}}}}\n')
    words = ["-m", "recorder", "finalize", str(path), "--to", "vrs", "--redact", str(config)]
    packing = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists():
        assert packing.poll() is None
        time.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    os.kill(packing.pid, number)
    assert packing.wait() != 0
    while is_running(pid):
        time.sleep(0.01)
    assert not list(path.glob("_archives/vrs/*"))
    list(
        finalize(path, [ArchiveRequest("vrs")], redact=redactor(tmp_path))
    )  # what SIGKILL left is removed
    assert sorted(p.name for p in path.glob("_archives/*")) == ["vrs", "vrs.json"]


def test_raw_pictures_are_redacted_whatever_the_option(path: Path, tmp_path: Path) -> None:
    request = ArchiveRequest("ncore", {"raw_pictures": "png"})
    (result,) = finalize(path, [request], redact=redactor(tmp_path))
    keys = keys_of(result.files[0])
    images = [data for key, data in keys.items() if key.endswith("/image/0")]
    assert len(images) == 3 * COUNT
    assert all(data.startswith(b"\xff\xd8") for data in images)


def test_labels_join_a_redacted_archive_without_its_pictures(path: Path, tmp_path: Path) -> None:
    """The programs do not run again, and labels that may show what was hidden are left out."""
    redact = redactor(tmp_path)
    request = ArchiveRequest("ncore", {"groups": "standard"})
    (result,) = finalize(path, [request], redact=redact)
    for name in ("material.albedo", "mask.dynamic"):
        about = KINDS[name]
        values = make_values(about["dtype"], tuple(about.get("shape", ())))
        write_folder(path, name, [({"t_ns": 0, "frame": 1}, values)], camera="front")
    (tmp_path / "blur.py").unlink()
    again = ArchiveRequest("ncore", {"only": ["labels"]})
    (result,) = finalize(path, [again], redact=redact)
    assert result.summary["frames"] == {"camera labels": 1}
    words = "_labels/front/material.albedo: left out: its pictures are redacted"
    assert sum(words in note for note in result.notes) == 1
