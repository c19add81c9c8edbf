"""Reads a report as a browser does, and holds it against what a report may hold."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

TAGS = frozenset(
    (
        *("html", "head", "meta", "title", "style", "body", "header", "nav", "section"),
        *("h1", "h2", "h3", "p", "a", "span", "b", "small", "dl", "div", "dt", "dd", "pre"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"),
        *("figure", "figcaption", "img", "ul", "li"),
        *("svg", "defs", "pattern", "text", "line", "rect", "path", "circle", "image"),
    )
)
_VOID = frozenset({"meta", "img", "br"})
_DRAWN = frozenset({"rect", "line", "circle", "path", "image"})


class Page(HTMLParser):
    """The elements and texts of a report.

    Attributes:
        sections: text by the id of its section; ``verdict`` that of the verdict.
        text: all texts, also those of attributes that are shown.
        pictures: bytes of all pictures.
        links: where links lead.
        odd: texts that are marked as odd.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = path.read_bytes().decode("utf-8")
        self.sections: dict[str, str] = {}
        self.text = self.style = ""
        self.policy: dict[str, str] = {}
        self.pictures: list[bytes] = []
        self.links: list[str] = []
        self.odd: list[str] = []
        self._open: list[tuple[str, str | None, str | None]] = []
        self.feed(self.source)
        self.close()
        assert self._open == [], f"not closed: {self._open}"
        assert all(c.isprintable() or c == "\n" for c in self.text)
        digest = base64.b64encode(hashlib.sha256(self.style.encode()).digest()).decode()
        assert self.policy == {
            "default-src": "'none'",
            "img-src": "data:",
            "style-src": f"'sha256-{digest}'",
            "base-uri": "'none'",
            "form-action": "'none'",
        }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, f"an element {tag!r}"
        values = dict(attrs)
        assert len(values) == len(attrs), "an attribute twice"
        for name, value in attrs:
            assert re.fullmatch(r"[a-z][a-z0-9-]*", name), name
            assert not name.startswith("on") and name not in ("style", "srcdoc", "srcset"), name
            if name in ("title", "alt", "aria-label"):
                self.text += f"{value}\n"
            if name in ("href", "src"):
                self._address(tag, value or "")
        if values.get("http-equiv") == "Content-Security-Policy":
            for rule in (values["content"] or "").split("; "):
                directive, _, sources = rule.partition(" ")
                self.policy[directive] = sources
        if tag not in _VOID:
            self._open.append((tag, values.get("id"), values.get("class")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _DRAWN
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag, f"{tag} ends out of turn"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "style":
            self.style += data
            return
        self.text += data
        if any(class_ == "odd" for *_, class_ in self._open):
            self.odd.append(data)
        for _, id_, _ in self._open:
            if id_ is not None:
                self.sections[id_] = self.sections.get(id_, "") + data + "\n"

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def _address(self, tag: str, value: str) -> None:
        if tag == "a":
            assert re.fullmatch(r"#[a-z]+|\.\./[A-Za-z0-9._~%-]+/report\.html", value), value
            self.links.append(value)
            return
        assert tag in ("img", "image")
        head, _, data = value.partition(",")
        assert head == "data:image/webp;base64"
        self.pictures.append(base64.b64decode(data, validate=True))
