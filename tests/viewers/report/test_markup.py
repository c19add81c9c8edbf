"""Markup: whatever a session holds is text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from recorder.viewers.report.markup import (
    LONGEST,
    Html,
    details,
    element,
    escape,
    escape_lines,
    pairs,
    raw,
    table,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onload='alert(1)",
    "`${alert(1)}`",
    "]]><svg onload=alert(1)>",
    "&lt;b&gt;",
    "<!--",
    "a\x00b\x1b[2Jc\x7f\x85",
    "\u202egnp.exe\u2066",
    "\ud800",
    "line\u2028separator\r\n",
)


class Reader(HTMLParser):
    """The elements, their attributes, and the text of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_stays_a_text_wherever_it_is(text: str) -> None:
    made = [
        element("p", text, title=text),
        element("p", [text, [text]]),
        table([text], [[text, None]], caption=text),
        details(text, text),
        pairs([(text, text)]),
        element("pre", escape_lines(text, 1000)),
    ]
    for markup in made:
        read = Reader(markup)
        assert set(read.tags) <= {
            *("p", "div", "table", "caption", "thead", "tbody", "tr", "th", "td"),
            *("details", "summary", "dl", "dt", "dd", "pre"),
        }
        assert {name for name, _ in read.attributes} <= {"title", "class", "scope"}
        assert all(c.isprintable() or c == "\n" for c in read.text)
        markup.encode()


def test_what_acts_on_a_page_is_shown_in_words() -> None:
    assert escape("a\u202eb\nc\x00") == "a\\u202eb\\nc\\x00"
    assert escape_lines("a\n<b\x00", 100) == "a\n&lt;b\\x00"


def test_long_texts_are_cut() -> None:
    assert escape("x" * (LONGEST + 7)) == "x" * LONGEST + "… (7 more characters)"
    assert len(escape_lines("x\n" * 10_000, 500)) < 600


def test_attributes() -> None:
    made = element("rect", x=1.0, stroke_width=0.5, class_="a b", hidden=True, id=None, open=False)
    assert made == '<rect x="1" stroke-width="0.5" class="a b" hidden/>'
    assert element("br") == "<br>" and element("p") == "<p></p>"
    assert element("td", 3, 1.25, float("nan")) == "<td>31.25-</td>"


def test_only_markup_is_taken_as_it_is() -> None:
    inner = element("b", "<")
    assert element("p", inner) == "<p><b>&lt;</b></p>"
    assert isinstance(inner + "<", str) and not isinstance(inner + "<", Html)
    assert element("p", inner + "<") == "<p>&lt;b&gt;&amp;lt;&lt;/b&gt;&lt;</p>"
    assert element("style", raw("a > b {}")) == "<style>a > b {}</style>"
