"""What commands print: JSON, tables, sizes, durations, times."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.cli import main, output
from recorder.cli.output import add_format, complain, emit, format_table, note, plain, progress
from recorder.common.errors import ConfigError, ConfigFaultsError
from recorder.common.text_format import (
    clean,
    format_bytes,
    format_rate,
    format_seconds,
    format_time,
)


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    at: Path


def test_plain_values() -> None:
    value = {
        "path": Path("/a"),
        "point": Point(float("nan"), Path("b")),
        "numpy": [np.int64(3), np.float32(0.5), np.arange(2), np.bool_(True)],
        "sets": {"b", "a"},
        "level": Level.HIGH,
        "color": Color.RED,
        1: (float("inf"), None, True),
    }
    result = plain(value)
    assert result == {
        "path": "/a",
        "point": {"x": None, "at": "b"},
        "numpy": [3, 0.5, [0, 1], True],
        "sets": ["a", "b"],
        "level": 3,
        "color": "red",
        "1": [None, None, True],
    }
    assert type(result["color"]) is str and type(result["level"]) is int
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    with pytest.raises(TypeError, match="no JSON form for object"):
        plain({"a": [object()]})


@pytest.mark.parametrize("kind", ["text", "json"])
def test_emit(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_format(parser)
    args = parser.parse_args(["--format", kind])
    emit({"name": "ü"}, args, lambda r: f"name {r['name']}\n\n")
    out = capsys.readouterr().out
    assert out == ("name ü\n" if kind == "text" else '{\n  "name": "ü"\n}\n')


def test_nothing_to_say_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    emit([], argparse.Namespace(format="text"), lambda _: "")
    assert capsys.readouterr().out == ""


def test_tables() -> None:
    text = format_table(["stream", "n"], [["camera", 3], ["imu", 1000], ["x", None]], right=[1])
    assert text == "stream     n\ncamera     3\nimu     1000\nx          -"
    assert format_table(["a"], []) == "a"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (15_700_000, "15.7 MB"),
        (5e9, "5.0 GB"),
        (3.2e12, "3.2 TB"),
        (7e15, "7.0 PB"),
        (7e19, "70000.0 PB"),
        (-2048, "-2.0 kB"),
    ],
)
def test_sizes(count: float | None, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (0.25, "250 ms"),
        (0.9999, "1.0 s"),
        (7.44, "7.4 s"),
        (59.96, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7800, "2 h 10 min"),
        (3 * 86400 + 4 * 3600, "3 d 04 h"),
        (-7.4, "-7.4 s"),
    ],
)
def test_durations(seconds: Any, text: str) -> None:
    assert format_seconds(seconds) == text


def test_rates_and_times() -> None:
    rates = [format_rate(r) for r in (15_700_000.0, 100_000, 3600, 0.0, None)]
    assert rates == ["15.70", "0.10", "0.0036", "0.00", "-"]
    assert format_time(1_714_564_800_250_999_999) == "2024-05-01 12:00:00.250 UTC"
    assert format_time(-1) == "1969-12-31 23:59:59.999 UTC"
    assert format_time(None) == "-"


def test_a_bar_of_shares_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[tuple[float, str | None]] = []

    @contextlib.contextmanager
    def shown(description: str, total: float) -> Iterator[Callable[[float, str | None], None]]:
        assert (description, total) == ("working", 1.0)
        yield lambda amount, now: moved.append((amount, now))

    monkeypatch.setattr(output, "progress", shown)
    with output.share_progress("working") as show:
        for share in (0.25, 0.251, -1.0, 0.5):
            show(share)
        show(0.25, "again")
        show(0.75)
    assert moved == [(0.25, None), (0.25, None), (0.0, "again"), (0.25, None)]


def test_no_progress_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", total=2) as advance:
        advance(1)
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


EVIL = "a\x1b[2J\x07\r\n\x7f\x9b31m\u202e\u2066\u2028\udc9bb"
"""Escape sequences of seven and eight bits, line ends of all kinds, a turned writing direction."""
ACTIVE = set(EVIL) - set("ab[2J31m")


def test_no_control_character_of_a_name_or_message_reaches_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert clean("größe 5 µm → ok 😀") == "größe 5 µm → ok 😀"
    assert clean(EVIL) == r"a\x1b[2J\x07\r\n\x7f\x9b31m\u202e\u2066\u2028\udc9bb"
    table = format_table(["name"], [[EVIL], ["x"]])
    assert len(table.split("\n")) == 3 and not ACTIVE & set(table.replace("\n", ""))
    note(f"{EVIL}: is wrong")
    emit({"k": 1}, argparse.Namespace(format="text"), lambda _: f"one {EVIL}\ntwo")
    complain("recorder run", ConfigFaultsError([ConfigError(EVIL), ConfigError("second")]))
    captured = capsys.readouterr()
    assert not ACTIVE & set((captured.out + captured.err).replace("\n", ""))
    assert captured.err.splitlines()[1:] == [f"recorder run: {clean(EVIL)}", "recorder run: second"]


def test_json_is_the_same_and_acts_on_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    emit({EVIL: [EVIL, "größe"]}, argparse.Namespace(format="json"), str)
    out = capsys.readouterr().out
    assert json.loads(out) == {EVIL: [EVIL, "größe"]}
    assert not ACTIVE & set(out.replace("\n", "")) and "größe" in out


def test_metadata_cannot_forge_a_line_of_info(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "s"
    (folder / "_recorder").mkdir(parents=True)
    header = {"version": 1, "name": EVIL, "state": "clean", "start_ns": 0, "start_mono_ns": 0}
    header |= {"end_ns": 1, "metadata": {"notes": f"ok\nstate     {EVIL}", EVIL: "x"}}
    (folder / "_recorder/session.json").write_text(json.dumps(header))
    assert main(["info", str(folder)]) == 0
    out = capsys.readouterr().out
    assert not ACTIVE & set(out.replace("\n", ""))
    assert [line for line in out.split("\n") if line.startswith("state")] == ["state     clean"]
