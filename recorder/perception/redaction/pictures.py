"""Redaction of a session's pictures before anything is packed.

Each camera becomes a file of JPEGs in a folder of its own.  A session that is opened with this
folder (`recorder.session.reader.Session`, `redacted`) has these JPEGs in place of the recorded
pictures: no reader of the session's streams gets the recorded ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from recorder.codecs.jpeg import encode_jpeg
from recorder.codecs.storage import ChannelWriter, create_writer
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, RecorderError, RedactionError, StorageError
from recorder.common.files import PosixDisk
from recorder.common.secret_masking import mask_value
from recorder.config.settings import ALL_CAMERAS, RedactSettings
from recorder.perception.camera.camera_pictures import Picture, Pictures
from recorder.perception.frames import image_channel
from recorder.perception.redaction.redactor import VERSION, Boxes, Mask, Redactor, find_program
from recorder.session.reader import Session
from recorder.session.stream import Stream

_NONE = b"\0"  # no JPEG; readers of AVI skip frames without a byte

Tick = Callable[[int, int], None]
"""A callback that receives the number of finished pictures, and of all."""


def redact_session(
    session: Session, entries: Sequence[RedactSettings], folder: Path, tick: Tick
) -> dict[str, dict[str, Any]]:
    """Redact the pictures of a session, or of a part, into a folder.

    Cameras with the same command share its process, one camera after the other.

    Args:
        session: opened with its recorded pictures.
        entries: which program redacts which camera.
        folder: an empty folder; it gets a folder for each camera that is redacted.
        tick: called after each picture.

    Returns:
        by camera what `describe` returns, with the numbers of ``pictures``, ``boxes`` and
        ``masks``; ``{"kept": True}`` for a camera that stays as it is.

    Raises:
        RedactionError: a camera has no entry, or a program failed; names camera, sample, command.
        FormatError: a picture cannot be decoded.
        StorageError: the folder cannot be written.
    """
    chosen = {
        stream.name: _find_entry(stream.name, entries)
        for stream in session.streams.values()
        if image_channel(stream) is not None
    }
    groups: dict[tuple[Any, ...], list[tuple[Stream, RedactSettings]]] = {}
    about: dict[str, dict[str, Any]] = {}
    for name, entry in chosen.items():
        about[name] = describe(entry)
        if entry.command:
            process = entry.command, entry.folder, entry.start_timeout_s, entry.timeout_s
            groups.setdefault(process, []).append((session.streams[name], entry))
    done, total = 0, sum(len(camera) for group in groups.values() for camera, _ in group)

    def advance() -> None:
        nonlocal done
        done += 1
        tick(done, total)

    for process, group in groups.items():
        first, _ = group[0]
        with _locate_errors(first.name), Redactor(*process) as redactor:
            for camera, entry in group:
                about[camera.name] |= _redact_camera(camera, entry, redactor, folder, advance)
            redactor.finish()
    return about


def describe(entry: RedactSettings) -> dict[str, Any]:
    """Describe a camera's redaction: all that the result depends on besides the pictures.

    Returns:
        ``command``; ``files``: the SHA-256 of each of its words that is a file, or of the program
        that was found in PATH; ``quality``; ``protocol``.

    Raises:
        RedactionError: a file cannot be read.
    """
    if not entry.command:
        return {"kept": True}
    words = entry.command[0 if "/" in entry.command[0] else 1 :]
    files = {word: entry.folder / word for word in words}
    files = {word: path for word, path in files.items() if os.path.isfile(path)}  # noqa: PTH113
    if not files and (program := find_program(entry.command[0], entry.folder)) is not None:
        files[entry.command[0]] = program
    return {
        "command": [mask_value(word) for word in entry.command],
        "files": {mask_value(word): _hash_file(path) for word, path in files.items()},
        "quality": entry.quality,
        "protocol": VERSION,
    }


def sentence(about: Mapping[str, Any]) -> str:
    """Format a camera's result of `redact_session` as a note of an archive."""
    if about.get("kept"):
        return "not redacted: its pictures are packed as they were recorded (redact: keep)"
    files = ", ".join(f"{word} SHA-256 {sha256}" for word, sha256 in about["files"].items())
    masks = f" and {about['masks']} masks" if about["masks"] else ""
    return (
        f"redacted: {about['boxes']} boxes{masks} in {about['pictures']} pictures, found by "
        f"{json.dumps(about['command'])} ({files}), protocol {about['protocol']}; "
        f"stored as JPEGs of quality {about['quality']}"
    )


