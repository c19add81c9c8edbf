"""Verbs that make one request to a daemon: ``start``, ``stop``, ``mark``, ``status``, ``keep``.

A verb has the arguments of its request (`recorder.bus.control.requests`).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import Screen, add_format, emit, format_table
from recorder.common.errors import StorageError, UsageError
from recorder.common.text_format import clean, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from recorder.bus.control.client import Client, Reply


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the daemon's address, and the format."""
    parser.add_argument(
        "--socket",
        metavar="PATH",
        help="reach the daemon at this socket, or at tcp://HOST:PORT with --keys (default: "
        "$RECORDER_SOCKET, else /run/recorder/control.sock, else "
        "$XDG_RUNTIME_DIR/recorder/control.sock)",
    )
    parser.add_argument(
        "--keys", type=Path, metavar="DIR", help="use the CURVE keys in DIR, for tcp://"
    )
    add_format(parser)


def connect(args: argparse.Namespace) -> Client:
    """Connect to the daemon that the arguments name.

    Raises:
        UsageError: an address over TCP has no keys.
        DaemonError: no daemon answers.
    """
    from recorder.bus.control.client import Client

    if args.socket is None or not args.socket.startswith("tcp://"):
        return Client(args.socket)
    from recorder.bus.control.keys import CurveClient

    if args.keys is None:
        raise UsageError("--keys: a daemon over TCP needs a folder of keys")
    return Client(wire=CurveClient(args.socket, args.keys))


def ask(args: argparse.Namespace, op: str, **values: Any) -> Reply:
    """Make one request; with ``--format json`` also print the reply of a refusal.

    Raises:
        DaemonError: the daemon refused the request.
    """
    from recorder.bus.control.client import DaemonError

    with connect(args) as client:
        try:
            return client.request(op, **values)
        except DaemonError as error:
            if error.reply is not None and args.format == "json":
                emit(dict(error.reply.values), args, lambda _: "")
            raise


def format_line(status: dict[str, Any] | Any) -> str:
    """Format the state in one line, and each fault in a line."""
    session = status.get("session")
    line = str(status.get("state"))
    if session is not None:
        line += f"  {session['path']}"
    return "\n".join(map(clean, [line, *map(_format_fault, status.get("faults", ()))]))


def format_status(status: dict[str, Any] | Any) -> str:
    """Format the whole status for users."""
    session, disk = status["session"], status["disk"]
    lines = [f"state     {status['state']} for {format_seconds(status['since_s'])}"]
    if session is not None:
        size = format_bytes(session["bytes"])
        kept = ", kept" if session["kept"] else ""
        lines += [
            f"session   {session['name']}{' (a new part begins)' if session['splitting'] else ''}",
            f"folder    {session['path']}",
            f"recorded  {format_seconds(session['elapsed_s'])}, {size}{kept}",
        ]
    elif (last := status["last"]) is not None and last["session"]:
        why = f" ({last['why']})" if last["why"] else ""
        lines.append(f"last      {last['session']}{why}")
    if disk["free_bytes"] is not None:
        floor = format_bytes(disk["floor_bytes"])
        lasts = disk["seconds_left"]
        left = "" if lasts is None else f", enough for {format_seconds(lasts)}"
        lines.append(f"disk      {format_bytes(disk['free_bytes'])} free, {floor} stay free{left}")
    keeping = status["keeping"]
    if (ring := keeping["ring"]) is not None:
        held = f"{format_seconds(ring['seconds'])} in {ring['parts']} parts"
        lines.append(f"ring      {held}, {format_bytes(ring['bytes'])}")
    if keeping["open"]:
        lines.append(f"events    open: {', '.join(keeping['open'])}")
    clock = status["clock"]
    by = f" by {clock['by']}" if clock["by"] else ""
    if clock["synchronized"] is not None:
        lines.append(f"clock     {'' if clock['synchronized'] else 'not '}synchronized{by}")
    finalizing = status["finalizing"]
    if (current := finalizing["current"]) is not None:
        waiting = len(finalizing["queue"]) - (current["session"] in finalizing["queue"])
        more = f", {waiting} waiting" if waiting else ""
        lines.append(f"packing   {current['session']}: {current['step']}{more}")
    elif finalizing["queue"]:
        lines.append(f"packing   {len(finalizing['queue'])} waiting")
    if (live := status.get("live")) is not None:
        lines.append(f"live      {live['url'] or live['fault'] or 'starting'}")
    lines += map(_format_fault, status["faults"])
    lines += [f"warning   {text}" for text in status["warnings"]]
    return "\n".join(map(clean, lines)) + "\n\n" + _format_sensors(status["sensors"])


