"""What the live backend makes of the daemon's statuses, and of its own failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from recorder.config.settings import LiveSettings
from recorder.session.events import make_event
from recorder.viewers.live import daemon_link
from recorder.viewers.live.backend import StaticContent
from recorder.viewers.live.daemon_link import LiveBackend
from recorder.viewers.live.event_tail import EventTail
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.serving import serve_backend
from recorder.viewers.live.tap_source import TapSource
from tests.support.waiting import turn_until
from tests.viewers.live.test_summary import status, stream

OFFSET_NS = 1_700_000_000_000_000_000


def of_daemon(session: bool, **clock: int | None) -> dict[str, Any]:
    made = status({"camera": stream(10)}, session=session, taps={}, pid=1, events=[])
    if session:
        made["session"] |= {"path": "/sessions/tour", **clock}
    return made


@asynccontextmanager
async def linked(hub: Hub, folder: Path, notify: Any) -> AsyncIterator[LiveBackend]:
    source = TapSource(hub)
    backend = LiveBackend(hub, source, folder / "c", folder, notify)
    try:
        yield backend
    finally:
        await backend.close()
        source.close()


def answer_with(monkeypatch: pytest.MonkeyPatch, answers: Iterator[dict[str, Any]]) -> None:
    monkeypatch.setattr(daemon_link, "IDLE_S", 0.001)
    monkeypatch.setattr(daemon_link._Poller, "poll", lambda _: daemon_link._Polled(next(answers)))


async def test_while_the_writer_starts_again_samples_keep_the_sessions_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = [
        of_daemon(True, start_ns=OFFSET_NS + 5, offset_ns=OFFSET_NS),
        of_daemon(True, start_ns=None, offset_ns=None),  # no writer knows the session
        of_daemon(False),
    ]
    answer_with(monkeypatch, iter(answers))
    seen: list[tuple[str, int]] = []
    hub = Hub()

    def notify(note: dict[str, Any]) -> None:
        if note["type"] == "status":
            seen.append((note["status"]["state"], hub.offset_ns))

    async with linked(hub, tmp_path, notify) as backend:
        await turn_until(lambda: len(seen) == 3 or any(task.done() for task in backend.tasks))
        assert not any(task.done() for task in backend.tasks)
    assert seen[:2] == [("recording", OFFSET_NS)] * 2
    assert seen[2][0] == "idle" and seen[2][1] != OFFSET_NS


async def test_an_event_is_sent_once_with_the_sentence_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A loss is in the daemon's events and in the session's; the timeline has the latter."""
    sentence = "lost 7 samples (refused)"
    logged = {"t_ns": 5, "stream": "camera", "cause": "", "text": sentence}
    ended = {"t_ns": 6, "stream": None, "cause": "stop", "text": "the session ended"}
    status = of_daemon(True, start_ns=OFFSET_NS, offset_ns=OFFSET_NS) | {
        "events": [
            {"number": 0, "kind": "lost", **logged},
            {"number": 1, "kind": "end", **ended},
        ]
    }
    loss = make_event("lost", 5, "camera", "refused", count=7, duration_ns=2)
    holes = make_event("incomplete", 5, "camera", "network", count=2, parts=9)
    polled = [daemon_link._Polled(status, "", EventTail(tmp_path), [loss, holes])]
    polled += [daemon_link._Polled(status, "", EventTail(tmp_path))] * 2
    answers = iter(polled)
    monkeypatch.setattr(daemon_link, "IDLE_S", 0.001)
    monkeypatch.setattr(daemon_link._Poller, "poll", lambda _: next(answers))
    told: list[dict[str, Any]] = []
    async with linked(Hub(), tmp_path, told.append):
        await turn_until(lambda: len(states(told)) == len(polled))
    events = [(note["kind"], note["text"]) for note in told if note["type"] == "event"]
    assert events == [("lost", sentence), ("end", "the session ended")]
    timeline = next(note for note in told if note["type"] == "timeline")
    assert timeline["streams"] == {"camera": [["3", "5", "lost"]]}


async def test_a_page_that_is_opened_is_told_the_state_of_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While nobody looked the daemon was asked seldom: pressed at once, S would mean what was."""
    now = of_daemon(True, start_ns=OFFSET_NS + 5, offset_ns=OFFSET_NS)
    monkeypatch.setattr(daemon_link, "IDLE_S", 3600.0)
    monkeypatch.setattr(daemon_link._Poller, "poll", lambda _: daemon_link._Polled(now))
    told: list[dict[str, Any]] = []
    async with linked(Hub(), tmp_path, told.append) as backend:
        await turn_until(lambda: states(told))
        now = of_daemon(False)
        told.clear()
        backend.attend(1)
        told += backend.greeting()
        await turn_until(lambda: states(told))
    assert states(told) == ["idle"]


def states(notes: Iterable[dict[str, Any]]) -> list[str]:
    return [note["status"]["state"] for note in notes if note["type"] == "status"]


def test_a_backend_that_fails_ends_the_process_with_its_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def poll(_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(daemon_link._Poller, "poll", poll)

    def stage(hub: Hub, notify: Any) -> tuple[LiveBackend, TapSource, StaticContent]:
        source = TapSource(hub)
        backend = LiveBackend(hub, source, tmp_path / "c", tmp_path, notify)
        return backend, source, StaticContent()

    addresses: list[str] = []
    with pytest.raises(ZeroDivisionError, match="a defect"):
        asyncio.run(
            asyncio.wait_for(serve_backend(LiveSettings(port=0), stage, addresses.append), 60)
        )
    assert len(addresses) == 1
