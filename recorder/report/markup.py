"""HTML and SVG whose texts are escaped, whatever they hold.

::

    element("p", "by ", element("b", name), class_="who")      # name is text, never markup
    element("rect", x="12.5%", width=3.0, stroke_width=1)      # stroke-width="1"

Only an `Html` is taken as it is, and only this module makes one.  Any other text is escaped:
markup, quotes, control characters, and marks of the writing direction (`recorder.contract.texts`).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from typing import Final

from recorder.contract.texts import clean

LONGEST: Final = 2000
"""Characters of a text that are shown; a report stays small whatever a session holds."""
_ENTITIES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"}
)
_VOID = frozenset({"meta", "br", "hr", "img"})
_DRAWN = frozenset({"rect", "line", "circle", "path", "polyline", "image", "use"})


class Html(str):
    """Markup that is shown as it is."""

    __slots__ = ()


Content = Html | str | float | None | Iterable["Content"]
"""What an element holds; None is nothing."""
Attribute = str | float | bool | None
"""Value of an attribute; None and False leave it out, True has no value."""


def escape(text: object, longest: int = LONGEST) -> Html:
    """A text, as HTML shows it; what exceeds `longest` characters is left out and counted."""
    shown = str(text)
    more = len(shown) - longest
    if more > 0:
        shown = f"{shown[:longest]}… ({more} more characters)"
    return Html(clean(shown).translate(_ENTITIES))


def escape_lines(text: str, longest: int) -> Html:
    """A text of several lines, for `pre`."""
    cut = text[:longest].split("\n")
    if len(text) > longest:
        cut.append(f"… ({len(text) - longest} more characters)")
    return Html("\n".join(escape(line, longest) for line in cut))


def joined(content: Content) -> Html:
    """Content, one part after the other."""
    match content:
        case None:
            return Html()
        case Html():
            return content
        case str():
            return escape(content)
        case int() | float():
            return escape(number(content))
    return Html("".join(map(joined, content)))


def element(name: str, /, *content: Content, **attributes: Attribute) -> Html:
    """An element.

    Args:
        name: of the element.
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
        text = number(value) if isinstance(value, int | float) else value
        shown = text if isinstance(text, Html) else escape(text, 1 << 24)
        words.append(f'{key}="{shown}"')
    start = " ".join(words)
    inside = joined(content)
    if name in _VOID:
        return Html(f"<{start}>")
    if name in _DRAWN and not inside:
        return Html(f"<{start}/>")
    return Html(f"<{start}>{inside}</{name}>")


def raw(text: str) -> Html:
    """The program's own text as markup: a style sheet, a script; never what a session holds."""
    return Html(text)


def number(value: float) -> str:
    """A number in few characters; ``-`` where there is none."""
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
    """A table that scrolls sideways on a narrow screen.

    Args:
        headers: of the columns.
        rows: cells; None is shown as a dash.
        right: columns that are aligned at the right.
        caption: what the table is.
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
    """Names with their values."""
    return element(
        "dl", [element("div", element("dt", name), element("dd", value)) for name, value in rows]
    )


def details(summary: Content, *content: Content, open_: bool = False) -> Html:
    """Content behind a line that unfolds it."""
    return element("details", element("summary", summary), content, open=open_)
