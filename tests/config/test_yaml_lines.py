"""YAML's oddities, passwords, and arbitrary text: one clear error, or the right value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from recorder.common.errors import ConfigError
from recorder.config.loading import load_config
from recorder.config.yaml_lines import parse_yaml, shareable_text
from tests.config.configs import SENSOR, SMALL, load, refusal, schema_of


def test_a_byte_order_mark_and_crlf(rig: Path) -> None:
    text = "\ufeff" + SMALL.replace("\n", "\r\n")
    assert load(rig, text).document.text == text
    assert refusal(rig, text + "x: 1\r\n").line == 4


def test_anchors_aliases_and_merge_keys(rig: Path) -> None:
    config = load(
        rig,
        """\
version: 1
sensors:
  left: &cam
    driver: camera
    source: "sim:"
    width: 640
  right: {<<: *cam, width: 320}
  third:
    <<: [{width: 7}, *cam]
    fps: 5
""",
    )
    assert [entry.options["width"] for entry in config.sensors] == [640, 320, 7]
    assert config.sensor("third").options["fps"] == 5.0
    assert all(entry.driver == "camera" for entry in config.sensors)


def test_an_error_in_a_merged_key_names_its_line(rig: Path) -> None:
    text = (
        "version: 1\nsensors:\n  left: &cam\n    driver: camera\n    source: 'sim:'\n"
        "  right:\n    <<: *cam\n    width: x\n"
    )
    assert refusal(rig, text).line == 8
    text = text.replace("    source", "    fps: y\n    source").replace("width: x", "width: 8")
    error = refusal(rig, text)
    assert (error.line, error.key) == (5, "sensors.left.fps")


def test_aliases_that_would_fill_the_memory(rig: Path) -> None:
    lines = ["version: 1", "session:", "  metadata:", "    a0: &a0 [x, x, x, x, x, x, x, x]"]
    for i in range(1, 12):
        lines.append(f"    a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 8) + "]")
    assert "aliases expand to more than" in str(refusal(rig, "\n".join(lines)))
    lines[3] = "    a0: &a0 {k: 1}"
    for i in range(1, 12):
        lines[3 + i] = f"    a{i}: &a{i} {{<<: [" + ", ".join([f"*a{i - 1}"] * 8) + "]}"
    assert "aliases expand to more than" in str(refusal(rig, "\n".join(lines)))


@pytest.mark.parametrize(
    "source",
    [
        "rtsp://user:s3cret@host/s",
        '"rtsp://user:s3cret@host/s"',
        "'rtsp://user:it''s3cret@host/s'",
        '"rtsp:\\/\\/user:s3cret@host/s"',
        '&src "rtsp://user:s3\\u0063ret@host/s"',
        '!!str "rtsp://user:s3\\\n      cret@host/s"',
        "|-\n      rtsp://user:s3cret@host/s",
        ">\n      rtsp://user:s3cret@host/s\n\n",
        "rtsp://user:s3cret@host/s  # was rtsp://user:s3cret@old",
    ],
)
def test_passwords_are_masked_however_they_are_written(source: str, tmp_path: Path) -> None:
    text = f"version: 1\nsensors:\n  cam:\n    source: {source}\n    driver: camera\n"
    document = parse_yaml(text, tmp_path)
    assert "s3" not in document.masked_text and "cret" not in document.masked_text
    again = yaml.safe_load(document.masked_text)
    assert again["sensors"]["cam"]["source"].strip() == "rtsp://user:***@host/s"
    assert again["sensors"]["cam"]["driver"] == "camera"
    assert document.text == text


def test_an_error_does_not_show_a_password(rig: Path) -> None:
    error = refusal(rig, SMALL + "  b: {driver: ouster, source: 7}\n")
    assert "needs a text" in str(error)
    error = refusal(rig, SENSOR + '"RTSP://user:it\'s3cret@host"\n')
    assert "s3cret" not in str(error) and "RTSP://user:***@host" in str(error)


def test_the_config_as_another_reader_sees_it(rig: Path) -> None:
    """Plain values that YAML 1.1 and 1.2 agree on come out as PyYAML's own loader has them."""
    text = (
        "a: 1\nb: -2.5\nc: text\nd: [true, null, ~, '', \"q\"]\ne: {f: |\n  block\n}\n"
        "g: >-\n  folded\n  text\nh: 0x1F\ni: +3\nj: 1.e+3\nk:\n- {l: 0}\n- 0.5\n"
    ).replace("e: {f: |\n  block\n}\n", "e:\n  f: |\n    block\n")
    assert parse_yaml(text, rig).values == yaml.safe_load(text)


pieces = st.sampled_from(
    [
        *("version: 1\n", "sensors:\n", "  cam: ", "{driver: camera, ", 'source: "sim:"', "}\n"),
        *("session: ", "metadata: ", "<<: ", "*a ", "&a ", "!!int ", "!x ", "? ", "- ", ": ", "| "),
        *("\n", "  ", "\t", "[", "]", "{", "}", ",", "'", '"', "#", "%", "@", "`", "on", ".nan"),
        *(
            "1e9",
            "0o7",
            "010",
            "2024-01-01",
            "\ufeff",
            "\\x",
            "---\n",
            "...\n",
            "%YAML 1.1\n",
            "=\n",
        ),
    ]
)


@given(st.lists(pieces | st.text(max_size=4), max_size=25).map("".join))
@example("%YAML " + "1" * 5000 + ".1\n---\n")
@example('"\\UFFFFFFFF"')
@example("!<tag:yaml.org,2002:map> []")
@example("!!set {a}")
@example("? ? ? ? ? ? a")
@example("&a [*a, &a b, *a]")
def test_arbitrary_text_is_a_config_or_a_config_error(text: str) -> None:
    """Lone surrogates cannot come out of a file; `parse_yaml` is handed them all the same."""
    try:
        document = parse_yaml(text, Path("x.yaml"))
    except ConfigError as error:
        assert error.file == "x.yaml"
    else:
        json.dumps(document.values, allow_nan=False).encode()
        assert all(line >= 1 for line in document.lines.values())


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_config_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(raw)
    with pytest.raises(ConfigError):
        load_config(path, schema_of)


@pytest.mark.parametrize(
    ("text", "shareable"),
    [
        (
            "? [a]\n: b\nsensors: {cam: {password: x}}\n",
            '? [a]\n: b\nsensors: {cam: {password: "***"}}\n',
        ),
        (
            "sensors: {cam: {logins: [{password: x}]}}\n",
            'sensors: {cam: {logins: [{password: "***"}]}}\n',
        ),
        (
            "session: {password: x, metadata: {a: x}}\n",
            "session: {password: x, metadata: {a: x}}\n",
        ),
        ("session: {metadata: {pin: [1, x]}}\n", 'session: {metadata: {pin: ["***", "***"]}}\n'),
    ],
)
def test_likely_secrets_are_masked_where_anything_may_be_written(text: str, shareable: str) -> None:
    assert shareable_text(text) == shareable
    if "?" not in text:  # a copy of the config keeps what is no password for certain
        assert parse_yaml(text, Path("rig.yaml")).masked_text == text
