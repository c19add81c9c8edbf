"""Frame of a report's page: one file that loads nothing and runs no foreign script.

The content security policy permits the page's own style sheet (and script, where there is one) by
their digests, and pictures that are in the page.  Everything else is refused by the browser, should
a text get past the escaping.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from recorder.viewers.report.markup import Content, Html, element, raw


@functools.cache
def style_sheet() -> str:
    """Return the style sheet of all reports."""
    return (resources.files("recorder.viewers.report") / "style.css").read_text("utf-8")


def page(title: str, *content: Content, script: str = "", data: str = "") -> str:
    """Make a page as one HTML file.

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