def _find_entry(camera: str, entries: Sequence[RedactSettings]) -> RedactSettings:
    named = {entry.camera: entry for entry in entries}
    if (found := named.get(camera, named.get(ALL_CAMERAS))) is None:
        raise RedactionError(
            f"{camera}: has pictures, and redact has no entry for it: add redact.{camera} with a "
            "command, or with keep for pictures as they were recorded"
        )
    return found


def _redact_camera(
    camera: Stream,
    entry: RedactSettings,
    redactor: Redactor,
    folder: Path,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """Write a camera's JPEGs, and empty samples outside of a part, so that no reader gets those."""
    name = image_channel(camera)
    assert name is not None
    with _locate_errors(camera.name):
        pictures = Pictures(camera, entry.quality)
        width, height = pictures.size
        spec = ChannelSpec(name, "mjpg", "u1", (height, width, 3), "RGB image, redacted")
        home = folder / camera.name
        home.mkdir()
        (home / "meta.json").write_text(json.dumps({name: spec.meta()}))
        writer = create_writer(home, spec, PosixDisk(), None)
    counts = {"pictures": len(camera), "boxes": 0, "masks": 0}
    times = camera.times() if camera.has_times else np.zeros(len(camera), np.int64)
    try:
        _append(writer, _NONE, camera.first)
        for index in range(len(camera)):
            with _locate_errors(camera.name, camera.first + index):
                picture = pictures.picture(index)
                if picture.shape != spec.shape:
                    raise FormatError(f"is {picture.shape}, the channel's shape is {spec.shape}")
                rgb = np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)
                number = camera.first + index
                found = redactor.ask(camera.name, number, int(times[index]), rgb)
                boxed = found.dtype != np.bool_
                counts["boxes" if boxed else "masks"] += len(found) if boxed else 1
                paint(picture, found)
                if (jpeg := encode_jpeg(picture, pictures.quality)) is None:
                    raise FormatError(f"{picture.shape} pixels cannot be encoded as JPEG")
                _append(writer, jpeg)
            advance()
        _append(writer, _NONE, len(camera.whole) - camera.first - len(camera))
        writer.finish()
    finally:
        for file in writer.files:
            file.close()
    return counts | {"quality": pictures.quality}


def paint(picture: Picture, found: Boxes | Mask) -> None:
    """Black out every pixel that a box touches, or that a mask has.

    Args:
        picture: u1 [height, width, 3], changed in place.
        found: as `Redactor.ask` returns it.
    """
    if found.dtype == np.bool_:
        picture[found] = 0
        return
    for x0, y0, x1, y1 in np.maximum(found, 0).tolist():
        picture[int(y0) : int(np.ceil(y1)), int(x0) : int(np.ceil(x1))] = 0


def _append(writer: ChannelWriter, jpeg: bytes | memoryview, count: int = 1) -> None:
    for _ in range(count):
        writer.append(jpeg, 1, np.array([len(jpeg)], np.uint32))


@contextmanager
def _locate_errors(camera: str, sample: int | None = None) -> Iterator[None]:
    """Add the camera and the sample to errors raised inside, once."""
    where = camera if sample is None else f"{camera}, sample {sample}"
    try:
        yield
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise StorageError(f"{where}: {text}") from error
    except RecorderError as error:
        if str(error).startswith(camera):
            raise
        raise type(error)(f"{where}: {error}") from error


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RedactionError(f"{path}: cannot be read: {error.strerror}") from None
