"""The events of a session, read without the recorder's own readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def events(session: Path, **values: object) -> list[dict[str, Any]]:
    """Events of a session in their order: all, or those that have these values."""
    lines = (session / "_recorder/events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if values.items() <= event.items()]
