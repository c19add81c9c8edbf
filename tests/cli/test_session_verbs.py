"""The verbs that look at sessions: info, list, validate, replay."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.bus.sockets import TapSubscriber
from recorder.bus.wire import Kind, check_data
from recorder.cli import main, output
from recorder.cli.list_command import parse_since
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import UsageError
from recorder.session.events import make_event
from recorder.session.reader import Session
from recorder.session.validation_report import Report
from tests.session.build import START_NS, Builder, full_session, imu_spec


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return full_session(tmp_path_factory.mktemp("root") / "rig", 0.6)


def run_json(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> Any:
    assert main([*map(str, argv), "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


def run_text(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> tuple[str, str]:
    assert main([*map(str, argv)]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_info_json_has_the_fixed_keys(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    info = run_json(capsys, "info", built.path)
    assert {"state", "name", "start_ns", "end_ns", "streams"} <= info.keys()
    assert (info["state"], info["name"], info["start_ns"]) == ("clean", "rig", START_NS)
    assert info["streams"].keys() == built.streams.keys()
    for name, stream in info["streams"].items():
        assert {"samples", "first_ns", "last_ns", "rate_hz", "lost"} <= stream.keys()
        assert stream["samples"] == len(built.streams[name].t_ns)
        assert stream["first_ns"] == int(built.streams[name].t_ns[0])


def test_info_text(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run_text(capsys, "info", built.path)
    lines = out.splitlines()
    assert "state     clean" in lines and "vehicle   rig-1" in lines and err == ""
    imu = next(line.split() for line in lines if line.startswith("imu "))
    assert imu[1:3] == ["60", "100.00"] and imu[-1] == "0"


def test_info_shows_nested_metadata_with_dotted_keys(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = built.path / "_recorder" / "session.json"
    values = json.loads(path.read_text())
    values["metadata"] = {"imported": {"topics": {"camera": "/image"}, "cut": ""}, "notes": ""}
    path.write_text(json.dumps(values))
    out, _ = run_text(capsys, "info", built.path)
    assert "imported.topics.camera  /image" in out.splitlines()
    assert "cut" not in out and "notes" not in out


def test_info_text_tells_losses_and_the_unclosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=[*range(10), *range(13, 40)])
    builder.lose("imu", 10, 12)
    builder.lose("imu", 40, None, "driver", count=None)
    out, _ = run_text(capsys, "info", builder.close("recording"))
    assert "not closed (run `recorder recover`)" in out
    assert "buffer 3, 1 uncounted interval" in out
    assert "end       -" in out


def test_info_lists_every_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = Builder(tmp_path / "rig")
    imu = builder.add(imu_spec(), seq=[*range(10), *range(13, 40)])
    builder.add(imu_spec("many"), seq=range(0, 60, 2))
    builder.lose("imu", 10, 12)
    builder.lose("imu", 40, None, "driver", count=None, duration_ns=250_000_000, estimate=25)
    for number in range(1, 59, 2):
        builder.lose("many", number, number)
    path = builder.close()
    out, _ = run_text(capsys, "info", path, "--gaps")
    lines = [line.split() for line in out.splitlines()]
    at = lines.index(["gaps", "of", "at", "[s]", "for", "[s]", "cause", "samples"])
    before, after = (imu.t_ns[k] - START_NS for k in (9, 10))
    first = ["imu", f"{before / 1e9:.3f}", f"{(after - before) / 1e9:.3f}", "buffer", "3"]
    assert lines[at + 1] == first
    second = ["imu", "0.250", "0.250", "driver", "not", "counted,", "about", "25"]
    assert lines[at + 2] == second
    assert sum(line[:1] == ["many"] for line in lines[at:]) == 20
    assert "many: 9 more losses; --format json lists 29" in out
    info = run_json(capsys, "info", path, "--gaps")["streams"]
    assert [gap["count"] for gap in info["imu"]["gaps"]] == [3, None]
    assert (len(info["many"]["gaps"]), info["many"]["gaps_left_out"]) == (29, 0)
    assert info["imu"]["gaps"][0] == {
        "start_ns": int(imu.t_ns[9]), "end_ns": int(imu.t_ns[10]), "cause": "buffer", "count": 3,
        "duration_ns": int(after - before), "estimate": None, "first_seq": 10, "last_seq": 12,
    }  # fmt: skip


def test_info_without_losses(
    built: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "gaps      none" in run_text(capsys, "info", built.path, "--gaps")[0].splitlines()
    assert "gaps" not in run_text(capsys, "info", built.path)[0]
    assert "gaps" not in run_json(capsys, "info", built.path)["streams"]["imu"]


def test_info_bounds_the_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("recorder.session.summary.MOST_GAPS", 3)
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=range(0, 20, 2))
    builder.lose("imu", 1, 17, count=9)
    path = builder.close()
    imu = run_json(capsys, "info", path, "--gaps")["streams"]["imu"]
    assert (len(imu["gaps"]), imu["gaps_left_out"]) == (3, 6)


def test_info_of_damage_prints_the_rest_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = full_session(tmp_path / "rig", 0.2)
    os.truncate(builder.path / "imu" / "acc", 5)
    out, err = run_text(capsys, "info", builder.path, code=1)
    assert "camera" in out and "damaged" in out
    assert err.startswith("recorder info: ") and "imu/acc" in err


@pytest.mark.parametrize("verb", ["info", "validate", "replay"])
def test_no_session_is_one_line(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        out, err = run_text(capsys, verb, path, code=1)
        assert out == "" and err.count("\n") == 1 and str(path) in err


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full_session(tmp_path / "a", 0.2)
    full_session(tmp_path / "b", 0.2, plain=True)
    builder = Builder(tmp_path / "c")
    builder.add(imu_spec(), seq=[*range(10), *range(13, 40)])
    builder.lose("imu", 10, 12)
    builder.lose("imu", 40, None, "driver", count=None)
    builder.close("recording")
    lines = run_json(capsys, "list", tmp_path)
    assert [(x["name"], x["state"], x["lost"]) for x in lines] == [
        ("a", "clean", 0),
        ("b", "clean", None),
        ("c", "recording", 3),
    ]
    out, err = run_text(capsys, "list", tmp_path)
    assert len(out.splitlines()) == 4 and err == ""
    assert "3 + ?" in out and "not closed" in out


def test_list_goes_on_past_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full_session(tmp_path / "a", 0.2)
    (Builder(tmp_path / "b").path / "_recorder" / "session.json").write_text("{")
    out, err = run_text(capsys, "list", tmp_path, code=1)
    assert [line.split()[0] for line in out.splitlines()] == ["session", "a", "b"]
    assert "unreadable" in out and "session.json: is damaged" in err


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions in several folders, which start a day after each other."""
    root = tmp_path_factory.mktemp("fleet")
    for day, name in enumerate(("a/one", "a/deep/two", "three", "b/four")):
        builder = Builder(root / name)
        gone = {"a/one": {10, 11}, "three": {7}}.get(name, set())
        builder.add(imu_spec(), seq=[n for n in range(20) if n not in gone])
        for number in gone:
            builder.lose("imu", number, number)
        if name == "b/four":
            builder.lose("imu", 20, None, "driver", count=None)
        if name in ("a/deep/two", "three"):
            builder.events.append(make_event("mark", START_NS, text=f"Straße {name}"))
        header = builder.close() / "_recorder" / "session.json"
        values = json.loads(header.read_text())
        for key in ("start_ns", "end_ns"):
            values[key] += day * 86_400 * 10**9
        header.write_text(json.dumps(values))
    Builder(root / "a" / "one" / "_archives" / "inner").close()  # a session is not searched
    Builder(root / ".trash" / "old").close()
    outside = tmp_path_factory.mktemp("outside")
    Builder(outside / "far").close()
    (root / "b" / "link").symlink_to(outside)
    (root / "b" / "far").symlink_to(outside / "far")
    (root / "b" / "loop").symlink_to(root)
    return root


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        ([], ["three"]),
        (["--recursive"], ["a/deep/two", "a/one", "b/four", "three"]),
        (["--recursive", "--lost"], ["a/one", "b/four", "three"]),
        (["--recursive", "--marked", "STRASSE"], ["a/deep/two", "three"]),
        (["--recursive", "--marked", "deep"], ["a/deep/two"]),
        (["--recursive", "--lost", "--marked", "e"], ["three"]),
        (["--recursive", "--since", "2024-06-03"], ["b/four", "three"]),
        (["--recursive", "--since", "2024-06-03T10:00:01Z"], ["b/four"]),
        (["--recursive", "--since", "2024-06-02", "--lost"], ["b/four", "three"]),
    ],
)
def test_list_of_a_tree(
    fleet: Path, argv: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run_json(capsys, "list", fleet, *argv)
    assert [line["path"] for line in lines] == [str(fleet / name) for name in names]
    out, err = run_text(capsys, "list", fleet, *argv)
    assert [line.split()[0] for line in out.splitlines()[1:]] == names and err == ""


def test_list_without_a_match(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run_text(capsys, "list", fleet, "--recursive", "--marked", "nothing")
    assert out == "" and err == f"recorder list: {fleet}: none of the 4 sessions here matches\n"
    _, err = run_text(capsys, "list", fleet, "--since", "1h")
    assert "none of the 1 sessions" in err


def test_list_reports_what_it_cannot_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (Builder(tmp_path / "b").path / "_recorder" / "session.json").write_text("{")
    path = full_session(tmp_path / "a", 0.2).path
    (path / "_recorder" / "events.jsonl").write_text("x\n")
    for argv in (["--marked", "x"], ["--lost"]):
        out, err = run_text(capsys, "list", tmp_path, *argv, code=1)
        assert [line.split()[0] for line in out.splitlines()] == ["session", "a", "b"]
        assert "events.jsonl:1: not JSON" in err and "session.json: is damaged" in err


def test_events_are_read_once_unless_marks_are_asked_for(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    real = Session.events

    def spy(self: Session) -> Iterator[dict[str, Any]]:
        read.append(self.path)
        return real(self)

    monkeypatch.setattr(Session, "events", spy)
    for argv, times in (([], 1), (["--marked", "x"], 2), (["--since", "2030-01-01"], 0)):
        read.clear()
        assert main(["list", str(fleet), *argv]) == 0
        assert len(read) == times


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("30m", START_NS - 1_800 * 10**9),
        ("12h", START_NS - 43_200 * 10**9),
        ("7d", START_NS - 7 * 86_400 * 10**9),
        (" 2w ", START_NS - 14 * 86_400 * 10**9),
        ("2024-06-01", 1_717_200_000 * 10**9),
        ("2024-06-01T10:00", 1_717_236_000 * 10**9),
    ],
)
def test_dates_and_ages(text: str, ns: int) -> None:
    assert parse_since(text, START_NS) == ns


@pytest.mark.parametrize("text", ["", "7", "12.5", "7y", "-3d", "2024-13-01", "yesterday"])
def test_what_is_no_date_or_age(text: str) -> None:
    with pytest.raises(UsageError, match=r"--since .*needs a UTC date or time"):
        parse_since(text, START_NS)


def test_list_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run_text(capsys, "list", tmp_path)
    assert out == "" and "no sessions here" in err
    assert run_json(capsys, "list", tmp_path) == []
    out, err = run_text(capsys, "list", tmp_path / "x", code=1)
    assert "cannot be listed" in err


def test_validate(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run_text(capsys, "validate", built.path)
    assert out.splitlines()[-1] == f"{built.path}: clean, PASS; 0 errors, 0 warnings" and err == ""
    report = run_json(capsys, "validate", built.path, "--deep")
    assert report["sound"] and report["deep"] and report["problems"] == []


def test_validate_says_what_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = full_session(tmp_path / "rig", 0.2)
    os.truncate(builder.path / "radar" / "t_mono", 8)
    report = run_json(capsys, "validate", builder.path, code=1)
    assert not report["sound"]
    problem = report["problems"][0]
    assert (problem["stream"], problem["channel"], problem["sample"]) == ("radar", "t_mono", 1)
    out, _ = run_text(capsys, "validate", builder.path, code=1)
    assert "error    " in out and "clean, FAIL: damaged (radar); 1 errors" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--speed", "0"], "--speed 0: needs a number above 0"),
        (["--speed", "-1"], "--speed -1"),
        (["--speed", "nan"], "--speed nan"),
        (["--streams", ","], "names no stream"),
        (["--await", "/imu"], "--await: only with --to"),
        (["--to", "ros2:0", "--tap", "ipc:///t"], "--to, --tap: give one of the two"),
        (["--to", "ros2:0#/imu", "--streams", "imu"], "--to: 'ros2:0#/imu' is not ros2:DOMAIN"),
        (["--to", "ros2:0", "--streams", "imu", "--await", "/a"], "--await: no topic /a; topics: "),
    ],
)
def test_replay_usage(
    built: Builder, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run_text(capsys, "replay", built.path, *argv, code=2)
    assert message in err


def test_replay_of_an_unknown_stream_and_a_bad_endpoint(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run_text(capsys, "replay", built.path, "--streams", "gnss", code=1)
    assert "no stream 'gnss'; its streams: camera" in err
    _, err = run_text(capsys, "replay", built.path, "--tap", "ipc:///nowhere/tap", code=1)
    assert "ipc:///nowhere/tap" in err


def test_replay_reaches_a_subscriber_and_ends_at_a_signal(
    built: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """End to end over a real socket: a loop, ended by SIGINT as soon as enough has come."""
    endpoint = f"ipc://{tmp_path}/tap"
    specs: dict[str, StreamSpec] = {}
    samples: dict[str, int] = {}
    faults: list[str] = []

    def subscribe() -> None:
        with TapSubscriber([endpoint]) as tap:
            for message in tap.messages(timeout=60.0):
                if message.kind is Kind.JOIN:
                    spec = StreamSpec.from_wire(message.values["stream"])
                    specs[spec.name] = spec
                elif message.stream in specs:
                    check_data(message, specs[message.stream])
                    samples[message.stream] = samples.get(message.stream, 0) + (message.count or 0)
                if samples.keys() >= built.streams.keys() and min(samples.values()) >= 3:
                    break
            else:
                faults.append("nothing came any more")
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=subscribe)
    thread.start()
    argv = ["replay", str(built.path), "--tap", endpoint, "--loop", "--speed", "4"]
    code = main([*argv, "--format", "json"])
    thread.join()
    captured = capsys.readouterr()
    assert code == 0 and not faults
    assert json.loads(captured.out) == {"endpoint": endpoint, "streams": sorted(built.streams)}
    assert captured.err.startswith("recorder replay: camera ")
    assert signal.getsignal(signal.SIGINT) is before
    assert {name: replace_finite(spec) for name, spec in specs.items()} == {
        name: made.spec.to_wire() for name, made in built.streams.items()
    }


def replace_finite(spec: StreamSpec) -> dict[str, Any]:
    return spec.to_wire() | {"finite": False}


def test_replay_without_an_endpoint_prints_the_one_it_took(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = run_text(capsys, "replay", built.path, "--speed", "50", "--streams", "imu,lidar")
    assert out.startswith("ipc://") and out.count("\n") == 1
    assert err == "recorder replay: imu 60, lidar 6\n"
    assert not Path(out.strip().removeprefix("ipc://")).exists()


def test_numbers_of_info_are_plain_json(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    info = run_json(capsys, "info", built.path)
    assert isinstance(info["streams"]["imu"]["rate_hz"], float)
    rate = 59 / (np.ptp(built.streams["imu"].t_ns) / 1e9)
    assert info["streams"]["imu"]["rate_hz"] == pytest.approx(rate)


def test_the_progress_of_validate_comes_to_its_end_in_small_steps(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of less than 0.2% are gathered: of 5000 rather 500 are drawn than all."""
    steps: list[float] = []

    @contextlib.contextmanager
    def shown(description: str, total: float) -> Iterator[Callable[[float, str | None], None]]:
        assert (description, total) == ("validating", 1.0)
        yield lambda step, _: steps.append(step)

    def checked(path: Path, *, deep: bool, progress: Callable[[int, int], None]) -> Report:
        progress(0, 0)  # nothing is known yet
        for done in range(5001):
            progress(done, 5000)
        return Report(path, "tour")

    monkeypatch.setattr(output, "progress", shown)
    monkeypatch.setattr("recorder.session.validation.validate", checked)
    assert main(["validate", str(built.path)]) == 0
    assert sum(steps) == pytest.approx(1.0, abs=0.002)
    assert len(steps) == pytest.approx(500, abs=50)
    assert min(steps) >= 0.002 - 1e-9
