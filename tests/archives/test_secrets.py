"""What looks like a secret in a session's metadata is in none of its archives."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from mcap.reader import make_reader

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.cli import main
from recorder.common.errors import ConfigError
from recorder.config.yaml_lines import parse_yaml, shareable_text
from recorder.formats.vrs import VrsReader
from recorder.session.reader import Session
from recorder.session.summary import summarize
from recorder.session.vrs.records import ConfigurationData, mask_configuration
from tests.recording.writer.vrs_session import Recording
from tests.session.build import Builder, camera_spec, imu_spec

SECRETS = [f"Zx9{letter}hunter" for letter in "abcdef"]
METADATA: dict[str, Any] = {
    "vehicle": "rig-7",
    "wifi_password": SECRETS[0],
    "modem": {"apiKey": SECRETS[1], "cells": [4, 5]},
    "tokens": [SECRETS[2], {"id": SECRETS[3]}],
    "proxy": f"http://user:{SECRETS[4]}@10.0.0.1/",
    "passengers": 3,
}
CONFIG = f"""\
version: 1   # the rig
session:
  metadata: {json.dumps(METADATA)}
sensors:
  camera: {{driver: camera, source: "rtsp://u:{SECRETS[5]}@h/s"}}
custody: {{key: vehicle.key}}
"""
ALL = [ArchiveRequest(name) for name in ("ncore", "edgefirst", "l5kit", "vrs", "mcap")]


def everything(path: Path) -> bytes:
    """All bytes of an archive, and what is compressed in them, decompressed."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    data = b"".join(file.read_bytes() for file in files)
    found = [data]
    for start, unpack in ((b"\x28\xb5\x2f\xfd", zstandard.ZstdDecompressor().decompressobj),
                          (b"\x78\x9c", zlib.decompressobj)):  # fmt: skip
        at = data.find(start)
        while at >= 0:
            with contextlib.suppress(zstandard.ZstdError, zlib.error):
                found.append(unpack().decompress(data[at : at + (1 << 20)]))
            at = data.find(start, at + 1)
    return b"".join(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), count=3)
    builder.add(imu_spec(), 0.1)
    path = builder.close()
    header = path / "_recorder/session.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | {"metadata": METADATA}))
    (path / "config.yaml").write_text(CONFIG)
    return path


def test_no_archive_has_a_secret(path: Path) -> None:
    before = (path / "config.yaml").read_bytes()
    for made in finalize(path, ALL):
        content = b"".join(map(everything, made.files))
        assert b"rig-7" in content
        for secret in SECRETS:
            assert secret.encode() not in content, made.archive
    assert b"Zx9" not in b"".join(p.read_bytes() for p in path.glob("_archives/*.json"))
    assert (path / "config.yaml").read_bytes() == before
    (mcap,) = path.glob("_archives/mcap/*.mcap")
    with mcap.open("rb") as file:
        reader = make_reader(file)
        texts = {a.name: a.data.decode() for a in reader.iter_attachments()}
        values = {m.name: m.metadata for m in reader.iter_metadata()}
    masked = {
        **METADATA, "wifi_password": "***", "modem": {"apiKey": "***", "cells": [4, 5]},
        "tokens": ["***", {"id": "***"}], "proxy": "http://user:***@10.0.0.1/",
    }  # fmt: skip
    assert json.loads(values["recorder"]["metadata"]) == masked
    assert texts["config.yaml"] == CONFIG.replace(json.dumps(METADATA), json.dumps(masked)).replace(
        SECRETS[5], "***"
    )


def test_a_session_with_a_file_of_records(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["imu"], metadata=METADATA)
    recording.declare()
    recording.data("imu", 3)
    path = recording.end()
    with VrsReader(path / "session.vrs") as older:
        assert older.tags["metadata.wifi_password"] == SECRETS[0]
    (made,) = finalize(path, [ArchiveRequest("vrs")])
    assert b"Zx9" not in everything(made.files[0])
    with VrsReader(made.files[0]) as vrs:
        assert vrs.tags["metadata.wifi_password"] == vrs.tags["metadata.tokens"][2:5] == "***"
        assert vrs.tags["metadata.vehicle"] == "rig-7"
        assert json.loads(vrs.tags["metadata.modem"]) == {"apiKey": "***", "cells": [4, 5]}


def test_configuration_records() -> None:
    files = {"config.yaml": CONFIG, "calibration.yaml": "sensors: {a: {key: 1}}\n"}
    record = ConfigurationData(
        settings=json.dumps({"name": "s", "metadata": METADATA}), files=files
    )
    masked = ConfigurationData.decode(mask_configuration(record.encode()))
    assert "Zx9" not in masked.settings + masked.files["config.yaml"]
    assert masked.files["calibration.yaml"] == files["calibration.yaml"]
    assert json.loads(masked.settings)["name"] == "s"
    plain = ConfigurationData(
        settings='{"name": "s",  "metadata": {}}', files={"config.yaml": "a: 1"}
    )
    assert mask_configuration(plain.encode()) == plain.encode()
    assert mask_configuration(ConfigurationData().encode()) == ConfigurationData().encode()


def test_what_people_see_has_no_secret(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Session(path) as session:
        assert session.metadata["wifi_password"] == "***"
        assert session.header is not None and session.header["metadata"] == METADATA
        assert "Zx9" not in json.dumps(summarize(session), default=str)
    assert main(["info", str(path)]) == 0
    assert main(["report", str(path), "--index"]) == 0
    out = capsys.readouterr().out
    assert "Zx9" not in out and "rig-7" in out
    assert "Zx9" not in (path / "report.html").read_text()
    assert "Zx9" not in (path.parent / "index.html").read_text()


def test_clips_keep_the_recorded_metadata(path: Path) -> None:
    assert main(["clip", str(path), "--from", "0", "--until", "0.05", "--name", "c"]) == 0
    with Session(path.parent / "c") as clip:
        assert clip.header is not None and clip.header["metadata"] == METADATA


@pytest.mark.parametrize(
    "text",
    [
        "a: [\n\tpassword: Zx9\n  api_key: Zx9 # x\nother: 3\n",
        "session: {metadata: {password: &p Zx9, other: *p}}\nsensors: {}\n",
        "session:\n  metadata:\n    secret: |\n      Zx9\n      Zx9\n    more: 1\n",
        "session: {metadata: {credentials: {user: Zx9, keys: [Zx9, 'Zx9']}}}\n",
        "sensors: {a: {driver: b, source: 'sim:', http_password: Zx9, pin: 0}}\n",
    ],
)
def test_configs_of_any_form(text: str) -> None:
    masked = shareable_text(text)
    assert "Zx9" not in masked and "***" in masked
    assert shareable_text(masked) == masked
    try:
        parse_yaml(text, Path("a"))
    except ConfigError:
        return
    parse_yaml(masked, Path("a"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1\r\nb: [x]\n",
        "session: {metadata: {password: }}\n",
        "session: {metadata: {keyframe: 3}}\ncustody: {key: a}\n",
        "\t{",
    ],
)
def test_configs_without_a_secret_stay(text: str) -> None:
    assert shareable_text(text) == text
