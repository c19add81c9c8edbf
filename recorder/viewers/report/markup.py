"""HTML and SVG with escaped text, and the frame of a page.

::

    element("p", "by ", element("b", name), class_="who")      # name is text, never markup
    element("rect", x="12.5%", width=3.0, stroke_width=1)      # stroke-width="1"

Only an `Html` is inserted unescaped, and only this module creates one.  Any other text is escaped:
markup, quotes, control characters, and marks of the writing direction
(`recorder.common.text_format`).

A page is one file that loads nothing and runs no foreign script.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Container, Iterable
from importlib import resources
from typing import Final

from recorder.common.text_format import clean

LONGEST: Final = 2000
"""Largest number of characters of a text; limits the size of a report."""
_ENTITIES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"}
)
_VOID = frozenset({"meta", "br", "hr", "img"})
_DRAWN = frozenset({"rect", "line", "circle", "path", "polyline", "image", "use"})


class Html(str):
    """Markup that is inserted unescaped."""

    __slots__ = ()


Content = Html | str | float | None | Iterable["Content"]
"""Content of an element; None is empty."""
Attribute = str | float | bool | None
"""Value of an attribute; None and False leave it out, True has no value."""


def escape(text: object, longest: int = LONGEST) -> Html:
    """Escape a text for HTML; shorten it to `longest` characters and append the omitted count."""
    shown = str(text)
    more = len(shown) - longest
    if more > 0:
        shown = f"{shown[:longest]}… ({more} more characters)"
    return Html(clean(shown).translate(_ENTITIES))


def escape_lines(text: str, longest: int) -> Html:
    """Escape a text of several lines, for `pre`."""
    cut = text[:longest].split("\n")
    if len(text) > longest:
        cut.append(f"… ({len(text) - longest} more characters)")
    return Html("\n".join(escape(line, longest) for line in cut))


def join_content(content: Content) -> Html:
    """Join the parts of a content into markup."""
    match content:
        case None:
            return Html()
        case Html():
            return content
        case str():
            return escape(content)
        case int() | float():
            return escape(format_number(content))
    return Html("".join(map(join_content, content)))


def element(name: str, /, *content: Content, **attributes: Attribute) -> Html:
    """Make an element.

    Args:
        name: name of the element.
        content: its content; texts are escaped.
        attributes: a trailing ``_`` is dropped, any other ``_`` becomes ``-``.
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(key)
            continue
        text = format_number(value) if isinstance(value, int | float) else value
        shown = text if isinstance(text, Html) else escape(text, 1 << 24)
        words.append(f'{key}="{shown}"')
    start = " ".join(words)
    inside = join_content(content)
    if name in _VOID:
        return Html(f"<{start}>")
    if name in _DRAWN and not inside:
        return Html(f"<{start}/>")
    return Html(f"<{start}>{inside}</{name}>")


def raw(text: str) -> Html:
    """Mark the program's own text (a style sheet, a script) as markup; never use session data."""
    return Html(text)


def format_number(value: float) -> str:
    """Format a number in few characters; ``-`` if it is not finite."""
    if not math.isfinite(value):
        return "-"
    text = f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def table(
    headers: Iterable[Content],
    rows: Iterable[Iterable[Content]],
    *,
    right: Container[int] = (),
    caption: Content = None,
) -> Html:
    """Make a table that scrolls sideways on a narrow screen.

    Args:
        headers: headers of the columns.
        rows: cells; None is shown as a dash.
        right: columns that are aligned at the right.
        caption: title of the table.
    """

    def cells(name: str, values: Iterable[Content], scope: str | None = None) -> Html:
        return element("tr", [
            element(name, "–" if value is None else value, scope=scope,
                    class_="n" if k in right else None)
            for k, value in enumerate(values)
        ])  # fmt: skip

    head, body = cells("th", headers, "col"), [cells("td", row) for row in rows]
    title = None if caption is None else element("caption", caption)
    inner = element("table", title, element("thead", head), element("tbody", body))
    return element("div", inner, class_="wide")


def pairs(rows: Iterable[tuple[Content, Content]]) -> Html:
    """Make a list of names with their values."""
    return element(
        "dl", [element("div", element("dt", name), element("dd", value)) for name, value in rows]
    )


def details(summary: Content, *content: Content, open_: bool = False) -> Html:
    """Make content that unfolds below a summary line."""
    return element("details", element("summary", summary), content, open=open_)


@functools.cache
def style_sheet() -> str:
    """Return the style sheet of all reports."""
    return (resources.files("recorder.viewers.report") / "style.css").read_text("utf-8")


def page(title: str, *content: Content, script: str = "", data: str = "") -> str:
    """Make a page as one HTML file.

    The content security policy permits the page's own style sheet (and script, where there is one)
    by their digests, and pictures that are in the page.  The browser refuses everything else, if a
    text gets past the escaping.

    Args:
        title: title of the window.
        content: content of the body.
        script: the program's own script, at the end of the body; it must not hold ``</script``.
        data: an element with data for other programs (`recorder.session.outputs`), in the
        head.
    """
    sheet = style_sheet()
    rules = ["default-src 'none'", "img-src data:", f"style-src {_hash_source(sheet)}"]
    if script:
        rules.append(f"script-src {_hash_source(script)}")
    rules += ["base-uri 'none'", "form-action 'none'"]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=raw("; ".join(rules))),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        raw(data),
        element("style", raw(sheet)),
    )
    end = element("script", raw(script)) if script else None
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n{element("body", content, end)}</html>\n'


def _hash_source(text: str) -> str:
    """Return the digest of an inline element's text, as a source of the policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def section(title: str, *content: Content, id_: str) -> Html:
    """Make a section of the page."""
    return element("section", element("h2", title), content, id=id_)
