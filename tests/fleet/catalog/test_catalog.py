"""The catalog: what it has of sessions, which ones are read again, and who reads it."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from recorder.cli import main
from recorder.common.errors import FormatError, SessionError, StorageError, UsageError
from recorder.common.files import PosixDisk
from recorder.fleet.catalog.catalog import KnownRows, update_catalog
from recorder.fleet.catalog.rows import Mark, Place, Row, read_row
from recorder.fleet.catalog.table import CATALOG, read_table, write_table
from recorder.session.event_clips import KeptEvent, write_events
from recorder.session.events import make_event
from tests.session.build import START_NS, Builder, gnss_spec, imu_spec
from tests.viewers.report.index_rig import HOSTILE, make_session

parquet = pytest.importorskip("pyarrow.parquet")


def drive(folder: Path, positions: list[list[float]] | None = None, **header: Any) -> Path:
    """A session with a mark, losses, and positions where they are given."""
    builder = Builder(folder)
    builder.add(imu_spec(), seq=range(3, 23))
    builder.lose("imu", 0, 2, "refused")
    builder.events.append(make_event("mark", START_NS + 10**8, "", text="Pothole"))
    if positions is not None:
        values = np.array(positions, "<f8")
        builder.add(gnss_spec(), seq=range(len(values)), data={"pos": values})
    builder.close()
    path = folder / "_recorder/session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | header))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    header: dict[str, Any] = {
        "metadata": {"vehicle": "van 7", "weather": HOSTILE},
        "hostname": "box",
    }
    places = [[48.2, 11.5, 480.0], [48.3, 11.4, 480.0], [0.0, 0.0, 0.0]]
    drive(tmp_path / "fleet/van/drive", places, **header, recorder_version="1.2")
    make_session(tmp_path / "fleet/drive_p002", after_s=3600)
    broken = make_session(tmp_path / "fleet/broken")
    (broken / "_recorder/session.json").write_text("{")
    return tmp_path / "fleet"


def rows_of(root: Path) -> dict[str, Row]:
    return {row.session: row for row in update_catalog(root).rows}


def test_a_row_has_what_the_session_has(root: Path) -> None:
    row = rows_of(root)["drive"]
    assert (row.location, row.recording, row.part) == (str(root / "van/drive"), "drive", 0)
    assert (row.state, row.live, row.start_ns) == ("clean", False, START_NS)
    assert (row.vehicle, row.host, row.software) == ("van 7", "box", "1.2")
    assert row.metadata == {"vehicle": "van 7", "weather": HOSTILE}
    assert row.marks == (Mark(START_NS + 10**8, "Pothole"),)
    assert (row.lost, row.lost_intervals, row.problem) == (3, 0, None)
    imu = {stream.name: stream for stream in row.streams}["imu"]
    assert (imu.samples, imu.lost) == (20, 3)
    assert imu.rate_hz == pytest.approx(100, rel=0.1) and imu.seconds == pytest.approx(
        0.19, abs=0.01
    )
    assert row.place == Place(48.2, 11.4, 48.3, 11.5), "without (0, 0), which is no position"
    part = rows_of(root)["drive_p002"]
    assert (part.recording, part.part, part.place) == ("drive", 2, None)
    assert rows_of(root)["broken"].problem is not None


def test_a_place_may_lie_on_the_date_line(tmp_path: Path) -> None:
    session = drive(tmp_path / "d", [[-17.0, 179.9, 0], [-17.1, -179.8, 0], [-17.2, 179.95, 0]])
    assert read_row(session).place == Place(-17.2, 179.9, -17.0, -179.8)


def test_the_table_is_read_as_it_was_written(root: Path) -> None:
    rows = update_catalog(root).rows
    event = KeptEvent("e1", "pothole", None, START_NS, START_NS, START_NS + 1, "kept", (), ())
    write_events(PosixDisk(), root / "van/drive", [event])
    again = update_catalog(root)
    assert again.read == 2, "the broken one, and the one with an event"
    assert [e.id for row in again.rows for e in row.events] == ["e1"]
    for ours, theirs in zip(again.rows, read_table(root / CATALOG), strict=True):
        assert microseconds(ours) == microseconds(theirs)
    assert len(rows) == 3


def microseconds(row: Row) -> Any:
    values = msgspec.to_builtins(row)
    for times in (values, *values["marks"], *values["events"]):
        for key in times.keys() & {"start_ns", "end_ns", "t_ns"}:
            times[key] = None if times[key] is None else times[key] // 1000
    return values


def test_other_software_reads_times_and_nested_columns(root: Path) -> None:
    update_catalog(root)
    table = parquet.read_table(root / CATALOG).to_pylist()
    (row,) = [row for row in table if row["session"] == "drive"]
    assert row["start"] == datetime.fromtimestamp(START_NS // 1000 / 1e6, UTC)
    assert row["streams"][0].keys() >= {"name", "samples", "rate_hz", "lost"}
    assert dict(row["metadata"])["weather"] == HOSTILE


def test_unchanged_sessions_are_not_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "broken/_recorder/session.json").write_text("{}")
    shutil.rmtree(root / "broken")
    assert update_catalog(root).read == 2
    again = update_catalog(root)
    assert (again.read, again.unchanged, again.gone) == (0, 2, 0)
    (root / "van/drive/_recorder/keep").write_text('{"kept": true}')
    assert update_catalog(root).read == 1
    (root / "van/drive/_archives/mcap").mkdir(parents=True)
    (root / "van/drive/_archives/mcap/drive.mcap").write_bytes(b"x")
    assert update_catalog(root).read == 1
    assert rows_of(root)["drive"].archives == ("mcap",)
    shutil.rmtree(root / "drive_p002")
    done = update_catalog(root)
    assert (done.read, done.unchanged, done.gone) == (0, 1, 1)
    monkeypatch.chdir(root.parent)
    assert update_catalog(Path("fleet")).read == 0, "however the root is written"


@pytest.mark.parametrize("state", ["recording", "sealed"])
def test_a_session_that_is_not_finished_is_read_each_time(tmp_path: Path, state: str) -> None:
    make_session(tmp_path / "drive", state=state)
    assert [update_catalog(tmp_path).read for _ in range(2)] == [1, 1]


def test_list_is_the_same_with_and_without_the_catalog(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of which the row is used is not opened."""

    def listed(*more: str) -> list[dict[str, Any]]:
        main(["list", str(root), "--recursive", "--format", "json", *more])
        lines: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        for line in lines:
            line["start_ns"] = line["start_ns"] and line["start_ns"] // 1000
        return lines

    ways = [
        (),
        ("--lost",),
        ("--marked", "poth"),
        ("--marked", "none"),
        ("--since", "2024-06-01T12:00"),
    ]
    before = [listed(*way) for way in ways]
    assert main(["catalog", str(root)]) == 1, "one session is broken"

    def opened(path: Path) -> None:
        pytest.fail(f"{path} is opened")

    monkeypatch.setattr("recorder.session.summary.Session", opened)
    capsys.readouterr()
    shutil.rmtree(root / "broken")
    after = [listed(*way) for way in ways]
    assert after == [[line for line in lines if line["name"] != "broken"] for lines in before]


