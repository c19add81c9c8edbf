"""Archives that are packed at the same time: one after another in place, apart in failure."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from recorder.archives import finalize as finalizer
from recorder.archives.base import PackedFiles
from recorder.archives.context import PackingContext
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.errors import ArchiveError
from recorder.session.layout import ARCHIVES
from recorder.session.outputs import read_records
from tests.archives.finalize.test_finalizer import FakePacker
from tests.session.build import build_session, camera_spec


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return build_session(tmp_path / "drive", camera_spec(), seconds=0.2).path


@dataclass
class MeetingPacker(FakePacker):
    """Goes on when all have come as far, or when packing was stopped."""

    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def pack(self, context: PackingContext) -> PackedFiles:
        self.meeting.wait(60)
        return super().pack(context)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> dict[str, MeetingPacker]:
    """Two packers that wait for each other; a small session is treated as a large one."""
    meeting = threading.Barrier(2)
    packers = {name: MeetingPacker(name.encode(), meeting=meeting) for name in ("a", "b")}
    for name, packer in packers.items():
        packer.name = name  # type: ignore[misc]
    monkeypatch.setattr("recorder.archives.base.load_packer", packers.__getitem__)
    monkeypatch.setattr(finalizer, "processes_for", lambda _: 2)
    return packers


def test_archives_of_a_large_session_are_packed_at_once(
    at_once: dict[str, MeetingPacker], session: Path
) -> None:
    reported: dict[str, list[float]] = {"a": [], "b": []}
    steps = [ArchiveRequest("b"), ArchiveRequest("a")]
    made = finalize(session, steps, progress=lambda name, done, _: reported[name].append(done))
    assert [result.archive for result in made] == ["b", "a"]
    for name in at_once:
        assert (session / ARCHIVES / name / "drive.bin").read_bytes() == name.encode()
        assert reported[name] == [0, 1, 2, 3, 4, 5, 6]
    assert set(read_records(session)) == {"a", "b"}


def test_each_archive_returns_its_memory_at_its_end(
    at_once: dict[str, MeetingPacker], session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other archives need it."""
    in_place: list[int] = []
    monkeypatch.setattr(
        finalizer, "release_memory", lambda: in_place.append(len(read_records(session)))
    )
    list(finalize(session, [ArchiveRequest(name) for name in at_once]))
    assert in_place[-1] == 2
    assert len(in_place) == 2


def test_an_archive_that_fails_beside_another_leaves_it_alone(
    at_once: dict[str, MeetingPacker], session: Path
) -> None:
    at_once["a"].fail = ArchiveError("cannot be")
    failures: list[str] = []
    made = list(
        finalize(
            session,
            [ArchiveRequest("a"), ArchiveRequest("b")],
            failed=lambda error: failures.append(str(error)),
        )
    )
    assert [result.archive for result in made] == ["b"]
    assert failures == [f"{session}: a: camera, sample 2: cannot be"]
    assert not list((session / ARCHIVES).glob("a/*"))


def test_who_stops_stops_all_that_are_packed_at_once(
    at_once: dict[str, MeetingPacker], session: Path
) -> None:
    at_once["a"].fail = ArchiveError("cannot be")

    def pack(context: PackingContext) -> PackedFiles:
        at_once["b"].meeting.wait(60)
        while True:
            context.advance(0)

    at_once["b"].pack = pack  # type: ignore[method-assign]
    with pytest.raises(ArchiveError, match="cannot be"):
        list(finalize(session, [ArchiveRequest("a"), ArchiveRequest("b")]))
    assert not list((session / ARCHIVES).glob("a/*"))
    assert not list((session / ARCHIVES).glob("b/*"))
    assert not [t for t in threading.enumerate() if t.name.startswith("archive")]
