"""``recorder stop``: have a daemon end its recording."""

from __future__ import annotations

import argparse
from typing import Any

from recorder.cli.control import add_socket, ask, streams_table
from recorder.cli.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how the daemon is reached."""
    add_socket(parser)


def run(args: argparse.Namespace) -> int:
    """Stop; 0 where the session is closed, 3 with loss, 1 where nothing was being recorded."""
    reply = ask(args, "stop")
    closed = reply.values.get("closed")
    emit(dict(reply.values), args, lambda _: _text(reply.state, closed))
    if closed is None:
        return 0
    if not closed["whole"]:
        return 1
    lost = any(s["lost"] or s["unknown_losses"] for s in closed["streams"].values())
    return 3 if lost or closed["faults"] else 0  # as `recorder run` has it


def _text(state: str | None, closed: dict[str, Any] | None) -> str:
    if closed is None:
        return str(state)
    lines = [streams_table(closed["streams"])]
    lines += [f"fault: {fault}" for fault in closed["faults"]]
    why = f" ({closed['why']})" if closed["why"] else ""
    return "\n".join([*lines, f"{state}; session {closed['session']}{why}"])
