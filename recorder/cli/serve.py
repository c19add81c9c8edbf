"""``recorder serve CONFIG``: run the daemon, which records on request."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import traceback
from contextlib import ExitStack
from pathlib import Path

from recorder.cli.output import handle_signals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the config, the control socket, and the log format."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="use this config")
    parser.add_argument(
        "--socket", type=Path, metavar="PATH", help="listen on this socket instead of the config's"
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="log on stderr as text or JSON (default: text)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return 0, or 1 if the daemon failed."""
    from recorder.bus.control.addresses import choose_server_socket
    from recorder.bus.control.server import ControlServer
    from recorder.cli.finalize import configured_steps
    from recorder.common.clock import SystemClock
    from recorder.recording.daemon.daemon import Daemon, Sidecars, SystemdNotify
    from recorder.recording.daemon.remote_control import serve_tcp
    from recorder.recording.logs import ERROR, Log, under_journald
    from recorder.recording.supervisor.driver_registry import load
    from recorder.recording.supervisor.process_table import LIVE, TRIGGERS
    from recorder.recording.supervisor.sidecar_process import (
        SidecarProcess,
        live_request,
        trigger_request,
    )
    from recorder.recording.supervisor.supervisor import Supervisor

    config = load(args.config)
    configured_steps(config)  # report a wrong option now, not after the first session
    clock = SystemClock()
    path = choose_server_socket(args.socket or config.control.socket)
    journald = under_journald(sys.stderr, os.environ)
    failed: list[str] = []
    with ExitStack() as stack:
        log = stack.enter_context(
            Log(sys.stderr, form=args.log_format, clock=clock, journald=journald)
        )
        supervisor = Supervisor(config, clock, log.say)
        daemon = Daemon(config, clock, supervisor, log.say, notify=SystemdNotify(os.environ))
        stack.callback(daemon.close)
        live = None
        if config.live is not None:
            request = live_request(config, config.live, path)
            live = SidecarProcess(LIVE, request, clock, log.say)
        triggers = None
        if config.triggers:
            triggers = SidecarProcess(TRIGGERS, trigger_request(config, path), clock, log.say)
        stack.enter_context(Sidecars(daemon, log, live=live, triggers=triggers))
        control = ControlServer(path, daemon.take, lambda: daemon.state)
        stack.callback(control.close)
        if config.control.tcp is not None:
            stack.callback(serve_tcp(config, daemon.take, lambda: daemon.state).close)

        def end_visibly(hook: threading.ExceptHookArgs) -> None:
            """Stop the daemon in order when a thread dies of a defect."""
            lines = traceback.format_exception(hook.exc_type, hook.exc_value, hook.exc_traceback)
            log.say("".join(lines).rstrip(), ERROR)
            failed.append(str(hook.exc_value))
            daemon.stop()

        threading.excepthook = end_visibly
        stack.callback(setattr, threading, "excepthook", threading.__excepthook__)
        stack.enter_context(handle_signals(lambda _: daemon.stop()))
        daemon.open()
        control.start()
        log.say(f"serving {config.path} on {path}")
        daemon.run()
        log.say("every session is closed; ending")
    return 1 if failed else 0
