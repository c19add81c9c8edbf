"""``recorder keys init|show``: make or show the vehicle's key, which signs its sessions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from recorder.cli.output import add_format, emit

_FOLDER = Path("/var/lib/recorder/keys")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action and the folder."""
    parser.add_argument(
        "action",
        choices=("init", "show"),
        help="make a key (init), or print its fingerprint and the public key (show)",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=_FOLDER,
        metavar="FOLDER",
        help="use the key in this folder (default: /var/lib/recorder/keys)",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Make or show the key; return 0."""
    from recorder.integrity.vehicle_key import KEY, VehicleKey, make_key

    folder = args.dir.absolute()  # the config may be elsewhere
    path = make_key(folder) if args.action == "init" else folder / KEY
    key = VehicleKey(path)
    last = key.last_signature()
    values: dict[str, Any] = {
        "key": path,
        "public_key_file": path.with_suffix(".pub"),
        "fingerprint": key.fingerprint,
        "public_key": key.public_pem(),
        "signatures": 0 if last is None else last.values.get("counter"),
        "last_session": None if last is None else last.values.get("session"),
    }
    emit(values, args, lambda v: _format_text(v, made=args.action == "init"))
    return 0


def _format_text(values: dict[str, Any], *, made: bool) -> str:
    lines = [
        f"key          {values['key']}",
        f"fingerprint  {values['fingerprint']}",
        f"signatures   {values['signatures']}",
    ]
    if values["last_session"] is not None:
        lines[-1] += f", the last one of {values['last_session']}"
    lines.append(values["public_key"].rstrip())
    if made:
        lines.append(f"Keep {values['public_key_file']} off the vehicle: it proves the signatures.")
        lines.append(f"In the config: custody: {{key: {values['key']}}}")
    return "\n".join(lines)