def _format_fault(fault: dict[str, str]) -> str:
    about, message = fault["about"], fault["message"]
    return "fault     " + (message if message.startswith(f"{about}: ") else f"{about}: {message}")


def _format_sensors(sensors: dict[str, Any]) -> str:
    rows: list[list[Any]] = []
    for name, sensor in sensors.items():
        ring = sensor["ring_size_bytes"]
        queue = f"{sensor['ring_held_bytes'] / ring:.0%}" if ring else None
        if not sensor["streams"]:
            rows.append([name, sensor["state"], *[None] * 8, queue])
        for i, (stream, values) in enumerate(sensor["streams"].items()):
            rate, expected = values["rate_hz"], values["expected_hz"]
            rows.append(
                [
                    name if i == 0 else "",
                    sensor["state"] if i == 0 else "",
                    stream,
                    None if rate is None else f"{rate:.1f} Hz" + (" slow" * values["slow"]),
                    None if expected is None else f"{expected:g} Hz",
                    format_rate(values["bytes_per_s"]),
                    format_seconds(values["age_s"]),
                    values["samples"],
                    format_bytes(values["bytes"]),
                    None if values["lost"] is None else format_losses(values) or "0",
                    queue if i == 0 else "",
                ]
            )
    headers = ["sensor", "state", "stream", "rate", "expected", "MB/s", "age", "samples", "size"]
    headers += ["lost", "queue"]
    return format_table(headers, rows, right=range(3, len(headers)))


def format_streams(streams: dict[str, Any], *more: str) -> str:
    """Format samples, size and losses of each stream, and the values of its keys `more`."""
    rows = [
        [name, s["samples"], format_bytes(s["bytes"]), format_losses(s) or "nothing"]
        + [s[key] for key in more]
        for name, s in streams.items()
    ]
    return format_table(["stream", "samples", "bytes", "lost", *more], rows, right=(1, 2))


def format_outage(outage: Mapping[str, Any], now_ns: int) -> str:
    """Format an ongoing outage: ``device outage for 12 s, about 120 samples``."""
    about = "" if outage["estimated"] is None else f", about {outage['estimated']} samples"
    seconds = max(0, now_ns - outage["since_ns"]) / 1e9
    return f"{outage['cause']} outage for {format_seconds(seconds)}{about}"


def format_losses(stream: dict[str, Any]) -> str:
    """Format a stream's losses by cause, and its incomplete samples; empty without losses.

    ``refused 3, 1 uncounted, 2 samples lack 32 parts (network)``.
    """
    from recorder.session.accounts import format_incomplete

    parts = [f"{cause} {count}" for cause, count in (stream["lost"] or {}).items() if count]
    if stream["unknown_losses"]:
        parts.append(f"{stream['unknown_losses']} uncounted")
    if (outage := stream.get("outage")) is not None:
        parts.append(format_outage(outage, time.time_ns()))
    if incomplete := format_incomplete(stream.get("incomplete") or {}):
        parts.append(incomplete)
    return ", ".join(parts)


@dataclass(frozen=True)
class DaemonVerb:
    """A verb that makes one request.

    Attributes:
        op: name of the request.
        text: formats the reply for users.
        result: the part of the reply that ``--format json`` prints.
        exit_code: returns the exit code for the reply of an accepted request.
    """

    op: str
    text: Callable[[Reply], str] = lambda reply: format_line(reply.status)
    result: Callable[[Reply], Mapping[str, Any]] = lambda reply: reply.values
    exit_code: Callable[[Reply], int] = lambda _: 0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the request's arguments, and the options for the daemon's address."""
        from recorder.bus.control.requests import OPS

        for each in fields(OPS[self.op]):
            if each.metadata["words"]:
                parser.add_argument(*each.metadata["words"], **each.metadata["cli"])
        add_socket(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Make the request and return the exit code."""
        from recorder.bus.control.requests import OPS, make_request

        names = sorted(each.name for each in fields(OPS[self.op]))
        values = {name: given for name in names if (given := getattr(args, name, None)) is not None}
        if "meta" in values:
            values["meta"] = _parse_pairs(values["meta"])
        make_request(self.op, values)
        reply = ask(args, self.op, **values)
        emit(dict(self.result(reply)), args, lambda _: self.text(reply))
        return self.exit_code(reply)


