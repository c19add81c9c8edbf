"""Summaries: the numbers of `recorder info` and `recorder list`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.cli import main
from recorder.session.reader import Session
from recorder.session.summary import brief, folder_bytes, summarize
from tests.archives.ncore.packer_rig import add_poses
from tests.session.build import START_NS, Builder, full_session, imu_spec, lidar_spec


def summary_of(path: Path) -> dict[str, Any]:
    with Session(path) as session:
        summary = summarize(session)
    return json.loads(json.dumps(summary))  # type: ignore[no-any-return]


def test_a_full_session(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 1.0)
    summary = summary_of(builder.path)
    assert (summary["state"], summary["name"], summary["start_ns"]) == ("clean", "rig", START_NS)
    assert summary["problems"] == []
    assert summary["bytes"] == sum(p.stat().st_size for p in builder.path.rglob("*") if p.is_file())
    assert summary["archives"] == {}
    for name, made in builder.streams.items():
        stream = summary["streams"][name]
        n, first, last = len(made.t_ns), int(made.t_ns[0]), int(made.t_ns[-1])
        assert (stream["samples"], stream["first_ns"], stream["last_ns"]) == (n, first, last)
        assert stream["rate_hz"] == pytest.approx((n - 1) / ((last - first) / 1e9))
        assert stream["lost"] == {} and stream["lost_intervals"] == []
        assert stream["bytes"] == folder_bytes(builder.path / name)
    last = max(int(s.t_ns[-1]) for s in builder.streams.values())
    assert summary["end_ns"] == last + 1_000_000
    assert summary["duration_s"] == pytest.approx((last + 1_000_000 - START_NS) / 1e9)


def test_virtual_sensors_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Output of other programs; what is wrong with it is not the fault of the session."""
    builder = full_session(tmp_path / "rig", 0.5)
    path = builder.path
    assert summary_of(path)["virtual"] == {}
    t_ns = builder.streams["imu"].t_ns
    add_poses(path, t_ns, np.zeros((len(t_ns), 3)), "_pose")
    (path / "_odd").mkdir()
    (path / "_odd/meta.json").write_text('{"ts": {"format": "raw", "type": "x9", "shape": []}}')
    summary = summary_of(path)
    pose, odd = summary["virtual"]["_pose"], summary["virtual"]["_odd"]
    assert (pose["samples"], pose["channels"]) == (len(t_ns), ["ts", "t_mono", "pos", "rot"])
    assert pose["bytes"] == folder_bytes(path / "_pose") and pose["problem"] is None
    assert odd["samples"] is None and "_odd" in odd["problem"]
    assert (summary["problems"], summary["verdict"]) == ([], "PASS")
    assert "_pose" not in summary["streams"]
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"_pose +{len(t_ns)} .* ts, t_mono, pos, rot", out)
    assert re.search(r"_odd +damaged ", out)


def test_losses_by_cause(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=[*range(10), *range(20, 40)])
    builder.lose("imu", 10, 12)
    builder.lose("imu", 13, 15, "device")
    builder.lose("imu", 16, 19)
    builder.lose("imu", 40, None, "driver", count=None, estimate=7, duration_ns=70_000_000)
    builder.events.append({"t_ns": 1, "type": "fault", "stream": "imu", "count": 99})
    stream = summary_of(builder.close())["streams"]["imu"]
    assert stream["lost"] == {"buffer": 7, "device": 3, "driver": 0}
    (interval,) = stream["lost_intervals"]
    assert (interval["cause"], interval["estimate"], interval["duration_ns"]) == (
        "driver",
        7,
        70_000_000,
    )
    line = brief(builder.path)
    assert (line["lost"], line["lost_intervals"], line["problem"]) == (10, 1, None)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_samples(tmp_path: Path, count: int) -> None:
    builder = Builder(tmp_path / "rig")
    made = builder.add(lidar_spec(), count=count)
    stream = summary_of(builder.close())["streams"]["lidar"]
    assert stream["samples"] == count
    assert stream["first_ns"] == (int(made.t_ns[0]) if count else None)
    assert stream["last_ns"] == (int(made.t_ns[-1]) if count else None)
    assert (stream["rate_hz"] is None) == (count < 2)


def test_a_stream_without_any_sample_is_told(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.sensors["imu"] = {"driver": "xsens", "streams": ["imu"]}
    builder.lose("imu", 0, 4, "device")
    summary = summary_of(builder.close())
    stream = summary["streams"]["imu"]
    assert (stream["samples"], stream["rate_hz"], stream["lost"]) == (0, None, {"device": 5})


def test_a_damaged_stream_is_a_problem_beside_the_others(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 0.3)
    os.truncate(builder.path / "imu" / "acc", 5)
    (builder.path / "radar" / "meta.json").unlink()
    (builder.path / "lidar" / "meta.json").write_text("[]")
    (builder.path / "_recorder" / "events.jsonl").write_text("x\n")
    summary = summary_of(builder.path)
    assert summary["streams"]["imu"]["samples"] is None
    assert summary["streams"]["lidar"]["samples"] is None
    assert summary["streams"]["camera"]["samples"] == 9
    problems = "\n".join(summary["problems"])
    for part in ("imu/acc", "lidar/meta.json", "events.jsonl:1"):
        assert part in problems


def test_a_session_that_was_left_open(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    made = builder.add(imu_spec())
    summary = summary_of(builder.close("recording"))
    assert summary["state"] == "recording" and summary["end_ns"] is None
    assert summary["duration_s"] == pytest.approx((int(made.t_ns[-1]) - START_NS) / 1e9)
    line = brief(builder.path)
    assert line["state"] == "recording" and not line["live"]
    assert line["duration_s"] == pytest.approx(summary["duration_s"], abs=1e-6)


def test_brief_of_what_cannot_be_opened(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    (builder.path / "_recorder" / "session.json").write_text("{")
    line = brief(builder.path)
    assert line["name"] == "rig" and line["state"] is None and line["lost"] is None
    assert "session.json: is damaged" in line["problem"]
    assert line["bytes"] > 0


def test_brief_of_a_plain_trace_knows_no_losses(tmp_path: Path) -> None:
    line = brief(full_session(tmp_path / "plain", 0.3, plain=True).path)
    assert line["lost"] is None and line["problem"] is None
    assert line["streams"] == ["camera", "imu", "lidar", "lidar_imu", "radar"]


def test_a_link_has_the_bytes_of_its_text_and_not_those_of_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(5000))
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "folder/inner/small").write_bytes(bytes(7))
    (tmp_path / "folder/link").symlink_to("../large")
    (tmp_path / "folder/round").symlink_to(".")
    assert folder_bytes(tmp_path / "folder") == 7 + len("../large") + len(".")
    assert folder_bytes(tmp_path / "none") == 0
