"""Every block of code in README and docs runs, or is checked as far as it can be here.

Python runs in a folder with recorded sessions.  YAML is checked as a config by the drivers' own
schemas.  Commands are parsed with the command's own parser, and their make targets, modules and
systemd units exist; test_readme.py runs those that a new user pastes first.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from recorder.cli import build_parser, main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ConfigError
from recorder.config.loading import load_config
from recorder.perception.import_map import read_import_map
from recorder.recording.supervisor.driver_registry import driver_schema, prefetch
from tests.api.rig import drive
from tests.session import beam_sweeps
from tests.session.build import Builder, full_session, sweeps_spec
from tests.session.simulated import SMALL

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
RUN_ELSEWHERE = {
    "reading.md": "tests/session/test_session_docs.py",
    "redaction.md": "tests/perception/redaction/test_document.py",
    "drivers.md": "tests/acceptance/test_readme.py",
}
"""Documents whose blocks another test runs."""


def blocks(*languages: str) -> list[Any]:
    """The code blocks of the documents, each a test's (document, code)."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text()
        for match in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
            if match[2] in languages and path.name not in RUN_ELSEWHERE:
                code = "".join(line.removeprefix(match[1]) for line in match[3].splitlines(True))
                line = text.count("\n", 0, match.start()) + 1
                found.append(pytest.param(path.name, code, id=f"{path.name}:{line}"))
    return found


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sessions and archives under the names that the documents use."""
    folder = tmp_path_factory.mktemp("documents")
    builder = full_session(folder / "sessions/rig-1", 1.0)
    frames = [ChannelSpec("id", "raw", "u4", ()), ChannelSpec("data", "raw", "u1", (8,))]
    builder.add(StreamSpec("bus", tuple(frames), rate_hz=10.0), 1.0)
    payload = ChannelSpec("payload", "bytes", "u1", (65535,))
    builder.add(
        StreamSpec("front", (payload,), rate_hz=10.0), count=3, data={"payload": [b"abc"] * 3}
    )
    message = ChannelSpec("message", "bytes", "u1", (64,))
    builder.add(
        StreamSpec("ros_tf", (message,), rate_hz=10.0), count=2, data={"message": [b"abc"] * 2}
    )
    builder.close()
    clouds = Builder(folder / "sessions/clouds")
    clouds.add(sweeps_spec("front"), count=3)
    clouds.close()
    beam_sweeps.drive(folder / "sessions/lidars")
    for name in ("drive_p001", "rig-1_2025_06_01_10_00_00"):
        Builder(folder / "sessions" / name).close()
    drive(folder / "sessions" / "drive", 0.3, SMALL)
    full_session(folder / "drive", 0.2)
    assert main(["finalize", str(builder.path), "--to", "mcap", "--streams", "imu,camera"]) == 0
    (packed,) = (builder.path / "_archives").rglob("*.mcap")
    (folder / "NAME.mcap").symlink_to(packed)
    (folder / "rig-1.mcap").symlink_to(packed)
    assert main(["report", str(folder / "sessions/drive")]) == 0
    return folder


def ncore_names() -> dict[str, Any]:
    pose = np.eye(4)
    return {
        "start_ns": 0,
        "stop_ns": 1_000_000_000,
        "t_ns": np.array([0, 500_000_000, 999_999_999]),
        "T_rig_world": np.stack([pose] * 3),
        "T_front_rig": pose,
        "k1": -0.1, "k2": 0.0, "p1": 0.0, "p2": 0.0, "k3": 0.0,
        "frames": [(100_000_000, 120_000_000, JPEG)],
    }  # fmt: skip


JPEG = b"\xff\xd8\xff\xd9"
NAMES: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {
    ("ncore.md", "SequenceWriter(\n"): ncore_names,
}
"""What a document has explained in words before the block: (document, text of the block)."""
NOT_RUN = {
    ("l5kit.md", "ChunkedDataset"): "tests/conformance/test_l5kit.py opens datasets with l5kit",
    ("ncore.md", "SequenceWriter.extend"): "tests/archives/ncore/ adds labels to sequences",
    ("vrs.md", "VrsWriter.resume"): "tests/formats/ resumes files",
}


def about(table: dict[tuple[str, str], Any], document: str, code: str) -> Any:
    return next((v for (name, text), v in table.items() if name == document and text in code), None)


@pytest.mark.parametrize(("document", "code"), blocks("python"))
def test_python_runs(
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    document: str,
    code: str,
) -> None:
    (tmp_path / "out").mkdir()
    if (why := about(NOT_RUN, document, code)) is not None:
        pytest.skip(why)
    for path in workspace.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    code = code.replace("timeout=5.0", "timeout=0.0")  # no driver runs: nothing comes
    given = about(NAMES, document, code)
    (tmp_path / "block.py").write_text(code)
    runpy.run_path("block.py", init_globals=given() if given else {})


def sensors_of(values: dict[str, Any]) -> dict[str, Any]:
    """Sensors for a block that shows other sections only: those that its sections name."""
    names = ["imu", "camera", *(n for n in values.get("redact", ()) if n != "*")]
    drivers = {"imu": "xsens"}
    return {n: {"driver": drivers.get(n, "camera"), "source": "sim:"} for n in names}


@pytest.mark.parametrize(("document", "code"), blocks("yaml"))
def test_yaml_is_a_config(tmp_path: Path, document: str, code: str) -> None:
    key = "age1" + "q" * 58  # in the place of a shortened one
    values = yaml.safe_load(re.sub(r"age1[0-9a-z]*\.\.\.", key, code))
    if document == "radar.md" and "antennas" in code:
        pytest.skip("a part of calibration.yaml: tests/perception/ reads antennas")
    if document == "radar.md" and "cfg" in values:
        values = {"sensors": {"radar": {"driver": "mmwave", "source": "dca1000:", **values}}}
    config = tmp_path / "rig.yaml"
    if document == "importing.md" and "mounts" in values:
        config.write_text(code)
        assert read_import_map(config).mounts
        return
    whole = {"version": 1, "sensors": sensors_of(values)} | values
    config.write_text(yaml.safe_dump(whole, sort_keys=False))
    prefetch({sensor["driver"] for sensor in whole["sensors"].values()})
    for _ in range(10):
        try:
            load_config(config, driver_schema)
            break
        except ConfigError as error:  # the files that the document speaks of
            missing = re.findall(r"no such file: (\S+)$", str(error), re.MULTILINE)
            assert missing, f"{document}: {error}"
            for name in missing:
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
    else:
        pytest.fail(f"{document}: files are still missing")


def commands(code: str) -> Iterator[list[str]]:
    """The words of each command in a block, without comments, pipes, and files written by cat."""
    code = re.sub(r"<< *'?END'?\n.*?^END$", "", code, flags=re.DOTALL | re.MULTILINE)
    code = re.sub(r"python -c '\n.*?'", "python -c CODE", code, flags=re.DOTALL)
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("();<>|&"):
                yield words
                words = []
            else:
                words.append(word)
        yield words


TARGETS = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def with_commands() -> list[Any]:
    """The blocks that show a command of this project."""
    command = re.compile(r"^(\$ )?(\S*bin/)?(recorder|make|python3?) ", re.MULTILINE)
    return [block for block in blocks("sh", "console", "") if command.search(block.values[1])]


@pytest.mark.parametrize(("document", "code"), with_commands())
def test_commands_are_understood(
    document: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "$ recorder" in code:
        code = "\n".join(line for line in code.splitlines() if line.startswith("$ "))
    for words in commands(code):
        if words and words[0].rpartition("/")[2] == "recorder":
            arguments = [word.replace("...", "") or "SESSION" for word in words[1:]]
            try:
                build_parser(arguments[0]).parse_args(arguments)
            except SystemExit:
                pytest.fail(f"{document}: {shlex.join(words)}: {capsys.readouterr().err}")
        elif words[:1] == ["make"]:
            for target in words[1:]:
                assert "=" in target or target in TARGETS, f"{document}: make {target}"
        elif words[1:2] == ["-m"] and words[2].split(".")[0] in ("recorder", "drivers"):
            assert importlib.util.find_spec(words[2]) is not None, words


def test_each_exception_is_needed() -> None:
    for name, test in RUN_ELSEWHERE.items():
        assert (
            name in (PROJECT / test).read_text()
            or "docs.make_notebook" in test
            or "GUIDE" in (PROJECT / test).read_text()
        )
    code = {(p.values[0], p.values[1]) for p in blocks("python")}
    for name, text in [*NAMES, *NOT_RUN]:
        assert any(d == name and text in block for d, block in code), (name, text)