class Watched(DaemonVerb):
    """Verb ``status``: it shows the status once or repeatedly."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the interval, and the arguments of every verb."""
        parser.add_argument(
            "--watch",
            nargs="?",
            type=_parse_interval,
            const=1.0,
            metavar="SECONDS",
            help="show the status every SECONDS (default: 1) until Ctrl-C",
        )
        super().add_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Show the status and return 0."""
        if args.watch is None:
            return super().run(args)
        is_text = args.format != "json"
        screen = Screen(sys.stdout) if is_text and sys.stdout.isatty() else None
        with contextlib.suppress(KeyboardInterrupt), connect(args) as client:
            while True:
                status = client.request(self.op).status
                if screen is not None:
                    screen.draw(format_status(status))
                else:
                    emit(dict(status), args, lambda s: format_status(s) + "\n", indent=None)
                    print(end="\n" if is_text else "", flush=True)
                time.sleep(args.watch)
        return 0


class Keep(DaemonVerb):
    """Verb ``keep``: it protects a folder itself, or asks the daemon that owns the session."""

    def run(self, args: argparse.Namespace) -> int:
        """Keep the session, or release it, and return 0."""
        from recorder.recording.postprocessing.retention import keep

        path = Path(args.session)
        shown = str(path)
        if path.is_dir() or "/" in args.session:
            try:
                keep(path, release=args.release)
            except StorageError as error:
                if not isinstance(error.__cause__, PermissionError):
                    raise
                # The daemon's user may.
                ask(args, "keep", session=path.resolve().name, release=args.release)
        else:
            shown = str(ask(args, "keep", session=args.session, release=args.release).session)
        word = "no longer kept" if args.release else "kept"
        emit({"session": shown, "kept": not args.release}, args, lambda _: f"{shown}: {word}")
        return 0


def _parse_interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 60:  # the daemon ends a connection that is idle for longer
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 60")
    return seconds


def _parse_pairs(items: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--meta {item!r}: is not of the form K=V")
        if key in pairs:
            raise UsageError(f"--meta {key}: duplicate key")
        pairs[key] = value
    return pairs


def _format_mark(reply: Reply) -> str:
    """Format the kept event, and the state."""
    event = reply.values.get("event")
    line = format_line(reply.status)
    if event is None:
        return line
    parts = ", ".join(event["parts"]) or "no session yet"
    return clean(f"event {event['id']}: {event['state']}, in {parts}") + "\n" + line


def _format_stop(reply: Reply) -> str:
    if (closed := reply.values.get("closed")) is None:
        return str(reply.state)
    lines = [format_streams(closed["streams"])]
    lines += [f"fault: {fault}" for fault in closed["faults"]]
    why = f" ({closed['why']})" if closed["why"] else ""
    return "\n".join([*lines, f"{reply.state}; session {closed['session']}{why}"])


def _choose_exit_code(reply: Reply) -> int:
    """Return 0 if the session is closed, 3 with losses, 1 if it needs recovery."""
    if (closed := reply.values.get("closed")) is None:
        return 0
    if not closed["whole"]:
        return 1
    missing = ("lost", "unknown_losses", "incomplete")
    lost = any(stream.get(key) for stream in closed["streams"].values() for key in missing)
    return 3 if lost or closed["faults"] else 0  # as `recorder run` has it


start = DaemonVerb("start")
stop = DaemonVerb("stop", _format_stop, exit_code=_choose_exit_code)
mark = DaemonVerb("mark", _format_mark)
status = Watched("status", lambda reply: format_status(reply.status), lambda reply: reply.status)
keep = Keep("keep")