def test_list_shows_a_catalog_without_its_sessions(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["catalog", str(root), "--out", str(tmp_path / "all.parquet")])
    shutil.rmtree(root)
    assert main(["list", str(tmp_path / "all.parquet"), "--marked", "pothole"]) == 1
    out, err = capsys.readouterr()
    assert "\ndrive  " in out and "drive_p002" not in out
    assert "broken" in err


def test_what_is_no_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 no table PAR1")
    assert main(["list", str(path)]) != 0
    assert f"{path}: is no catalog" in capsys.readouterr().err
    import pyarrow as pa

    parquet.write_table(pa.table({"session": ["a"]}), path)
    with pytest.raises(FormatError, match=r"t\.parquet: is no catalog of this version"):
        read_table(path)
    with pytest.raises(SessionError, match="cannot be listed"):
        update_catalog(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="cannot be written"):
        write_table(tmp_path / "no/such/folder.parquet", [])


def test_a_damaged_catalog_is_made_anew(root: Path) -> None:
    update_catalog(root)
    data = bytearray((root / CATALOG).read_bytes())
    for at in range(0, len(data), 97):
        damaged = bytes(data[:at]) + b"\xff" + bytes(data[at + 1 :])
        (root / CATALOG).write_bytes(damaged)
        assert len(KnownRows.read(root / CATALOG).rows) in (0, 3)
    (root / CATALOG).write_bytes(data[: len(data) // 2])
    assert update_catalog(root).unchanged == 0
    assert update_catalog(root).unchanged == 2


def test_without_pyarrow_one_message_says_what_to_install(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    update_catalog(root)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs the extra archives \("):
        update_catalog(root)
    assert main(["list", str(root)]) == 1, "the list does without"
    assert "drive_p002" in capsys.readouterr().out
