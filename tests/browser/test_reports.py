"""Reports in a browser: what they show of every fault, and what they must not do.

The sessions are recorded by a daemon that is killed, stopped, and given a disk that fills up
(`tests.browser.faulty`).  Pages are opened as files, without a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

from recorder.session.reader import Session
from recorder.session.summary import summarize
from recorder.session.validation import validate
from tests.acceptance.command import recorder
from tests.browser.faulty import FAULTS, KILLED, Faulty
from tests.browser.rig import DESKTOP, Dashboard
from tests.browser.test_page import PHONE
from tests.viewers.report.index_rig import HOSTILE, make_report, make_session

pytestmark = pytest.mark.browser
TABLET = {"width": 820, "height": 1180}


@pytest.fixture(scope="module")
def faulty(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a session with every fault, and of one that was killed and recovered."""
    daemon = Faulty(tmp_path_factory.mktemp("faulty"))
    daemon.record()
    ran = recorder("finalize", "--pending", daemon.config)
    assert ran.code == 0, ran.err
    return daemon.root


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of many small sessions."""
    root = tmp_path_factory.mktemp("fleet") / "roo t #1"
    root.mkdir()
    for number in range(20):
        vehicle = "rig-2" if number % 3 else "rig-10"
        path = make_session(
            root / f"drive {number}",
            after_s=3600 * number,
            seconds=1.0 - number / 100,
            lost=number % 4,
            metadata={"vehicle": vehicle, "weather": "rain" if number == 7 else "sun"},
        )
        if number % 4:
            make_report(path, "FAIL", f"samples lost (imu): {number % 4}", samples=number)
        elif number:
            make_report(path, samples=number)
    for part in (1, 2, 3):
        path = make_session(root / f"tour_p{part:03d}", after_s=1800 + part)
        make_report(path, "FAIL" if part == 2 else "PASS", marks=part)
    ran = recorder("report", root)
    assert ran.code == 0, ran.err
    return root


def open_file(browser: Browser, path: Path, **context: object) -> Dashboard:
    """A page from the disk, of a machine without a network; `close` fails if it complained."""
    opened = Dashboard(browser, path.as_uri(), **{"offline": True, **context})
    opened.page.goto(opened.url)
    return opened


@pytest.fixture(scope="module")
def report(browser: Browser, faulty: Path) -> Iterator[Page]:
    opened = open_file(browser, faulty / FAULTS / "report.html")
    yield opened.page
    opened.close()


@pytest.fixture
def index(browser: Browser, fleet: Path) -> Iterator[Page]:
    opened = open_file(browser, fleet / "index.html")
    yield opened.page
    opened.close()


def rows_of(table: Locator) -> list[list[str]]:
    """The texts of the visible rows of a table's bodies, in the order on the screen."""
    rows: list[list[str]] = table.evaluate(
        "table => [...table.rows].filter(row => row.offsetHeight && row.parentNode.tagName =="
        " 'TBODY').map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return rows


# Each fault by the stream or place, with words of the verdict's row about it.
FAULTS_SHOWN: Mapping[str, tuple[str, str]] = {
    "absent": ("missing", r"sensor absent\b"),
    "absent device": ("missing", r"device: absent.*no-such-imu: No such file or directory"),
    "hung": ("hung", r"(uncounted loss.*hung: the driver hung|fault: hung)"),
    "refused": ("wide", r"samples lost.* of \d+ .*refused: the driver's buffer was full"),
    "transport": ("wireless", r"samples lost.*\b7 of \d+ .*network: packets were lost on the way"),
    "corrupt": ("worn", r"samples lost.*\b1 of \d+ .*corrupt: data were damaged"),
    "time": ("shaky", r"samples lost.*\b1 of \d+ .*time: their stamps fit neither"),
    "killed driver": ("good", r"uncounted loss.*driver: the driver's process ended"),
    "how it ended": ("good", r"fault: driver.*driver ended with code -9"),
    "killed writer": ("writer", r"writer: restarted"),
    "clock": ("host clock", r"clock step.*stepped by \+2\.500 s"),
    "disk": ("disk", r"ended early.*its disk is nearly full: 1\.0 MB are free"),
}


@pytest.mark.parametrize("fault", FAULTS_SHOWN)
def test_the_verdict_names_every_fault_with_its_cause(report: Page, fault: str) -> None:
    where, words = FAULTS_SHOWN[fault]
    header = report.locator("header")
    assert "FAIL" in header.locator(".word").inner_text()
    for details in header.locator("details").all():
        details.evaluate("element => element.open = true")
    rows = [row for table in header.locator("table").all() for row in rows_of(table)]
    assert [row for row in rows if where in row[1] and re.search(words, " ".join(row))], rows


def test_the_timeline_has_a_lane_for_every_stream_with_its_losses(
    report: Page, faulty: Path
) -> None:
    lanes = report.locator("#timeline").inner_text()
    with Session(faulty / FAULTS) as session:
        streams = summarize(session)["streams"]
    assert len(streams) == 7
    for name, stream in streams.items():
        (lane,) = re.findall(rf"^{name}\n(.*)$", lanes, re.MULTILINE)
        assert lane.startswith(f"{stream['samples']} samples, ")
        for cause, count in stream["lost"].items():
            assert not count or f"{cause} {count} lost" in lane
        for interval in stream["lost_intervals"]:
            assert f"{interval['cause']}: " in lane and "uncounted" in lane


def test_the_report_was_made_by_the_daemon_and_the_session_is_sound(faulty: Path) -> None:
    for name in (FAULTS, KILLED):
        assert validate(faulty / name, deep=True).problems == []
        steps = (faulty / name / "_recorder/finalize.json").read_text()
        assert re.search(r'"report": \{\s*"done": true', steps)


def test_a_killed_session_tells_its_recovery(browser: Browser, faulty: Path) -> None:
    opened = open_file(browser, faulty / KILLED / "report.html")
    header = opened.page.locator("header").inner_text()
    assert "FAIL" in header
    assert re.search(r"recovered\s+session\s+the recorder was killed, or its disk failed", header)
    assert re.search(
        r"uncounted loss\s+good\s+1 interval.*; killed: the recorder was killed", header
    )
    opened.close()


@pytest.mark.parametrize("name", [f"{FAULTS}/report.html", "index.html"])
def test_hostile_texts_are_shown_and_do_nothing(browser: Browser, faulty: Path, name: str) -> None:
    path = faulty / name
    opened = open_file(browser, path)
    page = opened.page
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0
    assert HOSTILE in page.locator("body").inner_text(), "the vehicle, as it was written"
    opened.close()
    others = [url for url in opened.requests if not url.startswith("data:")]
    assert others == [path.as_uri()], "nothing else is asked for"


def test_a_text_that_got_past_the_escaping_would_not_run(
    browser: Browser, faulty: Path, tmp_path: Path
) -> None:
    """The pages' own policy: the second line of defence, tried with markup put into them."""
    hole = "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>"
    hole += "<a id=leak href='javascript:window.hacked=3'>x</a><style>body{color:red}</style>"
    for path in (faulty / FAULTS / "report.html", faulty / "index.html"):
        broken = tmp_path / path.name
        broken.write_text(path.read_text().replace("</body>", f"{hole}</body>"))
        opened = open_file(browser, broken)
        page = opened.page
        page.locator("#leak").click()
        assert page.evaluate("window.hacked") is None
        assert page.locator("body").evaluate("e => getComputedStyle(e).color") != "rgb(255, 0, 0)"
        opened.close(expected="Content Security Policy|Refused to")


@pytest.mark.parametrize("size", [DESKTOP, TABLET, PHONE], ids=["desktop", "tablet", "phone"])
def test_pages_fit_the_screen(browser: Browser, faulty: Path, size: dict[str, int]) -> None:
    for path in (faulty / FAULTS / "report.html", faulty / "index.html"):
        opened = open_file(browser, path, viewport=size)
        width = opened.page.evaluate("document.scrollingElement.scrollWidth")
        assert width <= size["width"], path.name
        opened.close()


def test_the_index_shows_every_session_and_its_links_open(
    browser: Browser, faulty: Path, index: Page, fleet: Path
) -> None:
    rows = rows_of(index.locator("#sessions"))
    assert len(rows) == 24, "20 sessions, 3 parts, and the sum of the parts"
    assert rows[0][0] == "drive 19" and rows[-1][0] == "drive 0", "the newest first"
    assert "23 of 23 sessions" in index.locator("#shown").inner_text()
    index.get_by_text("drive 8", exact=True).click()
    index.wait_for_url((fleet / "drive 8/report.html").as_uri())
    assert index.inner_text("body") == "report"
    opened = open_file(browser, faulty / "index.html")
    opened.page.get_by_role("link", name=FAULTS).click()
    opened.page.wait_for_selector("header .word")
    assert FAULTS in opened.page.locator("h1").inner_text()
    opened.close()


def test_the_index_filters_by_words_and_verdict(index: Page) -> None:
    def names(words: str, verdict: str = "") -> list[str]:
        index.fill("#words", words)
        index.select_option("#verdict", verdict)
        return [row[0].splitlines()[0] for row in rows_of(index.locator("#sessions"))]

    assert names("RAIN") == ["drive 7"]
    assert names("rain  rig-2") == ["drive 7"] and names("rain rig-10") == []
    assert index.locator("#shown").inner_text() == "0 of 23 sessions"
    assert names("", "PASS") == ["drive 16", "drive 12", "drive 8", "drive 4",
                                 "tour", "tour_p001", "tour_p003", "drive 0"]  # fmt: skip
    assert names("no report") == ["drive 0"]
    assert names("tour", "FAIL") == ["tour", "tour_p002"], "the sum stays with its parts"
    assert len(names("", "")) == 24


def test_the_index_sorts_by_every_column(index: Page) -> None:
    def first(title: str, clicks: int = 1, count: int = 3) -> list[str]:
        for _ in range(clicks):
            index.get_by_role("button", name=title).click()
        return [row[0].splitlines()[0] for row in rows_of(index.locator("#sessions"))][:count]

    assert first("Session") == ["drive 0", "drive 1", "drive 2"], "numbers as numbers"
    assert first("Session") == ["tour", "tour_p001", "tour_p002"]
    assert first("Start", 2)[0] == "drive 0"
    assert first("Samples") == ["tour", "tour_p001", "tour_p002"]
    assert first("Samples", count=24)[-1] == "drive 0", "the unknown last, whatever the order"
    assert first("Duration") == ["drive 0", "drive 1", "drive 2"]
    assert first("Lost")[0] in ("drive 3", "drive 7", "drive 11", "drive 15", "drive 19")
    assert first("Verdict")[0] != "drive 0" and first("Verdict")[0] == "drive 0"
    header = index.locator("th[aria-sort]")
    assert header.count() == 1 and header.get_attribute("aria-sort") == "ascending"
    index.get_by_role("button", name="Vehicle").click()
    vehicles = [row[4] for row in rows_of(index.locator("#sessions"))]
    assert list(dict.fromkeys(vehicles)) == ["rig-1", "rig-2", "rig-10"]


def test_the_index_is_readable_without_scripts(browser: Browser, fleet: Path) -> None:
    opened = open_file(browser, fleet / "index.html", java_script_enabled=False)
    page = opened.page
    assert not page.locator("#tools").is_visible()
    text = page.locator("#sessions").inner_text()
    assert "drive 19" in text and "samples lost (imu): 3" in text and "tour\n3 parts" in text
    page.get_by_role("link", name="drive 8").click()
    page.wait_for_url("**/drive%208/report.html")
    opened.close()
