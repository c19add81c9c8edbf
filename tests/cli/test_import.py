"""The bar of ``recorder import`` follows the slowest sensor that still plays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recorder.cli import main
from recorder.cli.import_command import derive_name, show_played
from tests.formats.vrs.foreign import write_records


def test_the_bar_follows_the_slowest_sensor_that_plays() -> None:
    moved: list[float] = []
    foreground: Any = SimpleNamespace(status=SimpleNamespace(start_mono_ns=10**9))

    def show(**streams: tuple[float | None, str | None]) -> float:
        known = {
            name: {"last_ns": None if s is None else round((1 + s) * 1e9), "ended": ended}
            for name, (s, ended) in streams.items()
        }
        status: Any = SimpleNamespace(streams=known)
        show_played(foreground, lambda share, _=None: moved.append(share), 10.0, status)
        return moved[-1]

    assert show() == 0
    assert show(a=(None, None), b=(5, None)) == -0.1  # which the bar does not show
    assert show(a=(2, None), b=(5, None)) == 0.2
    assert show(a=(2, "eof"), b=(5, None)) == 0.5
    assert show(a=(2, "eof"), b=(9, "eof")) == 0


def test_a_file_that_no_source_can_name_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a\nb.mcap"
    file.touch()
    assert main(["import", str(file), "--root", str(tmp_path / "root")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "a source cannot name the file: rename" in message
    assert not (tmp_path / "root").exists()


def test_a_session_is_named_after_its_file(tmp_path: Path) -> None:
    for name, wanted in (
        ("drive 1.mcap", "drive_1"),
        (".hidden.mcap", "hidden"),
        ("drive_0.db3.zstd", "drive_0"),
        ("äö.mcap", "imported"),
        ("x" * 200 + ".mcap", "x" * 80),
        ("2024-05-01T10:00.mcap", "2024-05-01T10_00"),
    ):
        file = tmp_path / name
        file.touch()
        assert derive_name(file) == wanted
    bag = tmp_path / "bag.v2"
    bag.mkdir()
    assert derive_name(bag) == "bag.v2"


@pytest.mark.parametrize("option", ["--plan", "--format=json"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:40], "40 bytes are no VRS file"),
        (lambda data: data[:90], "ends at byte 90"),
        (lambda data: b"text" * 50, "is no VRS file"),
        (lambda data: data[:76] + b"VRS9" + data[80:], "is of the unknown version b'VRS9'"),
        (lambda data: data[:88] + bytes(4) + data[92:], "is no description record"),
    ],
)
def test_a_vrs_file_that_cannot_be_read_is_one_error(
    change: Callable[[bytes], bytes],
    reason: str,
    option: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write_records(tmp_path / "a.vrs", (1.0, b"a"))
    file.write_bytes(change(file.read_bytes()))
    root = tmp_path / "root"
    assert main(["import", str(file), "--root", str(root), option]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and reason in message and str(file) in message
    assert not root.exists()
